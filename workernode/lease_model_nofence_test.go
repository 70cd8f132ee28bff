package workernode

import "fmt"

// What is done elsewhere, and why FENCE is there: a lease in the database, which
// ends by the clock; and Leaf's way, to report the time after it was used. One row,
// two processes, and clocks that are perfect unless they step back.
//
// With a lease a process has the row to itself for term ticks from when it asked,
// as its own clock counts. It fills a ring with ticks from its clock on, borrow of
// them ahead, and stamps what is in the ring.

type noFence struct {
	end    uint8 // of time
	starts uint8
	back   uint8 // clocks may show so much less than the time

	term    uint8 // of a lease
	borrow  uint8
	careful bool // the lease is looked at for each stamp, not only when the ring is filled

	leaf bool // no lease: one process at a time, which reports now and then what it has stamped, and begins above it
}

type noFenceState struct {
	procs            [2]noFenceProcess
	now              uint8
	holder, expires  uint8 // who has the lease, and until when by the database's clock
	reported, starts uint8
	stamped          uint8 // bits
	twice            bool
}

type noFenceProcess struct {
	id          uint8 // HOLDER, another one after each start; 0 if it is down
	asked       uint8 // clock + 1 when it asked for a lease, or 0
	answer      procAnswer
	until       uint8 // end of the lease
	next, limit uint8 // the ring holds the ticks from next up to, but not including, limit
}

type noFenceEvent struct {
	text string
	p, a int
}

func (e noFenceEvent) String() string { return fmt.Sprintf(e.text, e.p+1, e.a) }

func (w *noFence) first() noFenceState     { return noFenceState{starts: w.starts} }
func (w *noFence) canonical(*noFenceState) {}
func (w *noFence) broken(s *noFenceState) (what string) {
	if s.twice {
		what = faultTexts[faultTwice]
	}
	return what
}

func (w *noFence) steps(s noFenceState, visit func(noFenceEvent, noFenceState)) {
	if s.now < w.end {
		n := s
		n.now++
		visit(noFenceEvent{"%[2]d: a tick", 0, int(n.now)}, n)
	}
	for p := range s.procs {
		x := s.procs[p]
		happens := func(text string, a uint8, change func(n *noFenceState, x *noFenceProcess)) {
			n := s
			change(&n, &n.procs[p])
			visit(noFenceEvent{text, p, int(a)}, n)
		}
		if x.id == 0 {
			if s.starts == 0 || w.leaf && s.procs[1-p].id != 0 {
				continue
			}
			happens("p%d starts", 0, func(n *noFenceState, x *noFenceProcess) {
				*x = noFenceProcess{id: n.starts}
				n.starts--
			})
			continue
		}
		happens("p%d crashes", 0, func(_ *noFenceState, x *noFenceProcess) { *x = noFenceProcess{} })
		for clock := s.now - min(w.back, s.now); clock <= s.now; clock++ {
			if w.leaf {
				w.reports(s, p, clock, visit)
				continue
			}
			if x.asked == 0 {
				happens("p%d, whose clock shows %d, asks for the lease", clock, func(_ *noFenceState, x *noFenceProcess) {
					x.asked, x.answer = clock+1, answerWaiting
				})
			}
			if x.next == x.limit && clock < x.until && clock+w.borrow >= x.next {
				happens("p%d, whose clock shows %d, fills its ring", clock, func(_ *noFenceState, x *noFenceProcess) {
					x.next, x.limit = max(x.next, clock), clock+w.borrow+1
				})
			}
			if x.next < x.limit && (clock < x.until || !w.careful) {
				happens("p%d STAMPS %d", x.next, func(n *noFenceState, x *noFenceProcess) { n.stamp(x) })
			}
		}
		switch x.answer {
		case answerWaiting:
			happens("the statement of p%d arrives", 0, func(n *noFenceState, x *noFenceProcess) {
				if n.holder == x.id || n.expires <= n.now {
					n.holder, n.expires, x.answer = x.id, n.now+w.term, answerDone
				} else {
					x.answer = answerRefused
				}
			})
		case answerDone:
			happens("p%d has the lease, before %d", x.asked-1+w.term, func(_ *noFenceState, x *noFenceProcess) {
				x.until, x.asked, x.answer = x.asked-1+w.term, 0, answerNone
			})
		case answerRefused:
			happens("p%d does not have the lease", 0, func(_ *noFenceState, x *noFenceProcess) { x.asked, x.answer = 0, answerNone })
		}
	}
}

// reports is Leaf's way.
func (w *noFence) reports(s noFenceState, p int, clock uint8, visit func(noFenceEvent, noFenceState)) {
	x := s.procs[p]
	switch {
	case x.limit == 0:
		s.procs[p].next, s.procs[p].limit = max(clock, s.reported)+1, 1
		visit(noFenceEvent{"p%d, whose clock shows %d, begins after that and what was reported", p, int(clock)}, s)
		return
	case clock >= x.next:
		n := s
		n.procs[p].next = clock
		n.stamp(&n.procs[p])
		visit(noFenceEvent{"p%d STAMPS %d", p, int(clock)}, n)
	}
	s.reported = max(s.reported, x.next-1)
	visit(noFenceEvent{"p%d reports %d", p, int(s.reported)}, s)
}

func (s *noFenceState) stamp(x *noFenceProcess) {
	s.twice = s.twice || s.stamped>>x.next&1 != 0
	s.stamped |= 1 << x.next
	x.next++
}
