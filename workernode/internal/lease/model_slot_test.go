package lease

// This file has the actions of the model's processes on their slot, as slot.go does them.

// slotStep does what Manager.send does about the slot.
func (w *modelWorld) slotStep(s *modelState, p, c uint8, l Slot, visit modelVisitor) {
	params, now, m := w.params(), int64(c), &w.mutant
	switch l.Next(params, now) {
	case StepAcquire:
		w.acquire(s, p, c, l, visit)
	case StepRead:
		w.read(s, p, visit)
	case StepCheckCommits:
		w.send(s, p, c, l, modelStatement{kind: modelRelease, why: modelChecksCommits}, func(l *Slot, me string) Change {
			ch := l.ReleaseChange(me)
			if m.checkRaises {
				ch.NewFence = max(l.Granted, l.Fence)
			}
			return ch
		}, visit)
	case StepAbandon:
		w.send(s, p, c, l, modelStatement{kind: modelRelease, why: modelAbandons}, modelReleases, visit)
	case StepBegin:
		w.send(s, p, c, l, modelStatement{kind: modelBegin}, func(l *Slot, me string) Change {
			ch := l.BeginChange(params, now, me)
			switch {
			case m.beginNotAboveGranted:
				ch.Least = 1
			case m.beginNotAboveFence:
				ch.Least = l.Granted + 1
			}
			return ch
		}, visit)
	}
}

// acquire models slotHolder.acquire. SEEN_TICK is always old, because the safety of the protocol must not depend on
// it.
func (w *modelWorld) acquire(s *modelState, p, c uint8, l Slot, visit modelVisitor) {
	params, now := w.params(), int64(c)
	for i := range uint8(modelSlots) {
		for k, db := range [...]*modelDB{&s.db, &s.replica} {
			r := db.slots[i]
			if r.exists == 0 || k == 1 && (!w.stale || r == s.db.slots[i]) {
				continue
			}
			row := Row{ID: int64(i), Holder: modelTokens[r.holder], Version: int64(r.version), Fence: int64(r.fence)}
			// FENCE 0 means that no process ever held the slot.
			if params.FenceAt(now, row.Fence) == row.Fence || w.end != 0 && row.Fence != 0 && !params.Reclaimable(row, now) {
				continue
			}
			w.send(s, p, c, l, modelStatement{kind: modelReclaim}, func(l *Slot, me string) Change {
				return l.ReclaimChange(params, row, now, me)
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
		r := db.slots[l.ID]
		e := modelEvent{what: "reads", proc: p, a: r.version, b: r.fence}
		row := Row{ID: l.ID, Holder: modelTokens[r.holder], Version: int64(r.version), Fence: int64(r.fence)}
		switch {
		case m.skipsRead:
			l.InDoubt = false
			x.lease = modelLeaseOf(l)
			e.what = "does not read"
		case !l.NoteRow(row, r.exists != 0, modelTokens[x.token]):
			x.lose(l)
			e.what = "reads that its slot is lost"
		default:
			granted := x.lease.granted
			l.Regressed = l.Regressed && !m.ignoresRegress
			if m.adopts {
				l.Granted = max(l.Granted, l.Fence)
			}
			x.lease = modelLeaseOf(l)
			w.stampAll(&n, p, granted+1, x.lease.granted)
			w.provide(&n, p)
		}
		visit(e, &n)
	}
}
