package lease

// This file has the actions of the model's processes. They decide by lease.go and Needs.Next, as the lease manager
// does. Each if with a field of mutant breaks a rule on purpose.

// A modelMutant is a rule that a process breaks.
type modelMutant struct {
	anyClock, usesGap, noSendCheck                   bool
	grantsWhenSent, grantsInDoubt, adopts, skipsRead bool
	laterClock                                       bool
	beginAnyClock, beginNotAboveGranted              bool
	beginNotAboveFence                               bool
	beginHidesLeftovers                              bool
	reclaimAnyClock, reclaimHolderOnly               bool
	renewNoVersion, versionOfRead                    bool
	keepGrants, keepCounts, keepLowers               bool
	ignoresRegress, checkRaises                      bool
	reselectsAtOnce, reselectsAnyVersion             bool
	addAlone, startEarly, ignoresStart               bool
	noFloor, noEnd, twoInFlight, notReadBack         bool
}

func (w *modelWorld) process(s *modelState, p uint8, visit modelVisitor) {
	x := &s.procs[p]
	free := 0
	for f := range x.flight {
		if x.answers[f] == modelIdle {
			free++
		} else {
			w.wait(s, p, f, visit)
		}
	}
	for bit := range uint8(3) {
		if w.asks&^x.wants>>bit&1 == 0 || bit == 0 && x.wants&2 == 0 {
			continue
		}
		n := *s
		n.procs[p].wants |= 1 << bit
		if free == len(x.flight) && x.doing == 0 {
			w.provide(&n, p)
		}
		visit(modelEvent{what: "asks", proc: p, a: bit}, &n)
	}
	if free == len(x.flight) || w.mutant.twoInFlight && free > 0 {
		w.act(s, p, visit)
	}
}

func (x *modelProc) count(use uint8) (n int) {
	for _, u := range x.uses {
		if u == use {
			n++
		}
	}
	return n
}

// lanes returns how many worker ids of a table it should have.
func (x *modelProc) lanes(t uint8) int {
	n := int(x.wants >> t & 1)
	if t == 1 && n > 0 {
		n += int(x.wants & 1)
	}
	return n
}

// provide hands generators the worker ids that the slot has.
func (w *modelWorld) provide(s *modelState, p uint8) {
	x := &s.procs[p]
	if !x.lease.held || x.lease.inDoubt {
		return
	}
	for t := uint8(1); t <= 2; t++ {
		for i, u := range x.uses {
			if u == modelFree+t && x.count(t) < x.lanes(t) {
				w.use(s, p, i, t)
			}
		}
	}
}

// use stamps with a worker id all that the current session was granted.
func (w *modelWorld) use(s *modelState, p uint8, i int, table uint8) {
	x := &s.procs[p]
	x.uses[i] = table
	ticks := modelWindow(x.lease.session+1, x.lease.granted)
	if !w.mutant.ignoresStart {
		ticks &= modelAbove(x.starts[i])
	}
	s.stamp(p, i, ticks)
}

func (s *modelState) stamp(p uint8, i int, ticks uint16) {
	for o := range s.stamped[i] {
		if (s.stamped[i][o][0]|s.stamped[i][o][1])&ticks != 0 {
			s.blame(modelTwice)
		}
	}
	if ticks&^modelAbove(s.floor) != 0 {
		s.blame(modelBelowFloor)
	}
	s.stamped[i][p][s.procs[p].uses[i]-1] |= ticks
}

// stampAll stamps ticks with all worker ids in use: nothing can forbid it later.
func (w *modelWorld) stampAll(s *modelState, p, from, to uint8) {
	x := &s.procs[p]
	for i, u := range x.uses {
		if u == 1 || u == 2 {
			s.stamp(p, i, modelWindow(from, to)&modelAbove(x.starts[i]))
		}
	}
}

// adopt is allocator.addRead.
func (x *modelProc) adopt(i int, table, start uint8) {
	if x.uses[i] != 0 || table == 0 {
		return
	}
	x.uses[i], x.starts[i] = modelFree+table, start
}

// lose is slotHolder.lost. What was granted has been stamped.
func (x *modelProc) lose(l Slot) {
	l.Lose()
	*x = modelProc{
		mode: x.mode, token: x.token, wants: x.wants, avoid: x.avoid, flight: x.flight, answers: x.answers,
		lease: modelLeaseOf(l),
	}
}

func (w *modelWorld) act(s *modelState, p uint8, visit modelVisitor) {
	x := &s.procs[p]
	l := x.lease.lease()
	w.mustReread(s, p, l, visit)
	least, most := w.clocks(s)
	for c := least; c <= most; c++ {
		if x.doing != 0 {
			w.perform(s, p, c, x.doing, x.adding, visit)
			continue
		}
		w.decide(s, p, c, l, visit)
	}
	if w.closes && l.Held && !l.InDoubt && !l.Regressed && x.doing == 0 {
		w.send(s, p, most, l, modelStatement{kind: modelRelease, why: modelCloses}, modelReleases, visit)
	}
}

// mustReread is Manager.reread. The SELECT also compares HOLDER and VERSION of the slot
// with what was acknowledged, so that it sees no worker ids that a later statement added.
func (w *modelWorld) mustReread(s *modelState, p uint8, l Slot, visit modelVisitor) {
	m := &w.mutant
	due := l.Held && !l.InDoubt && !l.Regressed && l.Version == l.AckedVersion
	if !s.procs[p].mustReread || !due && !m.reselectsAtOnce || s.down > 0 {
		return
	}
	for k, db := range [...]*modelDB{&s.db, &s.replica} {
		n := *s
		x := &n.procs[p]
		r := &db.slots[x.lease.slot]
		if k == 1 && (!w.stale || s.replica == s.db) ||
			(r.holder != x.token || r.version != x.lease.acknowledged) && !m.reselectsAtOnce && !m.reselectsAnyVersion {
			continue
		}
		x.mustReread = false
		for i, row := range db.nodes {
			if row.slot == x.lease.slot+1 {
				x.adopt(i, row.table, row.start)
			}
		}
		w.provide(&n, p)
		visit(modelEvent{what: "reads its worker ids", proc: p, a: uint8(k)}, &n)
	}
}

// decide is Manager.one, with everything that can be due.
func (w *modelWorld) decide(s *modelState, p, c uint8, l Slot, visit modelVisitor) {
	x, done := &s.procs[p], uint16(0)
	for _, adds := range [...]bool{false, true} { // callers need worker ids, or none
		var missing modelList
		var n uint8
		if adds {
			missing, n = x.missing()
		}
		if adds && (!w.adds || n == 0 || s.db.nextID+n > w.maxNodes) {
			continue
		}
		for _, wk := range [...]Needs{
			{Wanted: true, Add: n > 0, Stale: int64(c) > l.Granted},
			{Wanted: true, Add: n > 0, Due: true},
			{Idle: true, KeepAlive: true},
		} {
			if wk.Idle && !w.keeps {
				continue
			}
			action := w.next(s, p, l, &wk, int64(c))
			if action == DoNothing || action != DoAdd && done>>action&1 != 0 {
				continue
			}
			done |= 1 << action
			if w.pauses && (action == DoRenew || action == DoAdd) {
				w.pause(s, p, c, action, missing, n, visit)
			} else {
				w.perform(s, p, c, uint8(action), missing, visit)
			}
		}
	}
}

// next is Needs.Next.
func (w *modelWorld) next(s *modelState, p uint8, l Slot, wk *Needs, c int64) Action {
	m := &w.mutant
	action, _ := wk.Next(&l, w.params(), c)
	if action != DoSlot || !l.Held || l.InDoubt || l.Regressed || s.procs[p].holed {
		return action
	}
	if m.anyClock || m.noSendCheck {
		c = min(c, l.Granted+1)
	}
	if m.noSendCheck {
		l.Granted = l.Fence
	}
	other, _ := wk.Next(&l, w.params(), c)
	return other
}

// missing returns the worker ids to add.
func (x *modelProc) missing() (list modelList, n uint8) {
	for t := uint8(1); t <= 2; t++ {
		for lack := x.lanes(t) - x.count(t) - x.count(modelFree+t); lack > 0 && n < modelNodes; lack-- {
			list[n], n = t, n+1
		}
	}
	return list, n
}

// pause lets time pass between a decision and its statement, while worker ids are reserved or the clock is compared
// with the database's.
func (w *modelWorld) pause(s *modelState, p, c uint8, d Action, missing modelList, count uint8, visit modelVisitor) {
	n := *s
	x := &n.procs[p]
	x.doing = uint8(d)
	if d == DoAdd {
		if s.down > 0 {
			return
		}
		x.reserved = n.db.nextID
		for i, row := range n.db.nodes {
			if x.avoid && row.slot != 0 {
				x.reserved = max(x.reserved, uint8(i)+1)
			}
		}
		if x.reserved+count > w.maxNodes {
			return
		}
		x.adding, n.db.nextID = missing, x.reserved+count
	}
	visit(modelEvent{what: "decides", proc: p, a: c, b: uint8(d)}, &n)
}

// perform sends the statement of an action.
func (w *modelWorld) perform(s *modelState, p, c, what uint8, missing modelList, visit modelVisitor) {
	x, now, params, m := &s.procs[p], int64(c), w.params(), &w.mutant
	l := x.lease.lease()
	renew := func(l *Slot, me string) Change {
		ch := l.RenewChange(params, now, me)
		if m.laterClock || m.noSendCheck || m.anyClock {
			ch.NewFence = params.FenceAt(now, ch.Fence)
		}
		return ch
	}
	switch what {
	case uint8(DoSlot):
		w.slotStep(s, p, c, l, visit)
	case uint8(DoRenew):
		w.send(s, p, c, l, modelStatement{kind: modelRenew}, renew, visit)
	case uint8(DoKeepAlive):
		w.send(s, p, c, l, modelStatement{kind: modelKeepAlive}, func(l *Slot, me string) Change {
			ch := l.KeepAliveChange(me)
			if m.keepGrants || m.keepCounts {
				ch.NewFence = max(now, ch.Fence)
			} else if m.keepLowers {
				ch.NewFence = now
			}
			return ch
		}, visit)
	case uint8(DoAdd):
		q := modelStatement{kind: modelAdd, tables: missing, reserved: w.pauses, worker: x.reserved}
		if m.addAlone || m.startEarly {
			q.start = w.startAt(s, c)
		}
		if m.addAlone {
			q.kind = modelInsertAlone
		}
		w.send(s, p, c, l, q, renew, visit)
	case modelAllocates:
		w.send(s, p, c, l, modelStatement{kind: modelAllocate}, func(l *Slot, me string) Change {
			return l.AllocateChange(params, int64(x.reserved), now, me)
		}, visit)
	}
}

// startAt is START_TICK of a worker id that is added when a clock shows c.
func (w *modelWorld) startAt(s *modelState, c uint8) uint8 {
	if w.mutant.noFloor {
		return max(c, 1) - 1
	}
	return max(max(c, 1)-1, s.floor)
}
