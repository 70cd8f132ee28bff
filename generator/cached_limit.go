package generator

import (
	"math"
	"time"
)

// This file bounds how far ahead a Cached may stamp, and decides when it asks for a renewal.

// LaneAhead returns how many ticks the ids of a generator may be ahead of the clock before it needs more lanes. These
// ticks last 50 ms or more, and a worker id makes 800 ids or more in them.
func (l Layout) LaneAhead() int64 {
	perTick := l.MaxSequence() + 1
	return max(int64((50*time.Millisecond+l.Tick-1)/l.Tick), (800+perTick-1)/perTick)
}

// MaxLanes returns how many lanes a generator of the plugin gets at most: [MaxLanes], or fewer in layouts with few
// worker ids, because other tables and processes need worker ids.
func (l Layout) MaxLanes() int {
	most := MaxLanes
	for most > 1 && int64(most) > l.MaxWorkerID()/4 {
		most /= 2
	}
	return most
}

// isLow reports whether the generator needs lanes or a renewal of the lease of w. next is the position of the next id,
// and present the position of the clock.
func (g *Cached) isLow(w *window, next, present uint64) bool {
	s := g.scale(w)
	lanes := g.onLow != nil && s.tick(next) > max(s.tick(present), g.from)+g.laneAhead
	return lanes || g.mayFollow(&g.layout, w.until) && scarce(s.start(g.from), g.end(w), next, present)
}

// reopenAt returns how many positions must be free before a window opens: as many as a tick has, or half of those
// that may be borrowed if that is less. With fewer, callers are served one at a time, so their queue is fair.
func (g *Cached) reopenAt(s scale) uint64 {
	return max(min(s.start(1), s.count(g.borrow)/2), 1)
}

// limit advances the borrowing limit to the time now. It returns the first position of w that must not be handed
// out yet. now must have been read under mu, because time would be counted twice if readings came out of order.
func (g *Cached) limit(w *window, now time.Time) uint64 {
	s := g.scale(w)
	// A monotonic reading, which time.Now has, makes Sub independent of the wall clock. Without such a reading, a step
	// back must not count.
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
	// A wall clock that is beyond the layout is wrong, so the limit does not follow it.
	if at := s.at(now); at < s.top() {
		if to := min(at+s.count(g.borrow), s.top()); to > limit {
			limit = to
			g.anchor, g.elapsed = limit, 0
		}
	}
	return min(limit, g.end(w))
}
