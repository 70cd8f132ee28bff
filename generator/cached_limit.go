package generator

import (
	"math"
	"time"
)

// How far a Cached may stamp: the borrowing limit, which follows the clock, and the end of the lease; and when it calls
// OnLow before that.

// LaneAhead is how far the ids of a [Cached] may be ahead of the clock until it calls OnLow because it needs more lanes.
// With ticks that are longer, it is a tick.
const LaneAhead = 50 * time.Millisecond

// needs reports whether the generator needs lanes or a renewal of the lease of w. next is the position of the next id,
// and at the clock's.
func (g *Cached) needs(w *window, next, at uint64) bool {
	s := g.scale(w)
	lanes := g.low != nil && s.tick(next) > max(s.tick(at), g.from)+g.ahead
	return lanes || g.lasts(&g.layout, w.until) && scarce(s.start(g.from), g.end(w), next, at)
}

// reopenAt is how many positions must be free for a window to be worth opening:
// a tick's, or half of those that may be borrowed. With less, callers are served one
// at a time instead, because that keeps the queue at the limit fair.
func (g *Cached) reopenAt(s scale) uint64 {
	return max(min(s.start(1), s.count(g.borrow)/2), 1)
}

// limit returns the first position of w, the present window, that must not be given
// out now.
func (g *Cached) limit(w *window, now time.Time) uint64 {
	return min(g.advance(g.scale(w), now), g.end(w))
}

// advance brings the borrowing limit up to now and returns it. now must have been
// read under mu, because a stale reading would make the
// time since then count twice.
func (g *Cached) advance(s scale, now time.Time) uint64 {
	// With a monotonic reading, as time.Now has it, Sub does not see the wall
	// clock being set. Without one a step back must not count.
	reading := now.Sub(g.clock.base)
	if reading < g.last || reading-g.last >= soon {
		g.quick = 0
	} else if g.quick < hurried {
		g.quick++
	}
	if reading > g.last {
		gained := reading - g.last
		if gained < 0 || gained > math.MaxInt64-g.elapsed {
			gained = math.MaxInt64 - g.elapsed // more than a Duration holds
		}
		g.elapsed += gained
	}
	g.last = reading
	limit := g.anchor + min(s.count(g.elapsed), s.top()-g.anchor)
	// A wall clock that is beyond the layout is wrong, and not to be followed.
	if at := s.at(now); at < s.top() {
		if to := min(at+s.count(g.borrow), s.top()); to > limit {
			limit = to
			g.anchor, g.elapsed = limit, 0
		}
	}
	return limit
}
