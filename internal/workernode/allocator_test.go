package workernode

import (
	"context"
	"log/slog"
	"testing"
	"time"
)

// A failed attempt to add worker ids can wait if all generators have some. It is an error for a generator without any.
func TestAllocatorPostpone_RefusesIfAGeneratorHasNoWorkerID(t *testing.T) {
	t.Parallel()
	orders, items := Table{Name: "orders"}, Table{Name: "items"}
	again := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	grows := &TableLease{table: orders, lanes: []*worker{{id: 1}}, want: 4}
	lacks := &TableLease{table: items, want: 1}
	a := &allocator{leases: []*TableLease{grows, lacks}}
	if a.postpone([]Table{items}, again) || grows.want != 4 {
		t.Errorf("postponed, although items has no worker id; orders wants %d", grows.want)
	}
	if !a.postpone([]Table{orders}, again) || grows.want != 1 || grows.again != again || lacks.want != 1 {
		t.Errorf("not postponed: orders wants %d, items %d", grows.want, lacks.want)
	}
}

// After RenameTable an unused worker id serves the new name, without an error in the log. One that a generator still uses
// for the old name is given up, because its ids would resolve to the new one.
func TestAllocatorDropDeleted_RenamedTable(t *testing.T) {
	t.Parallel()
	orders, sales := Table{Name: "orders"}, Table{Name: "sales"}
	log := &lines{}
	a := &allocator{ignored: map[int64]bool{}, log: slog.New(log)}
	user := &TableLease{allocator: a, table: orders, want: 1}
	used := &worker{id: 1, table: orders, user: user}
	user.lanes = []*worker{used}
	a.leases, a.workers = []*TableLease{user}, []*worker{used, {id: 2, table: orders}, {id: 3, table: orders}}
	a.dropDeleted([]*Node{{WorkerID: 1, Table: sales}, {WorkerID: 2, Table: sales}, {WorkerID: 3, Table: orders}})
	if len(a.workers) != 2 || a.workers[0].id != 2 || a.workers[0].table != sales || a.workers[1].table != orders {
		t.Errorf("worker ids %+v, %+v", *a.workers[0], *a.workers[1])
	}
	if len(user.lanes) != 0 || user.want != 1 || log.n != 1 {
		t.Errorf("the generator of the old name has %d worker ids and wants %d; %d lines in the log", len(user.lanes), user.want, log.n)
	}
}

// lines counts lines of a log.
type lines struct {
	slog.Handler
	n int
}

func (l *lines) Enabled(context.Context, slog.Level) bool { return true }

func (l *lines) Handle(context.Context, slog.Record) error { l.n++; return nil }
