package workernode_test

import (
	"database/sql/driver"
	"math"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/DATA-DOG/go-sqlmock"
	"github.com/uidplugin/uidplugin/internal/testkit"
	"github.com/uidplugin/uidplugin/workernode"
)

// columns begins statements that read nodes on MySQL.
const columns = "SELECT `ID`, `SLOT`, `DATABASE_NAME`, `TABLE_NAME`, `LAYOUT`, `START_TICK`, `LAUNCH_DATE` FROM `WORKER_NODE`"

func TestDBLookup_ReturnsTheNodesThatExist(t *testing.T) {
	t.Parallel()

	db := tables(t)
	run(t, db, `INSERT INTO "WORKER_NODE" ("ID", "HOST_NAME", "PORT", "TYPE", "LAUNCH_DATE", "SLOT", "DATABASE_NAME", "TABLE_NAME", "LAYOUT", "START_TICK")
		WITH RECURSIVE n(id) AS (SELECT 1 UNION ALL SELECT id + 1 FROM n WHERE id < 2500) SELECT id, 'h', 'p', 2, '2026-06-01', id % 7, 'archive', 'orders', 'l', id * 2 FROM n`)
	d := open(t, db)
	var ids []int64
	for id := int64(-10); id < 3000; id++ {
		ids = append(ids, id)
	}
	nodes, err := d.Lookup(t.Context(), append(ids, math.MaxInt64, 7, 7)...)
	must(t, err)
	if len(nodes) != 2500 {
		t.Errorf("%d nodes", len(nodes))
	}
	for id, n := range nodes {
		want := workernode.Node{WorkerID: id, Slot: id % 7, Table: workernode.Table{Database: "archive", Name: "orders"}, Layout: "l", Start: id * 2,
			LaunchDate: time.Date(2026, 6, 1, 0, 0, 0, 0, time.UTC)}
		if *n != want {
			t.Fatalf("%d: %+v, want %+v", id, n, want)
		}
	}
	if nodes, err := d.Lookup(t.Context()); len(nodes) != 0 || err != nil {
		t.Errorf("of nothing: %v, %v", nodes, err)
	}
}

// A statement can end in the middle of its rows, for example at its timeout. Formerly Lookup then panicked in the
// goroutine of the lease manager, which ended the process.
func TestDBLookup_ReturnsTheErrorOfARowThatCannotBeRead(t *testing.T) {
	t.Parallel()

	for _, id := range []any{"no number", nil} {
		d, mock := mocked(t, testkit.OnMySQL)
		row := []driver.Value{id, 1, "", "orders", "l", 1, time.Now()}
		mock.ExpectQuery(columns + " WHERE `ID` IN (?)").WithArgs(7).WillReturnRows(sqlmock.NewRows(make([]string, len(row))).AddRow(row...))
		nodes, err := d.Lookup(t.Context(), 7)
		if len(nodes) > 0 || err == nil && id != nil {
			t.Errorf("%v: %v, %v", id, nodes, err)
		}
	}
}

// A statement with more values than the database takes would fail.
func TestDBLookup_AsksForAThousandAtATime(t *testing.T) {
	t.Parallel()

	d, mock := mocked(t, testkit.OnMySQL)
	var ids []int64
	for i, n := range []int{workernode.LookupChunk, workernode.LookupChunk, 1} {
		var args []driver.Value
		for j := range n {
			ids = append(ids, int64(i*workernode.LookupChunk+j))
			args = append(args, ids[len(ids)-1])
		}
		mock.ExpectQuery(columns + " WHERE `ID` IN (?" + strings.Repeat(", ?", n-1) + ")").WithArgs(args...).
			WillReturnRows(sqlmock.NewRows([]string{"ID"}))
	}
	_, err := d.Lookup(t.Context(), ids...)
	must(t, err)

	cut := regexp.MustCompile("`(DATABASE_NAME|TABLE_NAME|LAYOUT)`").ReplaceAllString(columns, "SUBSTR($0, 1, 200) AS $0")
	mock.ExpectQuery(cut + " WHERE `ID` > ? ORDER BY `ID` LIMIT 25").WithArgs(100).WillReturnRows(sqlmock.NewRows([]string{"ID"}))
	_, err = d.Nodes(t.Context(), 100, 25)
	must(t, err)
}

// Nodes lists all rows, those of UidGenerator among them, in pages.
func TestDBNodes_PagesThroughTheTable(t *testing.T) {
	t.Parallel()

	db := tables(t)
	for _, id := range []int64{20, 3, 4, 5, 6, 7, 1, 2, 8, 9, 10} {
		foreign(t, db, id)
	}
	d := open(t, db)
	var all []int64
	var pages []int
	for after := int64(0); ; after = all[len(all)-1] {
		nodes, err := d.Nodes(t.Context(), after, 4)
		must(t, err)
		pages = append(pages, len(nodes))
		if len(nodes) == 0 {
			break
		}
		for _, n := range nodes {
			all = append(all, n.WorkerID)
		}
	}
	if !slices.Equal(pages, []int{4, 4, 3, 0}) || !slices.Equal(all, []int64{1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 20}) {
		t.Errorf("pages of %d, worker ids %d", pages, all)
	}
	if nodes, err := d.Nodes(t.Context(), 0, 0); len(nodes) != 0 || err != nil {
		t.Errorf("none at all: %v, %v", nodes, err)
	}
}

// A row of UidGenerator has no slot, no table and no layout. NULL in SLOT must not fail the list.
func TestDBLookup_ReadsARowOfUidGenerator(t *testing.T) {
	t.Parallel()

	db := tables(t)
	foreign(t, db, 20)
	nodes, err := open(t, db).Lookup(t.Context(), 20)
	must(t, err)
	want := workernode.Node{WorkerID: 20, LaunchDate: time.Date(2024, 2, 29, 0, 0, 0, 0, time.UTC)}
	if n := nodes[20]; n == nil || *n != want {
		t.Errorf("%+v", n)
	}
}

// Drivers return dates as times or as text, depending on their settings. What is no date, or none that JSON has, counts
// as none: dates are for people, and one of them must not make a list fail.
func TestDateScan_ReadsEveryForm(t *testing.T) {
	t.Parallel()

	for _, tt := range []struct {
		v    any
		want string
	}{
		{time.Date(2024, 2, 29, 0, 0, 0, 0, time.UTC), "2024-02-29 00:00:00.000 UTC"},
		{time.Date(2024, 2, 29, 13, 14, 15, 678e6, time.FixedZone("x", 3600)), "2024-02-29 13:14:15.678 UTC"}, // loc of the driver: the digits count
		{"2024-02-29", "2024-02-29 00:00:00.000 UTC"},
		{[]byte("2024-02-29"), "2024-02-29 00:00:00.000 UTC"},
		{"2024-02-29 13:14:15", "2024-02-29 13:14:15.000 UTC"},
		{[]byte("2024-02-29 13:14:15.678"), "2024-02-29 13:14:15.678 UTC"},
		{"2024-02-29T13:14:15Z", "2024-02-29 13:14:15.000 UTC"},
		{nil, "0001-01-01 00:00:00.000 UTC"},
		{[]byte("0000-00-00"), "0001-01-01 00:00:00.000 UTC"}, // MySQL had such rows, and a list must not fail because of one
		{"0000-00-00 00:00:00", "0001-01-01 00:00:00.000 UTC"},
		{"", "0001-01-01 00:00:00.000 UTC"},
		{"2024", "0001-01-01 00:00:00.000 UTC"},
		{"2024-02-30", "0001-01-01 00:00:00.000 UTC"},
		{int64(1), "0001-01-01 00:00:00.000 UTC"},
		{"infinity", "0001-01-01 00:00:00.000 UTC"}, // PostgreSQL
		{time.Date(10000, 1, 1, 0, 0, 0, 0, time.UTC), "0001-01-01 00:00:00.000 UTC"},
		{time.Date(-1, 12, 31, 0, 0, 0, 0, time.UTC), "0001-01-01 00:00:00.000 UTC"},
		{"9999-12-31 23:59:59", "9999-12-31 23:59:59.000 UTC"},
	} {
		if got, err := workernode.ScanDate(tt.v); err != nil || got != tt.want {
			t.Errorf("%T %v: %s, %v", tt.v, tt.v, got, err)
		}
	}
}

// A table of another database has its name in front, or two tables of one name could not be told apart.
func TestTableString_NamesTheDatabase(t *testing.T) {
	t.Parallel()

	for want, x := range map[string]workernode.Table{"orders": table("orders"), "archive.orders": {Database: "archive", Name: "orders"}, "*": table(workernode.AllTables)} {
		if got := x.String(); got != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
}

// Worker ids that were added with an unknown outcome are read together with the slot's row. Read alone they could be
// those of a COMMIT that came late and was lost, or of a server that has been replaced: then another table got them as
// well.
func TestNodesAt_ReturnsTheNodesOfOneStateOfTheSlot(t *testing.T) {
	t.Parallel()

	db := tables(t)
	run(t, db, `INSERT INTO "WORKER_SLOT" ("ID", "LAYOUT", "REUSABLE", "FENCE", "VERSION", "HOLDER", "SEEN_TICK", "APPLICATION", "HOST_NAME", "PORT")
		VALUES (7, 'l', 1, 100, 3, 'me', 90, 'a', 'h', 'p')`)
	d := open(t, db)
	if nodes, ok, err := d.NodesAt(t.Context(), 7, "me", 3); len(nodes) != 0 || !ok || err != nil {
		t.Errorf("of a slot without worker ids: %v, %v, %v", nodes, ok, err)
	}
	run(t, db, `INSERT INTO "WORKER_NODE" ("ID", "HOST_NAME", "PORT", "TYPE", "LAUNCH_DATE", "SLOT", "TABLE_NAME", "LAYOUT", "START_TICK")
		VALUES (5, 'h', 'p', 1, '2026-06-01', 7, 'orders', 'l', 80)`)
	nodes, ok, err := d.NodesAt(t.Context(), 7, "me", 3)
	if err != nil || !ok || len(nodes) != 1 || nodes[0].WorkerID != 5 || nodes[0].Table != table("orders") || nodes[0].Start != 80 || nodes[0].Slot != 7 {
		t.Errorf("%+v, %v, %v", nodes, ok, err)
	}
	for _, other := range []struct {
		slot    int64
		holder  string
		version int64
	}{{7, "me", 2}, {7, "me", 4}, {7, "other", 3}, {8, "me", 3}} {
		if nodes, ok, err := d.NodesAt(t.Context(), other.slot, other.holder, other.version); len(nodes) != 0 || ok || err != nil {
			t.Errorf("%+v: %v, %v, %v", other, nodes, ok, err)
		}
	}
}
