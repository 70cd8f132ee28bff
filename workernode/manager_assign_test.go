package workernode_test

import (
	"context"
	"database/sql/driver"
	"errors"
	"io"
	"math/rand/v2"
	"net"
	"strings"
	"sync"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/uidplugin/uidplugin/generator"
	"github.com/uidplugin/uidplugin/internal/testkit"
	"github.com/uidplugin/uidplugin/workernode"
)

// Several tables in one call get different worker ids, whose rows name them, in the order of the call.
func TestManagerAssign_GivesEachTableItsWorkerID(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		p := w.start(nil)
		list := []workernode.Table{table("orders"), table("items"), {Database: "archive", Name: "orders"}, table("orders")}
		leases, err := p.Assign(t.Context(), list, []int{1, 2, 1, 1})
		must(t, err)
		seen := map[int64]bool{}
		for i, l := range leases {
			if l.Table() != list[i] || len(l.Leases()) != max(1, i%2*2-i/3) {
				t.Errorf("lease %d: %v, %+v", i, l.Table(), l.Leases())
			}
			for _, lease := range l.Leases() {
				if seen[lease.WorkerID] || lease.From != w.tick() || lease.Until != w.tick()+1000 {
					t.Errorf("lease %d: %+v, now is %d", i, lease, w.tick())
				}
				seen[lease.WorkerID] = true
				nodes, err := open(t, w.db).Lookup(t.Context(), lease.WorkerID)
				must(t, err)
				if n := nodes[lease.WorkerID]; n == nil || n.Table != list[i] || n.Slot != 1 || n.Layout != layout.String() || n.Start != w.tick()-1 {
					t.Errorf("lease %d: %+v", i, n)
				}
			}
		}
		if s := p.Stats(); s.ID != 1 || s.WorkerIDs != 5 || s.Allocated != 1 || s.Sessions != 1 || p.until() != w.tick()+1000 || s.LastError != nil {
			t.Errorf("%+v", s)
		}
	})
}

// First creates of many tables come at once, from many goroutines, some for the same table: with several claims in
// flight, two tables once got one worker id.
func TestManagerAssign_GivesManyCallersAtOnceDifferentWorkerIDs(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		p := w.start(nil)
		p.wire.Set(func(c *testkit.Crossing) error { return errors.Join(c.Sleep(rand.N(30*time.Millisecond)), c.Run()) })
		ledger := testkit.NewLedger(t) // of worker ids
		var group sync.WaitGroup
		for i := range 60 {
			group.Go(func() {
				time.Sleep(rand.N(200 * time.Millisecond))
				list := tablesNamed(9)[i%7:][:1+i%3]
				leases, err := p.Assign(t.Context(), list, nil)
				if err != nil {
					t.Error(err)
					return
				}
				for j, l := range leases {
					if l.Table() != list[j] {
						t.Errorf("a lease of %v for %v", l.Table(), list[j])
					}
					ledger.Add(list[j].String(), l.Leases()[0].WorkerID)
				}
			})
		}
		group.Wait()
		users := ledger.Tables()
		for _, n := range w.nodes() {
			if got := users[n.WorkerID]; got != n.Table.String() {
				t.Errorf("the row of %d says %v, and %v uses it", n.WorkerID, n.Table, got)
			}
		}
		if n := int64(ledger.Len()); n < 60 || n != w.number(`SELECT COUNT(*) FROM "WORKER_NODE"`) {
			t.Errorf("%d worker ids", n)
		}
	})
}

func TestManagerAssign_AddsManyTablesTogether(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		p := w.start(nil)
		must(t, p.Start(t.Context()))
		p.wire.Take()
		p.assign(tablesNamed(200)...)
		if statements := p.wire.Take(); len(statements) > 16 {
			t.Errorf("%d statements: %q", len(statements), statements)
		}
		p.wire.Take()
		p.assign(tablesNamed(2500)...) // more than one INSERT holds
		if statements := p.wire.Take(); len(statements) > 20 {
			t.Errorf("%d statements: %q", len(statements), statements)
		}
		if n := w.number(`SELECT COUNT(DISTINCT "TABLE_NAME") FROM "WORKER_NODE"`); n != 2500 {
			t.Errorf("%d tables", n)
		}
	})
}

// A name that does not fit its column would be cut, and then name another table.
func TestManagerAssign_RefusesNamesThatDoNotFit(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		p := w.start(nil)
		for _, bad := range []workernode.Table{table(""), table(strings.Repeat("t", 129)), table(strings.Repeat("表", 129)), {Database: strings.Repeat("d", 129), Name: "t"}} {
			_, err := p.Assign(t.Context(), []workernode.Table{table("orders"), bad}, nil)
			testkit.IsError(t, err, workernode.ErrTable, "workernode: ", "128 characters")
		}
		if n := w.number(`SELECT COUNT(*) FROM "WORKER_NODE"`); n != 0 {
			t.Errorf("%d rows", n)
		}
		must(t, p.Start(t.Context()))
		p.assign(workernode.Table{Database: strings.Repeat("库", 128), Name: strings.Repeat("表", 128)})
	})
}

// If the context of a caller ends, others still get the worker ids that it has asked for.
func TestManagerAssign_EndsWithItsContext(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		p := w.start(nil)
		p.wire.Set(func(c *testkit.Crossing) error {
			<-c.Context.Done()
			return c.Context.Err()
		})
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		_, err := p.Assign(ctx, []workernode.Table{table("orders")}, nil)
		testkit.IsError(t, err, context.DeadlineExceeded, "no worker ids", "no answer within")
		p.wire.Set(nil)
		p.assign(table("orders"))
		if s := p.Stats(); s.WorkerIDs != 1 {
			t.Errorf("%+v", s)
		}
	})
}

// A connection that breaks once, as when a proxy restarts, must not fail the first create of a process.
func TestManagerAssign_SurvivesOneBrokenConnection(t *testing.T) {
	t.Parallel()

	for _, reset := range []error{driver.ErrBadConn, io.EOF} {
		t.Run(reset.Error(), func(t *testing.T) {
			t.Parallel()
			step := 1
			if testkit.Race || testing.Short() {
				step = 5
			}
			for at, last := 1, step; at <= last; at += step {
				for _, executed := range []bool{false, true} {
					synctest.Test(t, func(t *testing.T) {
						w := newWorld(t)
						p, count, hit := w.start(nil), 0, ""
						p.wire.Set(func(c *testkit.Crossing) error {
							if count++; count != at {
								return c.Run()
							}
							if hit = c.SQL; executed {
								_ = c.Run()
							}
							return errors.Join(testkit.ErrLost, reset)
						})
						ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
						defer cancel()
						leases, err := p.Assign(ctx, []workernode.Table{table("orders")}, nil)
						if err != nil {
							t.Fatalf("the fault was at statement %d, %s, executed %v: %v", at, hit, executed, err)
						}
						p.attach(leases[0])
						p.make(table("orders"), 10)
						w.check()
						last = max(last, min(count, 25))
					})
				}
				if t.Failed() {
					return
				}
			}
		})
	}
}

// A caller's mistake must be an error. Formerly it was a panic in the goroutine of the lease manager, or a call that
// never ended.
func TestManagerAssign_RefusesWrongLanes(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		p := w.start(nil)
		two := []workernode.Table{table("orders"), table("items")}
		for _, lanes := range [][]int{{}, {1}, {1, 1, 1}, {1, 0}, {-1, 1}, {1, generator.MaxLanes + 1}} {
			ctx, cancel := context.WithTimeout(t.Context(), time.Second)
			if _, err := p.Assign(ctx, two, lanes); !errors.Is(err, generator.ErrConfig) {
				t.Errorf("%d: %v", lanes, err)
			}
			cancel()
		}
	})
}

// Errors that a later attempt may not meet are waited out; others fail a waiting caller at once, because waiting does
// not help.
func TestManagerAssign_WaitsOnlyForErrorsThatPass(t *testing.T) {
	type failure struct {
		err   error
		waits bool
	}
	each(t, map[string]failure{
		"locked":             {testkit.SQLiteCode(5), true},
		"deadlock":           {errors.New("Error 1213 (40001): Deadlock found when trying to get lock"), true},
		"no answer":          {context.DeadlineExceeded, true},
		"no right to":        {testkit.SQLState("42501"), false},
		"connection lost":    {testkit.ErrLost, false},
		"connection refused": {&net.OpError{Op: "dial", Net: "tcp", Err: syscall.ECONNREFUSED}, false},
	}, func(t *testing.T, w *world, tt failure) {
		p := w.start(nil)
		p.wire.Set(func(*testkit.Crossing) error { return tt.err })
		time.AfterFunc(3*time.Second, func() { p.wire.Set(nil) })
		begin := time.Now()
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		_, err := p.Assign(ctx, []workernode.Table{table("orders")}, nil)
		if took := time.Since(begin); tt.waits && (err != nil || took < 3*time.Second || took > 5*time.Second) || !tt.waits && (!errors.Is(err, tt.err) || took > time.Second) {
			t.Errorf("after %v: %v", took, err)
		}
		p.wire.Set(nil)
		p.use(t, table("orders"), 10)
		w.check()
	})
}
