package workernode_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/uidplugin/uidplugin/internal/testkit"
	"github.com/uidplugin/uidplugin/workernode"
)

// A create inside a transaction may hold the only connection, and on SQLite the write lock: it gets its worker id
// without a statement, and the table is written afterwards.
func TestManagerSpare_SendsNoStatement(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		p := w.start(withSpares(2))
		p.use(t, table("orders"), 10)
		testkit.Eventually(t, "two spares", time.Minute, func() bool { return p.Stats().Spares == 2 })
		run(t, w.db, `CREATE TABLE "ROWS" ("ID" BIGINT)`)
		tx := w.db.Begin()
		must(t, tx.Exec(`INSERT INTO "ROWS" VALUES (1)`).Error)
		p.wire.Take()
		p.spare(t, table("items"))
		p.spare(t, workernode.Table{Database: "archive", Name: "items"})
		if s := p.wire.Take(); len(s) != 0 {
			t.Errorf("statements %q", s)
		}
		if _, ok := p.Spare(table("users"), 1); ok {
			t.Error("a third spare of two")
		}
		for x := range p.generators {
			p.make(x, 10)
			for _, l := range []int64{1, 2, 3} {
				if got, ok := p.TableOf(l); !ok || got.Name == "" {
					t.Errorf("worker id %d: %v, %v", l, got, ok)
				}
			}
		}
		time.Sleep(500 * time.Millisecond)
		must(t, tx.Commit().Error)
		time.Sleep(3 * time.Second)
		for x := range p.generators {
			p.use(t, x, 10)
		}
		if s := p.Stats(); s.Spares != 2 || s.WorkerIDs != 5 || s.Slot != 1 || s.LastError != nil {
			t.Errorf("%+v", s)
		}
		w.check()
	})
}

// The slot is lost while a spare is in use and its row still says that it is a spare: the next holder must not stamp
// with it ticks that were stamped, and its ids must not resolve to another table.
func TestManagerSpare_ResolvesToNoOtherTableWhenTheSlotIsLost(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		p := w.start(withSpares(1))
		p.use(t, table("orders"), 10)
		testkit.Eventually(t, "a spare", time.Minute, func() bool { return p.Stats().Spares == 1 })
		p.wire.Set(func(*testkit.Crossing) error { return testkit.ErrLost })
		p.spare(t, table("items"))
		lost := p.make(table("items"), 10)
		time.Sleep(70 * time.Second)
		next := w.start(withSpares(1))
		next.use(t, table("orders"), 10)
		if next.Stats().Slot != 1 {
			t.Fatalf("%+v", next.Stats())
		}
		testkit.Eventually(t, "a spare", time.Minute, func() bool { return next.Stats().Spares == 1 })
		next.spare(t, table("users"))
		next.use(t, table("users"), 10)
		time.Sleep(time.Second)
		p.wire.Set(nil)
		for range 20 {
			p.use(t, table("items"), 5)
			next.use(t, table("users"), 5)
			time.Sleep(100 * time.Millisecond)
		}
		worker, tick := w.parts(lost[0])
		nodes, err := open(t, w.db).Lookup(t.Context(), worker)
		must(t, err)
		if n := nodes[worker]; n.Table == table("items") || n.Table.Name != "" && tick > n.Start {
			t.Errorf("the tick %d of items resolves to %+v", tick, n)
		}
		w.logs("its ids cannot be located", "table=items")
	})
}

// A process that is closed right after an insert inside a transaction does not lose the table of its ids.
func TestManagerSpare_IsWrittenByClose(t *testing.T) {
	closedWithASpare(t, 500*time.Millisecond, func(w *world) { w.check() })
}

// Once a new session has begun, the ids that a spare made before cannot be located: a process whose commits the
// database has lost may have stamped the same worker id for another table in between. The log says so; it was silent.
func TestManagerSpare_SaysWhichIDsCannotBeLocated(t *testing.T) {
	// The lease has passed, so Close needs a session before it can write.
	closedWithASpare(t, 1500*time.Millisecond, func(w *world) { w.logs("cannot be located", "table=items", "worker_id=1") })
}

// closedWithASpare uses a spare while the database is unreachable, and closes the process when it is there again.
func closedWithASpare(t *testing.T, after time.Duration, check func(w *world)) {
	bubble(t, func(t *testing.T, w *world) {
		p := w.start(withSpares(1))
		must(t, p.Start(t.Context()))
		p.wire.Set(func(*testkit.Crossing) error { return testkit.ErrLost })
		p.spare(t, table("items"))
		p.make(table("items"), 10)
		time.Sleep(after)
		p.wire.Set(nil)
		p.end(t)
		check(w)
	})
}

// An idle process whose ticks have passed has no spare to give; the caller then waits for the lease manager.
func TestManagerSpare_NeedsTicks(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		p := w.start(withSpares(1))
		if _, ok := p.Spare(table("items"), 1); ok {
			t.Error("a spare before the start")
		}
		must(t, p.Start(t.Context()))
		p.wire.Set(func(*testkit.Crossing) error { return testkit.ErrLost })
		time.Sleep(2 * time.Second)
		if _, ok := p.Spare(table("items"), 1); ok {
			t.Error("a spare without a tick")
		}
		if s := p.Stats(); s.Spares != 1 {
			t.Errorf("%+v", s)
		}
		p.wire.Set(nil)
		time.Sleep(3 * time.Second)
		p.spare(t, table("items"))
		p.use(t, table("items"), 10)
		time.Sleep(time.Second)
		w.check()
	})
}

// A worker id of the table that nobody uses goes first, and a spare that was given back is a spare of the table.
func TestManagerSpare_PrefersWorkerIDsOfTheTable(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		p := w.start(withSpares(1))
		leases, err := p.Assign(t.Context(), []workernode.Table{table("items")}, nil)
		must(t, err)
		leases[0].Release()
		testkit.Eventually(t, "a spare", time.Minute, func() bool { return p.Stats().Spares == 1 })
		l, ok := p.Spare(table("items"), 1)
		if !ok || l.Leases()[0].WorkerID != leases[0].Leases()[0].WorkerID || p.Stats().Spares != 1 {
			t.Errorf("%v, %+v", ok, p.Stats())
		}
		if l, ok := p.Spare(table("items"), 1); !ok || p.Stats().Spares != 0 {
			t.Errorf("%v, %+v", ok, p.Stats())
		} else {
			l.Release()
		}
		if _, ok := p.Spare(table("users"), 1); ok {
			t.Error("a spare that was given to items went to users")
		}
	})
}

// Without a right to insert worker ids, a process that has one goes on: a missing spare is no error.
func TestManagerSpare_IsDoneWithoutWhenWorkerIDsAreUsedUp(t *testing.T) {
	t.Parallel()

	bubbleWith(t, narrow(2), func(t *testing.T, w *world) {
		p := w.start(withSpares(5))
		for _, x := range []string{"a", "b", "c"} {
			p.use(t, table(x), 10)
		}
		for range 50 {
			time.Sleep(100 * time.Millisecond)
			p.use(t, table("a"), 10)
		}
		if s := p.Stats(); s.LastError != nil || s.WorkerIDs != 3 {
			t.Errorf("%+v", s)
		}
		_, err := p.Assign(t.Context(), []workernode.Table{table("d")}, nil)
		if !errors.Is(err, workernode.ErrExhausted) {
			t.Fatal(err)
		}
		saysAll(t, err.Error(), "1 to 3", "a 1, b 1, c 1", "more worker bits")
		p.use(t, table("b"), 10)
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		must(t, p.Start(ctx))
		w.check()
	})
}

// A spare that was given to a table and released, and whose row is being written, stays that table's when another lease
// of the table, with more lanes, cannot be had. It was a spare again, and the ids of the next table resolved to the
// first.
func TestManagerSpare_LeavesATableThatIsBeingWritten(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		p := w.start(withSpares(2))
		must(t, p.Start(t.Context()))
		must(t, p.Close(t.Context()))
		time.Sleep(4 * time.Second)
		// The second spare begins ahead of the clock, as after FLOOR_TICK was raised.
		run(t, w.db, `UPDATE "WORKER_NODE" SET "START_TICK" = ? WHERE "ID" = 2`, w.tick()+1000)
		p = w.start(withSpares(2))
		must(t, p.Start(t.Context()))
		writing := make(chan struct{})
		p.wire.Set(func(c *testkit.Crossing) error {
			err := c.Run()
			if c.Is("UPDATE WORKER_NODE") {
				close(writing)
				time.Sleep(100 * time.Millisecond)
			}
			return err
		})
		l, ok := p.Spare(table("a"), 1)
		if !ok {
			t.Fatal("no spare")
		}
		l.Release()
		<-writing
		p.wire.Set(nil)
		if _, ok := p.Spare(table("a"), 2); ok {
			t.Fatal("the second spare can be used")
		}
		if l, ok := p.Spare(table("b"), 1); ok {
			p.attach(l)
			p.make(table("b"), 100)
		}
		p.assign(table("a"))
		p.make(table("a"), 100)
		time.Sleep(time.Second)
		w.check()
	})
}
