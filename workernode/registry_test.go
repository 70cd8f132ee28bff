package workernode_test

import (
	"errors"
	"math"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/DATA-DOG/go-sqlmock"
	"github.com/uidplugin/uidplugin/generator"
	"github.com/uidplugin/uidplugin/internal/testkit"
	"github.com/uidplugin/uidplugin/workernode"
	"gorm.io/gorm"
)

// registered returns a database whose registry was opened.
func registered(t *testing.T) (*gorm.DB, *workernode.DB) {
	t.Helper()
	db := tables(t)
	d := open(t, db)
	_, err := d.OpenRegistry(t.Context(), layout, time.Second)
	must(t, err)
	return db, d
}

// The first process decides; with two layouts, two rows could get one id.
func TestDBOpenRegistry_PinsTheLayout(t *testing.T) {
	t.Parallel()

	d := open(t, tables(t))
	first, err := d.OpenRegistry(t.Context(), layout, 10*time.Second)
	must(t, err)
	if first.Layout != layout.String() || first.LeadTicks != 10_000 || first.NextID != 1 || first.NextSlot != 1 || first.Floor != 0 || len(first.Space) != 13 {
		t.Errorf("%+v", first)
	}
	again, err := d.OpenRegistry(t.Context(), layout, time.Minute)
	if must(t, err); again != first {
		t.Errorf("%+v, then %+v", first, again)
	}
	for _, other := range []generator.Layout{generator.SnowflakeLayout(), generator.JSSafeLayout(), narrow(17)} {
		_, err := d.OpenRegistry(t.Context(), other, 10*time.Second)
		if !errors.Is(err, workernode.ErrLayoutMismatch) {
			t.Fatalf("%v: %v", other, err)
		}
		saysAll(t, err.Error(), layout.String(), other.String(), "two rows could get one id", "WithLayout")
	}
}

// UidGenerator's rows have worker ids that its processes stamp with. One that fits no layout is none, and must not use
// up the worker ids.
func TestDBOpenRegistry_BeginsAboveTheRowsThatExist(t *testing.T) {
	t.Parallel()

	for _, tt := range []struct {
		rows []int64
		want int64
	}{
		{nil, 1}, {[]int64{41, 7}, 42}, {[]int64{-5}, 1}, {[]int64{3, layout.MaxWorkerID() + 1}, 4}, {[]int64{3, 1 << 40, math.MaxInt64}, 4},
	} {
		db := tables(t)
		for _, id := range tt.rows {
			foreign(t, db, id)
		}
		if r, err := open(t, db).OpenRegistry(t.Context(), layout, time.Second); err != nil || r.NextID != tt.want {
			t.Errorf("%d: %+v, %v", tt.rows, r, err)
		}
	}
}

// A registry whose row was lost began again at slot 1. Slots of processes that still lived came twice, with their
// worker ids, and so did ids.
func TestDBOpenRegistry_BeginsAboveAllSlots(t *testing.T) {
	t.Parallel()

	for _, tt := range []struct{ slot, node, session, want int64 }{
		{0, 0, 0, 1}, {7, 3, 4, 8}, {3, 7, 4, 8}, {3, 4, 7, 8}, {0, 7, 4, 8}, {0, 4, 7, 8}, {0, -7, 0, 1},
	} {
		db := tables(t)
		if tt.slot != 0 {
			run(t, db, `INSERT INTO "WORKER_SLOT" VALUES (?, ?, 1, 5, 5, '', 5, 'shop', 'web-1', '8080', CURRENT_TIMESTAMP)`, tt.slot, layout.String())
		}
		if tt.node != 0 {
			foreign(t, db, 41)
			run(t, db, `UPDATE "WORKER_NODE" SET "SLOT" = ?`, tt.node)
		}
		if tt.session != 0 {
			run(t, db, `INSERT INTO "WORKER_SESSION" ("SLOT", "START_TICK", "BEFORE_TICK", "APPLICATION", "HOST_NAME", "PORT", "TYPE", "LAUNCHED", "HOLDER")
				VALUES (?, 1, 0, 'shop', 'web-1', '8080', 1, '2024-02-29', 'a')`, tt.session)
		}
		if r, err := open(t, db).OpenRegistry(t.Context(), layout, time.Second); err != nil || r.NextSlot != tt.want {
			t.Errorf("%+v: %+v, %v", tt, r, err)
		}
	}
}

// If only the registry's row was lost, a process with another layout pinned its own. With both layouts, two rows
// could get one id.
func TestDBOpenRegistry_WithoutTheRowRefusesAnotherLayoutThanTheSlots(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		a := w.start(nil)
		must(t, a.Start(t.Context()))
		run(t, w.db, `DELETE FROM "WORKER_REGISTRY"`)
		d := open(t, w.db)
		for _, other := range []generator.Layout{generator.SnowflakeLayout(), narrow(17)} {
			_, err := d.OpenRegistry(t.Context(), other, time.Second)
			if !errors.Is(err, workernode.ErrLayoutMismatch) {
				t.Fatalf("%v: %v", other, err)
			}
			saysAll(t, err.Error(), layout.String(), other.String(), "WORKER_REGISTRY has no row")
		}
		if n := w.number(`SELECT COUNT(*) FROM "WORKER_REGISTRY"`); n != 0 {
			t.Errorf("%d rows", n)
		}
		if r, err := d.OpenRegistry(t.Context(), layout, time.Second); err != nil || r.NextSlot != 2 {
			t.Errorf("%+v, %v", r, err)
		}
	})
}

// Somebody emptied tables, or set a counter back, while a process lived. The next process got the same slot with the
// worker ids of the first, and both made the same ids.
func TestManager_SurvivesAnEmptiedRegistry(t *testing.T) {
	t.Parallel()

	for name, tt := range map[string]struct {
		change string
		slot   int64 // of the next process; 1 is that of the first
	}{
		"row lost":         {`DELETE FROM "WORKER_REGISTRY"`, 4},
		"counter set back": {`UPDATE "WORKER_REGISTRY" SET "NEXT_SLOT" = 1`, 1},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T, w *world) {
				a, other, unused := w.start(nil), w.start(nil), w.start(nil)
				a.assign(table("orders"))
				other.assign(table("items"))
				must(t, unused.Start(t.Context())) // only a session names its slot
				a.make(table("orders"), 10)
				run(t, w.db, tt.change)
				run(t, w.db, `DELETE FROM "WORKER_SLOT"`)
				time.Sleep(5 * time.Millisecond) // b may stamp the ticks that were granted to a
				b := w.start(nil)
				b.assign(table("orders"))
				if got := b.Stats().Slot; got != tt.slot {
					t.Errorf("slot %d", got)
				}
				for range 30 {
					b.use(t, table("orders"), 100)
					a.use(t, table("orders"), 100)
					other.use(t, table("items"), 100)
					time.Sleep(100 * time.Millisecond)
				}
				w.checkWorkerIDs()
			})
		})
	}
}

// Of the layouts that processes begin an empty registry with at once, one wins, and there is one id space.
func TestDBOpenRegistry_PinsOneOfManyLayoutsAtOnce(t *testing.T) {
	t.Parallel()

	db := tables(t)
	layouts := []generator.Layout{layout, generator.SnowflakeLayout(), narrow(17)}
	var won [3]atomic.Int64
	var spaces sync.Map
	var group sync.WaitGroup
	start := make(chan struct{})
	for i := range 24 {
		d := open(t, db)
		group.Go(func() {
			<-start
			switch r, err := d.OpenRegistry(t.Context(), layouts[i%3], time.Second); {
			case err == nil:
				won[i%3].Add(1)
				spaces.Store(r.Space, true)
			case !errors.Is(err, workernode.ErrLayoutMismatch):
				t.Error(err)
			}
		})
	}
	close(start)
	group.Wait()
	if a, b, c := won[0].Load(), won[1].Load(), won[2].Load(); a+b+c != 8 || max(a, b, c) != 8 {
		t.Errorf("the layouts were accepted %d, %d and %d times", a, b, c)
	}
	n := 0
	spaces.Range(func(any, any) bool { n++; return true })
	if n != 1 {
		t.Errorf("%d id spaces", n)
	}
}

// A registry that somebody has damaged must not be used: NEXT_ID 0 would give out the worker id 0.
func TestDBOpenRegistry_RefusesADamagedRow(t *testing.T) {
	t.Parallel()

	for _, set := range []string{`"LEAD_TICKS" = 2`, `"LEAD_TICKS" = -1`, `"NEXT_ID" = 0`, `"NEXT_SLOT" = 0`, `"NEXT_SLOT" = -7`} {
		db, d := registered(t)
		run(t, db, `UPDATE "WORKER_REGISTRY" SET `+set)
		_, err := d.OpenRegistry(t.Context(), layout, time.Second)
		if !errors.Is(err, workernode.ErrTable) {
			t.Fatalf("%s: %v", set, err)
		}
		saysAll(t, err.Error(), "WORKER_REGISTRY", strings.Fields(strings.ReplaceAll(set, `"`, ""))[0])
	}
}

// Errors name the table, so that a user knows what is missing.
func TestDBOpenRegistry_WithoutTablesNamesTheTable(t *testing.T) {
	t.Parallel()

	d := open(t, testkit.SQLite{}.Open(t))
	_, err := d.OpenRegistry(t.Context(), layout, time.Second)
	_, lookup := d.Lookup(t.Context(), 1)
	_, nodes := d.Nodes(t.Context(), 0, 1)
	_, slots := d.Slots(t.Context(), 0, 1)
	_, sessions := d.Sessions(t.Context(), 0, 1, 1)
	_, _, origin := d.Origin(t.Context(), 1, 1)
	for says, err := range map[string]error{
		"read WORKER_REGISTRY": err, "look up worker ids": lookup, "list worker nodes": nodes, "list slots": slots, "list sessions": sessions,
		"look up the sessions of slot 1": origin,
	} {
		if err == nil {
			t.Fatalf("%s: no error", says)
		}
		saysAll(t, err.Error(), "workernode: ", says, "no such table")
	}
}

// A user who may not insert gets the reason, after one attempt.
func TestDBOpenRegistry_ReportsWhyItCannotInsert(t *testing.T) {
	t.Parallel()

	for _, tt := range []struct {
		err   error
		calls int
	}{{testkit.SQLiteCode(8), 1}, {testkit.SQLiteCode(5), 3}} {
		wire := &testkit.Wire{}
		path := testkit.SQLitePath(t)
		db := wire.Open(t, testkit.SQLite{Path: path})
		must(t, migrate(t, db))
		calls := 0
		wire.Set(func(c *testkit.Crossing) error {
			if c.Is("INSERT INTO WORKER_REGISTRY") {
				if calls++; calls < 3 {
					return tt.err
				}
			}
			return c.Run()
		})
		_, err := open(t, db).OpenRegistry(t.Context(), layout, time.Second)
		if calls != tt.calls || (err == nil) != (tt.calls == 3) {
			t.Fatalf("%d calls, %v", calls, err)
		}
		if err != nil {
			saysAll(t, err.Error(), "insert the row of WORKER_REGISTRY", tt.err.Error())
		}
	}
}

// With autocommit off, a renewal would be undone when its connection closes, and ids come twice.
func TestDBOpenRegistry_RefusesAutocommitOff(t *testing.T) {
	t.Parallel()

	d, mock := mocked(t, testkit.OnMySQL)
	mock.ExpectQuery("SELECT @@autocommit = 1 AND @@completion_type <> 'CHAIN'").WillReturnRows(sqlmock.NewRows([]string{"n"}).AddRow(0))
	if _, err := d.OpenRegistry(t.Context(), layout, time.Second); err == nil {
		t.Error("autocommit is off, and that is no error")
	} else {
		saysAll(t, err.Error(), "autocommit is off")
	}
}
