package workernode

import (
	"context"
	"log/slog"
	"testing"
	"time"

	"github.com/uidplugin/uidplugin/generator"
	"github.com/uidplugin/uidplugin/workernode/internal/lease"
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

// A pausing is a generator that makes ids while the lease manager is about to read its usage.
type pausing struct {
	generator.Renewable
	pause func() (tick int64)
}

func (p pausing) Usage() generator.Usage {
	return generator.Usage{Used: true, Lanes: 1, Left: 1 << 60, Tick: p.pause()}
}

// Ids that were made while the goroutine of the lease manager did not run are not ahead of the clock. Formerly a busy
// machine gave a table 15 worker ids that it did not need.
func TestAllocatorLook_APauseNeedsNoLanes(t *testing.T) {
	t.Parallel()
	now := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	c := newClock(func() time.Time { return now }, generator.DefaultLayout())
	a := &allocator{clock: c, most: 16, params: lease.Params{Lead: 10000}}
	l := &TableLease{allocator: a, want: 1, lanes: []*worker{{id: 1}}, published: []generator.Lease{{WorkerID: 1, From: c.tick(), Until: c.tick() + 10000}}}
	var ahead time.Duration
	l.generator, a.leases = pausing{pause: func() int64 {
		now = now.Add(time.Second)
		return c.layout.TickAt(now.Add(ahead))
	}}, []*TableLease{l}
	if a.look(c.now()); l.want != 1 {
		t.Errorf("after a pause it wants %d worker ids", l.want)
	}
	ahead = 200 * time.Millisecond
	if a.look(c.now()); l.want != 16 {
		t.Errorf("with ids ahead of the clock it wants %d worker ids", l.want)
	}
}

// After a table was renamed, an unused worker id serves the new name, without an error in the log. One that a generator
// still uses for the old name is given up, because its ids would resolve to the new one.
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

type lines struct {
	slog.Handler
	n int
}

func (l *lines) Enabled(context.Context, slog.Level) bool { return true }

func (l *lines) Handle(context.Context, slog.Record) error { l.n++; return nil }
