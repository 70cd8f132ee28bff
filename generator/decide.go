package generator

// A move is the next step of a [Cached] for a caller.
type move int

const (
	handOut         move = iota // hand out free positions
	waitForNewer                // for a newer lease, although this one has positions: the clock has passed its end
	waitForLease                // for a lease that has positions
	waitForClock                // until the borrowing limit has moved on
	refuseLease                 // the lease is used up, and no other is waited for
	refuseBorrowing             // the borrowing limit is reached, and the generator does not wait
)

// A moment has everything that decides the next move. The positions are those in one window.
type moment struct {
	want  uint64 // how many positions the caller wants, at least 1
	next  uint64 // the first that was not handed out
	at    uint64 // of the clock
	limit uint64 // the first that must not be handed out now: of the borrowing limit or the lease
	end   uint64 // the first that the lease does not allow

	noWait       bool // the generator refuses instead of waiting for the clock, and a Fill as a whole
	patient      bool // the caller may wait for a lease, and one may come
	prefersLease bool // a newer lease is worth a wait
}

// free returns how many positions may be handed out now.
func (m moment) free() uint64 { return m.limit - min(m.next, m.limit) }

// decide returns the next move. It is pure.
func (m moment) decide() move {
	got := min(m.want, m.free())
	switch {
	case m.at >= m.end && m.next < m.end && m.prefersLease && m.patient:
		return waitForNewer
	case got == m.want || got > 0 && !m.noWait:
		return handOut
	case m.next >= m.end || m.noWait && m.want > m.end-m.next:
		if m.patient {
			return waitForLease
		}
		return refuseLease
	case m.noWait:
		return refuseBorrowing
	}
	return waitForClock
}
