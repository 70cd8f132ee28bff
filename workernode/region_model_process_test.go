package workernode

import (
	"fmt"

	"github.com/uidplugin/uidplugin/workernode/internal/lease"
)

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
