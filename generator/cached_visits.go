package generator

// How the window of a Cached is opened and closed, and what the clock does when it visits.

// openWindow opens a window from the next position of w, which is closed, up to limit.
func (g *Cached) openWindow(w *window, limit uint64) {
	g.seen = w.next.Load()
	w = newWindow(w.mapping, g.seen, w.until.Load())
	w.ring.Open(g.seen, limit)
	g.window.Store(w)
	g.open, g.idle = true, 0
	if !g.kept {
		g.kept = true
		g.clock.keep(g)
	}
}

// closeWindow closes the window, if it is open.
func (g *Cached) closeWindow() {
	if g.open {
		g.open = false
		w := g.window.Load()
		taken := w.ring.Close()
		g.note(taken)
		w.raise(taken)
	}
}

// note accounts for the positions of the open window below taken.
func (g *Cached) note(taken uint64) {
	if taken > g.seen {
		if taken-g.seen >= hardlyAny {
			g.idle = 0
		}
		g.seen = taken
		g.used.Store(true)
	}
}

// visit brings the window up to the present and reports whether the generator
// is still in use; if not, it closes the window. It never waits.
func (g *Cached) visit() bool {
	if !g.try() {
		return true // a caller is in the slow path, which does the same
	}
	defer g.release()
	g.idle++
	if g.open { // else callers are served without a window, or none comes
		w, now := g.window.Load(), g.clock.now()
		s, end := g.scale(w), g.end(w)
		at := s.at(now)
		w.ring.Extend(g.limit(w, now))
		if at < end {
			g.note(w.ring.Raise(at))
			g.seen = max(g.seen, at)
		} else {
			g.note(w.ring.Taken())
		}
		if scarce(s.start(g.from), end, w.ring.Taken(), at) {
			g.requestRenewal(w)
		}
		if at >= end && g.leaseWait > 0 && g.renewable(w, g.cause()) {
			g.closeWindow() // so that the next caller waits for a lease
		}
	}
	if g.closed.Load() || g.idle >= clockIdle {
		g.closeWindow()
		g.kept = false
	}
	return g.kept
}
