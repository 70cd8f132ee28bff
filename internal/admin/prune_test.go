package admin

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

	"github.com/uidplugin/uidplugin"
	"github.com/uidplugin/uidplugin/generator"
	"github.com/uidplugin/uidplugin/internal/testkit"
	"github.com/uidplugin/uidplugin/workernode"
	"gorm.io/gorm"
)

var layout = generator.DefaultLayout()

// begun returns a DB on a SQLite database whose registry is of region n. An empty path means a database of its own.
func begun(t *testing.T, path string, n, of int) *DB {
	t.Helper()
	db := testkit.SQLite{Path: path}.Open(t)
	p := uidplugin.New(uidplugin.WithLogger(nil), uidplugin.WithRegion(n, of))
	testkit.Must(t, db.Use(p))
	testkit.MustClose(t, p)
	return connected(t, db)
}

func connected(t *testing.T, db *gorm.DB) *DB {
	t.Helper()
	d, err := Connect(db, time.Minute, time.Now)
	testkit.Must(t, err)
	testkit.Must(t, d.ReadRegistry(t.Context()))
	return d
}

func run(t *testing.T, d *DB, query string, args ...any) {
	t.Helper()
	_, err := d.SQL.Exec(t.Context(), query, args...)
	testkit.Must(t, err)
}

// A row of WORKER_SESSION.
type sessionRow struct {
	start, before int64
	application   string
}

// A history is the sessions of one slot, as processes leave them: commits may have been lost in between.
type history struct {
	slot     int64
	sessions []sessionRow
	fence    int64
}

// randomHistory returns a history of up to 12 sessions.
func randomHistory(r *rand.Rand, slot int64) history {
	h := history{slot: slot}
	fence := int64(0)
	for i := range 1 + r.IntN(12) {
		start := fence + r.Int64N(20)
		h.sessions = append(h.sessions, sessionRow{start, fence, fmt.Sprint("p", i)})
		fence = start + 1 + r.Int64N(30)
	}
	h.fence = fence
	return h
}

// insert writes the history into the tables, with a worker id of the same number as the slot.
func (h history) insert(t *testing.T, db *DB) {
	t.Helper()
	run(t, db, `INSERT INTO "WORKER_SLOT" VALUES (?, 'l', 1, ?, 7, 'me', 8, 'shop', 'h', 'p', '2026-06-01 12:00:00', 0)`, h.slot, h.fence)
	run(t, db, `INSERT INTO "WORKER_NODE" ("ID", "HOST_NAME", "PORT", "TYPE", "LAUNCH_DATE", "SLOT") VALUES (?, 'h', 'p', 2, '2026-06-01', ?)`, h.slot, h.slot)
	for _, s := range h.sessions {
		run(t, db, `INSERT INTO "WORKER_SESSION" VALUES (?, ?, ?, ?, 'h', 'p', 2, '2026-06-01 12:00:00.123', 'x')`,
			h.slot, s.start, s.before, s.application)
	}
}

// ticks returns the ticks next to those at which the answer changes.
func (h history) ticks() (list []int64) {
	for _, s := range append(h.sessions, sessionRow{start: h.fence, before: h.fence}) {
		list = append(list, s.before, s.before+1, s.start, s.start+1)
	}
	slices.Sort(list)
	return slices.Compact(list)
}

// kept returns START_TICK of the session from which on nothing may change; -1 if no session is pruned.
func (h history) kept(before int64) int64 {
	kept := int64(-1)
	for i, s := range h.sessions {
		if i > 0 && s.start < before {
			kept = s.start
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
func answers(t *testing.T, d *DB, all []history) map[[2]int64]answer {
	t.Helper()
	got := map[[2]int64]answer{}
	for _, h := range all {
		for _, tick := range h.ticks() {
			_, o, ok, err := d.Nodes.Trace(t.Context(), layout, h.slot, tick)
			testkit.Must(t, err)
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

// checkPruned compares answers before and after prunings up to a tick. Ids of kept sessions must resolve as before,
// those of pruned sessions to no process, and no id may become unknown.
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
			case tick <= h.sessions[0].start && i.known:
				t.Errorf("slot %d, tick %d is before the first session, and is known", h.slot, tick)
			}
		}
	}
}

// Whatever the history and the dates are, ids of pruned sessions keep their table and lose their process, and ids of
// other sessions resolve as before.
func TestPrune_NeverNamesAWrongProcess(t *testing.T) {
	t.Parallel()

	seeds := uint64(15)
	if testkit.Race { // a statement takes twenty times as long
		seeds = 3
	}
	for seed := range seeds {
		r := rand.New(rand.NewPCG(seed, 1))
		d := begun(t, "", 0, 1)
		var all []history
		for slot := range int64(3) {
			all = append(all, randomHistory(r, slot+1))
			all[slot].insert(t, d)
		}
		was := answers(t, d, all)
		for _, before := range []int64{0, r.Int64N(100), 100 + r.Int64N(100), 200 + r.Int64N(100), 1 << 40} {
			preview, err := d.Prunable(t.Context(), layout.TimeOf(before+1))
			testkit.Must(t, err)
			did, err := d.Prune(t.Context(), layout.TimeOf(before+1))
			testkit.Must(t, err)
			again, err := d.Prune(t.Context(), layout.TimeOf(before+1))
			if testkit.Must(t, err); preview != did || again != (Pruning{}) {
				t.Errorf("preview %+v, did %+v, again %+v", preview, did, again)
			}
			checkPruned(t, all, before, was, answers(t, d, all))
		}
		for _, h := range all {
			left, err := d.Nodes.Sessions(t.Context(), layout, h.slot, time.Time{}, 100)
			if testkit.Must(t, err); len(left) != min(len(h.sessions), 2) {
				t.Errorf("slot %d had %d sessions, and has %d", h.slot, len(h.sessions), len(left))
			}
		}
	}
}

// The latest session before the date stays, because it may have made ids after it.
func TestPrune_KeepsTheSessionThatLastsOverTheDate(t *testing.T) {
	t.Parallel()

	d := begun(t, "", 0, 1)
	history{
		1,
		[]sessionRow{
			{10, 0, "a"},
			{20, 15, "b"},
			{30, 25, "c"},
			{40, 35, "d"},
		},
		50,
	}.insert(t, d)
	for _, tt := range []struct {
		before int64
		want   Pruning
		left   []int64
		first  string
	}{
		{10, Pruning{}, []int64{40, 30, 20, 10}, "a"},
		{20, Pruning{}, []int64{40, 30, 20, 10}, "a"},
		{21, Pruning{Slots: 1, Sessions: 1}, []int64{40, 30, 20, 10}, ""}, // b may have made ids after 21
		{31, Pruning{Slots: 1, Sessions: 1}, []int64{40, 30, 10}, ""},
		{31, Pruning{}, []int64{40, 30, 10}, ""},
		{1 << 40, Pruning{Slots: 1, Sessions: 1}, []int64{40, 10}, ""}, // never the latest one
	} {
		got, err := d.Prune(t.Context(), layout.TimeOf(tt.before+1))
		testkit.Must(t, err)
		left, err := d.Nodes.Sessions(t.Context(), layout, 1, time.Time{}, 10)
		testkit.Must(t, err)
		var starts []int64
		for _, s := range left {
			starts = append(starts, layout.TickAt(s.From)-1)
		}
		if got != tt.want || !slices.Equal(starts, tt.left) || left[len(left)-1].Application != tt.first {
			t.Errorf("before %d: %+v, left %d, first %q; want %+v", tt.before, got, starts, left[len(left)-1].Application, tt)
		}
	}
}

// Whichever statement fails, none of the ids resolves to a wrong process, and the next attempt completes the pruning.
func TestPrune_MayBeInterrupted(t *testing.T) {
	t.Parallel()

	cut := errors.New("the line is cut")
	for _, at := range []string{"UPDATE", "SELECT 1", "DELETE", "COMMIT"} {
		t.Run(at, func(t *testing.T) {
			t.Parallel()
			path := testkit.SQLitePath(t)
			d := begun(t, path, 0, 1)
			all := []history{randomHistory(rand.New(rand.NewPCG(3, 3)), 1), randomHistory(rand.New(rand.NewPCG(4, 4)), 2)}
			for _, h := range all {
				h.insert(t, d)
			}
			was := answers(t, d, all)
			wire := &testkit.Wire{}
			pruned := connected(t, wire.Open(t, testkit.SQLite{Path: path}))
			failed := false
			wire.Set(func(c *testkit.Crossing) error {
				if !failed && strings.HasPrefix(c.SQL, at) {
					failed = true
					return cut
				}
				return c.Run()
			})
			_, err := pruned.Prune(t.Context(), layout.TimeOf(1<<40+1))
			if !failed || err == nil {
				t.Fatalf("failed at %s: %v, %v", at, failed, err)
			}
			for _, h := range all {
				checkPruned(t, []history{h}, pointOf(t, d, h), was, answers(t, d, all))
			}
			_, err = pruned.Prune(t.Context(), layout.TimeOf(1<<40+1))
			testkit.Must(t, err)
			checkPruned(t, all, 1<<40, was, answers(t, d, all))
		})
	}
}

// pointOf returns up to which tick a slot has been pruned: all of it, or nothing.
func pointOf(t *testing.T, d *DB, h history) int64 {
	t.Helper()
	left, err := d.Nodes.Sessions(t.Context(), layout, h.slot, time.Time{}, 100)
	testkit.Must(t, err)
	switch {
	case len(left) == 2 && left[1].Pruned():
		return 1 << 40
	case len(left) == len(h.sessions) && !left[len(left)-1].Pruned():
		return 0
	}
	t.Errorf("slot %d had %d sessions, and is half pruned: %+v", h.slot, len(h.sessions), left)
	return 0
}

// Several prunings at once, up to several dates, have the result of the one with the last date.
func TestPrune_SeveralAtOnce(t *testing.T) {
	t.Parallel()

	d := begun(t, "", 0, 1)
	var all []history
	for slot := range int64(5) {
		all = append(all, randomHistory(rand.New(rand.NewPCG(9, uint64(slot))), slot+1))
		all[slot].insert(t, d)
	}
	was := answers(t, d, all)
	var group sync.WaitGroup
	for _, before := range []int64{60, 150, 90, 150} {
		group.Go(func() {
			if _, err := d.Prune(t.Context(), layout.TimeOf(before+1)); err != nil {
				t.Error(err)
			}
		})
	}
	group.Wait()
	checkPruned(t, all, 150, was, answers(t, d, all))
}

// Processes begin sessions while others are pruned; each id resolves to its own process, or to none if it is old.
func TestPrune_WhileProcessesRun(t *testing.T) {
	t.Parallel()

	path, clock := testkit.SQLitePath(t), testkit.NewClock(time.Date(2026, 6, 1, 12, 0, 0, 0, time.UTC))
	d := begun(t, path, 0, 1)
	ids, last := map[uidplugin.ID]string{}, (*uidplugin.Plugin)(nil)
	for i := range 12 {
		last = uidplugin.New(uidplugin.WithLogger(nil), uidplugin.WithClock(clock.Now), uidplugin.WithHost(workernode.Host{Port: fmt.Sprint("p", i)}))
		db := testkit.SQLite{Path: path}.Open(t)
		testkit.Must(t, db.Use(last))
		for range 3 {
			id, err := last.NextID(t.Context(), &row{})
			testkit.Must(t, err)
			ids[id] = fmt.Sprint("p", i)
			_, err = d.Prune(t.Context(), clock.Now()) // the process holds the slot
			testkit.Must(t, err)
		}
		testkit.MustClose(t, last)
		clock.Add(2 * time.Hour)
	}
	latest, err := d.Nodes.Sessions(t.Context(), layout, 0, time.Time{}, 1)
	testkit.Must(t, err)
	for id, port := range ids {
		l, err := last.Locate(t.Context(), id)
		if s := l.Session; err != nil || s.Port != "" && s.Port != port || !l.Time.Before(latest[0].From) && s.Port != port {
			t.Errorf("%d of %s: %+v, %v", id, port, l, err)
		}
	}
}

type row struct {
	ID uidplugin.ID
}

// Old sessions of another region are pruned there. Its rows come by replication.
func TestPrune_LeavesOtherRegions(t *testing.T) {
	t.Parallel()
	d := begun(t, "", 1, 2)
	for slot := int64(10); slot < 12; slot++ {
		run(t, d, `INSERT INTO "WORKER_SLOT" VALUES (?, 'l', 1, 5, 1, '', 5, 'app', 'host', '1', CURRENT_TIMESTAMP, ?)`, slot, slot-10)
		for tick := range 5 {
			run(t, d, `INSERT INTO "WORKER_SESSION" VALUES (?, ?, ?, 'app', 'host', '1', 1, ?, 'x')`, slot, tick, tick, prunedLaunch)
		}
	}
	for _, count := range []func(context.Context, time.Time) (Pruning, error){d.Prunable, d.Prune} {
		if p, err := count(t.Context(), layout.TimeOf(100+1)); err != nil || p != (Pruning{1, 4}) {
			t.Error(p, err)
		}
	}
}
