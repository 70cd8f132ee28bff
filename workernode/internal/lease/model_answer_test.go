package lease

// This file has the ways in which statements of the model's processes can end.

// A modelWith makes the change of a statement; me is the HOLDER.
type modelWith func(l *Slot, me string) Change

func modelReleases(l *Slot, me string) Change { return l.ReleaseChange(me) }

// send sends a statement. The change that it makes comes from a function of lease.go.
func (w *modelWorld) send(s *modelState, p, clock uint8, l Slot, q modelStatement,
	with modelWith, visit modelVisitor) {
	n := *s
	x := &n.procs[p]
	q.proc = p
	if with != nil {
		used := l.Used
		if w.mutant.versionOfRead {
			l.Used = 0
		}
		q.change = modelChangeOf(with(&l, modelTokens[x.token]))
		l.Used = max(used, l.Used)
		most := w.maxV
		if w.maxV2 != 0 && p > 0 {
			most = w.maxV2
		}
		if l.Regressed { // it may always find out
			most++
		}
		if l.Held && q.change.newVersion > most || used >= int64(most) {
			return
		}
		x.lease = modelLeaseOf(l)
	} else if x.lease.used >= w.maxV {
		return
	}
	x.doing, x.adding, x.reserved = 0, modelList{}, 0
	f := 0
	if x.answers[0] != modelIdle {
		f = 1
	}
	x.flight[f], x.answers[f] = q, modelSent
	if w.mutant.grantsWhenSent && q.kind == modelAdd {
		l.NoteRenewal(q.change.change(), int64(clock))
		granted := x.lease.granted
		x.lease.granted = modelByte(l.Granted)
		w.stampAll(&n, p, granted+1, x.lease.granted)
	}
	visit(modelEvent{what: "sends", proc: p, a: clock, b: x.lease.granted, q: q}, &n)
}

// wait tries all ways in which a statement that was sent can end.
func (w *modelWorld) wait(s *modelState, p uint8, f int, visit modelVisitor) {
	q, answer := s.procs[p].flight[f], s.procs[p].answers[f]
	next := func() *modelState {
		n := *s
		n.procs[p].flight[f], n.procs[p].answers[f] = modelStatement{}, modelIdle
		return &n
	}
	switch answer {
	case modelSent:
		if s.down == 0 {
			w.arrive(s, p, f, visit)
		}
	case modelDone:
		least, most := w.clocks(s)
		switch q.kind {
		case modelRenew, modelAdd, modelKeepAlive:
		default:
			least = most // no clock is read
		}
		for c := least; c <= most; c++ {
			n := next()
			w.learn(n, p, &q, c)
			visit(modelEvent{what: "has the answer to", proc: p, a: c, b: n.procs[p].lease.granted, q: q}, n)
		}
	case modelRefused:
		n := next()
		w.fail(n, p, &q, false)
		visit(modelEvent{what: "is refused", proc: p, q: q}, n)
	}
	if answer == modelBroken || w.quiet == 0 {
		n := next()
		w.fail(n, p, &q, true)
		visit(modelEvent{what: "gives up", proc: p, q: q}, n)
	}
	if w.late && s.left.kind == modelNothing && answer == modelSent && (q.open || !q.transaction()) {
		n := next()
		n.left = q
		w.fail(n, p, &q, true)
		visit(modelEvent{what: "gives up, leaving", proc: p, q: q}, n)
	}
}

func (w *modelWorld) arrive(s *modelState, p uint8, f int, visit modelVisitor) {
	q := s.procs[p].flight[f]
	if q.transaction() && !q.open {
		w.open(s, p, f, visit)
		return
	}
	n := *s
	x := &n.procs[p]
	e := modelEvent{what: "has executed", proc: p, q: q}
	matched := q.kind != modelReserveSlot && w.matches(s, &q)
	if w.execute(&n, &x.flight[f]) {
		x.answers[f] = modelDone
	} else if e.what, x.answers[f] = "has in vain", modelRefused; q.open && matched { // a duplicate key
		x.answers[f], x.avoid = modelBroken, q.kind == modelAdd
	}
	visit(e, &n)
	if w.alters && x.answers[f] == modelDone && q.open {
		w.alter(s, p, f, visit)
	}
	if w.repeat && x.answers[f] == modelDone && !q.open && s.left.kind == modelNothing {
		n.left = q
		visit(modelEvent{what: "has executed, and will again,", proc: p, q: q}, &n)
	}
}

// alter is a transaction in which the database keeps the old FENCE. The process reads that before COMMIT, and rolls
// back.
func (w *modelWorld) alter(s *modelState, p uint8, f int, visit modelVisitor) {
	n := *s
	x := &n.procs[p]
	if x.answers[f] = modelBroken; w.mutant.notReadBack {
		w.execute(&n, &x.flight[f])
		c := &x.flight[f].change
		n.db.slots[c.slot].fence = c.fence
		x.answers[f] = modelDone
	}
	visit(modelEvent{what: "does not keep FENCE of", proc: p, q: x.flight[f]}, &n)
}

// open is the first statement of a transaction with its answer, after which the clock is read.
func (w *modelWorld) open(s *modelState, p uint8, f int, visit modelVisitor) {
	m := &w.mutant
	q := s.procs[p].flight[f]
	if !w.matches(s, &q) {
		n := *s
		n.procs[p].answers[f] = modelRefused
		visit(modelEvent{what: "begins in vain", proc: p, q: q}, &n)
		return
	}
	least, most := w.clocks(s)
	floor := s.floor
	if m.noFloor {
		floor = 0
	}
	for c := least; c <= most; c++ {
		n := *s
		y := &n.procs[p].flight[f]
		y.open = true
		ok := true
		switch q.kind {
		case modelAdd:
			if !m.startEarly {
				y.start = w.startAt(s, c)
			}
		default:
			now := int64(c)
			if m.reclaimAnyClock && q.kind == modelReclaim || m.beginAnyClock && q.kind == modelBegin {
				now = 0
			}
			ch := q.change.change()
			ok = ch.SetFirst(now, int64(floor))
			if m.beginHidesLeftovers && q.kind == modelBegin {
				ch.Before = ch.First - 1
			}
			y.change = modelChangeOf(ch)
		}
		if !ok {
			n.procs[p].answers[f] = modelRefused
		}
		visit(modelEvent{what: "begins", proc: p, a: c, q: *y}, &n)
	}
}

// fail notes that a statement changed nothing, or, with unknown, that nothing is known of it.
func (w *modelWorld) fail(s *modelState, p uint8, q *modelStatement, unknown bool) {
	x := &s.procs[p]
	if unknown && w.mutant.grantsInDoubt && q.kind == modelRenew {
		w.learn(s, p, q, 0)
		return
	}
	l := x.lease.lease()
	switch q.kind {
	case modelReserveSlot, modelInsertAlone:
		return
	case modelReclaim, modelAllocate, modelBegin:
	case modelAdd:
		if unknown {
			x.mustReread = true
		}
	}
	if l.Held {
		l.Doubt()
	}
	x.lease = modelLeaseOf(l)
}

// learn notes the acknowledgement of a statement; after is the clock then.
func (w *modelWorld) learn(s *modelState, p uint8, q *modelStatement, after uint8) {
	x := &s.procs[p]
	l, c, m := x.lease.lease(), q.change.change(), &w.mutant
	switch q.kind {
	case modelReserveSlot:
		x.doing, x.reserved = modelAllocates, q.change.slot
		return
	case modelRelease:
		x.lose(l)
		if q.why == modelCloses {
			x.mode = modelDead
		}
		return
	case modelReclaim, modelAllocate, modelBegin:
		w.began(s, p, q, l)
		return
	case modelKeepAlive:
		if m.keepGrants {
			w.grant(s, p, l, q, after)
			break
		}
		if l.NoteAck(c); m.keepCounts {
			l.Granted = c.NewFence
		}
		x.lease = modelLeaseOf(l)
	case modelRenew:
		w.grant(s, p, l, q, after)
	case modelAdd, modelInsertAlone:
		for i, t := range q.tables {
			if t != 0 {
				x.adopt(int(q.worker)+i, t, q.start)
			}
		}
		if q.kind == modelAdd {
			w.grant(s, p, l, q, after)
		}
	}
	w.provide(s, p)
}

// began notes the same as slotHolder.beginSession.
func (w *modelWorld) began(s *modelState, p uint8, q *modelStatement, l Slot) {
	x := &s.procs[p]
	c := q.change.change()
	if !l.Held || l.ID != c.Slot {
		for i, u := range x.uses {
			if u > 2 {
				x.uses[i] = 0
			}
		}
	}
	floor := s.floor
	if w.mutant.noFloor {
		floor = 0
	}
	l.NoteSession(c, int64(floor))
	x.lease, x.mustReread = modelLeaseOf(l), false
	x.holed = false
	w.stampAll(s, p, q.change.first, x.lease.granted)
	for i, t := range q.tables {
		x.adopt(i, t, q.starts[i])
	}
	w.provide(s, p)
}

// grant is slotHolder.noteRenewal.
func (w *modelWorld) grant(s *modelState, p uint8, l Slot, q *modelStatement, after uint8) {
	x, m, c, now := &s.procs[p], &w.mutant, q.change.change(), int64(after)
	granted, compared := l.Granted, l.Fence
	if m.anyClock {
		now = min(now, l.Granted+1)
	}
	joined := l.contiguous(now)
	l.NoteRenewal(c, now)
	from := granted + 1
	if !joined {
		if m.usesGap {
			from = max(compared+1, granted+1, l.Floor+1, int64(after))
			if from <= c.NewFence {
				l.Granted = c.NewFence
			}
		} else if m.noSendCheck {
			x.holed = true
		}
	}
	x.lease = modelLeaseOf(l)
	w.stampAll(s, p, modelByte(from), x.lease.granted)
}
