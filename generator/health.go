package generator

import (
	"fmt"
	"time"
)

// patience is the longest wait for the clock that Health accepts, unless two ticks of the layout are longer.
const patience = time.Second

// Health returns nil if a caller gets an id now, or has to wait only for a renewal of the lease, or shortly for the
// clock. Otherwise it returns the error that a caller gets, or an error with the time that callers wait for the
// clock. Health makes no id and never waits.
func (g *Cached) Health() error {
	g.mu.Lock()
	defer g.mu.Unlock()
	w := g.window.Load()
	switch {
	case g.closed:
		return ErrClosed
	case g.open && w.ring.Has(1):
		return nil
	}
	now, quick := g.clock.now(), g.quick
	in := g.inputOf(w, 1, now)
	g.quick = quick
	over := now.Compare(g.layout.Expires()) >= 0 // the layout has ended, so no lease comes any more
	in.mayWait = in.mayWait && !over
	switch decide(in) {
	case refuseLease:
		if over {
			return exhausted(&g.layout, w.worker(), g.layout.MaxTick(), nil)
		}
		return exhausted(&g.layout, w.worker(), w.until, g.cause)
	case refuseBorrowing:
		return fmt.Errorf("%w: ids are %v ahead of the clock", ErrBorrowLimit, g.borrow)
	case waitForClock:
		return g.layout.late(g.scale(w).duration(in.next + 1 - in.limit))
	}
	return nil
}

// Health works as in [Cached].
func (g *Snowflake) Health() error {
	g.mu.Lock()
	defer g.mu.Unlock()
	tick, sequence, lead := g.tick, g.sequence, g.lead
	_, o, err := g.attempt(nil)
	g.tick, g.sequence, g.lead = tick, sequence, lead
	switch {
	case err != nil:
		return err
	case o.lease && !g.now().Before(g.layout.Expires()): // no lease comes any more
		return exhausted(&g.layout, g.worker, g.layout.MaxTick(), nil)
	case o.lease:
		return nil
	}
	return g.layout.late(o.wait)
}

// Health returns nil if one of the lanes is healthy, otherwise the error of the backup lane; see [Cached.Health].
func (g *Paired) Health() error {
	if g.main.Health() == nil {
		return nil
	}
	return g.backup.Health()
}

// Health returns [ErrClosed] after Close, and the error of the last call of Source if that failed and the buffer has no
// id. In that case Health also starts a refill, because there may be no caller that starts one. It never waits.
func (g *Buffered) Health() error {
	if g.closed.Load() {
		return ErrClosed
	}
	s := g.State()
	if s.Left > 0 || s.LastError == nil {
		return nil
	}
	g.refill()
	return s.LastError
}

// late returns an error if callers wait long for the clock.
func (l *Layout) late(wait time.Duration) error {
	if wait <= max(patience, 2*l.Tick) {
		return nil
	}
	return fmt.Errorf("%w: ids are ahead of the clock, and the next one can be made in %v", ErrClockBackwards, wait)
}
