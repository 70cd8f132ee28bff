package generator

// An action is what a [Cached] does next for a caller.
type action int

const (
	handOut         action = iota // hand out free positions
	waitForNewer                  // for a newer lease: the clock has passed the end of this one, which has ids left
	waitForLease                  // for a lease that has positions
	waitForClock                  // until the borrowing limit has moved on
	refuseLease                   // the lease is used up, and the caller does not wait for another
	refuseBorrowing               // the borrowing limit is reached, and the generator does not wait
)

// An input is the input of decide. Its positions belong to one window.
type input struct {
	want  uint64 // how many positions the caller wants, at least 1
	next  uint64 // the first position that was not handed out
	at    uint64 // the position of the clock
	limit uint64 // the first position that must not be handed out now, because of the borrowing limit or the lease
	end   uint64 // the first position that the lease does not allow

	noWait        bool // the generator refuses instead of waiting for the clock, and gives a Fill all ids or none
	mayWait       bool // the caller may wait for another lease, and there may be one
	leaseWaitLeft bool // callers have waited less than 100 ms for a newer lease
}

// free returns how many positions may be handed out now.
func (i input) free() uint64 { return i.limit - min(i.next, i.limit) }

// decide returns the next action. It is pure.
func decide(i input) action {
	got := min(i.want, i.free())
	switch {
	case i.at >= i.end && i.next < i.end && i.leaseWaitLeft && i.mayWait:
		return waitForNewer
	case got == i.want || got > 0 && !i.noWait:
		return handOut
	case i.next >= i.end || i.noWait && i.want > i.end-i.next:
		if i.mayWait {
			return waitForLease
		}
		return refuseLease
	case i.noWait:
		return refuseBorrowing
	}
	return waitForClock
}
