package workernode

// This file decides in which order a lease manager sends statements.

// An action is the next thing that the lease manager does. For doSlot see the [step] of the lease.
type action int

const (
	doNothing action = iota
	doSlot           // the step of the lease: acquire, read, begin ...
	doRenew
	doAdd
	doKeepAlive
)

// needs are the reasons to send statements at one moment.
type needs struct {
	idle      bool // no ids were made for a long time
	wanted    bool // the process needs a slot
	due       bool // a renewal is due
	keepAlive bool // a keep-alive is due
	stale     bool // ticks are needed, and the grants have passed or are nearly used up
	add       bool // worker ids are missing
}

// next returns what to do first. The step is for doSlot.
func (n *needs) next(l *slotLease, p leaseParams, now int64) (action, step) {
	if !l.held && !n.wanted {
		return doNothing, stepReady
	}
	if n.idle && l.held && !l.inDoubt && !l.regressed {
		if n.keepAlive {
			return doKeepAlive, stepReady
		}
		return doNothing, stepReady
	}
	if s := l.next(p, now); s != stepReady {
		return doSlot, s
	}
	switch grows := p.fenceAt(now, l.fence) > l.granted; {
	case grows && (n.due || n.stale):
		return doRenew, stepReady // a due renewal goes before requests
	case n.add:
		return doAdd, stepReady
	}
	return doNothing, stepReady
}

func (a action) sends(s step) bool {
	return a != doNothing && (a != doSlot || s != stepWait && s != stepExhausted)
}
