package workernode_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/uidplugin/uidplugin/internal/testkit"
	"github.com/uidplugin/uidplugin/workernode"
	"gorm.io/gorm"
)

// A history is the sessions of one slot, as processes leave them: commits may have been lost in between.
type history struct {
	slot     int64
	sessions []workernode.Session
	fence    int64
}

// randomHistory returns a history of up to 12 sessions.
func randomHistory(r *rand.Rand, slot int64) history {
	h := history{slot: slot}
	fence := int64(0)
	for i := range 1 + r.IntN(12) {
		start := fence + r.Int64N(20)
		h.sessions = append(h.sessions, workernode.Session{
			Slot: slot, Start: start, Before: fence, Application: fmt.Sprint("p", i), Holder: fmt.Sprint("h", i),
		})
		fence = start + 1 + r.Int64N(30)
	}
	h.fence = fence
	return h
}

// insert writes the history into the tables.
func (h history) insert(t *testing.T, db *gorm.DB) {
	t.Helper()
	run(t, db, `INSERT INTO "WORKER_SLOT" VALUES (?, 'l', 1, ?, 7, 'me', 8, 'shop', 'h', 'p', '2026-06-01 12:00:00', 0)`, h.slot, h.fence)
	for _, s := range h.sessions {
		run(t, db, `INSERT INTO "WORKER_SESSION" VALUES (?, ?, ?, ?, 'h', 'p', 2, '2026-06-01 12:00:00.123', ?)`,
			s.Slot, s.Start, s.Before, s.Application, s.Holder)
	}
}

// ticks returns those next to where the answer changes.
func (h history) ticks() (list []int64) {
	for _, s := range append(h.sessions, workernode.Session{Start: h.fence, Before: h.fence}) {
		list = append(list, s.Before, s.Before+1, s.Start, s.Start+1)
	}
	slices.Sort(list)
	return slices.Compact(list)
}

// kept returns START_TICK of the session from which on nothing may change; -1 if there is no earlier one.
func (h history) kept(before int64) int64 {
	kept := int64(-1)
	for i, s := range h.sessions {
		if i > 0 && s.Start < before {
			kept = s.Start
		}
	}
	return kept
}

// answer is the result of resolving an id.
type answer struct {
	known bool
	app   string // empty if it was pruned
}

// answers returns what each tick of the histories resolves to.
func answers(t *testing.T, d *workernode.DB, all []history) map[[2]int64]answer {
	t.Helper()
	got := map[[2]int64]answer{}
	for _, h := range all {
		for _, tick := range h.ticks() {
			o, ok, err := d.Origin(t.Context(), h.slot, tick)
			must(t, err)
			a := answer{known: ok}
			if ok {
				a.app = o.Application
				if o.Pruned() != (o.Application == "") ||
					o.Pruned() && (o.Host != "" || o.Port != "" || o.Kind != 0 || !o.Launched.IsZero()) {
					t.Errorf("slot %d, tick %d: %+v", h.slot, tick, o)
				}
			}
			got[[2]int64{h.slot, tick}] = a
		}
	}
	return got
}

// checkPruned compares answers before and after prunings up to a tick: what is kept says what it said, what is pruned
// names no process, and no id that was known is unknown.
func checkPruned(t *testing.T, all []history, before int64, was, is map[[2]int64]answer) {
	t.Helper()
	for _, h := range all {
		kept := h.kept(before)
		for _, tick := range h.ticks() {
			at := [2]int64{h.slot, tick}
			switch w, i := was[at], is[at]; {
			case tick > kept && i != w:
				t.Errorf("slot %d, tick %d, which is kept, resolved to %+v and resolves to %+v", h.slot, tick, w, i)
			case tick <= kept && i.app != "":
				t.Errorf("slot %d, tick %d was pruned and resolves to %q", h.slot, tick, i.app)
			case tick <= kept && w.known && !i.known:
				t.Errorf("slot %d, tick %d was pruned and is unknown", h.slot, tick)
			case tick <= h.sessions[0].Start && i.known:
				t.Errorf("slot %d, tick %d is before the first session, and is known", h.slot, tick)
			}
		}
	}
}

// Whatever the history and the dates: ids of pruned sessions keep their table and lose their process, and those of the
// others stay as they are.
func TestDBPruneSessions_NeverNamesAWrongProcess(t *testing.T) {
	t.Parallel()

	seeds := uint64(15)
	if testkit.Race { // a statement takes twenty times as long
		seeds = 3
	}
	for seed := range seeds {
		r := rand.New(rand.NewPCG(seed, 1))
		db := tables(t)
		var all []history
		for slot := range int64(3) {
			all = append(all, randomHistory(r, slot+1))
			all[slot].insert(t, db)
		}
		d := open(t, db)
		was := answers(t, d, all)
		for _, before := range []int64{0, r.Int64N(100), 100 + r.Int64N(100), 200 + r.Int64N(100), 1 << 40} {
			preview, err := d.Prunable(t.Context(), before)
			must(t, err)
			did, err := d.PruneSessions(t.Context(), before)
			must(t, err)
			again, err := d.PruneSessions(t.Context(), before)
			if must(t, err); preview != did || again != (workernode.Pruning{}) {
				t.Errorf("preview %+v, did %+v, again %+v", preview, did, again)
			}
			checkPruned(t, all, before, was, answers(t, d, all))
		}
		for _, h := range all {
			left, err := d.Sessions(t.Context(), h.slot, 1<<40, 100)
			if must(t, err); len(left) != min(len(h.sessions), 2) {
				t.Errorf("slot %d had %d sessions, and has %d", h.slot, len(h.sessions), len(left))
			}
		}
	}
}

// The latest session before the date stays, because it may have made ids after it.
func TestDBPruneSessions_KeepsTheSessionThatLastsOverTheDate(t *testing.T) {
	t.Parallel()

	db := tables(t)
	history{
		1,
		[]workernode.Session{
			{Slot: 1, Start: 10, Application: "a", Holder: "x"},
			{Slot: 1, Start: 20, Before: 15, Application: "b", Holder: "y"},
			{Slot: 1, Start: 30, Before: 25, Application: "c", Holder: "z"},
			{Slot: 1, Start: 40, Before: 35, Application: "d", Holder: "z"},
		},
		50,
	}.insert(t, db)
	d := open(t, db)
	for _, tt := range []struct {
		before int64
		want   workernode.Pruning
		left   []int64
		first  string
	}{
		{10, workernode.Pruning{}, []int64{40, 30, 20, 10}, "a"},
		{20, workernode.Pruning{}, []int64{40, 30, 20, 10}, "a"},
		{21, workernode.Pruning{Slots: 1, Sessions: 1}, []int64{40, 30, 20, 10}, ""}, // b may have made ids after 21
		{31, workernode.Pruning{Slots: 1, Sessions: 1}, []int64{40, 30, 10}, ""},
		{31, workernode.Pruning{}, []int64{40, 30, 10}, ""},
		{1 << 40, workernode.Pruning{Slots: 1, Sessions: 1}, []int64{40, 10}, ""}, // never the latest one
	} {
		got, err := d.PruneSessions(t.Context(), tt.before)
		must(t, err)
		left, err := d.Sessions(t.Context(), 1, 1<<40, 10)
		must(t, err)
		var starts []int64
		for _, s := range left {
			starts = append(starts, s.Start)
		}
		if got != tt.want || !slices.Equal(starts, tt.left) || left[len(left)-1].Application != tt.first {
			t.Errorf("before %d: %+v, left %d, first %q; want %+v", tt.before, got, starts, left[len(left)-1].Application, tt)
		}
	}
}

// Whichever statement fails, none of the ids resolves to a wrong process, and the next attempt completes it.
func TestDBPruneSessions_MayBeInterrupted(t *testing.T) {
	t.Parallel()

	cut := errors.New("the line is cut")
	for _, at := range []string{"UPDATE", "SELECT 1", "DELETE", "COMMIT"} {
		t.Run(at, func(t *testing.T) {
			t.Parallel()
			path := testkit.SQLitePath(t)
			db := testkit.SQLite{Path: path}.Open(t)
			must(t, migrate(t, db))
			all := []history{randomHistory(rand.New(rand.NewPCG(3, 3)), 1), randomHistory(rand.New(rand.NewPCG(4, 4)), 2)}
			for _, h := range all {
				h.insert(t, db)
			}
			d := open(t, db)
			was := answers(t, d, all)
			wire := &testkit.Wire{}
			pruned := open(t, wire.Open(t, testkit.SQLite{Path: path}))
			failed := false
			wire.Set(func(c *testkit.Crossing) error {
				if !failed && strings.HasPrefix(c.SQL, at) {
					failed = true
					return cut
				}
				return c.Run()
			})
			_, err := pruned.PruneSessions(t.Context(), 1<<40)
			if !failed || err == nil {
				t.Fatalf("failed at %s: %v, %v", at, failed, err)
			}
			for _, h := range all {
				checkPruned(t, []history{h}, pointOf(t, d, h), was, answers(t, d, all))
			}
			_, err = pruned.PruneSessions(t.Context(), 1<<40)
			must(t, err)
			checkPruned(t, all, 1<<40, was, answers(t, d, all))
		})
	}
}

// pointOf returns up to which tick a slot has been pruned: all of it, or nothing.
func pointOf(t *testing.T, d *workernode.DB, h history) int64 {
	t.Helper()
	left, err := d.Sessions(t.Context(), h.slot, 1<<40, 100)
	must(t, err)
	switch {
	case len(left) == 2 && left[1].Pruned():
		return 1 << 40
	case len(left) == len(h.sessions) && !left[len(left)-1].Pruned():
		return 0
	}
	t.Errorf("slot %d had %d sessions, and is half pruned: %+v", h.slot, len(h.sessions), left)
	return 0
}

// Several at once, up to several dates, do what the last date says.
func TestDBPruneSessions_SeveralAtOnce(t *testing.T) {
	t.Parallel()

	db := tables(t)
	var all []history
	for slot := range int64(5) {
		all = append(all, randomHistory(rand.New(rand.NewPCG(9, uint64(slot))), slot+1))
		all[slot].insert(t, db)
	}
	d := open(t, db)
	was := answers(t, d, all)
	var group sync.WaitGroup
	for _, before := range []int64{60, 150, 90, 150} {
		group.Go(func() {
			if _, err := d.PruneSessions(t.Context(), before); err != nil {
				t.Error(err)
			}
		})
	}
	group.Wait()
	checkPruned(t, all, 150, was, answers(t, d, all))
}

// Processes begin sessions while others are pruned; each id resolves to its own process, or to none if it is old.
func TestDBPruneSessions_WhileProcessesRun(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		d := open(t, w.db)
		type made struct {
			id   int64
			port string
		}
		var ids []made
		for i := range 12 {
			port := fmt.Sprint("p", i)
			p := w.start(func(_ *workernode.Config, h *workernode.Host) { h.Port = port })
			p.use(t, table("orders"), 1)
			_, err := d.PruneSessions(context.Background(), w.tick()) // a process holds the slot
			must(t, err)
			for _, id := range p.make(table("orders"), 20) {
				ids = append(ids, made{id, port})
			}
			p.end(t)
			time.Sleep(3 * time.Second)
		}
		latest, err := d.Sessions(t.Context(), 1, 1<<60, 1)
		must(t, err)
		for _, m := range ids {
			_, tick := w.parts(m.id)
			o, ok, err := d.Origin(t.Context(), 1, tick)
			if err != nil || !ok || o.Port != "" && o.Port != m.port || tick > latest[0].Start && o.Port != m.port {
				t.Errorf("%d of %s: %+v, %v, %v", m.id, m.port, o, ok, err)
			}
		}
		w.check()
	})
}
