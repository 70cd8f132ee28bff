package workernode_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/uidplugin/uidplugin/internal/testkit"
	"github.com/uidplugin/uidplugin/workernode"
)

// A slot whose row is gone, or which somebody has emptied, is lost, and another one follows.
func TestManager_SurvivesRowsThatAreChanged(t *testing.T) {
	type fault struct {
		change string
		logs   string
		slot   int64 // afterwards; 0: any
	}
	each(t, map[string]fault{
		"deleted":                {`DELETE FROM "WORKER_SLOT"`, "has lost its slot", 2},
		"emptied":                {`UPDATE "WORKER_SLOT" SET "HOLDER" = ''`, "has lost its slot", 2},
		"another holder":         {`UPDATE "WORKER_SLOT" SET "HOLDER" = 'a' || char(10) || 'b'`, "has lost its slot", 2},
		"a later version":        {`UPDATE "WORKER_SLOT" SET "VERSION" = "VERSION" + 100`, "", 1},
		"an earlier version":     {`UPDATE "WORKER_SLOT" SET "VERSION" = 0`, "lost commits", 2},
		"a huge version":         {`UPDATE "WORKER_SLOT" SET "VERSION" = 9223372036854775807`, "", 0},
		"a lower fence":          {`UPDATE "WORKER_SLOT" SET "FENCE" = "FENCE" - 500`, "", 1},
		"a fence slightly ahead": {`UPDATE "WORKER_SLOT" SET "FENCE" = "FENCE" + 5`, "", 0},
		"a fence of tomorrow":    {`UPDATE "WORKER_SLOT" SET "FENCE" = "FENCE" + 86400000`, "further ahead of the clock than the lead", 2},
		"a fence at the end":     {fmt.Sprintf(`UPDATE "WORKER_SLOT" SET "FENCE" = %d`, layout.MaxTick()), "further ahead of the clock than the lead", 2},
		"the largest fence":      {`UPDATE "WORKER_SLOT" SET "FENCE" = 9223372036854775807`, "further ahead of the clock than the lead", 2},
	}, func(t *testing.T, w *world, tt fault) {
		p := w.start(nil)
		p.use(t, table("orders"), 10)
		time.Sleep(100 * time.Millisecond)
		run(t, w.db, tt.change)
		p.work(t, 30, 10, table("orders"))
		w.logs(tt.logs)
		s := p.Stats()
		if s.ID == 0 || tt.slot != 0 && s.ID != tt.slot || s.LastError != nil {
			t.Errorf("%+v", s)
		}
		next := w.start(nil)
		next.use(t, table("orders"), 10)
		time.Sleep(2 * time.Minute)
		next.use(t, table("orders"), 10)
	})
}

// FLOOR_TICK is set after a restore, when nobody knows how far ids went: no tick up to it may be stamped.
func TestManager_StampsNoTickUpToTheFloor(t *testing.T) {
	each(t, map[string]int64{"-1000": -1000, "-1": -1, "0": 0, "1": 1, "500": 500, "999": 999}, func(t *testing.T, w *world, ahead int64) {
		first := w.start(nil)
		first.use(t, table("orders"), 10)
		first.end(t)
		time.Sleep(3 * time.Second)
		floor := w.tick() + ahead
		run(t, w.db, `UPDATE "WORKER_REGISTRY" SET "FLOOR_TICK" = ?`, floor)
		for _, host := range []string{"shop", "other"} { // one reclaims, the other inserts
			p := w.start(func(_ *workernode.Config, h *workernode.Host) { h.Application = host })
			for _, l := range p.assign(table("orders"), table("items")) {
				for _, lease := range l.Leases() {
					if lease.From != max(floor+1, w.tick()) {
						t.Errorf("%s: from %d, the floor is %d and now is %d", host, lease.From, floor, w.tick())
					}
				}
			}
			for _, id := range p.make(table("items"), 20) {
				if _, tick := w.parts(id); tick <= floor {
					t.Errorf("the tick %d is not above the floor %d", tick, floor)
				}
			}
		}
		w.check()
	})
}

// A floor that leaves nothing to stamp must be an error that names it, for a process that starts and for one that
// adds a table.
func TestManager_AFloorTooFarAheadIsAnError(t *testing.T) {
	each(t, map[string]int64{
		"an hour": 0, "the last tick": layout.MaxTick(), "the largest number": 1<<63 - 1,
	}, func(t *testing.T, w *world, floor int64) {
		starting, running := w.start(nil), w.start(nil)
		running.use(t, table("orders"), 10)
		if floor == 0 {
			floor = w.tick() + 3_600_000
		}
		run(t, w.db, `UPDATE "WORKER_REGISTRY" SET "FLOOR_TICK" = ?`, floor)
		for _, p := range []*process{starting, running} {
			p.wire.Set(func(c *testkit.Crossing) error { return errors.Join(c.Sleep(time.Millisecond), c.Run()) })
			p.refused(5*time.Second, table("items"), workernode.ErrClock, "FLOOR_TICK", fmt.Sprint(floor), "WORKER_REGISTRY")
		}
	})
}

// lock makes statements that change the row of a slot wait, as a transaction that holds a lock on it does. Statements
// that read the row work.
func (w *world) lock(slot int64) {
	w.tb.Helper()
	run(w.tb, w.db, fmt.Sprintf(`CREATE TRIGGER "LOCK%d" BEFORE UPDATE ON "WORKER_SLOT" WHEN OLD."ID" = %d BEGIN SELECT RAISE(ABORT, 'row locked'); END`, slot, slot))
}

func (w *world) unlock(slot int64) {
	w.tb.Helper()
	run(w.tb, w.db, fmt.Sprintf(`DROP TRIGGER "LOCK%d"`, slot))
}

// waits is the hook of a process that waits for locks until its context ends.
func waits(c *testkit.Crossing) error {
	err := c.Run()
	if err != nil && strings.Contains(err.Error(), "row locked") {
		<-c.Context.Done()
		err = c.Context.Err()
	}
	return err
}

// If somebody locks the row of a process's own slot, it takes another slot as soon as its grants are used up, and not
// sooner, because that would cost worker ids each time. Formerly it made no ids until the lock was released.
func TestManager_LeavesALockedSlot(t *testing.T) {
	type fault struct {
		locked time.Duration
		lost   uint64
	}
	each(t, map[string]fault{
		"for a moment": {600 * time.Millisecond, 0},
		"for long":     {20 * time.Second, 1},
	}, func(t *testing.T, w *world, tt fault) {
		p := w.start(nil)
		p.wire.Set(waits)
		p.use(t, table("orders"), 10)
		until := p.until()
		w.lock(1)
		longest := time.Duration(0)
		for begin := time.Now(); time.Since(begin) < tt.locked; time.Sleep(50 * time.Millisecond) {
			if s := p.Stats(); s.ID != 1 && w.tick() <= until {
				t.Fatalf("the slot was given up before the tick %d: %+v", until, s)
			}
			asked := time.Now()
			p.use(t, table("orders"), 200) // more in all than a lead has
			longest = max(longest, time.Since(asked))
		}
		w.unlock(1)
		if longest > 15*time.Second {
			t.Errorf("ids came after %v", longest)
		}
		p.work(t, 30, 10, table("orders"))
		if s := p.Stats(); s.ID == 0 || (s.ID != 1) != (tt.lost > 0) || s.LastError != nil {
			t.Errorf("%+v", s)
		}
		if tt.lost > 0 {
			w.logs("its row can be read but not changed")
		}
		w.check()
	})
}
