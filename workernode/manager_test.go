package workernode_test

import (
	"context"
	"database/sql/driver"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"math/rand/v2"
	"net"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/uidplugin/uidplugin/generator"
	"github.com/uidplugin/uidplugin/internal/testkit"
	"github.com/uidplugin/uidplugin/workernode"
)

// bubble runs a test with a clock of its own, in parallel with others.
func bubble(t *testing.T, test func(t *testing.T, w *world)) {
	t.Helper()
	t.Parallel()
	bubbleWith(t, layout, test)
}

// bubbleWith is bubble for ids of another layout.
func bubbleWith(t *testing.T, layout generator.Layout, test func(t *testing.T, w *world)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		w.layout = layout
		test(t, w)
	})
}

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
		if s := p.Stats(); s.Slot != 1 || s.WorkerIDs != 5 || s.Allocated != 1 || s.Sessions != 1 || s.Until != w.tick()+1000 || s.LastError != nil {
			t.Errorf("%+v", s)
		}
	})
}

// First creates of many tables come at once, from many goroutines, some for the same table: with several claims in
// flight, two tables once got one worker id.
func TestManagerAssign_ByManyAtOnce(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		p := w.start(nil)
		p.wire.Set(func(c *testkit.Crossing) error { return errors.Join(c.Sleep(rand.N(30*time.Millisecond)), c.Run()) })
		var mu sync.Mutex
		table2 := map[int64]workernode.Table{}
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
				mu.Lock()
				defer mu.Unlock()
				for j, l := range leases {
					worker := l.Leases()[0].WorkerID
					if other, taken := table2[worker]; taken || l.Table() != list[j] {
						t.Errorf("the worker id %d is of %v and of %v", worker, list[j], other)
					}
					table2[worker] = list[j]
				}
			})
		}
		group.Wait()
		for _, n := range w.nodes() {
			if got := table2[n.WorkerID]; got != n.Table {
				t.Errorf("the row of %d says %v, and %v uses it", n.WorkerID, n.Table, got)
			}
		}
		if n := int64(len(table2)); n < 60 || n != w.number(`SELECT COUNT(*) FROM "WORKER_NODE"`) {
			t.Errorf("%d worker ids", n)
		}
	})
}

// A process that starts again gets its slot and all its worker ids, in a number of statements that does not depend on
// the tables. Otherwise a start of many tables is slow, and worker ids are used up.
func TestManagerAssign_AfterARestartTakesFewStatements(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		list := tablesNamed(200)
		first := w.start(nil)
		first.assign(list...)
		for _, x := range list {
			first.make(x, 3)
		}
		for _, g := range first.generators {
			g.Close()
		}
		must(t, first.Close(t.Context()))
		time.Sleep(3 * time.Second)

		second := w.start(nil)
		second.wire.Take()
		second.assign(list...)
		statements := second.wire.Take()
		for _, x := range list {
			second.make(x, 3)
		}
		t.Logf("%d statements before the first id: %q", len(statements), statements)
		if len(statements) > 8 {
			t.Errorf("%d statements, want 8 at most", len(statements))
		}
		if s := second.Stats(); s.Reclaimed != 1 || s.Allocated != 0 || s.WorkerIDs != 200 || s.Slot != 1 {
			t.Errorf("%+v", s)
		}
		w.check()
	})
}

// New worker ids for many tables are added together.
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
		p := w.start(func(c *workernode.Config, _ *workernode.Host) { c.Spares = 1 })
		for _, bad := range []workernode.Table{table(""), table(strings.Repeat("t", 129)), table(strings.Repeat("表", 129)), {Database: strings.Repeat("d", 129), Name: "t"}} {
			_, err := p.Assign(t.Context(), []workernode.Table{table("orders"), bad}, nil)
			if !errors.Is(err, workernode.ErrTable) {
				t.Fatalf("%v: %v", bad, err)
			}
			saysAll(t, err.Error(), "workernode: ", "128 characters")
		}
		if n := w.number(`SELECT COUNT(*) FROM "WORKER_NODE"`); n != 0 {
			t.Errorf("%d rows", n)
		}
		must(t, p.Start(t.Context()))
		if _, ok := p.Spare(table(""), 1); ok {
			t.Error("a spare for a table without a name")
		}
		p.assign(workernode.Table{Database: strings.Repeat("库", 128), Name: strings.Repeat("表", 128)})
	})
}

// Another process gets the slot of a crashed one after a minute, with its worker ids, and stamps no tick of it. The
// crashed one was only paused: it must notice.
func TestManager_AnotherProcessReclaimsAfterGrace(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		paused := w.start(nil)
		paused.assign(table("orders"), table("items"))
		paused.make(table("orders"), 100)
		var resume = make(chan struct{})
		paused.wire.Set(func(c *testkit.Crossing) error {
			<-resume
			return c.Run()
		})
		time.Sleep(50 * time.Second)
		early := w.start(nil)
		early.assign(table("orders"))
		if early.Stats().Slot != 2 {
			t.Errorf("before grace: %+v", early.Stats())
		}
		time.Sleep(20 * time.Second)
		next := w.start(nil)
		next.assign(table("orders"), table("items"))
		if s := next.Stats(); s.Slot != 1 || s.Reclaimed != 1 || s.WorkerIDs != 2 {
			t.Errorf("after grace: %+v", s)
		}
		for range 20 {
			next.make(table("orders"), 10)
			next.make(table("items"), 10)
		}
		close(resume)
		paused.wire.Set(nil)
		for range 20 {
			paused.make(table("orders"), 10)
			time.Sleep(100 * time.Millisecond)
		}
		if s := paused.Stats(); s.Lost != 1 || s.Slot == 1 || s.Slot == 0 {
			t.Errorf("the paused one: %+v", s)
		}
		w.logs("has lost its slot", "a table has other worker ids")
		w.check()
	})
}

// While the holder renews, its slot is its own, however long that lasts.
func TestManager_KeepsItsSlotWhileItIsUsed(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		p := w.start(nil)
		p.assign(table("orders"))
		for i := range 100 {
			p.make(table("orders"), 1+i)
			time.Sleep(3 * time.Second)
			if i%10 == 0 {
				w.start(nil).assign(table("orders"))
			}
		}
		if s := p.Stats(); s.Slot != 1 || s.Lost != 0 || s.Sessions != 1 || s.Renewals < 800 || s.Renewals > 1200 {
			t.Errorf("%+v", s)
		}
		w.check()
	})
}

// Ids carry the present, also those of a process that was just started after another one.
func TestManager_StampsThePresent(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		for range 3 {
			p := w.start(nil)
			p.assign(table("orders"))
			if _, tick := w.parts(p.make(table("orders"), 1)[0]); tick < w.tick() || tick > w.tick()+5 {
				t.Errorf("the tick is %d, now is %d", tick, w.tick())
			}
			p.generators[table("orders")].Close()
			must(t, p.Close(t.Context()))
			time.Sleep(3 * time.Second)
		}
	})
}

// Configurations that cannot work are refused, with what is wrong.
func TestNewManager_RefusesWhatCannotWork(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		for name, change := range map[string]func(*workernode.Config, *workernode.Host){
			"a lead of two ticks": func(c *workernode.Config, _ *workernode.Host) { c.Lead = 2 * time.Millisecond },
			"a negative lead":     func(c *workernode.Config, _ *workernode.Host) { c.Lead = -time.Second },
			"negative spares":     func(c *workernode.Config, _ *workernode.Host) { c.Spares = -1 },
			"a negative skew":     func(c *workernode.Config, _ *workernode.Host) { c.MaxSkew = -1 },
		} {
			if _, err := w.tryStart(change); !errors.Is(err, generator.ErrConfig) {
				t.Errorf("%s: %v", name, err)
			}
		}
	})
}

// A LEAD_TICKS that was written wrongly made numbers overflow: a process panicked, or had fences in the past.
func TestNewManager_RefusesAnUnusableLeadTicks(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		w.start(nil)
		for _, lead := range []int64{10_000_000_000_000, 24*3600*1000 + 1, 2, 0, -1, -1 << 63, 1<<63 - 1} {
			run(t, w.db, `UPDATE "WORKER_REGISTRY" SET "LEAD_TICKS" = ?`, lead)
			_, err := w.tryStart(nil)
			if !errors.Is(err, workernode.ErrTable) {
				t.Fatalf("%d: %v", lead, err)
			}
			saysAll(t, err.Error(), fmt.Sprintf("LEAD_TICKS in WORKER_REGISTRY is %d;", lead), "at least 3", "at most a day")
		}
		run(t, w.db, `UPDATE "WORKER_REGISTRY" SET "LEAD_TICKS" = ?`, 24*3600*1000)
		w.start(nil).use(t, table("orders"), 10)
	})
}

// A lead that another process pinned counts: with two leads, one process would reclaim too early.
func TestNewManager_UsesThePinnedLead(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		w.start(nil)
		other := w.start(func(c *workernode.Config, _ *workernode.Host) { c.Lead = time.Minute })
		other.assign(table("orders"))
		if s := other.Stats(); s.Until != w.tick()+1000 {
			t.Errorf("%+v, now is %d", s, w.tick())
		}
		w.logs("another lead", "LEAD_TICKS", "1s", "1m0s")
	})
}

// A closed process has given its slot back, so the next one gets it as soon as the clock has passed its fence.
func TestManagerClose_ReleasesTheSlot(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		p := w.start(nil)
		p.assign(table("orders"))
		p.make(table("orders"), 5)
		p.generators[table("orders")].Close()
		fence := w.slot(1).Fence
		must(t, p.Close(t.Context()))
		must(t, p.Close(t.Context()))
		if s := w.slot(1); s.Holder != "" || s.Fence != fence {
			t.Errorf("%+v", s)
		}
		if _, err := p.Assign(t.Context(), []workernode.Table{table("items")}, nil); !errors.Is(err, generator.ErrClosed) {
			t.Errorf("Assign after Close: %v", err)
		}
		if _, ok := p.Spare(table("items"), 1); ok {
			t.Error("a spare after Close")
		}
		early := w.start(nil)
		early.assign(table("orders"))
		time.Sleep(2*time.Second + 2*time.Millisecond)
		next := w.start(nil)
		next.assign(table("orders"))
		if early.Stats().Slot != 2 || next.Stats().Slot != 1 {
			t.Errorf("early %+v, later %+v", early.Stats(), next.Stats())
		}
	})
}

// A release that was executed, and whose answer was lost, was reported as a slot that another process has taken.
func TestManagerClose_WithALostAnswerLosesNoSlot(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		p := w.start(nil)
		p.use(t, table("orders"), 10)
		p.generators[table("orders")].Close()
		lost := false
		p.wire.Set(func(c *testkit.Crossing) error {
			if err := c.Run(); err != nil || lost || !c.Is("UPDATE WORKER_SLOT") {
				return err
			}
			lost = true
			return testkit.ErrLost
		})
		if err := p.Close(t.Context()); err != nil {
			must(t, p.Close(t.Context()))
		}
		if r := w.slot(1); r.Holder != "" {
			t.Errorf("%+v", r)
		}
		if s := p.Stats(); !lost || s.Lost != 0 || s.LostCommits != 0 || s.Slot != 0 {
			t.Errorf("an answer was lost: %v; %+v", lost, s)
		}
		if lines := w.log.Lines("level=WARN"); len(lines) > 0 {
			t.Errorf("%q", lines)
		}
	})
}

// Close of a process that never had a slot sends nothing.
func TestManagerClose_WithoutASlot(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		p := w.start(nil)
		p.wire.Take()
		must(t, p.Close(t.Context()))
		if s := p.wire.Take(); len(s) != 0 {
			t.Errorf("statements %q", s)
		}
	})
}

// Applications close from signal handlers and deferred calls at once, and a caller of Assign may wait meanwhile. Each
// must end.
func TestManagerClose_ByManyAtOnce(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		p := w.start(nil)
		p.assign(table("orders"))
		p.wire.Set(func(c *testkit.Crossing) error { return errors.Join(c.Sleep(50*time.Millisecond), c.Run()) })
		var group sync.WaitGroup
		for i := range 8 {
			group.Go(func() {
				time.Sleep(time.Duration(i) * 20 * time.Millisecond)
				if i%2 == 0 {
					if err := p.Close(t.Context()); err != nil {
						t.Error(err)
					}
				} else if _, err := p.Assign(t.Context(), []workernode.Table{table("items")}, nil); !errors.Is(err, generator.ErrClosed) {
					t.Error(err)
				}
			})
		}
		group.Wait()
		if s := w.slot(1); s.Holder != "" {
			t.Errorf("%+v", s)
		}
	})
}

// A database that does not answer must not keep a process from ending. When it answers again, a second Close
// releases the slot.
func TestManagerClose_EndsWhileTheDatabaseHangs(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		p := w.start(nil)
		p.assign(table("orders"))
		p.wire.Set(func(c *testkit.Crossing) error {
			<-c.Context.Done()
			return c.Context.Err()
		})
		for range 2 {
			ctx, cancel := context.WithTimeout(t.Context(), 3*time.Second)
			begin := time.Now()
			err := p.Close(ctx)
			cancel()
			if err == nil || time.Since(begin) > 4*time.Second {
				t.Errorf("after %v: %v", time.Since(begin), err)
			}
		}
		p.wire.Set(nil)
		must(t, p.Close(t.Context()))
		if s := w.slot(1); s.Holder != "" {
			t.Errorf("%+v", s)
		}
	})
}

// A stuck is where a log goes that takes no more, such as a full pipe.
type stuck chan struct{}

func (s stuck) Write(b []byte) (int, error) {
	<-s
	return len(b), nil
}

// A handler of the log that never returned kept Close waiting until its context ended, and so the application.
func TestManagerClose_EndsWhileTheLogHangs(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		log := make(stuck)
		defer close(log)
		p := w.start(func(c *workernode.Config, _ *workernode.Host) { c.Log = slog.New(slog.NewTextHandler(log, nil)) })
		p.assign(table("orders"))
		for range 2 {
			ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
			begin := time.Now()
			err := p.Close(ctx)
			cancel()
			if took := time.Since(begin); err != nil || took > 2*time.Second {
				t.Errorf("after %v: %v", took, err)
			}
		}
		if s := w.slot(1); s.Holder != "" {
			t.Errorf("%+v", s)
		}
	})
}

// Somebody who closes the pool and not the plugin must not leave a goroutine that tries again and again.
func TestManager_EndsWithItsPool(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		p := w.start(nil)
		p.assign(table("orders"))
		pool, err := p.db.DB()
		must(t, err)
		must(t, pool.Close())
		time.Sleep(5 * time.Second)
		if s := p.Stats(); s.LastError == nil || !strings.Contains(s.LastError.Error(), "closed") {
			t.Errorf("%+v", s)
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		begin := time.Now()
		if _, err := p.Assign(ctx, []workernode.Table{table("items")}, nil); err == nil || time.Since(begin) > time.Second {
			t.Errorf("Assign after %v: %v", time.Since(begin), err)
		}
		if err := p.Close(ctx); err == nil || time.Since(begin) > time.Second {
			t.Errorf("Close after %v: %v", time.Since(begin), err)
		}
	})
}

// A caller whose context ends gets the database's own reason, and what it asked for is not kept from others.
func TestManagerAssign_EndsWithItsContext(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		p := w.start(nil)
		p.wire.Set(func(c *testkit.Crossing) error { return testkit.ErrLost })
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		_, err := p.Assign(ctx, []workernode.Table{table("orders")}, nil)
		if !errors.Is(err, testkit.ErrLost) {
			t.Errorf("%v", err)
		}
		p.wire.Set(func(c *testkit.Crossing) error {
			<-c.Context.Done()
			return c.Context.Err()
		})
		ctx, cancel = context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		_, err = p.Assign(ctx, []workernode.Table{table("orders")}, nil)
		if !errors.Is(err, context.DeadlineExceeded) {
			t.Fatal(err)
		}
		saysAll(t, err.Error(), "no worker ids", "no answer within")
		p.wire.Set(nil)
		p.assign(table("orders"))
		if s := p.Stats(); s.WorkerIDs != 1 {
			t.Errorf("%+v", s)
		}
	})
}

// A connection that breaks once, as when a proxy restarts, failed the first create of a process.
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
					bubbleWith(t, layout, func(t *testing.T, w *world) {
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

// A database that refuses connections must fail the first create soon, with the reason, and not when the caller's
// context ends.
func TestManagerAssign_SaysSoonThatConnectionsAreRefused(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		p := w.start(nil)
		refused := &net.OpError{Op: "dial", Net: "tcp", Err: syscall.ECONNREFUSED}
		p.wire.Set(func(*testkit.Crossing) error { return refused })
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		_, err := p.Assign(ctx, []workernode.Table{table("orders")}, nil)
		if !errors.Is(err, syscall.ECONNREFUSED) || ctx.Err() != nil {
			t.Fatalf("%v, %v", err, ctx.Err())
		}
		p.wire.Set(nil)
		p.use(t, table("orders"), 10)
		w.check()
	})
}

// A disposable slot is never reclaimed, and each start inserts another.
func TestManager_DisposableSlotsAreNotReclaimed(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		for i := range int64(3) {
			p := w.start(func(c *workernode.Config, _ *workernode.Host) { c.Disposable = i < 2 })
			p.assign(table("orders"))
			p.make(table("orders"), 3)
			if s := p.Stats(); s.Slot != i+1 || s.Allocated != 1 {
				t.Errorf("start %d: %+v", i, s)
			}
			p.generators[table("orders")].Close()
			must(t, p.Close(t.Context()))
			time.Sleep(2 * time.Minute)
		}
		w.check()
	})
}

// Two processes that start at once never share a slot, however the database delays them.
func TestManagerStart_ByManyProcessesAtOnce(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		for range 5 {
			p := w.start(nil)
			p.assign(table("orders"), table("items"))
			p.generators[table("orders")].Close()
			p.generators[table("items")].Close()
			must(t, p.Close(t.Context()))
		}
		time.Sleep(5 * time.Second)
		var group sync.WaitGroup
		processes := make([]*process, 12)
		for i := range processes {
			processes[i] = w.start(nil)
			processes[i].wire.Set(func(c *testkit.Crossing) error { return errors.Join(c.Sleep(rand.N(40*time.Millisecond)), c.Run()) })
		}
		for _, p := range processes {
			group.Go(func() {
				if err := p.Start(t.Context()); err != nil {
					t.Error(err)
				}
			})
		}
		group.Wait()
		var slots []int64
		for _, p := range processes {
			slots = append(slots, p.Stats().Slot)
			p.assign(table("orders"), table("items"))
			p.make(table("orders"), 50)
			p.make(table("items"), 50)
		}
		slices.Sort(slots)
		if n := len(slices.Compact(slots)); n != len(processes) {
			t.Errorf("slots %d", slots)
		}
		w.check()
	})
}

// Answers that are late by up to 300 ms: a process is restarted with a free slot and spares, and the first rows of nine
// tables come at once, inside and outside of transactions. With leases for each table, this gave two tables one worker
// id, and made ids twice.
func TestManager_WithDelayedAnswers(t *testing.T) {
	t.Parallel()

	rounds := 4
	if testkit.Race || testing.Short() {
		rounds = 2
	}
	for round := range rounds {
		synctest.Test(t, func(t *testing.T) {
			w := newWorld(t)
			late := func(c *testkit.Crossing) error { return errors.Join(c.Run(), c.Sleep(rand.N(300*time.Millisecond))) }
			change := func(c *workernode.Config, _ *workernode.Host) { c.Lead, c.Spares = 10*time.Second, 4 }
			for range 3 {
				p := w.start(change)
				p.wire.Set(late)
				var mu sync.Mutex
				var group sync.WaitGroup
				if round%2 == 0 {
					must(t, p.Start(t.Context()))
				}
				for i, x := range tablesNamed(9) {
					group.Go(func() {
						time.Sleep(rand.N(400 * time.Millisecond))
						if i%2 == 0 { // inside a transaction
							if l, ok := p.Spare(x, 1); ok {
								mu.Lock()
								p.attach(l)
								mu.Unlock()
								return
							}
						}
						leases, err := p.Assign(t.Context(), []workernode.Table{x}, nil)
						if err != nil {
							t.Error(err)
							return
						}
						mu.Lock()
						p.attach(leases[0])
						mu.Unlock()
					})
				}
				group.Wait()
				if len(p.generators) != 9 {
					t.Fatalf("%d generators", len(p.generators))
				}
				for range 40 {
					for x := range p.generators {
						p.make(x, 20)
					}
					time.Sleep(500 * time.Millisecond)
				}
				s := p.Stats()
				if s.Renewals < 4 || s.LastError != nil || s.Lost+s.LostCommits > 0 || s.Until < w.tick()+2000 {
					t.Errorf("%+v, now is %d", s, w.tick())
				}
				for x, g := range p.generators {
					if u := g.Usage(); u.Left < 2000*16 {
						t.Errorf("%v is not renewed: %+v", x, u)
					}
					g.Close()
				}
				must(t, p.Close(t.Context()))
				time.Sleep(12 * time.Second)
			}
			w.check()
			tables := map[string]int{}
			for _, n := range w.nodes() {
				tables[n.Table.Name]++
			}
			for _, x := range tablesNamed(9) {
				if tables[x.Name] == 0 {
					t.Errorf("no worker id of %v: %v", x, tables)
				}
			}
		})
	}
}

// Several processes with a bad network, which end and start again: no id comes twice, and each resolves.
func TestManager_WithManyFaults(t *testing.T) {
	t.Parallel()

	rounds := 5
	if testkit.Race || testing.Short() {
		rounds = 2
	}
	for range rounds {
		synctest.Test(t, func(t *testing.T) {
			w := newWorld(t)
			names := slices.Sorted(maps.Keys(faults))
			bad := func(c *testkit.Crossing) error {
				if rand.IntN(12) > 0 {
					return errors.Join(c.Sleep(rand.N(20*time.Millisecond)), c.Run())
				}
				return faults[names[rand.IntN(len(names))]](c)
			}
			list := tablesNamed(4)
			var group sync.WaitGroup
			for range 3 {
				group.Go(func() {
					for range 4 {
						p := w.start(withSpares(1))
						p.wire.Set(bad)
						for range 60 {
							p.try(t, list[rand.IntN(len(list))])
							time.Sleep(rand.N(100 * time.Millisecond))
						}
						for _, g := range p.generators {
							g.Close()
						}
						ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
						_ = p.Close(ctx)
						cancel()
						p.wire.Set(func(*testkit.Crossing) error { return testkit.ErrLost })
						time.Sleep(rand.N(5 * time.Second))
					}
				})
			}
			group.Wait()
			if w.ledger.Len() < 3000 {
				t.Errorf("%d ids", w.ledger.Len())
			}
			w.checkWorkerIDs()
		})
	}
}

// try makes some ids of a table, if that is possible within a second.
func (p *process) try(t *testing.T, x workernode.Table) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Second)
	defer cancel()
	if p.generators[x] == nil {
		l, ok := p.Spare(x, 1)
		if !ok || rand.IntN(2) == 0 {
			if ok {
				l.Release()
			}
			leases, err := p.Assign(ctx, []workernode.Table{x}, nil)
			if err != nil {
				return
			}
			l = leases[0]
		}
		p.attach(l)
	}
	for range 10 {
		id, err := p.generators[x].Next(ctx)
		if err != nil {
			return
		}
		p.world.ledger.Add(x.String(), id)
	}
}

// checkWorkerIDs verifies that no id resolves to another table. An id of a spare whose table could not be written
// resolves to none.
func (w *world) checkWorkerIDs() {
	w.tb.Helper()
	byID, unresolved := map[int64]*workernode.Node{}, 0
	for _, n := range w.nodes() {
		byID[n.WorkerID] = n
	}
	for id, t := range w.ledger.Tables() {
		worker, tick := w.parts(id)
		switch n := byID[worker]; {
		case n == nil:
			w.tb.Fatalf("the id %d of %s: its worker id %d has no row", id, t, worker)
		case n.Table.Name == "" || tick <= n.Start:
			unresolved++
		case n.Table.String() != t:
			w.tb.Fatalf("the id %d of %s: its worker id %d is of the table %q", id, t, worker, n.Table)
		}
	}
	if unresolved > w.ledger.Len()/10 {
		w.tb.Errorf("%d of %d ids resolve to no table", unresolved, w.ledger.Len())
	}
}

// A process without ids keeps its slot with few statements that leave FENCE alone, as ticks that it raised would be
// covered by no session. The next id carries the present.
func TestManager_WhileIdle(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		p := w.start(nil)
		p.use(t, table("orders"), 10)
		time.Sleep(11 * time.Minute)
		before := w.slot(1)
		p.wire.Take()
		time.Sleep(2 * time.Hour)
		after := w.slot(1)
		if n := len(p.wire.Take()); n < 200 || n > 300 {
			t.Errorf("%d statements in two hours", n)
		}
		if after.Fence != before.Fence || after.Version <= before.Version || after.Seen < w.tick()-30_001 {
			t.Errorf("before %+v, after %+v", before, after)
		}
		other := w.start(nil)
		other.use(t, table("orders"), 10)
		if other.Stats().Slot != 2 {
			t.Error("the slot of an idle process was reclaimed")
		}
		sessions := w.number(`SELECT COUNT(*) FROM "WORKER_SESSION" WHERE "SLOT" = 1`)
		if _, tick := w.parts(p.make(table("orders"), 1)[0]); tick < w.tick()-100 || tick > w.tick()+100 {
			t.Errorf("the tick is %d, now is %d", tick, w.tick())
		}
		time.Sleep(5 * time.Second)
		p.make(table("orders"), 10)
		if n := w.number(`SELECT COUNT(*) FROM "WORKER_SESSION" WHERE "SLOT" = 1`); n != sessions+1 {
			t.Errorf("%d sessions more", n-sessions)
		}
		if s := p.Stats(); s.Slot != 1 || s.Lost != 0 {
			t.Errorf("%+v", s)
		}
		w.check()
	})
}

// A machine that slept for longer than grace has lost its slot, and stamps no tick of the next holder.
func TestManager_AfterTheMachineSlept(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		clock := testkit.NewClock(now())
		p := w.start(func(c *workernode.Config, _ *workernode.Host) { c.Now = clock.Now })
		go func() { // this process's clock goes on, except while it sleeps
			for {
				select {
				case <-t.Context().Done():
					return
				case <-time.After(time.Millisecond):
					clock.Add(time.Millisecond)
				}
			}
		}()
		p.use(t, table("orders"), 10)
		p.wire.Set(func(c *testkit.Crossing) error { return errors.Join(c.Sleep(5*time.Minute), c.Run()) })
		time.Sleep(70 * time.Second)
		next := w.start(nil)
		next.use(t, table("orders"), 100)
		if next.Stats().Slot != 1 {
			t.Errorf("%+v", next.Stats())
		}
		p.wire.Set(nil)
		clock.Set(now())
		for range 20 {
			p.use(t, table("orders"), 10)
			next.use(t, table("orders"), 10)
			time.Sleep(100 * time.Millisecond)
		}
		if p.Stats().Lost != 1 {
			t.Errorf("%+v", p.Stats())
		}
		w.check()
	})
}

// A clock that is set must neither repeat ids nor hang: a caller gets an error within seconds where no tick can be
// granted.
func TestManager_WhenTheClockIsSet(t *testing.T) {
	t.Parallel()

	for name, by := range map[string]time.Duration{"stands still": 0, "back a second": -time.Second, "back an hour": -time.Hour, "ahead an hour": time.Hour} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T, w *world) {
				clock := testkit.NewRunningClock(now(), 1)
				var frozen atomic.Pointer[time.Time]
				p := w.start(func(c *workernode.Config, _ *workernode.Host) {
					c.Now = func() time.Time {
						if at := frozen.Load(); at != nil {
							return *at
						}
						return clock.Now()
					}
				})
				p.use(t, table("orders"), 100)
				if shown := clock.Add(by); by == 0 {
					frozen.Store(&shown)
				}
				ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
				defer cancel()
				for range 100 {
					ids := make([]int64, 400)
					err := p.generators[table("orders")].Fill(ctx, ids)
					if err != nil {
						if ctx.Err() != nil || by > 0 {
							t.Fatal(err)
						}
						saysAll(t, err.Error(), "clock")
						return
					}
					w.ledger.Add("orders", ids...)
					time.Sleep(10 * time.Millisecond)
				}
				if by == 0 {
					t.Error("ids came without end")
				}
				w.check()
			})
		})
	}
}

// When worker ids are used up, errors name which tables have them. A process without any reclaims a slot of another
// application that has its tables, and gets those of the slot.
func TestManager_WhenWorkerIDsAreUsedUp(t *testing.T) {
	t.Parallel()

	bubbleWith(t, narrow(3), func(t *testing.T, w *world) {
		first := w.start(func(_ *workernode.Config, h *workernode.Host) { h.Application = "old" })
		first.use(t, table("orders"), 10)
		first.use(t, table("items"), 10)
		first.end(t)
		second := w.start(nil)
		for _, x := range tablesNamed(5) {
			second.use(t, x, 10)
		}
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
		defer cancel()
		_, err := second.Assign(ctx, []workernode.Table{table("orders")}, nil)
		if !errors.Is(err, workernode.ErrExhausted) {
			t.Fatal(err)
		}
		saysAll(t, err.Error(), "1 to 7", "items 1", "orders 1", "no free slot has one of these tables")
		time.Sleep(3 * time.Second)
		third := w.start(func(_ *workernode.Config, h *workernode.Host) { h.Application = "new" })
		third.use(t, table("orders"), 10)
		third.use(t, table("items"), 10)
		if s := third.Stats(); s.Slot != 1 || s.Reclaimed != 1 {
			t.Errorf("%+v", s)
		}
		second.use(t, table("t000"), 10)
		w.check()
		_, err = third.Assign(t.Context(), []workernode.Table{table("users")}, nil)
		if !errors.Is(err, workernode.ErrExhausted) {
			t.Errorf("%v", err)
		}
		third.use(t, table("orders"), 10)
	})
}

// A caller's mistake must be an error: it was a panic in the goroutine of the lease manager, or a call that never ended.
func TestManagerAssign_RefusesWrongLanes(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		p := w.start(withSpares(2))
		two := []workernode.Table{table("orders"), table("items")}
		for _, lanes := range [][]int{{}, {1}, {1, 1, 1}, {1, 0}, {-1, 1}, {1, workernode.MaxLanes + 1}} {
			ctx, cancel := context.WithTimeout(t.Context(), time.Second)
			if _, err := p.Assign(ctx, two, lanes); !errors.Is(err, generator.ErrConfig) {
				t.Errorf("%d: %v", lanes, err)
			}
			cancel()
		}
		must(t, p.Start(t.Context()))
		for _, n := range []int{0, -1, workernode.MaxLanes + 1} {
			if _, ok := p.Spare(table("orders"), n); ok {
				t.Errorf("a spare with %d lanes", n)
			}
		}
	})
}

// A process that gets no worker id tries again and again, as its callers do. That must not fill the tables.
func TestManager_WithoutWorkerIDsDoesNotFillTheTables(t *testing.T) {
	t.Parallel()

	bubbleWith(t, narrow(2), func(t *testing.T, w *world) {
		first := w.start(nil)
		for _, x := range tablesNamed(3) {
			first.use(t, x, 1)
		}
		second := w.start(nil)
		for range 200 {
			ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
			if _, err := second.Assign(ctx, []workernode.Table{table("orders")}, nil); !errors.Is(err, workernode.ErrExhausted) {
				t.Fatal(err)
			}
			cancel()
			time.Sleep(100 * time.Millisecond)
			first.use(t, table("t000"), 1)
		}
		if slots, sessions := w.number(`SELECT COUNT(*) FROM "WORKER_SLOT"`), w.number(`SELECT COUNT(*) FROM "WORKER_SESSION"`); slots > 5 || sessions > 50 {
			t.Errorf("%d slots and %d sessions", slots, sessions)
		}
	})
}

// Errors that a later attempt may not meet are waited out; others fail a waiting caller at once, as nothing will come of
// waiting.
func TestManager_FailsCallersAtOnceOrLetsThemWait(t *testing.T) {
	t.Parallel()

	for _, tt := range []struct {
		name  string
		err   error
		waits bool
	}{
		{"locked", testkit.SQLiteCode(5), true},
		{"deadlock", errors.New("Error 1213 (40001): Deadlock found when trying to get lock"), true},
		{"no answer", context.DeadlineExceeded, true},
		{"no right to", testkit.SQLState("42501"), false},
		{"connection refused", testkit.ErrLost, false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			bubble(t, func(t *testing.T, w *world) {
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
			})
		})
	}
}

// While the database refuses everything, a process must not keep it busy; when it is back, ids follow within a second.
func TestManager_BacksOff(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		p := w.start(nil)
		p.use(t, table("orders"), 10)
		p.wire.Set(func(*testkit.Crossing) error { return errors.New("odd") })
		time.Sleep(3 * time.Second)
		p.wire.Take()
		stop := make(chan struct{})
		go func() { // callers in need make no difference
			for {
				select {
				case <-stop:
					return
				case <-time.After(time.Millisecond):
					p.RequestRenewal()
				}
			}
		}()
		time.Sleep(time.Minute)
		if n := len(p.wire.Take()); n < 60 || n > 600 {
			t.Errorf("%d statements in a minute", n)
		}
		close(stop)
		p.wire.Set(nil)
		begin := time.Now()
		p.use(t, table("orders"), 1)
		if took := time.Since(begin); took > time.Second {
			t.Errorf("the first id came after %v", took)
		}
	})
}

// On SQLite the application's own transactions hold the write lock. A caller gets an answer when its context ends, and
// the lease manager continues when the lock is free.
func TestManager_WhileSQLiteIsLocked(t *testing.T) {
	t.Parallel() // and not in a bubble: SQLite waits for the lock while database/sql holds a mutex

	w := newWorld(t)
	m, err := workernode.NewManager(t.Context(), open(t, testkit.SQLite{Path: w.path}.Open(t)), layout, web1, workernode.Config{})
	must(t, err)
	t.Cleanup(func() { _ = m.Close(context.Background()) })
	run(t, w.db, `CREATE TABLE "ROWS" ("ID" BIGINT)`)
	tx := w.db.Begin()
	must(t, tx.Exec(`INSERT INTO "ROWS" VALUES (1)`).Error)
	ctx, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
	defer cancel()
	if _, err := m.Assign(ctx, []workernode.Table{table("orders")}, nil); !errors.Is(err, context.DeadlineExceeded) {
		t.Error(err)
	}
	must(t, tx.Commit().Error)
	leases, err := m.Assign(t.Context(), []workernode.Table{table("orders")}, nil)
	must(t, err)
	if l := leases[0].Leases()[0]; l.Until-layout.TickAt(time.Now()) < 9*60*1000 {
		t.Errorf("the lead is not that of SQLite: %+v", l)
	}
}
