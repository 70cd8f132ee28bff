package workernode

import "math/bits"

// The world in which the code of lease.go is tried out: processes that call it, the
// database between them, and all that can go wrong.
//
// There is a WORKER_NODE of one or two rows, NEXT_ID, and two or three processes
// that know of each other only what they read there. A process has one statement on
// its way at most; it arrives at any time or never, is carried out when it arrives,
// and its answer arrives at any time or never. A process that gives up waiting,
// crashes or gives its row back may leave its statement behind, to be carried out at
// any time later; there is one such statement at a time. Whatever can happen next
// does, in a state of its own. So a pause needs no step: it is what others do
// meanwhile.
//
// Ticks are small numbers, and one stamp stands for all ids of a tick. A process
// stamps the ticks of its seat in ascending order, at any time, also after it has
// lost the row. It looks for another row only when all that was left of the old one
// is stamped: if it left some out, less could go wrong.
//
// Left out is that one statement can be about several rows (to each it is like one
// of its own, but for readTaken), that a process can have several rows at a time
// (they know nothing of each other), rows that are never given again (nobody touches
// them), and everything above lease.go.

const (
	worldProcs = 3 // at most
	worldRows  = 2

	holderNone = 0  // HOLDER of a row that was given back
	holderGone = 15 // HOLDER of a row, if no process and no statement bears it any more

	tableSpare = 3 // TABLE_NAME of a spare, which is empty; 1 and 2 are tables
)

// A worldRow is a row of WORKER_NODE. Its worker id is its index.
type worldRow struct{ table, start, fence, holder uint8 } // table is 0 if there is no such row

// A worldDatabase is all that can be lost together.
type worldDatabase struct {
	rows [worldRows]worldRow
	next uint8 // NEXT_ID
}

type worldStatement struct {
	kind                  stmtKind
	worker, table, holder uint8
	old, to               uint8
	start                 uint8 // of a spare that is taken over: its new START_SECOND
}

type stmtKind uint8

const (
	stmtReserve stmtKind = 1 + iota // moves NEXT_ID from old to to
	stmtInsert                      // a new row with START_SECOND old and FENCE to
	stmtClaim                       // moves FENCE from old to to, and sets HOLDER
	stmtExtend                      // moves FENCE from old to to, in a row with this HOLDER
	stmtRelease                     // empties HOLDER, in a row with this HOLDER
	stmtBind                        // sets TABLE_NAME, in a spare with this HOLDER
)

// A worldProcess serves one table. HOLDER is another one after each start.
type worldProcess struct {
	mode          procMode
	holder, table uint8

	// What it knows of its row: a seat, as in lease.go, and the next tick to stamp.
	worker, compare, from, until uint8
	unsure, lost                 bool
	next                         uint8
	unwritten                    bool  // a spare is in use for a table that its row does not say
	bound                        uint8 // a bit for each row that it has ever used as a spare

	sent   worldStatement
	answer procAnswer
	clock  uint8 // when it was sent
}

type procMode uint8

const (
	procDown     procMode = iota
	procIdle              // has no row
	procReserved          // has a worker id, and no row yet
	procSeated            // has a seat
)

// How far the statement of a process is.
type procAnswer uint8

const (
	answerNone    procAnswer = iota // there is none
	answerWaiting                   // it has not arrived
	answerDone                      // it has changed a row
	answerRefused                   // it has changed nothing
)

type worldState struct {
	stamped [worldRows][2]uint16 // a bit for each tick, by worker id and table

	procs   [worldProcs]worldProcess
	left    worldStatement // behind, by a process that does not wait for it any more
	db      worldDatabase
	replica worldDatabase // what remains when the database loses its last commits

	now    uint8 // the true time, in worlds whose clocks follow it
	down   uint8 // for how long the database is
	floor  uint8 // FLOOR_SECOND
	starts uint8 // how many more processes may start,
	losses uint8 // how often commits may be lost,
	clones uint8 // and how many processes copied
	fault  worldFault
}

// A world is a scenario: how much there is of everything, what can happen and, for
// mutants, what is done wrong.
type world struct {
	procs, rows, tables int
	empty               bool // there are no rows yet: processes insert them
	spares              bool // processes hold spares, and bind them to tables
	starts              uint8

	terms terms

	// Whenever a clock is read it shows anything from 0 to terms.last; or, if end is
	// not 0, the true time, which ends there, or up to skew less.
	end, skew uint8

	// eager: all that a seat allows is stamped at once. As nothing can forbid it
	// later, this finds whatever can be stamped twice, in fewer states.
	eager bool
	// stale: reads return the row, or one with a lower FENCE and any HOLDER.
	stale bool
	// hasty: rows are taken over even if takeable says no, which is more than can
	// happen.
	hasty    bool
	late     bool // statements may be left behind
	releases bool
	copies   procCopies

	losses   uint8 // how often the database loses its last commits,
	gap      uint8 // and for how long it accepts nothing then
	restores bool  // from a backup instead, while nothing runs, and FLOOR_SECOND is set

	strict bool // nothing is lost or copied: the invariants of lease.go must hold in each state
	traced bool // ids must lead to their tables

	rules leaseRules
	flaws worldFlaws
}

// How a process is copied, memory and all, as virtual machines are.
type procCopies uint8

const (
	copiesNone    procCopies = iota
	copiesAll                // the copy does not know
	copiesEmptied            // the copy forgets its ticks, and keeps HOLDER
	copiesReset              // the copy begins anew
)

// leaseRules are functions of lease.go that mutants replace.
type leaseRules struct {
	begin      func(t terms, now int64) int64
	takeable   func(t terms, r row, now int64) bool
	taken      func(t terms, r row, fence, after int64) seat
	inserted   func(t terms, worker int64, table string, start, fence, before, after int64) (seat, bool)
	granted    func(t terms, s *seat, fence, after int64)
	extendable func(s *seat, fence int64) bool
}

// orReal returns the rules, and those of lease.go for those that there are none of.
func (r leaseRules) orReal() leaseRules {
	if r.begin == nil {
		r.begin = terms.begin
	}
	if r.takeable == nil {
		r.takeable = terms.takeable
	}
	if r.taken == nil {
		r.taken = terms.taken
	}
	if r.inserted == nil {
		r.inserted = terms.inserted
	}
	if r.granted == nil {
		r.granted = terms.granted
	}
	if r.extendable == nil {
		r.extendable = (*seat).extendable
	}
	return r
}

// worldFlaws are what mutants do wrong around lease.go.
type worldFlaws struct {
	noFence       bool // claim and extend do not compare FENCE
	extendNoFence bool // extend does not
	noHolder      bool // extend does not compare HOLDER
	onSend        bool // ticks are used when the statement that shall grant them is sent
	clockAtSend   bool // margins are counted from the clock at which a statement was sent
	adopts        bool // ticks up to a FENCE that was read are used
	lowersTaking  bool // a row is taken over even if that lowers FENCE
	lowersOpen    bool // a release moves FENCE back to what was stamped, while stamping goes on
	lowersClosed  bool // a release moves FENCE back to what was stamped
	keepsStart    bool // START_SECOND stays when a spare is taken over
	takesBound    bool // a spare is taken over even if it has got a table
	takesAgain    bool // a process takes a spare over that it has lost
}

func (w *world) first() worldState {
	s := worldState{starts: w.starts, losses: w.losses, floor: uint8(w.terms.floor)}
	if w.copies != copiesNone {
		s.clones = 1
	}
	for i := range w.rows {
		if !w.empty {
			s.db.rows[i].table = 1
		}
	}
	s.replica = s.db
	return s
}

func (w *world) steps(s worldState, visit func(worldEvent, worldState)) {
	if s.now < w.end {
		n := s
		n.now, n.down = s.now+1, max(s.down, 1)-1
		visit(worldEvent{what: evTick, a: n.now}, n)
	}
	if s.left.kind != 0 && s.down == 0 {
		n := s
		n.left = worldStatement{}
		if w.execute(&n, s.left) { // otherwise it might as well never have arrived
			visit(worldEvent{what: evLate, q: s.left}, n)
		}
	}
	if s.losses > 0 && s.replica != s.db {
		n := s
		n.replica = s.db
		visit(worldEvent{what: evCopy}, n)
		w.lose(s, visit)
	}
	for p := range w.procs {
		if s.procs[p].mode == procDown {
			w.start(s, p, visit)
		} else {
			w.act(s, p, visit)
		}
	}
}

// execute carries out a statement, and tells whether it changed a row.
func (w *world) execute(s *worldState, q worldStatement) bool {
	r := &s.db.rows[q.worker]
	switch q.kind {
	case stmtReserve:
		if s.db.next != q.old {
			return false
		}
		s.db.next = q.to
		return true
	case stmtInsert:
		if r.table != 0 {
			w.blame(s, faultReserved)
			return false
		}
		*r = worldRow{q.table, q.old, q.to, q.holder}
		return true
	case stmtClaim:
		if r.table == 0 || r.fence != q.old && !w.flaws.noFence ||
			q.table == tableSpare && r.table != tableSpare && !w.flaws.takesBound {
			return false
		}
		r.holder = q.holder
		if r.table == tableSpare && !w.flaws.keepsStart {
			r.start = q.start
		}
	case stmtExtend:
		if r.holder != q.holder && !w.flaws.noHolder || r.fence != q.old && !w.flaws.noFence && !w.flaws.extendNoFence {
			return false
		}
	case stmtBind:
		if r.table != tableSpare || r.holder != q.holder {
			return false
		}
		r.table = q.table
		return true
	case stmtRelease:
		lowers := w.flaws.lowersOpen || w.flaws.lowersClosed
		if r.holder != q.holder || lowers && r.fence != q.old {
			return false
		}
		r.holder = holderNone
		if !lowers {
			return true
		}
	}
	if q.to < r.fence {
		w.blame(s, faultLowered)
	}
	r.fence = q.to
	return true
}

// lose takes the database back to an earlier state.
func (w *world) lose(s worldState, visit func(worldEvent, worldState)) {
	s.db, s.losses = s.replica, s.losses-1
	if !w.restores {
		s.down = w.gap
		visit(worldEvent{what: evLoss}, s)
		return
	}
	for p := range w.procs {
		if s.procs[p].mode != procDown {
			return
		}
	}
	s.left = worldStatement{}
	for _, ticks := range s.stamped {
		s.floor = max(s.floor, uint8(max(bits.Len16(ticks[0]|ticks[1]), 1)-1))
	}
	visit(worldEvent{what: evRestore, a: s.floor}, s)
}

// A worldFault is what must never be.
type worldFault uint8

const (
	faultTwice worldFault = 1 + iota
	faultFloor
	faultAstray
	faultLowered // from here on: in strict worlds only
	faultBeyond
	faultOverlap
	faultOutside
	faultAlarm
	faultReserved
)

var faultTexts = [...]string{
	faultTwice:    "one tick of one worker id was stamped twice",
	faultFloor:    "a tick was stamped that is not above FLOOR_SECOND",
	faultAstray:   "an id is between START_SECOND and FENCE of another table's row",
	faultLowered:  "a statement lowered a FENCE",
	faultBeyond:   "a seat reaches beyond the FENCE of its row",
	faultOverlap:  "two processes may stamp the same tick",
	faultOutside:  "a tick was stamped that is not between START_SECOND and FENCE",
	faultAlarm:    "a loss of commits was reported, and there was none",
	faultReserved: "a worker id was reserved twice",
}

func (w *world) blame(s *worldState, f worldFault) {
	if s.fault == 0 && (f < faultLowered || w.strict) {
		s.fault = f
	}
}

func (w *world) broken(s *worldState) string {
	for i, r := range s.db.rows {
		if w.traced && r.table != 0 && r.table != tableSpare {
			others, span := s.stamped[i][2-r.table], uint16(1)<<(r.fence+1)-uint16(1)<<(r.start+1)
			if others&span != 0 {
				w.blame(s, faultAstray)
			}
		}
	}
	for p := range w.procs {
		x := &s.procs[p]
		if !w.strict || x.mode != procSeated {
			continue
		}
		if x.until > s.db.rows[x.worker].fence {
			w.blame(s, faultBeyond)
		}
		for o := range p {
			if y := &s.procs[o]; y.mode == procSeated && y.worker == x.worker &&
				max(x.first(), y.first()) <= min(x.until, y.until) {
				w.blame(s, faultOverlap)
			}
		}
	}
	return faultTexts[s.fault]
}

// canonical forgets what has no consequences any more, sorts the processes, and
// names holders in the order in which they appear.
func (w *world) canonical(s *worldState) {
	for p := range w.procs {
		x := &s.procs[p]
		switch {
		case x.mode == procSeated:
			// Of the ticks that were stamped it counts only whether there were any.
			x.next = x.first()
			x.from = max(x.from, min(x.next, x.until))
		case x.answer == answerNone:
			*x = worldProcess{mode: x.mode, holder: x.holder, table: x.table, worker: x.worker, bound: x.bound}
			if x.mode != procReserved {
				x.worker = 0
			}
		}
		if x.answer == answerRefused {
			x.sent = worldStatement{kind: x.sent.kind, worker: x.sent.worker, table: x.sent.table}
		}
		if x.answer == answerRefused || x.sent.kind != stmtInsert && !w.flaws.clockAtSend {
			x.clock = 0
		}
	}
	if s.losses == 0 {
		s.replica = worldDatabase{}
	}

	var keys [worldProcs][2]uint64
	for p := range w.procs {
		keys[p] = s.key(p)
	}
	for i := 1; i < w.procs; i++ {
		for j := i; j > 0 && (keys[j][0] < keys[j-1][0] || keys[j][0] == keys[j-1][0] && keys[j][1] < keys[j-1][1]); j-- {
			keys[j], keys[j-1] = keys[j-1], keys[j]
			s.procs[j], s.procs[j-1] = s.procs[j-1], s.procs[j]
		}
	}
	var names [16]uint8
	last := uint8(0)
	name := func(holder *uint8) {
		if names[*holder] == 0 && *holder != holderNone {
			last++
			names[*holder] = last
		}
		*holder = names[*holder]
	}
	for p := range w.procs {
		name(&s.procs[p].holder)
		name(&s.procs[p].sent.holder)
	}
	name(&s.left.holder)
	for _, db := range [...]*worldDatabase{&s.db, &s.replica} {
		for i := range db.rows {
			if h := &db.rows[i].holder; *h != holderNone && names[*h] == 0 {
				*h = holderGone
			} else {
				*h = names[*h]
			}
		}
	}
}

// key is all about a process but the name of its holder: of that, where it appears.
func (s *worldState) key(p int) [2]uint64 {
	x := &s.procs[p]
	var flags uint64
	flag := func(b bool) {
		flags <<= 1
		if b {
			flags |= 1
		}
	}
	flag(x.unsure)
	flag(x.lost)
	flag(x.unwritten)
	flag(s.left.holder == x.holder)
	for i := range worldRows {
		flag(s.db.rows[i].holder == x.holder)
		flag(s.replica.rows[i].holder == x.holder)
	}
	shared := false // with a copy
	for o := range worldProcs {
		shared = shared || o != p && s.procs[o].holder == x.holder
	}
	flag(shared)
	pack := func(a, b, c, d, e, f, g, h uint8) uint64 {
		return uint64(a)<<56 | uint64(b)<<48 | uint64(c)<<40 | uint64(d)<<32 | uint64(e)<<24 | uint64(f)<<16 | uint64(g)<<8 | uint64(h)
	}
	return [2]uint64{
		pack(uint8(x.mode), x.table, x.worker, x.compare, x.from, x.until, x.next, uint8(x.answer)),
		pack(uint8(x.sent.kind), x.sent.worker, x.sent.table, x.sent.old, x.sent.to, x.clock, x.sent.start<<4|x.bound<<2, 0) | flags,
	}
}
