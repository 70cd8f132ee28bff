package workernode

import (
	"flag"
	"fmt"
	"maps"
	"slices"
	"testing"

	"github.com/uidplugin/uidplugin/internal/testkit"
)

var modelDeep = flag.Bool("model.deep", false, "go through all of the region model")

// TestRegions_Model tries everything that can happen to a few processes of two databases, which replicate the rows of
// slots and worker ids to each other. The first registry is divided meanwhile, and a backup from before may be
// restored. A bad state is a number that two registries give out, a tick that two processes stamp with one worker id,
// or a row that both databases have inserted, at which replication stops. Region and lease.Params.Usable decide.
// TestSlotLease covers what can go wrong within one region: here each statement is answered.
//
// Each mutant breaks one rule, and must lead to a bad state.
func TestRegions_Model(t *testing.T) {
	t.Parallel()
	for _, m := range []regionMutant{0, mutantNoCompare, mutantFirstNumbers, mutantEarlyNumbers, mutantReclaimsAll, mutantSameRegion, mutantUndivided} {
		t.Run(m.String(), func(t *testing.T) {
			t.Parallel()
			limit := 150_000
			if testkit.Race {
				limit = 60_000
			}
			if *modelDeep {
				limit = 4_000_000
			}
			x := &regionSearch{mutant: m, happened: map[string]bool{}}
			fault := ""
			for name, begin := range rmWorlds() {
				if fault == "" {
					fault = x.explore(begin, limit)
					t.Logf("%s: %d states: %s", name, len(x.from), fault)
				}
			}
			switch {
			case m == 0 && fault != "":
				t.Error(fault)
			case m != 0 && fault == "":
				t.Error("the mutant leads to no bad state")
			case m == 0:
				for _, what := range []string{"leaves a slot of another region", "takes a worker id after the division", "the other region takes a worker id",
					"compares an earlier STRIDE", "refuses an undivided registry", "reclaims a slot", "replicates a slot"} {
					if !x.happened[what] {
						t.Errorf("%q never happened: %q", what, slices.Sorted(maps.Keys(x.happened)))
					}
				}
			}
		})
	}
}

type regionMutant int

const (
	mutantNoCompare    regionMutant = iota + 1 // the UPDATE of a counter does not compare STRIDE
	mutantFirstNumbers                         // the other region begins with the first numbers
	mutantEarlyNumbers                         // it begins above the counters before the division
	mutantReclaimsAll                          // processes reclaim slots of other regions
	mutantSameRegion                           // both registries are of one region
	mutantUndivided                            // a process goes on with a registry that is not divided any more
)

func (m regionMutant) String() string {
	return [...]string{"protocol", "no comparison", "first numbers", "numbers from before", "slots of all regions", "one region twice", "undivided again"}[m]
}

const (
	rmSlots, rmWorkers, rmTicks, rmProcs, rmQueue = 5, 5, 5, 3, 3
	rmLead                                        = 1
)

type (
	rmSlot struct{ origin, region, holder, fence uint8 } // origin and holder plus 1; 0 is none
	rmNode struct{ origin, slot uint8 }                  // origin plus 1; 0 is no row
	rmRow  struct {                                      // on its way to the other database
		node bool
		key  uint8
		slot rmSlot
		of   rmNode
	}
	rmDB struct {
		region           Region // zero: no registry
		nextID, nextSlot uint8
		slots            [rmSlots]rmSlot
		nodes            [rmWorkers]rmNode
		queue            [rmQueue]rmRow // to the other database
		queued           uint8
	}
	rmProc struct {
		state        uint8  // rmUnborn and so on
		known, read  Region // of the registry, at the start and at the latest reading
		slot, number uint8  // the slot, and a number that was taken
		granted      uint8  // last tick that it may stamp
		worker       uint8
	}
	rmState struct {
		dbs     [2]rmDB
		procs   [rmProcs]rmProc
		stamped [rmWorkers][rmTicks + rmLead + 1]uint8 // process plus 1
		taken   [rmWorkers]uint8                       // worker ids, by the database plus 1
		early   [2]uint8                               // NEXT_ID and NEXT_SLOT before the division
		now     uint8
		undone  bool // the division was undone
	}
)

// What a process does next.
const (
	rmUnborn     uint8 = iota
	rmNoSlot           // reclaims a slot, or reads the registry to take one
	rmReadSlot         // has read the registry, and takes a slot
	rmTookSlot         // inserts the slot
	rmHolds            // reads the registry to take a worker id, or renews
	rmReadWorker       // has read the registry, and takes a worker id
	rmTookWorker       // inserts the worker id
	rmDone             // renews
	rmDead
)

// rmWorlds are the states in which the search begins.
func rmWorlds() map[string]rmState {
	var undivided rmState
	undivided.dbs[0].region, undivided.dbs[0].nextID, undivided.dbs[0].nextSlot = Whole, 1, 1
	used := rmState{dbs: [2]rmDB{{region: Region{0, 2}, nextID: 4, nextSlot: 4}, {region: Region{1, 2}, nextID: 1, nextSlot: 1}}}
	for d := range used.dbs { // process 0 has the slot 2, with worker id 2
		used.dbs[d].slots[2], used.dbs[d].nodes[2] = rmSlot{1, 0, 1, rmLead}, rmNode{1, 2}
	}
	used.procs[0] = rmProc{state: rmDone, known: Region{0, 2}, read: Region{0, 2}, slot: 2, worker: 2, granted: rmLead}
	for tick := range rmLead + 1 {
		used.stamped[2][tick] = 1
	}
	return map[string]rmState{"undivided": undivided, "used": used}
}

// home returns the database of a process: the first two have the first.
func home(p int) int { return p / 2 }

type rmStep struct {
	before rmState
	what   string
}

type regionSearch struct {
	mutant   regionMutant
	from     map[rmState]rmStep // how each state was reached
	queue    []rmState
	fault    string
	happened map[string]bool
}

// explore searches up to limit states, and returns the first bad state with the way to it.
func (x *regionSearch) explore(begin rmState, limit int) string {
	x.from = map[rmState]rmStep{begin: {}}
	x.queue = []rmState{begin}
	for len(x.queue) > 0 && len(x.from) < limit && x.fault == "" {
		s := x.queue[0]
		x.queue = x.queue[1:]
		x.world(s)
		for p := range rmProcs {
			x.process(s, p)
		}
	}
	return x.fault
}

func (x *regionSearch) to(before, after rmState, what string) {
	if _, ok := x.from[after]; !ok && x.fault == "" {
		x.from[after] = rmStep{before, what}
		x.queue = append(x.queue, after)
	}
}

// bad records a bad state that follows from s.
func (x *regionSearch) bad(s rmState, format string, args ...any) {
	if x.fault == "" {
		x.fault = fmt.Sprintf(format, args...)
		for step := x.from[s]; step.what != ""; step = x.from[step.before] {
			x.fault = step.what + "\n" + x.fault
		}
	}
}
