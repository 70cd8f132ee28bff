package workernode_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/uidplugin/uidplugin/generator"
	"github.com/uidplugin/uidplugin/internal/testkit"
	"github.com/uidplugin/uidplugin/workernode"
)

// Another process gets the slot of a crashed one after a minute, with its worker ids, and stamps no tick of it. The
// crashed one was only paused: it must notice.
func TestManager_ReclaimsTheSlotOfAnotherProcessAfterGrace(t *testing.T) {
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
		if early.Stats().ID != 2 {
			t.Errorf("before grace: %+v", early.Stats())
		}
		time.Sleep(20 * time.Second)
		next := w.start(nil)
		next.assign(table("orders"), table("items"))
		if s := next.Stats(); s.ID != 1 || s.Reclaimed != 1 || s.WorkerIDs != 2 {
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
		if s := paused.Stats(); s.Lost != 1 || s.ID == 1 || s.ID == 0 {
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
		if s := p.Stats(); s.ID != 1 || s.Lost != 0 || s.Sessions != 1 || s.Renewals < 800 || s.Renewals > 1200 {
			t.Errorf("%+v", s)
		}
		w.check()
	})
}

func TestNewManager_RefusesWhatCannotWork(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		for name, change := range map[string]func(*workernode.Config, *workernode.Host){
			"a lead of two ticks": leadOf(2 * time.Millisecond),
			"a negative lead":     leadOf(-time.Second),
			"a negative skew":     func(c *workernode.Config, _ *workernode.Host) { c.MaxSkew = -1 },
		} {
			if _, err := w.tryStart(change); !errors.Is(err, generator.ErrConfig) {
				t.Errorf("%s: %v", name, err)
			}
		}
	})
}

// A wrong LEAD_TICKS must be refused. Formerly it made numbers overflow: a process panicked, or had fences in the past.
func TestNewManager_RefusesAnUnusableLeadTicks(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		w.start(nil)
		for _, ticks := range []int64{10_000_000_000_000, 24*3600*1000 + 1, 2, 0, -1, -1 << 63, 1<<63 - 1} {
			run(t, w.db, `UPDATE "WORKER_REGISTRY" SET "LEAD_TICKS" = ?`, ticks)
			_, err := w.tryStart(nil)
			testkit.IsError(t, err, workernode.ErrTable, fmt.Sprintf("LEAD_TICKS in WORKER_REGISTRY is %d;", ticks), "at least 3", "at most a day")
		}
		run(t, w.db, `UPDATE "WORKER_REGISTRY" SET "LEAD_TICKS" = ?`, 24*3600*1000)
		w.start(nil).use(t, table("orders"), 10)
	})
}

// A lead that another process pinned counts: with two leads, one process would reclaim too early.
func TestNewManager_UsesThePinnedLead(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		w.start(nil)
		other := w.start(leadOf(time.Minute))
		other.assign(table("orders"))
		if s := other.Stats(); other.until() != w.tick()+1000 {
			t.Errorf("%+v, now is %d", s, w.tick())
		}
		w.logs("a different lead", "LEAD_TICKS", "1s", "1m0s")
	})
}

// Two processes that start at once never share a slot, however the database delays them.
func TestManagerStart_GivesProcessesAtOnceDifferentSlots(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		for range 5 {
			p := w.start(nil)
			p.assign(table("orders"), table("items"))
			p.end(t)
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
			slots = append(slots, p.Stats().ID)
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

// A process without ids keeps its slot with few statements that leave FENCE alone, because no session would cover the
// ticks up to a higher FENCE. The next id carries the present.
func TestManager_KeepsItsSlotWithFewStatementsWhileIdle(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		p := w.start(nil)
		p.use(t, table("orders"), 10)
		// It renews at least every third of Lead, then sends a keep-alive as soon as FENCE has passed. So SEEN_TICK is
		// only behind a FENCE that has passed if the process has ended, is paused, or cannot reach the database.
		for range 11 * 60 {
			time.Sleep(time.Second)
			if row := w.slot(1); row.Fence < w.tick()-50 && row.Seen <= row.Fence {
				t.Fatalf("at %d the row of an idle process looks like that of one that has ended: %+v", w.tick(), row)
			}
		}
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
		if other.Stats().ID != 2 {
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
		if s := p.Stats(); s.ID != 1 || s.Lost != 0 {
			t.Errorf("%+v", s)
		}
		w.check()
	})
}

// On SQLite the application's own transactions hold the write lock. A caller gets an answer when its context ends, and
// the lease manager continues when the lock is free.
func TestManagerAssign_EndsWithItsContextWhileSQLiteIsLocked(t *testing.T) {
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
