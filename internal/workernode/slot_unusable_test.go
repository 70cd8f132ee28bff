package workernode_test

import (
	"testing"
	"time"

	"github.com/uidplugin/uidplugin/internal/workernode"
)

// formers leaves n slots of former processes that can be reclaimed.
func (w *world) formers(n int) {
	w.tb.Helper()
	var list []*process
	for range n {
		p := w.start(nil)
		p.assign(table("a"))
		list = append(list, p)
	}
	for _, p := range list {
		must(w.tb, p.Close(w.tb.Context()))
	}
	time.Sleep(10 * time.Second)
}

// Slots that cannot be used are left alone: there are others, and new ones. Two of them, or one with text in a column,
// which SQLite allows, kept all processes of the application from starting.
func TestManager_LeavesSlotsThatCannotBeUsed(t *testing.T) {
	for name, hostile := range map[string]string{
		"refuse changes": `CREATE TRIGGER "NO" BEFORE UPDATE ON "WORKER_SLOT" WHEN OLD."ID" <= 3 BEGIN SELECT RAISE(ABORT, 'not this one'); END`,
		"seen":           `UPDATE "WORKER_SLOT" SET "SEEN_TICK" = 'x'`,
		"version":        `UPDATE "WORKER_SLOT" SET "VERSION" = 12.5`,
		"fence":          `UPDATE "WORKER_SLOT" SET "FENCE" = 0.5`,
		"start":          `UPDATE "WORKER_NODE" SET "START_TICK" = 'x'`,
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T, w *world) {
				w.formers(3)
				run(t, w.db, hostile)
				begin := time.Now()
				p := w.start(nil)
				p.assign(table("a"))
				p.make(table("a"), 10)
				if s := p.Stats(); s.Slot != 4 || s.Sessions != 1 || time.Since(begin) > 0 {
					t.Errorf("after %v: %+v", time.Since(begin), s)
				}
			})
		})
	}
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
		if s := p.Stats(); s.Slot != 2 || s.LostCommits != 1 || s.LastError != nil {
			t.Errorf("%+v", s)
		}
		w.check()
	})
}

// After lost commits, or a restore of its row, NEXT_SLOT may be behind the slots that are there. Each start failed with
// a duplicate key, until there had been as many as there were slots.
func TestManager_PassesOverSlotsWhenNextSlotIsBehind(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		disposable := func(c *workernode.Config, _ *workernode.Host) { c.Disposable = true }
		w.formers(20)
		run(t, w.db, `UPDATE "WORKER_REGISTRY" SET "NEXT_SLOT" = 1`)
		for range 3 {
			p := w.start(disposable)
			begin := time.Now()
			p.assign(table("a"))
			p.make(table("a"), 10)
			if s := p.Stats(); s.Slot <= 20 || s.LastError != nil || time.Since(begin) > time.Second {
				t.Errorf("after %v: %+v", time.Since(begin), s)
			}
		}
		w.check()
	})
}
