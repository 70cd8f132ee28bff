package workernode_test

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/DATA-DOG/go-sqlmock"
	"github.com/uidplugin/uidplugin/internal/testkit"
	"github.com/uidplugin/uidplugin/workernode"
)

// readRegistry is how a registry is read on MySQL.
const readRegistry = "SELECT `ID_SPACE`, `LAYOUT`, `LEAD_TICKS`, `NEXT_ID`, `NEXT_SLOT`, `FLOOR_TICK`, `STRIDE`, `REMAINDER`, `FIRST_ID`, EXISTS (SELECT * FROM information_schema.columns WHERE table_schema = DATABASE() AND table_name = 'WORKER_NODE' AND column_name = 'ID' AND extra LIKE '%auto_increment%') FROM `WORKER_REGISTRY` WHERE `NAME` = ?"

// A proxy may run the statements of a connection on several, so that LAST_INSERT_ID is that of another one. Formerly
// this led to slot -1 and worker id -1.
func TestDBNextSlot_RefusesTheNumberOfAnotherConnection(t *testing.T) {
	t.Parallel()

	d, mock := mocked(t, testkit.OnMySQL)
	for range 2 {
		mock.ExpectQuery(readRegistry).WillReturnRows(sqlmock.NewRows(make([]string, 10)).AddRow("space", layout.String(), 1000, 1, 1, 0, 1, 0, 1, 0))
	}
	mock.ExpectQuery("SELECT MIN(`REGION`) FROM `WORKER_SLOT` WHERE `REGION` <> 0 AND MOD(`REGION`, 1) = 0").WillReturnRows(sqlmock.NewRows([]string{"n"}).AddRow(nil))
	mock.ExpectExec("UPDATE `WORKER_REGISTRY` SET `NEXT_SLOT` = LAST_INSERT_ID(CASE WHEN `NEXT_SLOT` > ? THEN `NEXT_SLOT` ELSE ? END + ?) WHERE `NAME` = ? AND `ID_SPACE` = ? AND `STRIDE` = ? AND `REMAINDER` = ?").
		WithArgs(1, 1, 1, "default", "space", 1, 0).WillReturnResult(sqlmock.NewResult(0, 1))
	mock.ExpectQuery("SELECT LAST_INSERT_ID()").WillReturnRows(sqlmock.NewRows([]string{"n"}).AddRow(0))
	_, err := d.NextSlot(t.Context())
	testkit.IsError(t, err, workernode.ErrTable, "NEXT_SLOT", "WORKER_REGISTRY", "on several")
}

// Processes that add worker ids at once never get the same, and leave no gaps.
func TestDBReserve_GivesManyCallersAtOnceNoIDTwice(t *testing.T) {
	t.Parallel()

	db, _ := registered(t)
	run(t, db, `CREATE TABLE "AUDIT" ("ID" INTEGER PRIMARY KEY AUTOINCREMENT, "N" INT)`)
	run(t, db, `INSERT INTO "AUDIT" VALUES (9000, 0)`)
	// LAST_INSERT_ID is then that of the trigger.
	run(t, db, `CREATE TRIGGER "T" AFTER UPDATE ON "WORKER_REGISTRY" BEGIN INSERT INTO "AUDIT" ("N") VALUES (NEW."NEXT_ID"); END`)
	workers, slots := testkit.NewLedger(t), testkit.NewLedger(t)
	var group sync.WaitGroup
	for i := range 12 {
		d := open(t, db)
		group.Go(func() {
			for range 5 {
				first, step, err := d.Reserve(t.Context(), layout, int64(1+i%3))
				slot, err2 := d.NextSlot(t.Context())
				if err = errors.Join(err, err2); err != nil {
					t.Error(err)
					return
				}
				for j := range int64(1 + i%3) {
					workers.Add("", first+j*step)
				}
				slots.Add("", slot)
			}
		})
	}
	group.Wait()
	for _, ledger := range []*testkit.Ledger{workers, slots} {
		list := slices.Sorted(maps.Keys(ledger.Tables()))
		if n := len(list); n == 0 || list[n-1]-list[0] != int64(n)-1 {
			t.Errorf("there are gaps: %d", list)
		}
	}
}

// A request for more worker ids than are left must leave them to smaller requests.
func TestDBReserve_ExhaustionTakesNothing(t *testing.T) {
	t.Parallel()

	db, d := registered(t)
	small := narrow(3)
	run(t, db, `UPDATE "WORKER_REGISTRY" SET "FIRST_ID" = 1, "NEXT_ID" = 1`)
	for _, tt := range []struct {
		n, first int64
		err      error
	}{{5, 1, nil}, {3, 0, workernode.ErrExhausted}, {2, 6, nil}, {1, 0, workernode.ErrExhausted}, {1, 0, workernode.ErrExhausted}} {
		first, _, err := d.Reserve(t.Context(), small, tt.n)
		if !errors.Is(err, tt.err) || err == nil && first != tt.first {
			t.Errorf("%d: from %d, %v", tt.n, first, err)
		}
		if err != nil {
			saysAll(t, err.Error(), fmt.Sprintf("%d more", tt.n), "3 bits", "1 to 7")
		}
	}
	r, err := d.Registry(t.Context())
	if must(t, err); r.NextID != 8 {
		t.Errorf("NEXT_ID is %d", r.NextID)
	}
	// A counter that is far beyond is no overflow.
	run(t, db, `UPDATE "WORKER_REGISTRY" SET "NEXT_ID" = 9223372036854775807`)
	_, _, err = d.Reserve(t.Context(), layout, 1)
	testkit.IsError(t, err, workernode.ErrExhausted)
}

// Without the row nothing was reserved, and without a counter nothing may be given out.
func TestDBReserve_WithoutTheRowIsAnError(t *testing.T) {
	t.Parallel()

	db, d := registered(t)
	run(t, db, `DELETE FROM "WORKER_REGISTRY"`)
	_, _, err := d.Reserve(t.Context(), layout, 1)
	testkit.IsError(t, err, workernode.ErrTable)
	_, err = d.NextSlot(t.Context())
	testkit.IsError(t, err, workernode.ErrTable)
}

// Next to UidGenerator, worker ids come from AUTO_INCREMENT, so that neither gets one of the other's. A number from it
// is used only if no other process can have it.
func TestDBReserve_DrawsFromAutoIncrementNextToUidGenerator(t *testing.T) {
	t.Parallel()

	const advance = "UPDATE `WORKER_REGISTRY` SET `NEXT_ID` = LAST_INSERT_ID(CASE WHEN `NEXT_ID` > ? THEN `NEXT_ID` ELSE ? END + ?) WHERE `NAME` = ? AND `ID_SPACE` = ? AND `STRIDE` = ? AND `REMAINDER` = ?"
	for _, tt := range []struct {
		name               string
		largest, next      int64 // in WORKER_NODE, and NEXT_ID
		drawn, step        int64
		counts             bool // NEXT_ID counts, not AUTO_INCREMENT
		first, wantedTaken int64
		stride             int64 // after the draw
	}{
		{"drawn", 40, 30, 41, 1, false, 41, 1, 1},
		{"drawn in steps of three", 40, 30, 42, 3, false, 42, 3, 1},
		{"AUTO_INCREMENT forgot", 40, 50, 41, 1, true, 50, 1, 1},
		{"a row that is gone", 40, 30, 35, 1, true, 41, 1, 1},
		{"zero", 40, 30, 0, 1, true, 41, 1, 1},
		{"a row beyond the layout", 40, 30, layout.MaxWorkerID(), 1, true, 41, 1, 1},
		{"AUTO_INCREMENT was removed, and the registry divided", 40, 30, 41, 1, false, 0, 0, 2},
	} {
		d, mock := mocked(t, testkit.OnMySQL)
		for read := range 2 {
			mock.ExpectQuery(readRegistry).WillReturnRows(sqlmock.NewRows(make([]string, 10)).AddRow("space", layout.String(), 1000, tt.next, 1, 0, 1, 0, 1, 1))
			if read > 0 { // the first one is of the test
				mock.ExpectQuery("SELECT MIN(`REGION`) FROM `WORKER_SLOT` WHERE `REGION` <> 0 AND MOD(`REGION`, 1) = 0").WillReturnRows(sqlmock.NewRows([]string{"n"}).AddRow(nil))
			}
		}
		mock.ExpectQuery("SELECT COALESCE(MAX(`ID`), 0) FROM `WORKER_NODE` WHERE `ID` <= ?").WithArgs(layout.MaxWorkerID()).WillReturnRows(sqlmock.NewRows([]string{"n"}).AddRow(tt.largest))
		mock.ExpectBegin()
		mock.ExpectExec("INSERT INTO `WORKER_NODE` (`HOST_NAME`, `PORT`, `TYPE`, `LAUNCH_DATE`, `MODIFIED`, `CREATED`) VALUES ('', '', 0, CURRENT_DATE, CURRENT_TIMESTAMP, CURRENT_TIMESTAMP), ('', '', 0, CURRENT_DATE, CURRENT_TIMESTAMP, CURRENT_TIMESTAMP)").
			WillReturnResult(sqlmock.NewResult(77, 2))
		mock.ExpectQuery("SELECT LAST_INSERT_ID(), @@auto_increment_increment").WillReturnRows(sqlmock.NewRows(make([]string, 2)).AddRow(tt.drawn, tt.step))
		mock.ExpectRollback()
		if tt.counts {
			mock.ExpectExec(advance).WithArgs(tt.first, tt.first, 2, "default", "space", 1, 0).WillReturnResult(sqlmock.NewResult(0, 1))
			mock.ExpectQuery("SELECT LAST_INSERT_ID()").WillReturnRows(sqlmock.NewRows([]string{"n"}).AddRow(tt.first + 2))
		} else {
			mock.ExpectExec("UPDATE `WORKER_REGISTRY` SET `NEXT_ID` = ? WHERE `NAME` = ? AND `NEXT_ID` < ?").WithArgs(tt.drawn+2*tt.step, "default", tt.drawn+2*tt.step).
				WillReturnResult(sqlmock.NewResult(0, 1))
			mock.ExpectQuery(readRegistry).WillReturnRows(sqlmock.NewRows(make([]string, 10)).AddRow("space", layout.String(), 1000, tt.next, 1, 0, tt.stride, 0, 1, tt.stride == 1))
			mock.ExpectQuery(fmt.Sprintf("SELECT MIN(`REGION`) FROM `WORKER_SLOT` WHERE `REGION` <> 0 AND MOD(`REGION`, %d) = 0", tt.stride)).WillReturnRows(sqlmock.NewRows([]string{"n"}).AddRow(nil))
		}
		first, step, err := d.Reserve(t.Context(), layout, 2)
		if tt.stride > 1 { // a new region begins with these numbers
			if err == nil || !strings.Contains(err.Error(), "divided a moment ago") {
				t.Errorf("%s: from %d, %v", tt.name, first, err)
			}
		} else if err != nil || first != tt.first || step != tt.wantedTaken {
			t.Errorf("%s: from %d in steps of %d, %v", tt.name, first, step, err)
		}
	}
}
