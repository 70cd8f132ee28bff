package generator

import (
	"fmt"
	"time"
)

// MaxID returns the largest id that l can make, which has the last tick, worker id and sequence; the smallest id is 0.
// l must be valid.
func (l Layout) MaxID() int64 {
	return 1<<(l.TimeBits+l.timeShift()) - 1
}

// JSSafe reports whether MaxID is at most 2^53-1, so that a JavaScript number holds every id of l without loss, now
// and in the future. l must be valid.
func (l Layout) JSSafe() bool { return l.MaxID() < 1<<53 }

// timeShift returns how many bits of an id are below its time field.
func (l Layout) timeShift() uint8 { return l.WorkerBits + l.SequenceBits }

// Range returns the smallest and the largest id that can carry a time t with from <= t < to. The ids from first to
// last are exactly those whose Time, as [Layout.Decompose] returns it, is in this span. The ranges of adjacent
// spans do not overlap and leave no id out.
//
// The time that an id carries is the start of its tick. A span that begins within a tick therefore leaves that tick
// to the span before it. Begin at TimeOf(TickAt(from)) to include that tick. An id was not made exactly at its
// time: the time may be ahead of the clock by as much as a generator may borrow, and behind it if the lease has
// ended. Where that matters, you should widen the span, or compare a column of the row.
//
// Range cuts off what lies outside of the layout. The error wraps [ErrLayout] if l is not valid, or if no id
// can carry a time in the span. That is so if the span is empty, if the layout ends before the span or begins after it,
// or if no tick begins in it.
func (l Layout) Range(from, to time.Time) (first, last int64, err error) {
	if err := l.Validate(); err != nil {
		return 0, 0, err
	}
	begin, end := l.tickFrom(from), min(l.tickFrom(to), l.MaxTick()+1)
	if begin >= end {
		reason := "no tick of the layout begins in this span"
		switch {
		case to.Round(0).Compare(from.Round(0)) <= 0: // Round drops monotonic readings, so the wall clock counts
			reason = "the span is empty"
		case begin > l.MaxTick():
			reason = "the layout ends at " + format(l.Expires())
		case l.TickAt(to) < 0 || to.Equal(l.Epoch):
			reason = "the layout begins at " + format(l.Epoch)
		}
		return 0, 0, fmt.Errorf("%w: no id has a time from %s until %s: %s", ErrLayout, exact(from), exact(to), reason)
	}
	return begin << l.timeShift(), (end-1)<<l.timeShift() | (1<<l.timeShift() - 1), nil
}

// tickFrom returns the first tick that does not begin before t.
func (l Layout) tickFrom(t time.Time) int64 {
	tick, rest := l.split(t)
	if rest > 0 {
		tick++
	}
	return max(tick, 0)
}

// Above returns nil if all ids of l with the tick of the time now, or a later tick, are above the number largest.
// Pass the largest key of a table that is to get ids of l. Any number is allowed, also a negative one.
//
// Otherwise the error wraps [ErrLayout] and has the time, if any, from which on all ids would be above the number.
// The error also wraps [ErrLayout] if l is not valid, or has no tick for the time now; see [Layout.ValidAt]. A
// process whose clock is behind stamps earlier ticks, so pass a time as far behind the present as a clock may be.
func (l Layout) Above(largest int64, now time.Time) error {
	if err := l.ValidAt(now); err != nil {
		return err
	}
	if largest < 0 || l.TickAt(now) > largest>>l.timeShift() {
		return nil
	}
	// The tick of largest is too early, because the first id of this tick, with worker id 0, is not above largest.
	tick := largest>>l.timeShift() + 1
	if tick > l.MaxTick() {
		return fmt.Errorf("%w: no tick of the layout %v has only ids above %d; the smallest id of its last tick is %d",
			ErrLayout, l, largest, l.MaxTick()<<l.timeShift())
	}
	return fmt.Errorf("%w: ids at %s begin at %d; all are above %d only from %s on: choose an earlier epoch, or more worker or sequence bits",
		ErrLayout, format(now), l.TickAt(now)<<l.timeShift(), largest, exact(l.TimeOf(tick)))
}
