package lease

import (
	"hash/maphash"
	"time"
)

// This file finds all states of a world, breadth first, and the shortest sequence of events that ends in a bad state.

var modelSeed = maphash.MakeSeed()

// A modelSet is a set of states, stored as 64-bit hashes. Each has the number of the state from which it was found.
type modelSet struct {
	hash  []uint64
	from  []uint32
	table []uint32
}

func (x *modelSet) add(h uint64, from int) bool {
	i := x.place(h)
	for ; x.table[i] != 0; i = (i + 1) & (len(x.table) - 1) {
		if x.hash[x.table[i]-1] == h {
			return false
		}
	}
	x.hash, x.from = append(x.hash, h), append(x.from, uint32(from))
	x.table[i] = uint32(len(x.hash))
	if len(x.hash) > len(x.table)/4*3 {
		x.table = make([]uint32, 2*len(x.table))
		for n, h := range x.hash {
			i := x.place(h)
			for ; x.table[i] != 0; i = (i + 1) & (len(x.table) - 1) {
			}
			x.table[i] = uint32(n + 1)
		}
	}
	return true
}

func (x *modelSet) place(h uint64) int { return int(h & uint64(len(x.table)-1)) }

// canonical forgets what has no consequences any more, so that fewer states differ.
func (w *modelWorld) canonical(s *modelState) {
	m := &w.mutant
	for p := range s.procs {
		x := &s.procs[p]
		if x.mode == modelDead {
			*x = modelProc{mode: modelDead, token: x.token}
		}
		for f, a := range x.answers {
			if q := &x.flight[f]; a == modelRefused || a == modelBroken {
				*q = modelStatement{kind: q.kind, proc: q.proc, change: modelChange{slot: q.change.slot, first: q.change.first}}
			}
		}
		l := &x.lease
		switch {
		case !l.held:
			*l = modelLease{used: l.used}
		case l.inDoubt && !m.twoInFlight && !m.skipsRead && x.answers[0] == modelIdle:
			l.version, l.fence = 0, 0
		}
		if !w.adds {
			l.session = 0 // no worker id is used later than others
		}
		x.holed = x.holed && m.noSendCheck
	}
	if s.losses == 0 && !w.stale && !w.fromReplica {
		s.replica = modelDB{}
	}
	if w.noSession && w.noTable {
		for i := range s.stamped {
			a := &s.stamped[i]
			a[0][0] |= a[0][1] | a[1][0] | a[1][1] | a[2][0] | a[2][1]
			a[0][1], a[1], a[2] = 0, [2]uint16{}, [2]uint16{}
		}
	}
}

// check returns the fault of a state, or 0.
func (w *modelWorld) check(s *modelState) uint8 {
	if s.fault != 0 {
		return s.fault
	}
	fault := w.resolve(s, &s.db)
	if fault == 0 && w.fromReplica {
		fault = w.resolve(s, &s.replica)
	}
	if fault == 0 && w.lively && !w.recovers(*s) {
		fault = modelStuck
	}
	return fault
}

// A modelResult has the findings about a world.
type modelResult struct {
	states, depth int
	full          bool
	fault         uint8
	story         []string
	happened      map[string]int
	took          time.Duration
}

func (w *modelWorld) explore(limit int) (r modelResult) {
	begin := time.Now()
	x := &modelSet{table: make([]uint32, 1<<16)}
	r.happened, r.full = map[string]int{}, true
	defer func() { r.states, r.took = len(x.hash), time.Since(begin) }()
	s := w.first()
	w.canonical(&s)
	x.add(maphash.Bytes(modelSeed, s.bytes()), 0)
	at := 0
	for level, next := []modelState{s}, []modelState(nil); len(level) > 0; r.depth++ {
		for i := range level {
			w.steps(&level[i], func(e modelEvent, n *modelState) {
				if r.fault != 0 {
					return
				}
				if r.happened[e.what+" "+modelKinds[e.q.kind]+modelReasons[e.q.why]]++; n.fault == modelOverflow {
					r.happened["overflow "]++
					return
				}
				if r.fault = w.check(n); r.fault != 0 {
					return
				}
				w.canonical(n)
				if x.add(maphash.Bytes(modelSeed, n.bytes()), at) {
					next = append(next, *n)
				}
			})
			if r.fault != 0 {
				r.story = append(w.retell(x, at), modelFaults[r.fault])
				return r
			}
			if at++; len(x.hash) > limit {
				r.full = false
				return r
			}
		}
		level, next = next, level[:0]
	}
	return r
}

// retell goes from the first state to the bad one that was found from state number last.
func (w *modelWorld) retell(x *modelSet, last int) (story []string) {
	path := []int{}
	for i := last; i != 0; i = int(x.from[i]) {
		path = append(path, i)
	}
	s := w.first()
	w.canonical(&s)
	for i := len(path); i >= 0; i-- {
		found := false
		var next modelState
		w.steps(&s, func(e modelEvent, n *modelState) {
			if found || n.fault == modelOverflow {
				return
			}
			fault := w.check(n)
			if i == 0 {
				found = fault != 0
			} else if fault == 0 {
				w.canonical(n)
				found = maphash.Bytes(modelSeed, n.bytes()) == x.hash[path[i-1]]
			}
			if found {
				story, next = append(story, e.String()), *n
			}
		})
		if !found {
			return append(story, modelUntold)
		}
		s = next
	}
	return story
}

const modelUntold = "the story cannot be retold"

// recovers lets each process do all its work, one after another, while all answers arrive and time passes. It reports
// whether each process can stamp in the end.
func (w *modelWorld) recovers(s modelState) bool {
	v := modelWorld{
		procs: w.procs, tables: w.tables, own: w.own, wants: w.wants, end: min(s.now+9, 13),
		lead: w.lead, settle: 1, grace: 1, maxV: 200, maxSlots: modelSlots, newSlots: true, noSession: true, quiet: 1,
		pauses: w.pauses, mutant: w.mutant,
	}
	s.losses, s.clones, s.left = 0, 0, modelStatement{}
	for range 200 {
		done := true
		for p := range uint8(v.procs) {
			x := &s.procs[p]
			stamps := x.lease.held && !x.lease.inDoubt && x.lease.granted >= s.now && x.lease.granted > w.lead+1
			if x.mode != modelAlive || stamps {
				continue
			}
			if done = false; s.down > 0 {
				continue
			}
			best, next := 0, s
			v.process(&s, p, func(e modelEvent, n *modelState) {
				rank := 2
				if e.q.kind == modelReserveSlot && e.what == "sends" {
					rank = 1
				}
				if rank > best {
					best, next = rank, *n
				}
			})
			next.fault = 0
			s = next
		}
		if done {
			return true
		}
		if s.now < v.end {
			s.now++
			s.down = max(s.down, 1) - 1
		}
	}
	return false
}
