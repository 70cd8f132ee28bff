package workernode_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/uidplugin/uidplugin/internal/testkit"
	"github.com/uidplugin/uidplugin/workernode"
)

// Slots that cannot be used stay unchanged, and processes take others or new ones. Formerly two such slots, or one with
// text in a column, which SQLite allows, kept all processes of the application from starting.
func TestManager_LeavesSlotsThatCannotBeUsed(t *testing.T) {
	each(t, map[string]string{
		"refuse changes": `CREATE TRIGGER "NO" BEFORE UPDATE ON "WORKER_SLOT" WHEN OLD."ID" <= 3 BEGIN SELECT RAISE(ABORT, 'not this one'); END`,
		"seen":           `UPDATE "WORKER_SLOT" SET "SEEN_TICK" = 'x'`,
		"version":        `UPDATE "WORKER_SLOT" SET "VERSION" = 12.5`,
		"fence":          `UPDATE "WORKER_SLOT" SET "FENCE" = 0.5`,
		"start":          `UPDATE "WORKER_NODE" SET "START_TICK" = 'x'`,
	}, func(t *testing.T, w *world, hostile string) {
		w.formers(3, table("a"))
		run(t, w.db, hostile)
		begin := time.Now()
		p := w.start(nil)
		p.assign(table("a"))
		p.make(table("a"), 10)
		if s := p.Stats(); s.ID != 4 || s.Sessions != 1 || time.Since(begin) > 0 {
			t.Errorf("after %v: %+v", time.Since(begin), s)
		}
	})
}

// A process whose slot has a row that cannot be read gets another slot. It once waited until somebody repaired the row.
func TestManager_LeavesASlotWhoseRowCannotBeRead(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		p := w.start(nil)
		p.assign(table("a"))
		p.make(table("a"), 10)
		run(t, w.db, `UPDATE "WORKER_SLOT" SET "VERSION" = 'x'`)
		time.Sleep(3 * time.Second)
		p.make(table("a"), 100)
		if s := p.Stats(); s.ID != 2 || s.LostCommits != 1 || s.LastError != nil {
			t.Errorf("%+v", s)
		}
		w.check()
	})
}

// After lost commits, or a restore of its row, NEXT_SLOT may be below slots that exist. Formerly each start failed with
// a duplicate key, until NEXT_SLOT was above all of them.
func TestManager_PassesOverSlotsWhenNextSlotIsBehind(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		disposable := func(c *workernode.Config, _ *workernode.Host) { c.Disposable = true }
		w.formers(20, table("a"))
		run(t, w.db, `UPDATE "WORKER_REGISTRY" SET "NEXT_SLOT" = 1`)
		for range 3 {
			p := w.start(disposable)
			begin := time.Now()
			p.assign(table("a"))
			p.make(table("a"), 10)
			if s := p.Stats(); s.ID <= 20 || s.LastError != nil || time.Since(begin) > time.Second {
				t.Errorf("after %v: %+v", time.Since(begin), s)
			}
		}
		w.check()
	})
}

// If a transaction holds a lock on the row of a free slot, a new process takes another slot. Formerly it tried the
// locked one again and again, and did not start.
func TestManager_StartsWhileFreeSlotsAreLocked(t *testing.T) {
	type slots struct{ free, locked int64 }
	each(t, map[string]slots{"1 of 1": {1, 1}, "1 of 2": {2, 1}, "4 of 4": {4, 4}}, func(t *testing.T, w *world, tt slots) {
		w.formers(int(tt.free), table("orders"))
		for slot := range tt.locked {
			w.lock(slot + 1)
		}
		p := w.start(nil)
		p.wire.Set(waits)
		begin := time.Now()
		p.use(t, table("orders"), 10)
		if took := time.Since(begin); took > 15*time.Second {
			t.Errorf("the first ids came after %v", took)
		}
		if s := p.Stats(); s.ID <= tt.locked || (tt.free > tt.locked) != (s.Reclaimed == 1) {
			t.Errorf("%+v", s)
		}
		p.work(t, 30, 10, table("orders"))
		w.check()
	})
}

// When many processes start at once, all slots that one has read may be taken before it tries them. Then it looks
// again. Formerly it made a new slot, with worker ids for all its tables, although other slots were free.
func TestManager_LooksAgainWhenOthersWereFaster(t *testing.T) {
	const free = 3
	type race struct {
		faster    int // times that others take what was read
		reclaimed int64
	}
	each(t, map[string]race{"0 times": {0, 1}, "1 times": {1, 1}, "4 times": {4, 1}, "5 times": {5, 0}}, func(t *testing.T, w *world, tt race) {
		w.formers(free, table("orders"))
		p, looks := w.start(nil), 0
		p.wire.Set(func(c *testkit.Crossing) error {
			if c.Is("SELECT ID, FENCE, VERSION, HOLDER, SEEN_TICK, REGION, APPLICATION") {
				looks++
			}
			if c.Is("BEGIN") && looks <= tt.faster { // they have taken and released all
				run(t, w.db, `UPDATE "WORKER_SLOT" SET "VERSION" = "VERSION" + 2 WHERE "HOLDER" = ''`)
			}
			return c.Run()
		})
		p.use(t, table("orders"), 10)
		if s := p.Stats(); s.Reclaimed != tt.reclaimed || s.Allocated != 1-tt.reclaimed || looks != min(tt.faster+1, 5) {
			t.Errorf("after %d looks: %+v", looks, s)
		}
		w.check()
	})
}

// If answers take longer than Lead, waiting callers get an error that says so, and so do the log and Health. Formerly
// sessions were begun and slots taken again and again, and nothing reported it.
func TestManager_SaysThatAnswersTakeLongerThanTheLead(t *testing.T) {
	each(t, map[string]time.Duration{"20ms": 20 * time.Millisecond, "60ms": 60 * time.Millisecond, "110ms": 110 * time.Millisecond}, func(t *testing.T, w *world, answer time.Duration) {
		change := leadOf(100 * time.Millisecond)
		slow := func(c *testkit.Crossing) error { return errors.Join(c.Sleep(answer), c.Run()) }
		const reason = "took longer than the lead of 100ms"

		p := w.start(change)
		p.wire.Set(slow)
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
		defer cancel()
		_, err := p.Assign(ctx, []workernode.Table{table("a")}, nil)
		if err == nil || p.Stats().LastError == nil {
			t.Fatalf("%v, %+v", err, p.Stats())
		}
		saysAll(t, err.Error(), reason)
		w.logs(reason)
		if n := len(p.wire.Take()); n > 510 {
			t.Errorf("%d statements in 10 s", n)
		}

		p.wire.Set(nil)
		p.assign(table("a"))
		p.make(table("a"), 100)
		p.wire.Set(slow)
		time.Sleep(5 * time.Second)
		few := answer == 20*time.Millisecond // then renewals, of one statement, are in time
		if !few && p.Stats().LastError == nil {
			t.Error("Health does not tell")
		}
		ctx, cancel = context.WithTimeout(t.Context(), 10*time.Second)
		defer cancel()
		ids := make([]int64, 5000) // more than are left
		if err := p.generators[table("a")].Fill(ctx, ids); few {
			must(t, err)
			w.ledger.Add("a", ids...)
		} else {
			saysAll(t, fmt.Sprint(err), reason)
		}
		p.wire.Set(nil)
		time.Sleep(time.Second)
		p.make(table("a"), 100)
		if err := p.Stats().LastError; err != nil {
			t.Error(err)
		}
		w.check()
	})
}
