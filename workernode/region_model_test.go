package workernode

import (
	"flag"
	"fmt"
	"maps"
	"slices"
	"testing"

	"github.com/uidplugin/uidplugin/internal/testkit"
	"github.com/uidplugin/uidplugin/workernode/internal/lease"
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

// world is what happens outside of the processes.
func (x *regionSearch) world(s rmState) {
	if n := s; n.now < rmTicks-1 {
		n.now++
		x.to(s, n, "a tick")
	}
	if n := s; x.mutant == mutantEarlyNumbers && s.early == [2]uint8{} {
		n.early = [2]uint8{s.dbs[0].nextID, s.dbs[0].nextSlot}
		x.to(s, n, "somebody reads the counters")
	}
	if n := s; s.dbs[0].region == Whole && !s.undone && (x.mutant != mutantEarlyNumbers || s.early != [2]uint8{}) {
		n.dbs[0].region = Region{0, 2}
		x.to(s, n, "the registry is divided")
	}
	if n := s; s.dbs[0].region == (Region{0, 2}) && s.dbs[1].region == (Region{}) { // somebody runs the INSERT, now or later
		other := Registry{Region: s.dbs[0].region, NextID: int64(s.dbs[0].nextID), NextSlot: int64(s.dbs[0].nextSlot)}
		switch x.mutant {
		case mutantFirstNumbers:
			other.NextID, other.NextSlot = 1, 1
		case mutantEarlyNumbers:
			other.NextID, other.NextSlot = int64(s.early[0]), int64(s.early[1])
		}
		other = other.Other(map[bool]int64{true: 0, false: 1}[x.mutant == mutantSameRegion])
		n.dbs[1].region, n.dbs[1].nextID, n.dbs[1].nextSlot = other.Region, uint8(other.NextID), uint8(other.NextSlot)
		x.to(s, n, "the other registry begins")
	}
	if n := s; s.dbs[0].region == (Region{0, 2}) && s.dbs[1].region != (Region{}) && s.allKnow() {
		n.dbs[0].region, n.undone = Whole, true
		x.to(s, n, "a backup from before the division is restored")
	}
	for d := range s.dbs {
		x.deliver(s, d)
	}
}

// allKnow reports whether all processes of the first database know that it is divided. docs/regions.md says to restart
// them with WithRegion after the division.
func (s *rmState) allKnow() bool {
	for p := range s.procs {
		if me := &s.procs[p]; home(p) == 0 && (me.known == Whole || me.read == Whole) {
			return false
		}
	}
	return true
}

// deliver executes a replicated row in the other database.
func (x *regionSearch) deliver(s rmState, d int) {
	if s.dbs[d].queued == 0 {
		return
	}
	n := s
	row := n.dbs[d].queue[0]
	copy(n.dbs[d].queue[:], n.dbs[d].queue[1:])
	n.dbs[d].queued--
	n.dbs[d].queue[n.dbs[d].queued] = rmRow{}
	to := &n.dbs[1-d]
	if row.node {
		if there := to.nodes[row.key]; there.origin != 0 && there.origin != row.of.origin {
			x.bad(s, "replication stops: both databases have inserted worker id %d", row.key)
		}
		to.nodes[row.key] = row.of
	} else {
		if there := to.slots[row.key]; there.origin != 0 && there.origin != row.slot.origin {
			x.bad(s, "replication stops: both databases have inserted slot %d", row.key)
		}
		to.slots[row.key] = row.slot
		x.happened["replicates a slot"] = true
	}
	x.to(s, n, fmt.Sprintf("database %d executes %+v", 1-d, row))
}

// send queues a row for the other database. It reports false if the queue is full.
func (n *rmState) send(d int, row rmRow) bool {
	db := &n.dbs[d]
	if db.queued == rmQueue {
		return false
	}
	db.queue[db.queued] = row
	db.queued++
	return true
}

func (x *regionSearch) process(s rmState, p int) {
	d := home(p)
	db, me := &s.dbs[d], &s.procs[p]
	switch me.state {
	case rmUnborn:
		// After the division, processes have WithRegion.
		if n := s; db.region != (Region{}) && !(s.undone && d == 0) {
			n.procs[p] = rmProc{state: rmNoSlot, known: db.region}
			x.to(s, n, fmt.Sprintf("process %d starts in %s", p, db.region))
		}
		return
	case rmDead:
		return
	case rmNoSlot:
		x.reclaim(s, p)
		x.read(s, p, rmReadSlot)
	case rmReadSlot:
		x.take(s, p, rmTookSlot, false)
	case rmTookSlot:
		if n := s; db.slots[me.number] == (rmSlot{}) {
			n.dbs[d].slots[me.number] = rmSlot{uint8(d + 1), uint8(me.known.N), uint8(p + 1), s.now + rmLead}
			n.procs[p].slot = me.number
			x.grant(s, n, p, me.number, s.now, rmHolds)
		} else {
			n.procs[p].state = rmNoSlot
			x.to(s, n, fmt.Sprintf("process %d finds slot %d taken", p, me.number))
		}
	case rmHolds:
		x.read(s, p, rmReadWorker)
		x.renew(s, p)
	case rmReadWorker:
		x.take(s, p, rmTookWorker, true)
		x.renew(s, p)
	case rmTookWorker:
		if n := s; db.nodes[me.number] == (rmNode{}) && n.send(d, rmRow{node: true, key: me.number, of: rmNode{uint8(d + 1), me.slot}}) {
			n.dbs[d].nodes[me.number] = rmNode{uint8(d + 1), me.slot}
			n.procs[p].state, n.procs[p].worker = rmDone, me.number
			x.stamp(s, n, p, s.now)
		}
		x.renew(s, p)
	case rmDone:
		x.renew(s, p)
	}
	n := s
	n.procs[p] = rmProc{state: rmDead}
	x.to(s, n, fmt.Sprintf("process %d ends", p))
}

// read reads the registry before a number is taken, as DB.reread.
func (x *regionSearch) read(s rmState, p int, state uint8) {
	n, me := s, &s.procs[p]
	region := s.dbs[home(p)].region
	if !region.DividedFrom(me.known) && x.mutant != mutantUndivided {
		x.happened["refuses an undivided registry"] = true
		return
	}
	n.procs[p].read, n.procs[p].known, n.procs[p].state = region, region, state
	x.to(s, n, fmt.Sprintf("process %d reads %s", p, region))
}

// take takes a number, as DB.advance.
func (x *regionSearch) take(s rmState, p int, state uint8, worker bool) {
	n, me, d := s, &s.procs[p], home(p)
	db := &n.dbs[d]
	if db.region != me.read && x.mutant != mutantNoCompare {
		x.happened["compares an earlier STRIDE"] = true
		n.procs[p].state = state - 2 // rmNoSlot or rmHolds
		x.to(s, n, fmt.Sprintf("process %d is refused", p))
		return
	}
	counter := &db.nextSlot
	if worker {
		counter = &db.nextID
	}
	number := me.read.From(int64(*counter))
	if number >= min(rmSlots, rmWorkers) {
		return
	}
	*counter = uint8(number + me.read.Of)
	if worker {
		if n.taken[number] != 0 {
			x.bad(s, "worker id %d is given out twice", number)
		}
		n.taken[number] = uint8(d + 1)
		if d == 1 {
			x.happened["the other region takes a worker id"] = true
		} else if me.read != Whole {
			x.happened["takes a worker id after the division"] = true
		}
	}
	n.procs[p].number, n.procs[p].state = uint8(number), state
	x.to(s, n, fmt.Sprintf("process %d takes %d of %s, worker id %v", p, number, me.read, worker))
}

func (x *regionSearch) params(p *rmProc) lease.Params {
	return lease.Params{Lead: rmLead, Settle: 0, Grace: 0, Quiet: 0, Last: 100, Region: p.known.N}
}

// reclaim takes the slot of a former process.
func (x *regionSearch) reclaim(s rmState, p int) {
	d, me := home(p), &s.procs[p]
	for i, r := range s.dbs[d].slots {
		row := lease.Row{ID: int64(i), Holder: "other", Fence: int64(r.fence), Region: int64(r.region)}
		params := x.params(me)
		if x.mutant == mutantReclaimsAll {
			row.Region = params.Region
		}
		if r.origin == 0 {
			continue
		}
		if !params.Usable(row, int64(s.now)) {
			if row.Region != params.Region && params.Reclaimable(row, int64(s.now)) {
				x.happened["leaves a slot of another region"] = true
			}
			continue
		}
		x.happened["reclaims a slot"] = true
		n := s
		n.dbs[d].slots[i].holder, n.dbs[d].slots[i].fence = uint8(p+1), s.now+rmLead
		n.procs[p].slot = uint8(i)
		for w, node := range s.dbs[d].nodes {
			if node.origin != 0 && node.slot == uint8(i) {
				n.procs[p].worker = uint8(w)
			}
		}
		state := rmHolds
		if n.procs[p].worker != 0 {
			state = rmDone
		}
		x.grant(s, n, p, uint8(i), max(s.now, r.fence+1), state)
	}
}

// renew moves the fence on, if the slot is still its own.
func (x *regionSearch) renew(s rmState, p int) {
	d, me := home(p), &s.procs[p]
	r := s.dbs[d].slots[me.slot]
	if r.holder != uint8(p+1) || r.fence != me.granted || r.fence >= s.now+rmLead {
		return
	}
	n := s
	n.dbs[d].slots[me.slot].fence = s.now + rmLead
	x.grant(s, n, p, me.slot, max(s.now, r.fence+1), me.state)
}

// grant records that the row of the slot was written, and stamps the ticks from first on.
func (x *regionSearch) grant(s, n rmState, p int, slot, first, state uint8) {
	d := home(p)
	row := n.dbs[d].slots[slot]
	if !n.send(d, rmRow{key: slot, slot: row}) {
		return
	}
	n.procs[p].granted, n.procs[p].state = row.fence, state
	x.stamp(s, n, p, first)
}

// stamp stamps all ticks from first to the granted one with the worker id of a process.
func (x *regionSearch) stamp(s, n rmState, p int, first uint8) {
	me := &n.procs[p]
	for tick := first; me.worker != 0 && tick <= me.granted; tick++ {
		if by := n.stamped[me.worker][tick]; by != 0 && by != uint8(p+1) {
			x.bad(s, "two processes stamp tick %d with worker id %d", tick, me.worker)
		}
		n.stamped[me.worker][tick] = uint8(p + 1)
	}
	x.to(s, n, fmt.Sprintf("process %d stamps slot %d, worker id %d, up to %d", p, me.slot, me.worker, me.granted))
}
