package workernode

import "slices"

// What a simulated process does. It decides with lease.go, lanes.go, work.next, missing and inOrder, as the lease manager
// does. The order of the statements is that of slot.go and workers.go.

type simProcess struct {
	world   *simWorld
	service *simService
	role    *simRole
	host    Host
	machine int
	me      string // HOLDER
	version int    // of the service
	offset  int64  // of its clock, in ms

	lease   slotLease
	slot    *simSlot
	said    int64 // when its last statement was acknowledged, in ms
	unspent []int64
	given   int64 // the largest worker id that it knows of

	dead, left, rolling, idle bool // left: it was told to end; rolling: its predecessor waits until it is ready
	asleep                    bool // it stands still until stalled, in ms
	stalled                   int64
	then                      func() // called when it was closed
}

// simLatency is how long a statement takes, in ms.
func (w *simWorld) simLatency() int64 { return w.chance(2, 40) }

func (x *simProcess) at(ms int64) int64 { return max(ms+x.offset, 0) / x.world.perTick }
func (x *simProcess) clock() int64      { return x.at(x.world.now) }

// later has the process do something in some ms, or as soon as it runs and the database answers.
func (x *simProcess) later(ms int64, do func()) {
	w := x.world
	w.after(ms, func() {
		if x.dead {
			return
		}
		if until := max(w.down, x.stalled); w.now < until {
			x.later(until-w.now+w.chance(1, 500), do)
			return
		}
		if x.asleep {
			x.wake()
		}
		do()
	})
}

// look looks for slots to reclaim. Other processes may change them before the claim.
func (x *simProcess) look() { x.lookAgain(1) }

func (x *simProcess) lookAgain(looks int) {
	rows := slices.Clone(inOrder(x.world.candidates(x), x.world.random.Shuffle))
	x.later(x.world.simLatency(), func() { x.claim(rows, looks) })
}

// claim tries to reclaim one of the slots. If all were taken meanwhile it looks again, or inserts a new one.
func (x *simProcess) claim(rows []slotRow, looks int) {
	w := x.world
	for _, r := range rows {
		c := x.lease.reclaimChange(w.params, r, x.clock(), x.me)
		if s := w.slots[r.id]; x.begin(&c) {
			w.count.reclaimed++
			s.process = x
			x.complete()
			return
		}
	}
	if looksAgain(len(rows), len(rows), looks) {
		w.count.again++
		x.lookAgain(looks + 1)
		return
	}
	if len(rows) > 0 {
		w.count.missed++
	}
	slot := w.registry.NextSlot
	w.registry.NextSlot++
	x.later(w.simLatency(), func() {
		c := x.lease.allocateChange(w.params, slot, x.clock(), x.me)
		if !x.begin(&c) {
			w.count.exhausted++ // the layout has ended
			return
		}
		w.count.allocated++
		x.slot.process = x
		x.complete()
	})
}

// begin begins a session with c, as statements.beginSession and Manager.beginSession do.
func (x *simProcess) begin(c *change) bool {
	w := x.world
	if !w.matches(c) || !c.setFirst(x.clock(), w.registry.Floor) {
		return false
	}
	if s := w.slots[c.slot]; s != nil {
		x.service.wake(s)
	}
	w.execute(c, x, x.clock())
	s := w.slots[c.slot]
	x.lease.noteSession(*c, w.registry.Floor)
	x.slot, x.said = s, w.now
	x.given = max(x.given, w.registry.NextID-1)
	w.grant(s, c.first, c.newFence, w.now)
	w.count.sessions++
	s.today++
	return true
}

// renew executes a change that moves the fence, and notes its answer. It reports whether it was executed.
func (x *simProcess) renew(c *change, at int64) bool {
	w := x.world
	if !w.execute(c, x, x.at(at)) {
		x.lease.doubt()
		return false
	}
	granted := x.lease.granted
	if x.lease.noteRenewal(*c, x.at(at)) {
		w.grant(x.slot, granted+1, x.lease.granted, at)
		w.count.renewals++
	}
	x.said = at
	return true
}

// sync sums up the renewals of a process since its last statement: it is called when something else is about to happen to
// it. Each renewal of a process that runs, and whose database answers, finds the row as it left it and the clock within
// what was granted. So lease.next says stepReady, and the renewal grants the ticks up to lead after it (lease_test.go).
// By induction the last one but one has granted everything up to lead after that, in as many versions as there were
// renewals. The state there is set, and lease.go does the last one. TestSimulationSync_IsTheSumOfRenewals compares this
// with all renewals done one by one. An idle process sends keep-alives, which change the version and SEEN_TICK.
func (x *simProcess) sync() {
	w, l := x.world, &x.lease
	third := int64(DefaultLead.Milliseconds()) / 3
	every := w.chance(third-third/8, third+1) // as Manager.setInterval
	if x.idle {
		every = grace.Milliseconds() / 2
	}
	last := w.now - w.random.Int64N(every)
	if !l.held || l.inDoubt || x.slot.process != x || x.asleep || last-every < x.said {
		return
	}
	n := (last - x.said) / every
	l.version += n
	l.ackedVersion, l.used = l.version, max(l.used, l.version)
	row := &x.slot.row
	row.version = l.version
	if x.idle {
		c := l.keepAliveChange(x.me)
		w.execute(&c, x, x.at(last))
		l.noteAck(c)
		x.said = last
		return
	}
	if before := w.params.fenceAt(x.at(last-every), l.fence); before > l.granted {
		w.grant(x.slot, l.granted+1, before, last-every)
		l.granted, l.fence, row.fence = before, before, before
	}
	w.count.renewals += n
	if w.params.fenceAt(x.at(last), l.fence) > l.granted {
		c := l.renewChange(w.params, x.at(last), x.me)
		x.renew(&c, last)
	}
}

// step does what is due after a pause, as Manager.one does.
func (x *simProcess) step() {
	w, l := x.world, &x.lease
	for range 10 {
		due := work{wanted: !x.idle, due: true, idle: x.idle, keepAlive: x.idle}
		switch next, _ := due.next(l, w.params, x.clock()); next {
		case doNothing:
			return
		case doKeepAlive:
			c := l.keepAliveChange(x.me)
			if w.execute(&c, x, x.clock()) {
				l.noteAck(c)
				x.said = w.now
				return
			}
			l.doubt()
		case doRenew:
			c := l.renewChange(w.params, x.clock(), x.me)
			if x.renew(&c, w.now) {
				return
			}
		case doSlot:
			switch l.next(w.params, x.clock()) {
			case stepAcquire:
				x.look()
				return
			case stepRead:
				if s := x.slot; !l.noteRow(s.row, true, x.me) {
					w.count.lost++
					x.slot = nil
				}
			case stepBegin:
				if c := l.beginChange(w.params, x.clock(), x.me); x.begin(&c) {
					return
				}
				l.doubt()
			case stepWait:
				x.later(w.perTick, x.step)
				return
			case stepExhausted:
				w.count.exhausted++
				return
			default:
				w.fault("step %d of a process with the lease %+v", l.next(w.params, x.clock()), *l)
				return
			}
		}
	}
	w.fault("a process does not come to an end: %+v", x.lease)
}

// complete gets worker ids for the tables that the application lists at its start, and spares.
func (x *simProcess) complete() {
	s := x.slot
	if s.checked[x.role.name] >= x.service.last && s.owns[Table{}] >= simSpares {
		x.grow()
		return
	}
	lack := map[Table]int{}
	if !x.service.lazy {
		for _, t := range x.role.inUse() {
			lack[t] = 1
		}
	}
	x.add(missing(lack, simSpares, func(t Table) int { return s.owns[t] }), func() {
		if x.service.lazy {
			x.later(x.world.chance(60_000, 600_000), x.use)
			return
		}
		s.checked[x.role.name] = x.service.last
		x.grow()
	})
}

// use writes to tables for the first time, inside transactions: they get spares, whose tables are written into their rows
// at once. Then there are new spares.
func (x *simProcess) use() {
	x.awake(func() {
		w, s, n := x.world, x.slot, 0
		for _, t := range x.role.inUse() {
			if s.owns[t] == 0 && s.owns[Table{}] > 0 {
				s.owns[t]++
				s.owns[Table{}]--
				n++
			}
		}
		if n == 0 {
			s.checked[x.role.name] = x.service.last
			return
		}
		c := x.lease.renewChange(w.params, x.clock(), x.me)
		if !x.renew(&c, w.now) {
			w.fault("spares of slot %d cannot be bound", s.row.id)
			return
		}
		x.add(missing(nil, simSpares, func(t Table) int { return s.owns[t] }), x.use)
	})
}

// grow gets lanes for tables that need more ids than one worker id makes.
func (x *simProcess) grow() {
	if x.service.rate == 0 {
		return
	}
	x.later(x.world.chance(60_000, 600_000), func() {
		x.awake(func() {
			s, l, lack := x.slot, x.world.layout, map[Table]int{}
			perLane := float64(l.MaxSequence()+1) / l.Tick.Seconds()
			for _, t := range x.role.inUse() {
				most := mostLanes(maxLanes(l), 1, s.owns[t]-1, x.given, l)
				if want := wantedLanes(1, most, x.service.rate*perLane, perLane, longSample); want > 1 {
					lack[t] = want - 1
				}
			}
			x.add(missing(lack, 0, func(t Table) int { return max(s.owns[t]-1, 0) }), func() {})
		})
	})
}

// awake does something with the slot, after the renewals until now.
func (x *simProcess) awake(do func()) {
	x.sync()
	if x.idle || !x.lease.held || x.lease.next(x.world.params, x.clock()) != stepReady {
		return
	}
	do()
}

// add adds worker ids, as Manager.add does: it reserves them, and inserts them with the next statement. If the process
// ends between the two, nobody ever gets them.
func (x *simProcess) add(tables []Table, then func()) {
	w := x.world
	if len(tables) == 0 {
		then()
		return
	}
	if n := len(tables) - len(x.unspent); n > 0 {
		first, ok := w.reserve(int64(n))
		if !ok {
			return
		}
		for i := range n {
			x.unspent = append(x.unspent, first+int64(i))
		}
	}
	x.later(w.simLatency(), func() {
		if x.sync(); x.lease.next(w.params, x.clock()) != stepReady {
			return // an outage, after which the next process of the slot adds what is missing
		}
		c := x.lease.renewChange(w.params, x.clock(), x.me)
		if !x.renew(&c, w.now) {
			return
		}
		s, start := x.slot, startOf(x.clock(), w.registry.Floor)
		if start > x.lease.granted {
			w.fault("START_TICK of worker ids of slot %d is %d, and granted is %d", s.row.id, start, x.lease.granted)
		}
		x.given = max(x.given, x.unspent[len(tables)-1])
		x.unspent = slices.Delete(x.unspent, 0, len(tables))
		for _, t := range tables {
			s.owns[t]++
		}
		s.all += len(tables)
		x.service.workers += int64(len(tables))
		if most := x.service.last*x.service.lanes + simSpares; s.all > most {
			w.fault("slot %d has %d worker ids, more than %d", s.row.id, s.all, most)
		}
		then()
	})
}
