package generator

// This file opens and closes the window of a Cached, and has the visits of the Clock.

// openWindow replaces the closed window w by an open one, which ends at limit.
func (g *Cached) openWindow(w *window, limit uint64) {
	next := w.next
	w = newWindow(w.mapping, next, w.until)
	w.ring.Open(next, limit)
	g.window.Store(w)
	g.open, g.idle = true, 0
	if !g.visited {
		g.visited = true
		g.clock.visitFromNow(g)
	}
}

func (g *Cached) closeWindow() {
	if g.open {
		g.open = false
		w := g.window.Load()
		g.note(w, w.ring.Close())
	}
}

// note accounts for the positions of the present window w that were handed out: all those below taken.
func (g *Cached) note(w *window, taken uint64) {
	if taken > w.next {
		if taken-w.next >= hardlyAny {
			g.idle = 0
		}
		g.made += int64(taken - w.next)
		w.next = taken
		g.used = true
	}
}

// account accounts for the positions of the open window that were handed out so far.
func (g *Cached) account() {
	if g.open {
		w := g.window.Load()
		g.note(w, w.ring.Taken())
	}
}

// Made returns how many ids were handed out. It counts ids that a failed Fill got, but not ids that were skipped
// because the clock moved on. After Close the number is complete. It never falls. Made does not wait for the clock or
// a lease.
//
// Made may count a few ids too many. A call that finds its window used up, or just closed, takes its ids from the next
// window. The ids that it claimed in vain from the old window may count, too.
func (g *Cached) Made() int64 {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.account()
	return g.made
}

// visit moves the window up to the present. If the generator is closed or hardly used it closes the window and
// returns false. It never waits.
func (g *Cached) visit() bool {
	if !g.mu.TryLock() {
		return true // a caller that holds mu is mostly in the slow path, which does the same
	}
	low := false
	g.idle++
	if g.open {
		w, now := g.window.Load(), g.clock.now()
		s, end := g.scale(w), g.end(w)
		at := s.at(now)
		w.ring.Extend(g.limit(w, now))
		if at < end {
			g.note(w, w.ring.Raise(at))
			w.raise(at)
		} else {
			g.note(w, w.ring.Taken())
		}
		low = g.isLow(w, w.ring.Taken(), at)
		if at >= end && g.leaseWait > 0 && g.renewable(w) {
			g.closeWindow() // so that the next caller waits for a lease
		}
	}
	if g.closed || g.idle >= clockIdle {
		g.closeWindow()
		g.visited = false
	}
	visited := g.visited
	g.mu.Unlock()
	if low {
		g.onLow()
	}
	return visited
}
