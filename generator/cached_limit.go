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
// worker ids, because other tables and processes need some, too.
func (l Layout) MaxLanes() int {
	most := MaxLanes
	for most > 1 && int64(most) > l.MaxWorkerID()/4 {
		most /= 2
	}
	return most
}

// isLow reports whether OnLow should be called. next is the position of the next id, and present that of the clock.
func (g *Cached) isLow(w *window, next, present uint64) bool {
	s := g.scale(w)
	lanes := g.onLow != nil && s.tick(next) > max(s.tick(present), g.from)+g.laneAhead
	return lanes || g.mayFollow(&g.layout, w.until) && scarce(s.start(g.from), g.end(w), next, present)
}

// reopenAt returns how many positions must be free before a window opens. With fewer, callers stay in the queue,
// which serves them in the order of their arrival.
func (g *Cached) reopenAt(s scale) uint64 {
	return max(min(s.start(1), s.count(g.borrow)/2), 1)
}

// limit advances the borrowing limit, and returns the first position of w that must not be handed out yet. The
// clock must be read under mu, because readings out of order would count time twice.
func (g *Cached) limit(w *window, now time.Time) uint64 {
	s := g.scale(w)
	// The result of time.Now is monotonic, so changes of the wall clock do not affect Sub. Another clock may go
	// back, which must not count.
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
