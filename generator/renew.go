package generator

// Renew implements [Renewable].
func (g *Cached) Renew(leases ...Lease) error {
	ids, err := workers(g.layout, leases)
	if err != nil {
		return err
	}
	m := newMapping(g.layout, ids...)
	return g.renew(func() { g.accept(m, leases[0].From, leases[0].Until) })
}

// accept replaces the lease. The new one has the ticks from first to last and the worker ids of m.
func (g *Cached) accept(m mapping, first, last int64) {
	w := g.window.Load()
	s := g.scale(w)
	if w.same(&m) {
		if last > w.until {
			w.until = last
			g.refillLeaseWait()
		}
		g.from = max(g.from, first)
		if first <= s.tick(w.reached()) {
			return
		}
		// Extending the window is not enough, because a claim in progress may reach from the old lease across the gap
		// into the new one.
		g.closeWindow()
		w.raise(s.start(first))
		return
	}
	g.closeWindow()
	tick := max(s.ceil(w.next), first)
	old := s
	s.laneBits = m.laneBits
	g.anchor = s.convert(g.anchor, old)
	g.window.Store(newWindow(m, s.start(tick), last))
	g.from = first
	g.refillLeaseWait()
}

// renewable reports whether a caller may wait for the lease of w to be renewed.
func (g *Cached) renewable(w *window) bool {
	return g.mayFollow(&g.layout, w.until) && !g.noWait && g.cause == nil
}

// Usage implements [Renewable].
func (g *Cached) Usage() Usage {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.account()
	w := g.window.Load()
	s, end, next := g.scale(w), g.end(w), w.ring.Taken()
	if next == 0 { // closed; unless the lease has passed, the next window begins at the present or later
		next = w.next
		if at := s.at(g.clock.now()); at < end {
			next = max(next, at)
		}
	}
	return g.usage(s, next, end)
}
