package workernode

// This file has the actions of the model's processes on their slot, as slot.go does them.

// slotStep does what Manager.send does about the slot.
func (w *modelWorld) slotStep(s *modelState, p, c uint8, l slotLease, visit modelVisitor) {
	params, now, m := w.params(), int64(c), &w.mutant
	switch l.next(params, now) {
	case stepAcquire:
		w.acquire(s, p, c, l, visit)
	case stepRead:
		w.read(s, p, visit)
	case stepCheckCommits:
		w.send(s, p, c, l, modelStatement{kind: modelRelease, why: modelChecksCommits}, func(l *slotLease, me string) change {
			ch := l.releaseChange(me)
			if m.checkRaises {
				ch.newFence = max(l.granted, l.fence)
			}
			return ch
		}, visit)
	case stepAbandon:
		w.send(s, p, c, l, modelStatement{kind: modelRelease, why: modelAbandons}, modelReleases, visit)
	case stepBegin:
		w.send(s, p, c, l, modelStatement{kind: modelBegin}, func(l *slotLease, me string) change {
			ch := l.beginChange(params, now, me)
			switch {
			case m.beginNotAboveGranted:
				ch.least = 1
			case m.beginNotAboveFence:
				ch.least = l.granted + 1
			case m.beginEndsAtFence:
				ch.before = l.fence
			}
			return ch
		}, visit)
	}
}

// acquire models slotHolder.acquire. SEEN_TICK is always old, because the safety of the protocol must not depend on
// it.
func (w *modelWorld) acquire(s *modelState, p, c uint8, l slotLease, visit modelVisitor) {
	params, now := w.params(), int64(c)
	for i := range uint8(modelSlots) {
		for k, db := range [...]*modelDB{&s.db, &s.replica} {
			r := db.slots[i]
			if r.exists == 0 || k == 1 && (!w.stale || r == s.db.slots[i]) {
				continue
			}
			row := slotRow{id: int64(i), holder: modelTokens[r.holder], version: int64(r.version), fence: int64(r.fence)}
			// FENCE 0 means that no process ever held the slot.
			if params.fenceAt(now, row.fence) == row.fence || w.end != 0 && row.fence != 0 && !params.reclaimable(row, now) {
				continue
			}
			w.send(s, p, c, l, modelStatement{kind: modelReclaim}, func(l *slotLease, me string) change {
				return l.reclaimChange(params, row, now, me)
			}, visit)
		}
	}
	if w.newSlots && s.db.nextSlot < w.maxSlots {
		w.send(s, p, c, l, modelStatement{kind: modelReserveSlot}, nil, visit)
	}
}

// read is slotHolder.read.
func (w *modelWorld) read(s *modelState, p uint8, visit modelVisitor) {
	if s.down > 0 {
		return
	}
	m := &w.mutant
	for k, db := range [...]*modelDB{&s.db, &s.replica} {
		if k == 1 && (!w.stale || s.replica == s.db) {
			continue
		}
		n := *s
		x := &n.procs[p]
		l := x.lease.lease()
		r := db.slots[l.id]
		e := modelEvent{what: "reads", proc: p, a: r.version, b: r.fence}
		row := slotRow{id: l.id, holder: modelTokens[r.holder], version: int64(r.version), fence: int64(r.fence)}
		switch {
		case m.skipsRead:
			l.inDoubt = false
			x.lease = modelLeaseOf(l)
			e.what = "does not read"
		case !l.noteRow(row, r.exists != 0, modelTokens[x.token]) || l.regressed && m.checksInMemory:
			x.lose(l)
			e.what = "reads that its slot is lost"
		default:
			granted := x.lease.granted
			l.regressed = l.regressed && !m.ignoresRegress
			if m.adopts {
				l.granted = max(l.granted, l.fence)
			}
			x.lease = modelLeaseOf(l)
			w.stampAll(&n, p, granted+1, x.lease.granted)
			w.provide(&n, p)
		}
		visit(e, &n)
	}
}
