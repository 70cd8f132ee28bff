package lease

// This file has what can happen outside of the model's processes: time, the database, failovers, backups, copies of
// processes, and late and repeated statements.

// A modelWorld says what there is at the beginning, and what can happen.
type modelWorld struct {
	procs, tables      int
	slots              int    // that exist at the beginning
	nodes              int    // worker ids of table 1, of slot 0
	seated             int    // processes that hold a slot at the beginning, at 0 o'clock
	own                bool   // process i has table i+1; otherwise any
	wants              *uint8 // what each process wants at the beginning, instead of its table
	asks               uint8  // what it may ask for later
	end, skew, last    uint8  // last moment; 0: clocks show anything up to last
	lead, gap          uint8
	settle, grace      uint8
	losses             uint8
	maxV, maxV2        uint8 // versions used; maxV2, if not 0, by all processes but the first
	maxNodes, maxSlots uint8
	late               bool // a statement may be left behind, and executed later
	repeat             bool // an executed statement may be executed again
	stale              bool // SELECT may see an earlier state
	oldPrimary         bool // also one whose commits were lost
	closes, keeps      bool
	clone              bool
	adds, newSlots     bool
	pauses             bool  // time passes between a decision and its statement; worker ids are reserved before
	quiet              uint8 // 0: answers are lost; 1: all arrive; 2: those are lost whose statements are left behind
	lively             bool  // from each state, each process can stamp again if nothing more goes wrong
	restores           bool
	alters             bool // the database may keep the FENCE that a transaction compares, and acknowledge another
	fromReplica        bool // ids are resolved from the replica, too
	noTable, noSession bool // these properties are left out
	mutant             modelMutant
}

const (
	modelTwice uint8 = 1 + iota
	modelBelowFloor
	modelWrongTable
	modelWrongProcess
	modelOverflow
	modelStuck
)

var modelFaults = [...]string{"", "a tick is stamped twice with one worker id", "a tick up to FLOOR_TICK is stamped",
	"an id resolves to a wrong table", "an id resolves to a wrong process", "more sessions than the model can hold",
	"a process does not come to stamp again"}

func (s *modelState) blame(fault uint8) {
	if s.fault == 0 {
		s.fault = fault
	}
}

func (w *modelWorld) params() Params {
	last := int64(15)
	if w.end == 0 {
		last = int64(w.last)
	}
	return Params{Lead: int64(w.lead), Settle: int64(w.settle), Grace: int64(w.grace), Quiet: int64(w.grace), Last: last}
}

func (w *modelWorld) first() (s modelState) {
	s.losses = w.losses
	if w.clone {
		s.clones = 1
	}
	for i := range w.slots {
		s.db.slots[i].exists = 1
	}
	for i := range w.nodes {
		s.db.nodes[i] = modelNodeRow{slot: 1, table: 1}
	}
	s.db.nextSlot, s.db.nextID = uint8(w.slots), uint8(w.nodes)
	for p := range uint8(w.seated) {
		table := uint8(1)
		if w.own {
			table = p + 1
		}
		w.start(&s, p, table)
		q := modelStatement{kind: modelReclaim, proc: p}
		var l Slot
		c := l.ReclaimChange(w.params(), Row{ID: int64(p)}, 0, modelTokens[p+1])
		c.SetFirst(0, 0)
		q.change = modelChangeOf(c)
		w.execute(&s, &q)
		w.learn(&s, p, &q, 0)
	}
	s.replica = s.db
	return s
}

func (w *modelWorld) start(s *modelState, p, table uint8) {
	s.procs[p] = modelProc{mode: modelAlive, token: p + 1, wants: 1 << table}
	if w.wants != nil {
		s.procs[p].wants = *w.wants
	}
	s.born++
}

// clocks returns what a clock may show.
func (w *modelWorld) clocks(s *modelState) (least, most uint8) {
	if w.end == 0 {
		return 0, w.last
	}
	return s.now - min(s.now, w.skew), s.now
}

func (w *modelWorld) steps(s *modelState, visit modelVisitor) {
	if s.now < w.end {
		n := *s
		n.now++
		n.down = max(s.down, 1) - 1
		visit(modelEvent{what: "tick", a: n.now}, &n)
	}
	if s.left.kind != modelNothing && s.down == 0 {
		n := *s
		q := n.left
		n.left = modelStatement{}
		if w.execute(&n, &q) {
			visit(modelEvent{what: "late", q: q}, &n)
		}
	}
	if (s.losses > 0 || w.stale) && s.replica != s.db {
		n := *s
		n.replica = s.db
		visit(modelEvent{what: "copy"}, &n)
	}
	if s.losses > 0 && s.replica != s.db {
		w.lose(s, visit)
	}
	for p := range uint8(w.procs) {
		switch s.procs[p].mode {
		case modelUnborn:
			if p == s.born {
				w.birth(s, p, visit)
			}
		case modelAlive:
			w.process(s, p, visit)
		}
	}
}

// lose makes an earlier state of the database the present one: a failover, or a restored backup.
func (w *modelWorld) lose(s *modelState, visit modelVisitor) {
	n := *s
	n.db = s.replica
	n.losses--
	for p := range n.procs {
		for f := range n.procs[p].flight {
			if x := &n.procs[p]; x.answers[f] == modelSent && x.flight[f].open {
				x.answers[f] = modelBroken
			}
		}
	}
	if n.left.open {
		n.left = modelStatement{}
	}
	if w.oldPrimary {
		n.replica = s.db
	}
	if !w.restores {
		n.down = w.gap
		visit(modelEvent{what: "loss"}, &n)
		return
	}
	for p := range n.procs {
		if n.procs[p].mode != modelUnborn {
			n.procs[p] = modelProc{mode: modelDead, token: n.procs[p].token}
		}
	}
	n.left = modelStatement{}
	for i := range n.stamped {
		for p := range n.procs {
			for t := range uint8(16) {
				if (n.stamped[i][p][0]|n.stamped[i][p][1])>>t&1 != 0 {
					n.floor = max(n.floor, t)
				}
			}
		}
	}
	visit(modelEvent{what: "restore", a: n.floor}, &n)
}

func (w *modelWorld) birth(s *modelState, p uint8, visit modelVisitor) {
	for t := uint8(1); t <= uint8(max(w.tables, 1)); t++ {
		if w.own && t != p+1 || w.wants != nil && t > 1 {
			continue
		}
		n := *s
		w.start(&n, p, t)
		visit(modelEvent{what: "starts", proc: p, a: t}, &n)
	}
	for o := range p {
		x := s.procs[o]
		if s.clones == 0 || !x.lease.held || x.answers[0] != modelIdle || x.doing != 0 {
			continue
		}
		n := *s
		n.born++
		n.clones--
		n.procs[p] = x // what it stamps of what was granted before is the other's, too
		visit(modelEvent{what: "is copied", proc: p, a: o}, &n)
	}
}

// matches reports whether the slot's row is as a statement compares.
func (w *modelWorld) matches(s *modelState, q *modelStatement) bool {
	r, c, m := &s.db.slots[q.change.slot], &q.change, &w.mutant
	if c.insert {
		return r.exists == 0
	}
	free := q.kind == modelReclaim
	return r.exists != 0 && r.holder == c.holder &&
		(r.version == c.version || m.renewNoVersion && !free || m.reclaimHolderOnly && free) &&
		(r.fence == c.fence || m.reclaimHolderOnly && free)
}

// execute carries out a statement, or commits a transaction, and reports whether it changed
// anything. A transaction compares again what its first statement compared. So it makes no
// difference here whether rows are locked from the first statement on, or certified at the end.
func (w *modelWorld) execute(s *modelState, q *modelStatement) bool {
	switch q.kind {
	case modelReserveSlot:
		if s.db.nextSlot >= w.maxSlots {
			return false
		}
		q.change.slot = s.db.nextSlot
		s.db.nextSlot++
		return true
	case modelInsertAlone:
		return w.insertNodes(s, q)
	}
	if !w.matches(s, q) {
		return false
	}
	switch q.kind {
	case modelReclaim, modelBegin, modelAllocate:
		if !w.insertSession(s, q) {
			return false
		}
		for i, n := range s.db.nodes {
			q.tables[i], q.starts[i] = 0, 0
			if n.slot == q.change.slot+1 {
				q.tables[i], q.starts[i] = n.table, n.start
			}
		}
	case modelAdd:
		if !w.insertNodes(s, q) {
			return false
		}
	}
	c := &q.change
	s.db.slots[c.slot] = modelSlotRow{1, c.newFence, c.newVersion, c.newHolder}
	return true
}

func (w *modelWorld) insertSession(s *modelState, q *modelStatement) bool {
	if w.noSession {
		return true
	}
	c, l := &q.change, &s.db.sessions[q.change.slot]
	for i := range l {
		if l[i].holder == 0 {
			l[i] = modelSessionRow{c.newHolder, c.first - 1, c.before}
			for j := i; j > 0 && l[j-1].start > l[j].start; j-- {
				l[j-1], l[j] = l[j], l[j-1]
			}
			return true
		}
		if l[i].start == c.first-1 {
			return false
		}
	}
	s.fault = modelOverflow
	return false
}

func (w *modelWorld) insertNodes(s *modelState, q *modelStatement) bool {
	n := uint8(0)
	for n < modelNodes && q.tables[n] != 0 {
		n++
	}
	if !q.reserved {
		q.worker = s.db.nextID
		if q.worker+n > w.maxNodes {
			return false
		}
		s.db.nextID += n
	}
	for i := range n {
		if s.db.nodes[q.worker+i].slot != 0 {
			return false
		}
	}
	for i := range n {
		s.db.nodes[q.worker+i] = modelNodeRow{q.change.slot + 1, q.tables[i], q.start}
	}
	return true
}

// resolve compares what the database says of each id with what happened.
func (w *modelWorld) resolve(s *modelState, db *modelDB) uint8 {
	for i, n := range db.nodes {
		if n.slot == 0 {
			continue
		}
		for p := range w.procs {
			a := &s.stamped[i][p]
			if !w.noTable && a[2-n.table]&modelAbove(n.start) != 0 {
				return modelWrongTable
			}
			b := (a[0] | a[1]) & modelAbove(n.start)
			if b != 0 && !w.noSession && w.foreign(db, n.slot-1, b, s.procs[p].token) {
				return modelWrongProcess
			}
		}
	}
	return 0
}

// foreign reports whether one of the ticks belongs to a session of another holder, as [DB.Origin]
// sees it.
func (w *modelWorld) foreign(db *modelDB, slot uint8, ticks uint16, holder uint8) bool {
	if !w.mutant.noEnd {
		ticks &^= modelAbove(db.slots[slot].fence)
	}
	l := &db.sessions[slot]
	for k := len(l) - 1; k >= 0; k-- {
		if l[k].holder == 0 {
			continue
		}
		if ticks&modelAbove(l[k].start) != 0 && l[k].holder != holder {
			return true
		}
		ticks &^= modelAbove(l[k].start)
		if !w.mutant.noEnd {
			ticks &^= modelAbove(l[k].before)
		}
	}
	return false
}
