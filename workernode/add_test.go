package workernode_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/uidplugin/uidplugin/internal/testkit"
	"github.com/uidplugin/uidplugin/workernode"
)

const failingInsert = `CREATE TRIGGER "NO" BEFORE INSERT ON "WORKER_NODE"
	BEGIN SELECT RAISE(ABORT, 'not while I watch'); END`

func (w *world) nextID() int64 { return w.number(`SELECT "NEXT_ID" FROM "WORKER_REGISTRY"`) }

// Callers ask again and again for a table whose worker id cannot be inserted. Each attempt must not use up another
// worker id, and they get the database's reason each time.
func TestManagerAssign_ThatFailsUsesUpNoWorkerIDs(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		p := w.start(nil)
		p.use(t, table("orders"), 1)
		before := w.nextID()
		run(t, w.db, failingInsert)
		for range 20 {
			p.refused(10*time.Second, table("items"), nil, "not while I watch")
			time.Sleep(2 * time.Second)
		}
		if n := w.nextID() - before; n > 1 {
			t.Errorf("%d worker ids were used up", n)
		}
		run(t, w.db, `DROP TRIGGER "NO"`)
		p.use(t, table("items"), 10)
		if n := w.nextID() - before; n != 1 {
			t.Errorf("%d worker ids were used up by one table", n)
		}
		w.check()
	})
}

// If another program always inserts the worker ids first, the caller gets an error. Formerly worker ids were used up
// until the context of the caller ended.
func TestManagerAssign_EndsWhenWorkerIDsAreAlwaysTaken(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		p := w.start(nil)
		p.use(t, table("orders"), 1)
		before := w.nextID()
		p.wire.Set(func(c *testkit.Crossing) error {
			_ = c.Sleep(500 * time.Microsecond)
			if c.Is("BEGIN") {
				run(t, w.db, `INSERT OR IGNORE INTO "WORKER_NODE"
					("ID", "HOST_NAME", "PORT", "TYPE", "LAUNCH_DATE", "MODIFIED", "CREATED")
					SELECT "NEXT_ID" - 1, 'java-1', '8080', 1, '2024-02-29', CURRENT_TIMESTAMP, CURRENT_TIMESTAMP
					FROM "WORKER_REGISTRY"`)
			}
			return c.Run()
		})
		p.refused(10*time.Second, table("items"), nil, "taken by another program")
		if n := w.nextID() - before; n < 2 || n > 20 {
			t.Errorf("%d worker ids were used up", n)
		}
		p.wire.Set(nil)
		p.use(t, table("items"), 10)
		w.check()
	})
}

// Callers of other tables arrive while worker ids are added for one table. They must not get the error of that table,
// because the slot has worker ids for theirs.
func TestManagerAssign_FailsOnlyCallersWhoseWorkerIDsCannotBeAdded(t *testing.T) {
	t.Parallel()

	for name, damage := range map[string]string{
		"used up": `UPDATE "WORKER_REGISTRY" SET "NEXT_ID" = 8`,
		"refused": failingInsert,
	} {
		t.Run(name, func(t *testing.T) {
			bubbleWith(t, narrow(3), func(t *testing.T, w *world) {
				p := w.start(nil)
				leases := p.leases(table("orders"), table("items"))
				p.attach(leases[0])
				leases[1].Release()
				run(t, w.db, damage)
				p.wire.Set(func(c *testkit.Crossing) error { return errors.Join(c.Sleep(20*time.Millisecond), c.Run()) })
				users := make(chan error)
				go func() {
					_, err := p.Assign(t.Context(), []workernode.Table{table("users")}, nil)
					users <- err
				}()
				time.Sleep(30 * time.Millisecond) // the lease manager tries to add a worker id
				items := make(chan error)
				go func() {
					_, err := p.Assign(t.Context(), []workernode.Table{table("items")}, nil)
					items <- err
				}()
				if err := <-users; err == nil {
					t.Error("users got a worker id")
				}
				must(t, <-items)
				w.check()
			})
		})
	}
}

// A table has lost its worker id and cannot get another. Formerly creates of other tables also failed, as soon as their
// leases were used up, with the error that leases are not renewed.
func TestManager_ATableWithoutAWorkerIDDoesNotDisturbOthers(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		p := w.start(nil)
		p.use(t, table("orders"), 1)
		p.use(t, table("items"), 1)
		run(t, w.db, failingInsert)
		run(t, w.db, `DELETE FROM "WORKER_NODE" WHERE "TABLE_NAME" = 'items'`)
		_ = p.steadily(t, table("orders"), 11*time.Minute) // until the rows are read again
		if err := p.Stats().LastError; err == nil || !strings.Contains(err.Error(), "not while I watch") {
			t.Fatalf("the table has no worker id, and the state is %v", err)
		}
		p.make(table("orders"), 100_000)
		w.logs("cannot add worker ids; tables that have some are not affected", "not while I watch")
		if lines := w.log.Lines("cannot be renewed"); len(lines) > 0 {
			t.Errorf("%q", lines)
		}
		var err error
		for chunk := make([]int64, 100_000); err == nil; { // what the lease of the lost worker id has left
			err = p.generators[table("items")].Fill(t.Context(), chunk)
		}
		saysAll(t, err.Error(), "not while I watch")
		run(t, w.db, `DROP TRIGGER "NO"`)
		p.use(t, table("items"), 10)
		time.Sleep(time.Second)
		if s := p.Stats(); s.LastError != nil {
			t.Errorf("%+v", s)
		}
	})
}

// Formerly, when worker ids were used up, each failing Assign released the slot to look for a better one, and inserted
// another.
func TestManagerAssign_WhenWorkerIDsAreUsedUpInsertsFewSlots(t *testing.T) {
	bubbleWith(t, narrow(3), func(t *testing.T, w *world) {
		foreign(t, w.db, 7)
		p := w.start(nil)
		for range 20 {
			p.refused(10*time.Second, table("orders"), workernode.ErrExhausted)
		}
		if n := w.number(`SELECT COUNT(*) FROM "WORKER_SLOT"`); n > 2 {
			t.Errorf("%d slots", n)
		}
		if n := w.number(`SELECT "NEXT_SLOT" FROM "WORKER_REGISTRY"`); n > 3 {
			t.Errorf("NEXT_SLOT is %d", n)
		}
	})
}

// steadily makes an id of a table every 10 ms, and returns the longest wait.
func (p *process) steadily(t *testing.T, x workernode.Table, d time.Duration) (longest time.Duration) {
	t.Helper()
	for begin := time.Now(); time.Since(begin) < d; time.Sleep(10 * time.Millisecond) {
		at := time.Now()
		ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
		id, err := p.generators[x].Next(ctx)
		cancel()
		if err != nil {
			t.Errorf("after %v: %v", time.Since(begin), err)
			return time.Since(at)
		}
		p.world.ledger.Add(x.String(), id)
		longest = max(longest, time.Since(at))
	}
	return longest
}

// While WORKER_NODE is locked, as by ALTER TABLE, no process gets worker ids, but processes that have some make ids.
// Formerly, with a short lead, the worker ids were read again for so long that the lease ended.
func TestManager_MakesIDsWhileWorkerNodeIsLocked(t *testing.T) {
	each(t, map[string]time.Duration{"1s": time.Second, "3s": 3 * time.Second, "10s": 10 * time.Second}, func(t *testing.T, w *world, lead time.Duration) {
		p := w.start(leadOf(lead))
		p.assign(table("a"))
		p.wire.Set(func(c *testkit.Crossing) error {
			if c.Is("INSERT INTO WORKER_NODE", "SELECT N.ID", "SELECT ID, SLOT") {
				<-c.Context.Done()
				return c.Context.Err()
			}
			return c.Run()
		})
		go func() { _, _ = p.Assign(t.Context(), []workernode.Table{table("b")}, nil) }()
		if longest := p.steadily(t, table("a"), 3*time.Minute); longest > 50*time.Millisecond {
			t.Errorf("a create waited for %v", longest)
		}
	})
}

// When worker ids are used up, errors name which tables have them. A process without any reclaims a slot of another
// application that has its tables, and gets those of the slot.
func TestManagerAssign_SaysWhoHasTheWorkerIDs(t *testing.T) {
	bubbleWith(t, narrow(3), func(t *testing.T, w *world) {
		first := w.start(func(_ *workernode.Config, h *workernode.Host) { h.Application = "old" })
		first.use(t, table("orders"), 10)
		first.use(t, table("items"), 10)
		first.end(t)
		second := w.start(nil)
		for _, x := range tablesNamed(5) {
			second.use(t, x, 10)
		}
		second.refused(10*time.Second, table("orders"), workernode.ErrExhausted, "1 to 7", "items 1", "orders 1",
			"no free slot has a worker id for a table that needs one")
		time.Sleep(3 * time.Second)
		third := w.start(func(_ *workernode.Config, h *workernode.Host) { h.Application = "new" })
		third.use(t, table("orders"), 10)
		third.use(t, table("items"), 10)
		if s := third.Stats(); s.ID != 1 || s.Reclaimed != 1 {
			t.Errorf("%+v", s)
		}
		second.use(t, table("t000"), 10)
		w.check()
		third.refused(time.Minute, table("users"), workernode.ErrExhausted)
		third.use(t, table("orders"), 10)
	})
}

// A process that gets no worker id tries again and again, as its callers do. That must not fill the tables.
func TestManager_WithoutWorkerIDsDoesNotFillTheTables(t *testing.T) {
	bubbleWith(t, narrow(2), func(t *testing.T, w *world) {
		first := w.start(nil)
		for _, x := range tablesNamed(3) {
			first.use(t, x, 1)
		}
		second := w.start(nil)
		for range 200 {
			second.refused(5*time.Second, table("orders"), workernode.ErrExhausted)
			time.Sleep(100 * time.Millisecond)
			first.use(t, table("t000"), 1)
		}
		if slots, sessions := w.number(`SELECT COUNT(*) FROM "WORKER_SLOT"`), w.number(`SELECT COUNT(*) FROM "WORKER_SESSION"`); slots > 5 || sessions > 50 {
			t.Errorf("%d slots and %d sessions", slots, sessions)
		}
	})
}

// A process whose user may not insert fails at every start. Each would use up worker ids, until none were left.
func TestManagerAssign_WithoutTheRightToInsertUsesUpNoWorkerIDs(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		w.start(nil)
		for range 5 {
			p := w.start(nil)
			denied := errors.New("Error 1142 (42000): INSERT command denied to user")
			p.wire.Set(func(c *testkit.Crossing) error {
				if c.Is("INSERT INTO WORKER_NODE") {
					return denied
				}
				return c.Run()
			})
			for range 3 {
				p.refused(time.Minute, table("orders"), denied, "WORKER_NODE", "INSERT privilege")
			}
			must(t, p.Close(t.Context()))
			time.Sleep(3 * time.Second)
		}
		if n := w.number(`SELECT "NEXT_ID" FROM "WORKER_REGISTRY"`); n != 1025 {
			t.Errorf("NEXT_ID is %d", n)
		}
		if n := w.number(`SELECT COUNT(*) FROM "WORKER_SLOT"`); n != 1 {
			t.Errorf("%d slots", n)
		}
	})
}
