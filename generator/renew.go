package generator

// A grant is what Renew hands over.
type grant struct {
	mapping
	from, until int64
}

// Renew implements [Renewable].
func (g *Cached) Renew(leases ...Lease) error {
	ids, err := workers(g.layout, leases)
	if err != nil {
		return err
	}
	if g.closed.Load() {
		return ErrClosed
	}
	latest := &grant{newMapping(g.layout, ids...), leases[0].From, leases[0].Until}
	for {
		old := g.grant.Load()
		if old != nil && old.same(&latest.mapping) {
			latest.from, latest.until = max(latest.from, old.from), max(latest.until, old.until)
		}
		if g.grant.CompareAndSwap(old, latest) {
			break
		}
	}
	g.suspended.Store(nil)
	g.awake()
	g.acceptIfFree()
	return nil
}

// accept makes the latest grant, if one has arrived, what the generator stamps. It needs the semaphore. It opens no
// window: the next caller does.
func (g *Cached) accept() {
	n := g.grant.Swap(nil)
	if n == nil {
		return
	}
	w := g.window.Load()
	s := g.scale(w)
	if w.same(&n.mapping) {
		if n.until > w.until.Load() {
			w.until.Store(n.until)
			g.leaseWait = leaseWait
		}
		g.from = max(g.from, n.from)
		if n.from <= s.tick(w.reached()) {
			return
		}
		// A claim in progress may reach from the old lease across the gap into the new one. So extending the window is
		// not enough.
		g.closeWindow()
		w.raise(s.start(n.from))
	} else {
		g.closeWindow()
		tick := max(s.ceil(w.next.Load()), n.from)
		old := s
		s.laneBits = n.laneBits
		g.anchor = s.convert(g.anchor, old)
		g.window.Store(newWindow(n.mapping, s.start(tick), n.until))
		g.from, g.leaseWait = n.from, leaseWait
	}
}

// Suspend implements [Renewable].
func (g *Cached) Suspend(cause error) {
	if cause == nil {
		g.suspended.Store(nil)
	} else {
		g.suspended.Store(&cause)
	}
	g.awake()
}

// cause returns why the generator is suspended; nil if it is not.
func (g *Cached) cause() error {
	if cause := g.suspended.Load(); cause != nil {
		return *cause
	}
	return nil
}

// renewable reports whether a caller may wait for the lease of w to be renewed. cause
// is why the generator is suspended, or nil.
func (g *Cached) renewable(w *window, cause error) bool {
	return g.onLow != nil && !g.noWait && w.until.Load() < g.layout.MaxTick() && cause == nil
}

// requestRenewal asks for a renewal of the lease of w, unless it is the last possible one.
func (g *Cached) requestRenewal(w *window) {
	if g.onLow != nil && w.until.Load() < g.layout.MaxTick() {
		g.onLow()
	}
}

// Usage implements [Renewable].
func (g *Cached) Usage() Usage {
	g.account()
	w := g.window.Load()
	s, end, next := g.scale(w), g.end(w), w.ring.Taken()
	if next == 0 { // the window is closed, and the next one begins at the present
		next = w.next.Load()
		if at := s.at(g.clock.now()); at < end {
			next = max(next, at)
		}
	}
	next = min(next, end)
	return Usage{
		Tick:    s.tick(next),
		Left:    end - next,
		Waiting: g.waiting.Load(),
		Used:    g.used.Swap(false),
		Lanes:   1 << w.laneBits,
	}
}
