package generator

// An action is what a [Cached] does next for a caller.
type action int

const (
	handOut         action = iota // hand out free positions
	waitForNewer                  // for a newer lease, although this one has positions: the clock has passed its end
	waitForLease                  // for a lease that has positions
	waitForClock                  // until the borrowing limit has moved on
	refuseLease                   // the lease is used up, and no other is waited for
	refuseBorrowing               // the borrowing limit is reached, and the generator does not wait
)

// An input is the input of decide. Its positions belong to one window.
type input struct {
	want  uint64 // how many positions the caller wants, at least 1
	next  uint64 // the first that was not handed out
	at    uint64 // the position of the clock
	limit uint64 // the first that must not be handed out now, because of the borrowing limit or the lease
	end   uint64 // the first that the lease does not allow

	noWait        bool // the generator refuses instead of waiting for the clock, and refuses a Fill as a whole
	mayWait       bool // the caller may wait for a lease, and one may come
	leaseWaitLeft bool // a newer lease is worth a wait
}

// free returns how many positions may be handed out now.
func (in input) free() uint64 { return in.limit - min(in.next, in.limit) }

// decide returns the next action. It is pure.
func decide(in input) action {
	got := min(in.want, in.free())
	switch {
	case in.at >= in.end && in.next < in.end && in.leaseWaitLeft && in.mayWait:
		return waitForNewer
	case got == in.want || got > 0 && !in.noWait:
		return handOut
	case in.next >= in.end || in.noWait && in.want > in.end-in.next:
		if in.mayWait {
			return waitForLease
		}
		return refuseLease
	case in.noWait:
		return refuseBorrowing
	}
	return waitForClock
}
