package workernode_test

import (
	"database/sql/driver"
	"math"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/DATA-DOG/go-sqlmock"
	"github.com/uidplugin/uidplugin/workernode"
)

func TestLookupReturnsTheNodesThatThereAre(t *testing.T) {
	t.Parallel()

	db := tables(t)
	run(t, db, `INSERT INTO "WORKER_NODE" ("ID", "HOST_NAME", "PORT", "TYPE", "LAUNCH_DATE", "TABLE_NAME")
		WITH RECURSIVE n(id) AS (SELECT 1 UNION ALL SELECT id + 1 FROM n WHERE id < 2500) SELECT id, '', '', 1, '2026-06-01', 'orders' FROM n`)
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
		if n.WorkerID != id || n.Table != "orders" {
			t.Fatalf("%d: %+v", id, n)
		}
	}
	if nodes, err := d.Lookup(t.Context()); len(nodes) != 0 || err != nil {
		t.Errorf("of nothing: %v, %v", nodes, err)
	}
}

func TestLookupAsksForAThousandAtATime(t *testing.T) {
	t.Parallel()

	d, mock := mocked(t, onMySQL)
	const columns = "SELECT `ID`, `TABLE_NAME`, `LAYOUT`, `HOST_NAME`, `PORT`, `TYPE`, `LAUNCH_DATE`, `START_SECOND`, `HELD_SECOND`, `FENCE`, `HOLDER` FROM `WORKER_NODE`"
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

	mock.ExpectQuery(columns + " WHERE `ID` > ? ORDER BY `ID` LIMIT 25").WithArgs(100).WillReturnRows(sqlmock.NewRows([]string{"ID"}))
	_, err = d.Nodes(t.Context(), 100, 25)
	must(t, err)
}

func TestNodesPageThroughTheTable(t *testing.T) {
	t.Parallel()

	db := tables(t)
	_, err := assigner(t, db, layout).Assign(t.Context(), names(10)...)
	must(t, err)
	foreign(t, db, 20)
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

// TestARowOfUidGeneratorHasNoTable and no layout.
func TestARowOfUidGeneratorHasNoTable(t *testing.T) {
	t.Parallel()

	db := tables(t)
	foreign(t, db, 20)
	nodes, err := open(t, db).Lookup(t.Context(), 20)
	must(t, err)
	want := workernode.Node{WorkerID: 20, Host: "java-1", Port: "8080", Kind: workernode.Container, LaunchDate: time.Date(2024, 2, 29, 0, 0, 0, 0, time.UTC)}
	if n := nodes[20]; n == nil || *n != want {
		t.Errorf("%+v", n)
	}
}

func TestLaunchDatesAreReadInEveryForm(t *testing.T) {
	t.Parallel()

	for _, tt := range []struct {
		v    any
		want string // "" is an error
	}{
		{time.Date(2024, 2, 29, 0, 0, 0, 0, time.UTC), "2024-02-29 00:00:00 UTC"},
		{"2024-02-29", "2024-02-29 00:00:00 UTC"},
		{[]byte("2024-02-29"), "2024-02-29 00:00:00 UTC"},
		{"2024-02-29 13:14:15", "2024-02-29 00:00:00 UTC"},
		{"2024-02-29T13:14:15Z", "2024-02-29 00:00:00 UTC"},
		{"", ""},
		{"2024", ""},
		{"2024-02-30", ""},
		{int64(1), ""},
		{nil, ""},
	} {
		got, err := workernode.ScanDate(tt.v)
		if (err == nil) != (tt.want != "") || err == nil && got != tt.want {
			t.Errorf("%T %v: %s, %v", tt.v, tt.v, got, err)
		}
		if err != nil {
			saysAll(t, err.Error(), "workernode: ", "LAUNCH_DATE")
		}
	}
}

// TestAZeroDateDoesNotHideItsRow: MySQL has had rows with 0000-00-00, and a list
// of all rows must not fail because of one of them.
func TestAZeroDateDoesNotHideItsRow(t *testing.T) {
	t.Parallel()

	if got, err := workernode.ScanDate([]byte("0000-00-00")); err != nil || got != "0001-01-01 00:00:00 UTC" {
		t.Errorf("%s, %v", got, err)
	}
}
