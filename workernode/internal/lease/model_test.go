package lease

import (
	"flag"
	"runtime/debug"
	"testing"
	"time"

	"github.com/uidplugin/uidplugin/internal/testkit"
)

// These tests try everything that can happen to a few processes that share one or two slots for a few ticks. They
// look for a bad state: a tick stamped twice with one worker id, a stamped tick up to FLOOR_TICK, an id that resolves
// to a wrong table or process, or a process that can never stamp again. The functions of lease.go and Needs.Next
// decide. The rest is in these files:
//
//	model_worlds_test.go   the worlds, and the mutants: worlds where a process breaks one rule
//	model_state_test.go    the state: database, processes, statements
//	model_world_test.go    what can happen outside of the processes
//	model_process_test.go  what processes decide and send
//	model_slot_test.go     what they send about their slot
//	model_answer_test.go   which statements and answers arrive
//	model_explore_test.go  the search for all states, and for the shortest way to a bad one
//
// Without a flag, large worlds are searched up to a limit, which is high enough for the mutants that they try. With
// -v, the tests print how far they searched, and how each mutant fails. This searches everything, in minutes and less
// than 8 GB:
//
//	go test ./workernode/internal/lease -run TestSlotLease -v -timeout 0 -model.deep
//
// A stamp stands for all ids of a tick. All that is granted is stamped at once, because nothing
// can forbid it later. A crash needs no step: it is a process that does nothing more.

var modelDeep = flag.Bool("model.deep", false, "go through all of the lease model, in minutes and less than 8 GB")

// modelLimit returns how many states of a world are searched. limit is the usual number.
func modelLimit(limit int) int {
	switch {
	case *modelDeep:
		return 12_000_000
	case testkit.Race: // then a state takes some ten times as long
		return min(limit, 8_000)
	case testing.Short():
		return min(limit, 25_000)
	}
	return limit
}

// modelParallel has a test run in parallel with others, unless it needs most of the memory.
func modelParallel(t *testing.T) {
	t.Helper()
	if !*modelDeep {
		t.Parallel()
	}
}

func (c *modelCase) explore(t *testing.T, limit int) modelResult {
	if *modelDeep {
		defer debug.SetMemoryLimit(debug.SetMemoryLimit(5 << 30))
		defer debug.FreeOSMemory()
	}
	r := c.world.explore(limit)
	how := "bounded"
	if r.fault != 0 {
		how = modelFaults[r.fault]
	} else if r.full {
		how = "full"
	}
	t.Logf("%s: %d states, depth %d, %s, %v", c.name, r.states, r.depth, how, r.took.Round(time.Millisecond))
	for i, line := range r.story {
		t.Logf("%3d. %s", i+1, line)
		if line == modelUntold {
			t.Error("a state has another successor each time: the model is not a function of the state")
		}
	}
	return r
}

// modelMustHappen lists what would make the safe worlds worthless if it never happened there.
var modelMustHappen = []string{
	"tick ", "copy ", "loss ", "restore ", "starts ", "is copied ", "asks ", "decides ",
	"reads ", "reads that its slot is lost ", "reads its worker ids ",
	"late renew", "late begin", "late add", "late reclaim", "late release to close", "late keep-alive",
	"gives up renew", "gives up begin", "gives up add", "is refused begin", "is refused add",
	"has the answer to renew", "has the answer to begin", "has the answer to reclaim", "has the answer to allocate",
	"has the answer to NEXT_SLOT", "has the answer to add", "has the answer to keep-alive",
	"does not keep FENCE of reclaim", "does not keep FENCE of begin", "does not keep FENCE of add",
	"has the answer to release to close", "has the answer to release to check commits", "has the answer to release to abandon",
}

// In every state that a world can reach, no tick is granted twice.
func TestSlotLease_SafeInEveryWorld(t *testing.T) {
	modelParallel(t)
	happened, left := map[string]int{}, modelSafeWorlds()
	for _, c := range left {
		t.Run(c.name, func(t *testing.T) {
			left = left[1:]
			r := c.explore(t, modelLimit(c.limit))
			if r.fault != 0 {
				t.Errorf("%s in %d steps; -v tells the story", modelFaults[r.fault], len(r.story)-1)
			}
			for what, n := range r.happened {
				happened[what] += n
			}
		})
	}
	if testkit.Race || testing.Short() || len(left) > 0 {
		return
	}
	for _, what := range modelMustHappen {
		if happened[what] == 0 {
			t.Errorf("%q never happened in any world", what)
		}
	}
}

// Each mutant breaks one rule in a safe world. If a mutant passed, the model could not show that the rule is needed.
func TestSlotLease_ModelFindsEveryMutant(t *testing.T) {
	modelParallel(t)
	safe := modelSafeWorlds()
	for _, c := range modelMutants(safe) {
		limit := modelLimit(safe.named(c.of).limit)
		if c.found > limit {
			continue // its world is that large with -model.deep only
		}
		t.Run(c.name, func(t *testing.T) {
			if r := c.explore(t, limit); r.fault == 0 {
				t.Errorf("no state of %d is bad; it should be found after about %d", r.states, c.found)
			}
		})
	}
}
