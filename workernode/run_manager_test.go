package workernode_test

import (
	"context"
	"database/sql/driver"
	"errors"
	"math/rand/v2"
	"sync/atomic"
	"testing"
	"time"

	"github.com/uidplugin/uidplugin/generator"
	"github.com/uidplugin/uidplugin/internal/testkit"
	"github.com/uidplugin/uidplugin/workernode"
)

func ticking(tick time.Duration) generator.Layout {
	l := layout
	l.Tick = tick
	return l
}

// counted counts how often a process reads its clock, which it does in each of its passes.
func counted(readings *atomic.Int64) func(*workernode.Config, *workernode.Host) {
	return func(c *workernode.Config, _ *workernode.Host) {
		c.Lead = 10 * time.Second
		c.Now = func() time.Time { readings.Add(1); return now() }
	}
}

// atMost fails the test if a process reads its clock more often in a time.
func atMost(t *testing.T, readings *atomic.Int64, most int64, during time.Duration) {
	t.Helper()
	begin := readings.Load()
	for range 100 { // a busy loop fails the test soon
		time.Sleep(during / 100)
		if n := readings.Load() - begin; n > most {
			t.Fatalf("%d clock readings, more than %d in %v", n, most, during)
		}
	}
}

// When the answer to a renewal was lost, the fence is as far ahead as it may be until the tick ends. Formerly, with
// ticks of a second, the process tried to begin a session all the time, granted nothing and kept the database busy.
func TestManager_GoesOnAfterALostRenewalWithLongTicks(t *testing.T) {
	t.Parallel()

	for _, tick := range []time.Duration{time.Second, 100 * time.Millisecond} {
		t.Run(tick.String(), func(t *testing.T) {
			bubbleWith(t, ticking(tick), func(t *testing.T, w *world) {
				const lead = 10 * time.Second
				p := w.start(leadOf(lead))
				p.use(t, table("orders"), 1)
				time.Sleep(30*time.Second + 437*time.Millisecond)
				var lost atomic.Bool
				p.wire.Take()
				p.wire.Set(func(c *testkit.Crossing) error {
					_ = c.Sleep(500 * time.Microsecond) // a busy loop takes time
					if err := c.Run(); err != nil || !c.Is("UPDATE WORKER_SLOT") || lost.Swap(true) {
						return err
					}
					return testkit.ErrLost
				})
				until, grown, statements := p.until(), time.Now(), 0
				for range 60 {
					time.Sleep(time.Second)
					if statements += len(p.wire.Take()); statements > 200 {
						t.Fatalf("%d statements", statements)
					}
					if now := p.until(); now > until {
						until, grown = now, time.Now()
					} else if since := time.Since(grown); since > lead+2*time.Second {
						t.Fatalf("no tick was granted for %v: %+v", since, p.Stats())
					}
					p.use(t, table("orders"), 1)
				}
				if s := p.Stats(); !lost.Load() || s.Lost != 0 || s.LastError != nil || until < w.tick()+int64(lead/2/tick) {
					t.Errorf("an answer was lost: %v; %+v, now is %d", lost.Load(), s, w.tick())
				}
				w.check()
			})
		})
	}
}

// Formerly a process that was idle when it lost its slot looked for work each millisecond, although it needed no slot.
func TestManager_RestsWithoutASlotWhileIdle(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		var readings atomic.Int64
		p := w.start(counted(&readings))
		p.use(t, table("orders"), 1)
		time.Sleep(11 * time.Minute)
		atMost(t, &readings, 20, time.Minute)
		run(t, w.db, `UPDATE "WORKER_SLOT" SET "HOLDER" = 'other', "VERSION" = 9999`)
		time.Sleep(40 * time.Second)
		if s := p.Stats(); s.ID != 0 || s.Lost != 1 {
			t.Fatalf("%+v", s)
		}
		p.wire.Take()
		atMost(t, &readings, 20, time.Minute)
		if sent := p.wire.Take(); len(sent) > 0 {
			t.Errorf("%q", sent)
		}
		p.use(t, table("orders"), 10)
	})
}

// A generator that has used up nearly all of its ids presses for more. Within a tick of a second nothing can be
// granted, but formerly the process looked each millisecond whether something could.
func TestManager_RestsUntilTheTickEnds(t *testing.T) {
	long := ticking(time.Second)
	long.SequenceBits, long.TimeBits, long.WorkerBits = 13, 30, 20
	bubbleWith(t, long, func(t *testing.T, w *world) {
		var readings atomic.Int64
		p := w.start(counted(&readings))
		p.use(t, table("orders"), 1)
		time.Sleep(20 * time.Second)
		p.make(table("orders"), 60_000)
		time.Sleep(100 * time.Millisecond) // it gets lanes
		for p.generators[table("orders")].Usage().Left > 3*8192 {
			p.make(table("orders"), 8192)
		}
		p.wire.Take()
		atMost(t, &readings, 300, 5*time.Second)
		if n := len(p.wire.Take()); n > 20 {
			t.Errorf("%d statements in five seconds", n)
		}
		w.check()
	})
}

// The lease may be renewed between Assign and Attach. Formerly a generator that was made of the earlier lease ran out
// of ids while the process had some.
func TestTableLeaseAttach_GivesTheRenewedLease(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		p := w.start(leadOf(10 * time.Second))
		leases := p.leases(table("orders"))
		old := leases[0].Leases()[0]
		g, err := generator.NewCached(generator.CachedConfig{
			Layout: w.layout, Lease: old, OnLow: p.RequestRenewal, Clock: p.clock,
		})
		must(t, err)
		time.Sleep(4 * time.Second)
		p.wire.Set(func(*testkit.Crossing) error { return testkit.ErrLost }) // no later renewal makes up for it
		leases[0].Attach(g)
		p.generators[table("orders")] = g
		if until := leases[0].Leases()[0].Until; until < old.Until+1000 {
			t.Fatalf("until %d, before until %d", until, old.Until)
		}
		time.Sleep(time.Duration(old.Until-w.tick()+500) * time.Millisecond)
		ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
		defer cancel()
		id, err := g.Next(ctx)
		must(t, err)
		if _, tick := w.parts(id); tick <= old.Until {
			t.Errorf("the tick %d is not above that of the former lease, %d", tick, old.Until)
		}
	})
}

// While the database refuses everything, a process must not keep it busy; when it is back, ids follow within a second.
func TestManager_BacksOffWhileTheDatabaseRefuses(t *testing.T) {
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

// However many tables a process has, a renewal is one statement. With one for each table, a process with 200 tables
// would send 200 times as many.
func TestManager_ARenewalIsOneStatement(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		p := w.start(nil)
		tables := tablesNamed(20)
		p.assign(tables...)
		p.wire.Take()
		before := p.Stats().Renewals
		for range 100 {
			p.make(tables[0], 10)
			time.Sleep(100 * time.Millisecond)
		}
		renewals, sent := p.Stats().Renewals-before, p.wire.Take()
		if renewals < 20 || int64(len(sent)) != renewals {
			t.Errorf("%d renewals, %d statements: %q", renewals, len(sent), sent[:min(len(sent), 10)])
		}
		w.check()
	})
}

// The answer of a COMMIT is lost, and the clock stands still: the ticks of the moment are used up, and no other can be
// granted. The error of Assign must say so. Formerly it said that the database had not answered.
func TestManagerAssign_SaysThatTheClockStandsStill(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		var frozen atomic.Pointer[time.Time]
		clock := func() time.Time {
			if at := frozen.Load(); at != nil {
				return *at
			}
			return now()
		}
		p := w.start(func(c *workernode.Config, _ *workernode.Host) { c.Now = clock })
		p.assign(table("a"))
		time.Sleep(100 * time.Millisecond)
		at := now()
		frozen.Store(&at)
		var adds, lost atomic.Bool
		p.wire.Set(func(c *testkit.Crossing) error {
			if c.Is("INSERT INTO WORKER_NODE") {
				adds.Store(true)
			}
			if lost.Load() || !adds.Load() || c.SQL != "COMMIT" {
				return c.Run()
			}
			lost.Store(true)
			return errors.Join(c.Run(), testkit.ErrLost)
		})
		ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
		defer cancel()
		_, err := p.Assign(ctx, []workernode.Table{table("b")}, nil)
		if err == nil || !lost.Load() {
			t.Fatalf("%v; the answer was lost: %t", err, lost.Load())
		}
		_, err = p.Assign(ctx, []workernode.Table{table("b")}, nil) // the caller tries again
		testkit.IsError(t, err, nil, "the clock stands still at ")

		frozen.Store(nil)
		p.wire.Set(nil)
		p.assign(table("b"))
		p.make(table("b"), 100)
		w.check()
	})
}

// A pool whose connections are always taken, each for some seconds: a renewal waits for one, and is then sent. Formerly
// it gave up after two seconds, and had to read the slot's row before the next attempt. With a hundred callers on four
// connections a process was without a lease for half a minute.
func TestManager_RenewsThroughACrowdedPool(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		p := w.start(leadOf(10 * time.Second))
		p.assign(table("a"))
		pool, err := p.db.DB()
		must(t, err)
		pool.SetMaxOpenConns(1)
		done := make(chan struct{})
		go func() {
			defer close(done)
			for range 60 {
				conn, err := pool.Conn(t.Context())
				must(t, err)
				time.Sleep(2500*time.Millisecond + rand.N(2300*time.Millisecond))
				must(t, conn.Close())
			}
		}()
		for range 200 {
			p.make(table("a"), 100)
			if s := p.Stats(); s.LastError != nil || p.until() < w.tick() {
				t.Fatalf("%+v, now is %d", s, w.tick())
			}
			time.Sleep(time.Second)
		}
		<-done
		w.check()
	})
}

// Formerly a free slot was avoided for a minute, and a new one inserted, because the pool had no connection for a
// moment.
func TestManager_ReclaimsAFreeSlotThatItHadNoConnectionFor(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		long := leadOf(10 * time.Second)
		a := w.start(long)
		a.assign(table("a"))
		a.end(t)
		time.Sleep(2 * time.Minute)

		b := w.start(long)
		pool, err := b.db.DB()
		must(t, err)
		pool.SetMaxOpenConns(1)
		cut := false
		b.wire.Set(func(c *testkit.Crossing) error {
			if c.Is("BEGIN") && !cut { // the lease manager has read which slots are free
				cut = true
				go func() {
					conn, err := pool.Conn(context.Background())
					must(t, err)
					time.Sleep(6 * time.Second)
					must(t, conn.Close())
				}()
				time.Sleep(time.Millisecond)
				return driver.ErrBadConn
			}
			return c.Run()
		})
		b.assign(table("a"))
		if s := b.Stats(); s.Reclaimed != 1 || s.Allocated != 0 || !cut {
			t.Errorf("slot 1 is free: %+v", s)
		}
		time.Sleep(10 * time.Second)
	})
}
