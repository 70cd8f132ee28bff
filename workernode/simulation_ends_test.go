package workernode

import "slices"

// How a simulated process ends, stands still, and rests.

// close ends the process in good order.
func (x *simProcess) close() {
	w := x.world
	x.idle = x.idle && x.lease.held
	x.sync()
	if s := x.slot; x.lease.held && !x.lease.inDoubt {
		c := x.lease.releaseChange(x.me)
		x.service.wake(s)
		if w.execute(&c, x, x.clock()) {
			s.process = nil
			x.service.rest(s)
			w.closed = max(w.closed, w.reserved(s.row))
		}
	}
	x.gone()
	if x.then != nil {
		x.then()
	}
}

// crash ends it otherwise: it sends nothing more.
func (x *simProcess) crash() {
	w := x.world
	if x.dead {
		return
	}
	if s := x.slot; s != nil && s.process == x {
		if w.now >= max(w.down, x.stalled) {
			x.sync()
		}
		x.service.rest(s)
		s.process = nil
		if s.row.holder == x.me {
			w.dead = max(w.dead, w.reserved(s.row))
		}
	}
	w.count.crashes++
	x.gone()
}

// gone removes it from its service.
func (x *simProcess) gone() {
	x.world.count.leaked += int64(len(x.unspent))
	x.leave()
	x.dead = true
	s := x.service
	i := slices.Index(s.processes, x)
	s.processes = slices.Delete(s.processes, i, i+1)
	s.machines[x.machine]--
	delete(s.names, x.host.Name)
}

// stall stops the process for some ms, or cuts it off from the database: its row does not move.
func (x *simProcess) stall(ms int64) {
	w := x.world
	if w.now < max(w.down, x.stalled) || x.dead {
		return
	}
	x.sync()
	if x.slot != nil && x.slot.process == x {
		x.service.rest(x.slot)
	}
	x.stalled, x.asleep = w.now+ms+w.chance(0, 500), true
	x.later(ms, func() {})
}

// wake is the first thing that the process does after stall: it may have lost its slot.
func (x *simProcess) wake() {
	x.asleep = false
	if s := x.slot; s != nil && s.process == x {
		x.service.wake(s)
	}
	if x.lease.held {
		x.step()
	}
}

// rests has the process make no ids for some ms, which is more than idleAfter.
func (x *simProcess) rests(ms int64) {
	w := x.world
	x.later(idleAfter.Milliseconds(), func() {
		if x.sync(); !x.lease.held || x.idle {
			return
		}
		x.idle = true
		w.count.idles++
		x.later(ms-idleAfter.Milliseconds(), func() {
			x.sync()
			x.idle = false
			x.step()
		})
	})
}
