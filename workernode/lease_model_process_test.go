package workernode

import (
	"fmt"
	"math/bits"
)

// What processes do. Whatever lease.go decides it is asked.

// clock returns the least and the most that a clock may show.
func (w *world) clock(s *worldState) (least, most int64) {
	if w.end == 0 {
		return 0, w.terms.last
	}
	return max(int64(s.now)-int64(w.skew), 0), int64(s.now)
}

// at returns the terms of the moment.
func (w *world) at(s *worldState) terms {
	t := w.terms
	t.floor = int64(s.floor)
	return t
}

// start starts a process that is down, or makes it the copy of another one.
func (w *world) start(s worldState, p int, visit func(worldEvent, worldState)) {
	first, last := uint8(1), uint8(w.tables)
	if w.spares {
		first, last = tableSpare, tableSpare
	}
	for table := first; table <= last && s.starts > 0; table++ {
		n := s
		n.starts--
		n.procs[p] = worldProcess{mode: procIdle, holder: w.newHolder(&s), table: table}
		visit(worldEvent{what: evStart, p: p, q: worldStatement{table: table}}, n)
	}
	for o := range w.procs {
		if s.clones == 0 || s.procs[o].mode != procSeated {
			continue
		}
		n := s
		n.clones--
		x := &n.procs[p]
		*x = s.procs[o]
		switch w.copies {
		case copiesReset:
			w.leaveRow(x)
			x.holder = w.newHolder(&s)
		case copiesEmptied:
			x.next = x.until + 1
			fallthrough
		case copiesAll:
			if x.answer != answerNone {
				x.giveUp()
			}
			w.settle(x)
		}
		visit(worldEvent{what: evClone, p: p, a: uint8(o)}, n)
	}
}

// newHolder returns a HOLDER that nobody bears.
func (w *world) newHolder(s *worldState) uint8 {
	used := uint16(1)<<holderNone | 1<<s.left.holder
	for p := range s.procs {
		used |= 1 << s.procs[p].holder
	}
	for i := range s.db.rows {
		used |= 1<<s.db.rows[i].holder | 1<<s.replica.rows[i].holder
	}
	return uint8(bits.TrailingZeros16(^used))
}

// act is all that can happen to a process that is up.
func (w *world) act(s worldState, p int, visit func(worldEvent, worldState)) {
	x := s.procs[p]
	n := s
	n.procs[p] = worldProcess{}
	if s.starts > 0 || s.clones > 0 || w.restores { // else it is as if it did nothing any more
		visit(worldEvent{what: evCrash, p: p}, n)
	}
	if w.leave(&n, &x) {
		visit(worldEvent{what: evCrashLeaving, p: p, q: x.sent}, n)
	}
	switch {
	case x.answer != answerNone:
		w.wait(s, p, visit)
	case x.mode == procIdle:
		w.look(s, p, visit)
	case x.mode == procReserved:
		w.insert(s, p, visit)
	case x.mode == procSeated:
		w.keep(s, p, visit)
	}
	if x.mode != procSeated {
		return
	}
	for table := uint8(1); x.table == tableSpare && x.remain() > 0 && int(table) <= w.tables; table++ {
		n = s
		n.procs[p].table, n.procs[p].unwritten = table, true
		n.procs[p].bound |= 1 << x.worker
		for w.eager && w.stamp(&n, p) {
		}
		visit(worldEvent{what: evBind, p: p, q: worldStatement{worker: x.worker, table: table}}, n)
	}
	n = s
	if !w.eager && w.stamp(&n, p) {
		visit(worldEvent{what: evStamp, p: p, q: worldStatement{worker: x.worker}, a: x.first()}, n)
	}
}

// leave leaves the statement of a process behind, if it has not arrived.
func (w *world) leave(s *worldState, x *worldProcess) bool {
	if !w.late || x.answer != answerWaiting || s.left.kind != 0 {
		return false
	}
	s.left = x.sent
	return true
}

// wait is what becomes of a statement.
func (w *world) wait(s worldState, p int, visit func(worldEvent, worldState)) {
	x := s.procs[p]
	if x.answer == answerWaiting && s.down == 0 {
		n := s
		n.procs[p].answer = answerRefused
		if w.execute(&n, x.sent) {
			n.procs[p].answer = answerDone
		}
		visit(worldEvent{what: evArrive, p: p, q: x.sent, yes: n.procs[p].answer == answerDone}, n)
	}
	if x.answer == answerDone || x.answer == answerRefused && x.sent.kind == stmtBind { // nobody looks whether it has
		w.acknowledged(s, p, visit)
	}
	if x.sent.kind == stmtClaim && x.answer != answerWaiting && s.down == 0 {
		w.readTaken(s, p, visit)
	}
	n := s
	n.procs[p].giveUp()
	visit(worldEvent{what: evGiveUp, p: p, q: x.sent, yes: x.answer == answerRefused}, n)
	if w.leave(&n, &x) {
		visit(worldEvent{what: evGiveUpLeaving, p: p, q: x.sent}, n)
	}
}

// giveUp is what a process does whose statement was refused, or is not answered.
func (x *worldProcess) giveUp() {
	kind := x.sent.kind
	x.sent, x.answer, x.clock = worldStatement{}, answerNone, 0
	switch {
	case x.mode != procSeated:
		x.mode = procIdle
	case kind != stmtBind: // which is merely sent again
		s := x.seat()
		s.doubt()
		x.sit(s)
	}
}

// acknowledged is what a process does whose statement has changed a row.
func (w *world) acknowledged(s worldState, p int, visit func(worldEvent, worldState)) {
	q, sent, t := s.procs[p].sent, int64(s.procs[p].clock), w.at(&s)
	x := &s.procs[p]
	x.sent, x.answer, x.clock = worldStatement{}, answerNone, 0
	switch q.kind {
	case stmtReserve:
		x.mode, x.worker = procReserved, q.old
		visit(worldEvent{what: evLearn, p: p, q: q}, s)
		return
	case stmtBind:
		x.unwritten = false
		visit(worldEvent{what: evLearn, p: p, q: q}, s)
		return
	}
	least, most := w.clock(&s)
	if w.flaws.clockAtSend {
		least, most = sent, sent
	}
	for after := least; after <= most; after++ {
		n := s
		got, usable := x.seat(), true
		switch q.kind {
		case stmtClaim:
			got = w.rules.taken(t, readRow(q.worker, q.table, q.old, holderNone), int64(q.to), after)
		case stmtInsert:
			got, usable = w.rules.inserted(t, int64(q.worker), worldTables[q.table], int64(q.old), int64(q.to), sent, after)
		case stmtExtend:
			if got.behind() {
				w.blame(&n, faultAlarm)
			}
			w.rules.granted(t, &got, int64(q.to), after)
		}
		y := &n.procs[p]
		if usable {
			if y.mode != procSeated {
				y.mode, y.table, y.next = procSeated, q.table, 0
			}
			y.sit(got)
			y.next = y.first()
			for w.eager && w.stamp(&n, p) {
			}
		} else {
			y.mode = procIdle
		}
		visit(worldEvent{what: evLearn, p: p, q: q, a: uint8(after), from: uint8(got.from), until: uint8(got.until), yes: usable}, n)
	}
}

// readTaken is what a process does that took several rows over at once, and did not
// get all. Was this one among them? If so it may stamp nothing yet.
func (w *world) readTaken(s worldState, p int, visit func(worldEvent, worldState)) {
	x := &s.procs[p]
	r := s.db.rows[x.sent.worker]
	if r.holder != x.holder {
		return
	}
	fence := int64(r.fence)
	x.mode, x.table, x.next = procSeated, x.sent.table, r.fence+1
	x.sit(seat{worker: int64(x.sent.worker), compare: fence, from: fence + 1, until: fence})
	x.sent, x.answer, x.clock = worldStatement{}, answerNone, 0
	visit(worldEvent{what: evReadTaken, p: p, q: worldStatement{worker: x.worker}, a: r.fence}, s)
}

// look is what a process without a row does: it takes one over, or reserves a worker
// id of its own.
func (w *world) look(s worldState, p int, visit func(worldEvent, worldState)) {
	x, t := s.procs[p], w.at(&s)
	least, most := w.clock(&s)
	if w.empty && int(s.db.next) < w.rows {
		w.send(s, p, worldStatement{stmtReserve, 0, x.table, x.holder, s.db.next, s.db.next + 1, 0}, 0, visit)
	}
	for i, r := range s.db.rows {
		if r.table == 0 || r.table != x.table && !w.spares || r.table == tableSpare && x.bound&(1<<i) != 0 && !w.flaws.takesAgain {
			continue
		}
		oldest, holder := r.fence, r.holder
		if w.stale {
			oldest, holder = r.start, holderNone
		}
		for fence := oldest; fence <= r.fence; fence++ {
			was, takeable := readRow(uint8(i), r.table, fence, holder), w.hasty
			for now := least; now <= most; now++ {
				takeable = takeable || w.rules.takeable(t, was, now)
			}
			for now := least; now <= most && takeable; now++ { // it is read again
				if to := t.target(now, now); to > was.fence || w.flaws.lowersTaking {
					q := worldStatement{stmtClaim, uint8(i), r.table, x.holder, fence, uint8(to), 0}
					if r.table == tableSpare {
						q.start = uint8(max(t.held(was, now), 0))
					}
					w.send(s, p, q, now, visit)
				}
			}
		}
	}
}

// insert is what a process with a new worker id does.
func (w *world) insert(s worldState, p int, visit func(worldEvent, worldState)) {
	x, t := s.procs[p], w.at(&s)
	for now, most := w.clock(&s); now <= most; now++ {
		if start, fence := w.rules.begin(t, now), t.target(now, now); start < fence {
			w.send(s, p, worldStatement{stmtInsert, x.worker, x.table, x.holder, uint8(start), uint8(fence), 0}, now, visit)
		}
	}
}

// keep is what a process with a seat does: it extends it, reads the row if it is
// not sure, writes a table into it, or gives it back.
func (w *world) keep(s worldState, p int, visit func(worldEvent, worldState)) {
	x, t := s.procs[p], w.at(&s)
	seat := x.seat()
	for now, most := w.clock(&s); now <= most; now++ {
		if fence := t.target(now, int64(x.next)); w.rules.extendable(&seat, fence) {
			w.send(s, p, worldStatement{stmtExtend, x.worker, x.table, x.holder, x.compare, uint8(fence), 0}, now, visit)
		}
	}
	if x.unsure && !x.lost && s.down == 0 {
		w.read(s, p, visit)
	}
	if x.unwritten {
		w.send(s, p, worldStatement{stmtBind, x.worker, x.table, x.holder, 0, 0, 0}, 0, visit)
	} else if w.releases {
		w.release(s, p, visit)
	}
}

func (w *world) read(s worldState, p int, visit func(worldEvent, worldState)) {
	x := s.procs[p]
	r := s.db.rows[x.worker]
	oldest := r.fence
	if w.stale {
		oldest = r.start
	}
	for fence := oldest; fence <= r.fence; fence++ {
		for _, ours := range [...]bool{false, true} {
			if !w.stale && ours != (r.holder == x.holder) {
				continue
			}
			n, seat := s, x.seat()
			seat.read(int64(fence), ours)
			if w.flaws.adopts && ours {
				seat.until = max(seat.until, int64(fence))
			}
			n.procs[p].sit(seat)
			w.settle(&n.procs[p])
			visit(worldEvent{what: evRead, p: p, q: worldStatement{worker: x.worker}, a: fence, yes: ours}, n)
		}
	}
}

// release gives the row of a process back. What it has not stamped is left out, for
// ever. It goes on without a row; to close is to crash next.
func (w *world) release(s worldState, p int, visit func(worldEvent, worldState)) {
	x := s.procs[p]
	x.answer = answerWaiting
	x.sent = worldStatement{stmtRelease, x.worker, x.table, x.holder, 0, 0, 0}
	if w.flaws.lowersOpen || w.flaws.lowersClosed {
		x.sent.old, x.sent.to = x.compare, x.first()-1
	}
	if !w.flaws.lowersOpen {
		w.leaveRow(&s.procs[p])
	}
	n := s
	if s.down == 0 && w.execute(&n, x.sent) {
		visit(worldEvent{what: evRelease, p: p, q: x.sent}, n)
	}
	if w.leave(&s, &x) {
		visit(worldEvent{what: evReleaseLater, p: p, q: x.sent}, s)
	}
}

func (w *world) send(s worldState, p int, q worldStatement, clock int64, visit func(worldEvent, worldState)) {
	x := &s.procs[p]
	x.sent, x.answer, x.clock = q, answerWaiting, uint8(clock)
	if !w.flaws.onSend || q.kind == stmtReserve {
		visit(worldEvent{what: evSend, p: p, q: q, a: uint8(clock)}, s)
	} else if w.leave(&s, x) {
		w.acknowledged(s, p, visit) // which it is not
	}
}

// stamp lets a process stamp the next tick that it may, if there is one.
func (w *world) stamp(s *worldState, p int) bool {
	x := &s.procs[p]
	tick := x.first()
	if x.remain() == 0 || x.table == tableSpare {
		return false
	}
	ticks, bit := &s.stamped[x.worker], uint16(1)<<tick
	if (ticks[0]|ticks[1])&bit != 0 {
		w.blame(s, faultTwice)
	}
	if tick <= s.floor {
		w.blame(s, faultFloor)
	}
	// Ids of a spare whose table is not written down lead nowhere if it is taken over.
	if r := s.db.rows[x.worker]; tick <= r.start && !x.unwritten || tick > r.fence {
		w.blame(s, faultOutside)
	}
	ticks[x.table-1] |= bit
	x.next = tick + 1
	w.settle(x)
	return true
}

// first returns the tick to be stamped next, if the seat allows it.
func (x *worldProcess) first() uint8 { return max(x.from, x.next) }

// remain tells how many ticks may be stamped.
func (x *worldProcess) remain() int64 {
	s := x.seat()
	return s.left(int64(x.next))
}

// settle: a process that has lost its row, and used up what was left, is without.
func (w *world) settle(x *worldProcess) {
	if x.mode == procSeated && x.lost && (x.remain() == 0 || x.table == tableSpare) {
		w.leaveRow(x)
	}
}

func (w *world) leaveRow(x *worldProcess) {
	*x = worldProcess{mode: procIdle, holder: x.holder, table: x.table, bound: x.bound}
	if w.spares {
		x.table = tableSpare
	}
}

var worldTables = [...]string{1: "a", 2: "b", tableSpare: ""}

func readRow(worker, table, fence, holder uint8) row {
	r := row{worker: int64(worker), table: worldTables[table], fence: int64(fence)}
	if holder != holderNone {
		r.holder = "somebody"
	}
	return r
}

func (x *worldProcess) seat() seat {
	return seat{worker: int64(x.worker), table: worldTables[x.table], compare: int64(x.compare),
		from: int64(x.from), until: int64(x.until), unsure: x.unsure, lost: x.lost}
}

func (x *worldProcess) sit(s seat) {
	if min(s.compare, s.from, s.until) < 0 || max(s.compare, s.from-1, s.until) > 15 {
		panic(fmt.Sprintf("a seat with ticks that there are not: %+v", s))
	}
	x.worker, x.compare, x.from, x.until = uint8(s.worker), uint8(s.compare), uint8(s.from), uint8(s.until)
	x.unsure, x.lost = s.unsure, s.lost
}
