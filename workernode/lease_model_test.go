package workernode

import (
	"flag"
	"fmt"
	"runtime"
	"testing"
	"time"
)

// These tests go through everything that can happen to a few processes that share
// one or two rows for a few ticks, and see whether anything is stamped twice. What
// decides in there are the functions of lease.go; the rest is in the files beside:
//
//	lease_model_world_test.go    what there is, what can happen, what must never be
//	lease_model_process_test.go  what processes do, and where they ask lease.go
//	lease_model_story_test.go    what happened, in words
//	lease_model_nofence_test.go  other protocols, which have no FENCE
//	lease_model_explore_test.go  how all states are found, and the shortest way to a bad one
//
// No state of the worlds in TestLeaseModel is bad. Each world in TestLeaseMutant
// lacks something that the protocol rests on, and has a bad state: if none were
// found, the model would be blind there. With -v one reads how it comes about.
//
//	go test ./workernode -run LeaseM -v -timeout 0 -model.deep
//
// goes on for longer, with more ticks or more starts of processes: minutes instead
// of seconds, and 10 GB.

var modelDeep = flag.Bool("model.deep", false, "go through larger lease models, with 10 GB")

// modelSlots: two at a time, which keeps the memory below a gigabyte.
var modelSlots = make(chan struct{}, 2)

// A leaseScenario is a world, and how it is changed if there is little or much time.
type leaseScenario struct {
	name        string
	world       world
	short, deep func(*world)
}

func (sc leaseScenario) explore(t *testing.T) (w world, broken string, happened worldHistory) {
	w = sc.world
	w.tables, w.procs, w.rows = max(w.tables, 1), max(w.procs, 2), max(w.rows, 1)
	w.rules = w.rules.orReal()
	switch {
	case *modelDeep && sc.deep != nil:
		sc.deep(&w)
	case (testing.Short() || modelRacing) && sc.short != nil:
		sc.short(&w)
	}
	broken = exploreLogged(t, &w, func(e worldEvent) { happened[e.what][e.q.kind]++ })
	return w, broken, happened
}

func exploreLogged[S comparable, E fmt.Stringer](t *testing.T, m modelOf[S, E], happens func(E)) (broken string) {
	modelSlots <- struct{}{}
	defer func() { <-modelSlots }()
	begin := time.Now()
	states, depth, broken, story := exploreModel(m, happens, func(states, depth int) {
		if *modelDeep {
			t.Logf("%.1f million states, %d steps deep, after %v", float64(states)/1e6, depth, time.Since(begin).Round(time.Second))
		}
	})
	runtime.GC()
	t.Logf("%d states, %d steps deep, in %v", states, depth, time.Since(begin).Round(time.Millisecond))
	for i, line := range story {
		t.Logf("%3d. %s", i+1, line)
		if line == lostThread {
			t.Fail()
		}
	}
	if broken != "" {
		t.Logf("     %s", broken)
	}
	return broken
}

// durableTerms trust the database to keep what it acknowledged. As clocks show
// anything, a lead of 1 sets fences to anything.
func durableTerms(last int64) terms { return terms{lead: 1, last: last} }

// guardedTerms do not: nothing is stamped twice if lead <= margin + gap - skew - 1.
func guardedTerms(lead, margin int64) terms {
	return terms{lead: lead, margin: margin, slack: 1, last: 15}
}

func TestLeaseModel(t *testing.T) {
	t.Parallel()
	last := func(n int64) func(*world) { return func(w *world) { w.terms.last = n } }
	end := func(n uint8) func(*world) { return func(w *world) { w.end = n } }
	starts := func(n uint8) func(*world) { return func(w *world) { w.starts = n } }
	for _, sc := range []leaseScenario{
		// Clocks show anything, and the database keeps what it acknowledged.
		{"fence/two-processes", world{starts: 3, terms: durableTerms(3), stale: true, late: true, releases: true, strict: true}, last(2), last(4)},
		{"fence/four-starts", world{starts: 4, terms: durableTerms(3), stale: true, late: true, releases: true, strict: true, eager: true}, last(2), last(4)},
		{"fence/three-processes", world{procs: 3, starts: 3, terms: durableTerms(3), late: true, releases: true, strict: true, eager: true}, last(2), last(5)},
		{"fence/two-rows", world{rows: 2, starts: 2, terms: durableTerms(3), late: true, strict: true, eager: true}, last(2), starts(3)},
		{"fence/new-rows", world{rows: 2, tables: 2, empty: true, starts: 2, terms: durableTerms(3), late: true, strict: true, traced: true, eager: true}, last(2), starts(3)},
		{"fence/by-need", world{starts: 3, terms: terms{window: 1, last: 4}, late: true, releases: true, strict: true}, last(3), last(6)},
		{"fence/spares", world{tables: 2, empty: true, spares: true, starts: 3, terms: durableTerms(3), late: true, releases: true, strict: true, traced: true, eager: true}, last(2), last(5)},

		// A process is copied.
		{"copy/reset", world{procs: 3, starts: 2, terms: durableTerms(3), late: true, copies: copiesReset}, last(2), last(5)},
		{"copy/forgets-its-ticks", world{starts: 2, terms: durableTerms(4), late: true, copies: copiesEmptied}, last(3), last(5)},

		// Clocks show the time, and the database loses its last commits.
		{"lossy/lead-shorter-than-gap", world{starts: 2, end: 4, terms: guardedTerms(1, 0), hasty: true, eager: true, losses: 2, gap: 2}, end(3), end(6)},
		{"lossy/margin", world{starts: 2, end: 4, terms: guardedTerms(2, 1), hasty: true, eager: true, losses: 2, gap: 2}, end(3), end(6)},
		{"lossy/longer-margin", world{starts: 2, end: 5, terms: guardedTerms(3, 2), hasty: true, eager: true, losses: 1, gap: 2}, end(3), end(7)},
		{"lossy/skew", world{starts: 2, end: 5, skew: 1, terms: guardedTerms(2, 1), hasty: true, eager: true, losses: 1, gap: 3}, end(4), end(7)},
		{"lossy/three-starts", world{starts: 3, end: 4, terms: guardedTerms(2, 1), hasty: true, eager: true, losses: 1, gap: 2}, end(3), end(6)},
		{"lossy/late-statements", world{starts: 2, end: 3, terms: guardedTerms(2, 1), late: true, releases: true, eager: true, losses: 1, gap: 2}, end(2), end(5)},
		{"lossy/new-rows", world{tables: 2, empty: true, starts: 2, end: 5, terms: guardedTerms(2, 1), releases: true, eager: true, losses: 1, gap: 2, traced: true}, end(3), end(7)},
		{"lossy/two-new-rows", world{rows: 2, tables: 2, empty: true, starts: 2, end: 3, terms: guardedTerms(2, 1), eager: true, losses: 1, gap: 2, traced: true}, starts(1), end(4)},
		{"lossy/three-inserts", world{procs: 3, tables: 2, empty: true, starts: 3, end: 4, terms: guardedTerms(2, 1), eager: true, losses: 1, gap: 2, traced: true}, end(3), end(6)},
		{"lossy/spares", world{tables: 2, empty: true, spares: true, starts: 2, end: 3, terms: guardedTerms(2, 1), releases: true, eager: true, losses: 1, gap: 2, traced: true}, end(2), end(5)},
		{"lossy/restored-backup", world{tables: 2, empty: true, starts: 3, terms: durableTerms(4), releases: true, restores: true, losses: 1, traced: true}, last(3), last(6)},

		// What could be left out: it saves statements, or makes doubly sure.
		{"redundant/takeable", world{starts: 3, terms: durableTerms(3), hasty: true, late: true, strict: true}, last(2), last(4)},
		{"redundant/holder-of-extend", world{starts: 3, terms: durableTerms(3), late: true, strict: true, flaws: worldFlaws{noHolder: true}}, last(2), last(4)},
		{"redundant/extendable", world{starts: 3, terms: durableTerms(3), late: true, strict: true, rules: leaseRules{extendable: extendsAlways}}, last(2), last(4)},
		{"redundant/extendable-lossy", world{starts: 2, end: 4, terms: guardedTerms(2, 1), eager: true, losses: 2, gap: 2, rules: leaseRules{extendable: extendsAlways}}, end(3), end(6)},
		{"redundant/granted-above-until", world{starts: 2, end: 5, terms: guardedTerms(2, 1), losses: 1, gap: 2, rules: leaseRules{granted: grantedAboveCompare}}, end(4), end(6)},
		{"redundant/adopting", world{starts: 3, terms: durableTerms(3), late: true, releases: true, strict: true, flaws: worldFlaws{adopts: true}}, last(2), last(4)},
		{"redundant/slack", world{tables: 2, empty: true, starts: 2, end: 5, terms: guardedTerms(2, 1), eager: true, losses: 1, gap: 2, traced: true, rules: leaseRules{inserted: insertedAtAnyTime}}, end(4), end(7)},
	} {
		t.Run(sc.name, func(t *testing.T) {
			t.Parallel()
			w, broken, happened := sc.explore(t)
			if broken != "" {
				t.Errorf("%s: see above how", broken)
			} else if missing := w.missing(&happened); missing != nil {
				t.Errorf("these never happened: %q", missing)
			}
		})
	}
}

// Rules of lease.go with something left out.

// extendsAlways: even if it is not sure, or has lost the row, or was granted more.
func extendsAlways(s *seat, fence int64) bool { return fence > s.compare }

// grantedAboveCompare: but not above until.
func grantedAboveCompare(t terms, s *seat, fence, after int64) {
	fresh := seat{worker: s.worker, table: s.table, compare: s.compare, from: s.compare + 1, until: s.compare}
	if t.granted(&fresh, fence, after); fresh.from <= fresh.until {
		*s = fresh
	} else {
		s.compare, s.unsure = fresh.compare, false
	}
}

func insertedAtAnyTime(t terms, worker int64, table string, start, fence, _, after int64) (seat, bool) {
	return t.inserted(worker, table, start, fence, after, after)
}

func takenWithoutMargin(t terms, r row, fence, after int64) seat {
	t.margin = 0
	return t.taken(r, fence, after)
}

func takenWithoutFloor(t terms, r row, fence, after int64) seat {
	t.floor = 0
	return t.taken(r, fence, after)
}

// takenFromTheClock: without regard to what the row had.
func takenFromTheClock(t terms, r row, fence, after int64) seat {
	r.fence = 0
	return t.taken(r, fence, after)
}

func grantedWithoutMargin(t terms, s *seat, fence, after int64) {
	t.margin = 0
	t.granted(s, fence, after)
}

// grantedJoined: windows join even if the margin is between them.
func grantedJoined(t terms, s *seat, fence, after int64) {
	from, until := s.from, s.until
	if t.granted(s, fence, after); from <= until && s.from <= s.until {
		s.from = from
	}
}

func beginsWithoutMargin(t terms, now int64) int64 {
	t.margin = 0
	return t.begin(now)
}

func beginsWithoutFloor(t terms, now int64) int64 {
	t.floor = 0
	return t.begin(now)
}

func TestLeaseMutant(t *testing.T) {
	t.Parallel()
	for _, sc := range []leaseScenario{
		// A statement lacks something.
		{name: "fence/claim-without-FENCE", world: world{starts: 2, terms: durableTerms(3), flaws: worldFlaws{noFence: true}}},
		{name: "fence/extend-without-FENCE", world: world{starts: 2, terms: durableTerms(3), late: true, flaws: worldFlaws{extendNoFence: true}}},
		{name: "fence/extend-without-FENCE-copied", world: world{starts: 1, terms: durableTerms(3), copies: copiesEmptied, flaws: worldFlaws{extendNoFence: true}}},
		{name: "fence/claim-lowers", world: world{starts: 2, terms: durableTerms(3), flaws: worldFlaws{lowersTaking: true}}},
		{name: "fence/release-lowers", world: world{starts: 2, terms: durableTerms(3), late: true, releases: true, flaws: worldFlaws{lowersClosed: true}}},
		{name: "fence/release-lowers-while-stamping", world: world{starts: 2, terms: durableTerms(3), late: true, releases: true, flaws: worldFlaws{lowersOpen: true}}},

		// A process is too sure of itself.
		{name: "fence/used-when-sent", world: world{starts: 2, terms: durableTerms(3), late: true, flaws: worldFlaws{onSend: true}}},
		{name: "fence/taken-from-the-clock", world: world{starts: 2, terms: durableTerms(3), rules: leaseRules{taken: takenFromTheClock}}},
		{name: "fence/spares-keep-START_SECOND", world: world{tables: 2, empty: true, spares: true, starts: 2, terms: durableTerms(3), traced: true, flaws: worldFlaws{keepsStart: true}}},
		{name: "fence/spares-taken-again", world: world{tables: 2, empty: true, spares: true, starts: 2, terms: durableTerms(3), late: true, traced: true, flaws: worldFlaws{takesAgain: true}}},
		{name: "fence/spares-taken-with-a-table", world: world{tables: 2, empty: true, spares: true, starts: 2, terms: durableTerms(3), traced: true, flaws: worldFlaws{takesBound: true}}},
		{name: "copy/unnoticed", world: world{starts: 1, terms: durableTerms(3), copies: copiesAll}},
		{name: "copy/adopting", world: world{starts: 1, terms: durableTerms(3), copies: copiesEmptied, flaws: worldFlaws{adopts: true}}},

		// Too little for a database that loses commits.
		{name: "lossy/no-margin", world: world{starts: 2, end: 5, terms: guardedTerms(2, 0), losses: 1, gap: 2}},
		{name: "lossy/lead-one-too-long", world: world{starts: 2, end: 5, terms: guardedTerms(3, 1), losses: 1, gap: 2}},
		{name: "lossy/skew-one-too-large", world: world{starts: 2, end: 5, skew: 1, terms: guardedTerms(2, 1), losses: 1, gap: 2}},
		{name: "lossy/by-need", world: world{starts: 2, end: 5, terms: terms{lead: 2, margin: 1, window: 2, last: 15}, losses: 1, gap: 2}},
		{name: "lossy/margin-from-the-clock-at-send", world: world{starts: 2, end: 5, terms: guardedTerms(2, 1), losses: 1, gap: 2, flaws: worldFlaws{clockAtSend: true}}},
		{name: "lossy/margin-when-taken-only", world: world{starts: 2, end: 5, terms: guardedTerms(2, 1), losses: 1, gap: 2, rules: leaseRules{granted: grantedWithoutMargin}}},
		{name: "lossy/margin-when-extended-only", world: world{starts: 2, end: 5, terms: guardedTerms(2, 1), losses: 1, gap: 2, rules: leaseRules{taken: takenWithoutMargin}}},
		{name: "lossy/windows-joined", world: world{starts: 2, end: 5, terms: guardedTerms(2, 1), eager: true, losses: 1, gap: 2, rules: leaseRules{granted: grantedJoined}}},
		{name: "lossy/START_SECOND-without-margin", world: world{tables: 2, empty: true, starts: 2, end: 5, terms: guardedTerms(2, 1), losses: 1, gap: 2, traced: true, rules: leaseRules{begin: beginsWithoutMargin}}},
		{name: "lossy/restored-without-FLOOR_SECOND", world: world{starts: 2, terms: durableTerms(3), restores: true, losses: 1, rules: leaseRules{taken: takenWithoutFloor}}},
		{name: "lossy/START_SECOND-below-FLOOR_SECOND", world: world{tables: 2, empty: true, starts: 2, terms: durableTerms(3), restores: true, losses: 1, traced: true, rules: leaseRules{begin: beginsWithoutFloor}}},

		// Not mutants: what does not hold today.
		//
		// A worker id is reserved twice, as the first reservation was lost, then its row
		// is lost, and a second one with an early START_SECOND was on its way meanwhile.
		// That its process forgets it for slowness does not remove it.
		{name: "limit/lost-twice", world: world{tables: 2, empty: true, starts: 2, end: 6, terms: guardedTerms(2, 1), eager: true, losses: 2, gap: 2, traced: true}},
	} {
		t.Run(sc.name, func(t *testing.T) {
			t.Parallel()
			if _, broken, _ := sc.explore(t); broken == "" {
				t.Error("nothing bad was found: is there more in the way now, or is the model blind?")
			}
		})
	}
}

func TestLeaseModelNoFence(t *testing.T) {
	t.Parallel()
	for name, w := range map[string]noFence{
		"lease": {end: 5, starts: 2, term: 2, careful: true},
		"leaf":  {end: 5, starts: 3, leaf: true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if broken := exploreLogged(t, &w, func(noFenceEvent) {}); broken != "" {
				t.Errorf("%s: see above how", broken)
			}
		})
	}
}

// A lease is safe as long as clocks are right and nothing is stamped ahead of them,
// nor after a look at the clock. A ring does both.
func TestLeaseMutantNoFence(t *testing.T) {
	t.Parallel()
	for name, w := range map[string]noFence{
		"lease-ring-borrows":       {end: 5, starts: 2, term: 2, careful: true, borrow: 2},
		"lease-ring-not-looked-at": {end: 5, starts: 2, term: 2, borrow: 1},
		"lease-clock-goes-back":    {end: 5, starts: 2, term: 2, careful: true, back: 1},
		"leaf-clock-goes-back":     {end: 5, starts: 3, leaf: true, back: 1},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if exploreLogged(t, &w, func(noFenceEvent) {}) == "" {
				t.Error("nothing bad was found")
			}
		})
	}
}

// A worldHistory counts what has happened, by event and statement.
type worldHistory [evReleaseLater + 1][stmtBind + 1]int

// missing lists what should have happened in a world, and did not: then the world
// is too small to show anything.
func (w *world) missing(h *worldHistory) (missing []string) {
	for _, e := range []struct {
		possible bool
		what     eventKind
		kind     stmtKind
	}{
		{true, evStart, 0},
		{true, evLearn, stmtClaim},
		{true, evLearn, stmtExtend},
		{true, evGiveUp, stmtExtend},
		{true, evRead, 0},
		{true, evReadTaken, 0},
		{!w.eager, evStamp, 0},
		{w.empty, evLearn, stmtReserve},
		{w.empty, evLearn, stmtInsert},
		{w.spares, evLearn, stmtBind},
		{w.late, evLate, stmtClaim},
		{w.late, evLate, stmtExtend},
		{w.releases, evRelease, stmtRelease},
		{w.releases && w.late, evLate, stmtRelease},
		{w.copies != copiesNone, evClone, 0},
		{w.losses > 0 && !w.restores, evLoss, 0},
		{w.restores, evRestore, 0},
	} {
		if e.possible && h[e.what][e.kind] == 0 {
			missing = append(missing, worldEvent{what: e.what, q: worldStatement{kind: e.kind, table: 1}}.String())
		}
	}
	return missing
}
