package lease

// An Action is the next thing that the lease manager does. For DoSlot, a [Step] tells what exactly.
type Action int

const (
	DoNothing Action = iota
	DoSlot           // the step of the lease: acquire, read, begin ...
	DoRenew
	DoAdd
	DoKeepAlive
)

// Needs are the reasons to send statements at one moment.
type Needs struct {
	Idle      bool // no ids were made for a long time
	Wanted    bool // the process needs a slot
	Due       bool // a renewal is due
	KeepAlive bool // a keep-alive is due
	Stale     bool // ticks are needed, and the grants have passed or are nearly used up
	Add       bool // worker ids are missing
}

// Next returns what to do first. The step matters only for DoSlot.
func (n *Needs) Next(l *Slot, p Params, now int64) (Action, Step) {
	if !l.Held && !n.Wanted {
		return DoNothing, StepReady
	}
	if n.Idle && l.Held && !l.InDoubt && !l.Regressed {
		if n.KeepAlive {
			return DoKeepAlive, StepReady
		}
		return DoNothing, StepReady
	}
	if s := l.Next(p, now); s != StepReady {
		return DoSlot, s
	}
	switch grows := p.FenceAt(now, l.Fence) > l.Granted; {
	case grows && (n.Due || n.Stale):
		return DoRenew, StepReady // a renewal goes before adding worker ids
	case n.Add:
		return DoAdd, StepReady
	}
	return DoNothing, StepReady
}

// Sends reports whether an action sends a statement. For DoSlot, s is its step.
func (a Action) Sends(s Step) bool {
	return a != DoNothing && (a != DoSlot || s != StepWait && s != stepExhausted)
}
