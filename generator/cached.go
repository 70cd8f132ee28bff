package generator

import (
	"context"
	"fmt"
	"sync/atomic"
	"time"
)

// defaultMaxBorrow is the time of 57.6 million ids, with the default layout and one lane.
const defaultMaxBorrow = time.Hour

// CachedConfig configures [NewCached].
type CachedConfig struct {
	Layout Layout // required
	Lease  Lease  // required; Renew replaces it

	// MaxBorrow limits how far ahead of the clock an id may be stamped; 0 means an hour, and the smallest value is
	// one tick. If a lease begins further ahead, callers get no id until the clock is within MaxBorrow of the
	// beginning. UidGenerator's boostPower sets the same limit as a number of ticks, 2^boostPower.
	MaxBorrow time.Duration

	// NoWait makes a generator never wait. When it is MaxBorrow ahead it returns [ErrBorrowLimit] at once. When its
	// lease is used up it returns [ErrLeaseExpired] at once.
	NoWait bool

	// OnLow is called when the generator needs more lanes, because ids are more than [Layout.LaneAhead] ahead of
	// the clock, or of the beginning of the lease if that is later. It is also called when the lease should be
	// renewed. That is so if the lease ends before the last tick of the layout, and one of these is true:
	//
	//   - more than half of the lease's ids are used up, counted from the present or, if that is later, from its
	//     beginning
	//   - the end of the lease has passed
	//   - a caller wants more ids than are left
	//
	// If OnLow is nil, callers get [ErrLeaseExpired] when the lease is used up. With OnLow they wait for Renew,
	// unless the generator is suspended or NoWait is set.
	//
	// Any goroutine may call OnLow, several at once. It is called again and again while a condition holds and the
	// generator is in use. Callers wait while it runs, so it must not block, and may call only Renew, Suspend and
	// Usage of this package.
	OnLow func()

	// Clock is the clock that the generators of a process share; nil means a clock of its own.
	Clock *Clock
}

// Cached gets ids ready before callers ask, so a call costs one atomic increment. It is the CachedUidGenerator of
// UidGenerator, with a ring that computes ids instead of storing them. It has no goroutine, and no timer while idle.
//
// Ids carry the present time as long as they are taken no faster than the layout allows: by default 16 a millisecond
// for each lane. Up to some thousands a second the time is exact, above that within about a millisecond. When ids are
// taken faster they borrow ticks of the future, up to MaxBorrow. At that limit callers are served in the order of their
// arrival, at the rate of the layout. A context that ends while its caller waits costs no id.
//
// When the lease is used up and OnLow is set, callers wait for its renewal, in the order of their arrival. An idle
// generator may still have ids left when the clock passes the end of its lease. Then callers wait for a renewal as
// well, but for at most 100 ms for each lease. After that the remaining ids, which are of the past, are handed out.
//
// The clock may jump in both directions. When it is set forward, the ids follow it. When it is set back, the ids
// continue from where they are, as fast as before, because an id never repeats. They are then as far ahead of the
// clock as it was set back, plus the ticks that they borrow.
//
// Create a Cached with [NewCached].
type Cached struct {
	// window is the ring that callers take from. It is never nil. The holder of mu replaces it in three steps: close
	// the old window w, raise w.next above all positions that were handed out, and begin the new window there or
	// above. So each position is handed out once, and positions ascend. A window with other worker ids begins with a
	// tick that no earlier id carries, so ids ascend as well.
	window atomic.Pointer[window]

	queue

	// The borrowing limit is anchor plus elapsed. It never shrinks, and is raised if it is less than MaxBorrow
	// ahead of the wall clock. anchor is at most scale.top. mu guards all three fields.
	anchor  uint64
	elapsed time.Duration // forward progress of the clock since anchor was set
	last    time.Duration // latest reading, since clock.base

	*settings // immutable
}

var _ Renewable = (*Cached)(nil)

// NewCached returns a generator. An error wraps [ErrLayout] or [ErrConfig].
func NewCached(c CachedConfig) (*Cached, error) {
	if c.Clock == nil {
		c.Clock = NewClock(nil)
	}
	now := c.Clock.now()
	if err := c.Layout.ValidAt(now); err != nil {
		return nil, err
	}
	if err := c.Lease.validate(c.Layout); err != nil {
		return nil, err
	}
	if c.MaxBorrow == 0 {
		c.MaxBorrow = max(defaultMaxBorrow, c.Layout.Tick)
	}
	if c.MaxBorrow < c.Layout.Tick {
		return nil, fmt.Errorf("%w: MaxBorrow %v is shorter than the tick of the layout, %v",
			ErrConfig, c.MaxBorrow, c.Layout.Tick)
	}
	g := &Cached{
		queue: queue{head: make(chan struct{}, 1), onLow: c.OnLow, from: c.Lease.From, leaseWait: leaseWait},
		last:  now.Sub(c.Clock.base),
		settings: c.Clock.share(settings{layout: c.Layout, borrow: c.MaxBorrow, noWait: c.NoWait, clock: c.Clock,
			laneAhead: c.Layout.LaneAhead()}),
	}
	s := scale{layout: &g.layout}
	next := s.start(c.Lease.From)
	g.window.Store(newWindow(newMapping(c.Layout, c.Lease.WorkerID), next, c.Lease.Until))
	g.anchor = min(s.at(now)+s.count(g.borrow), s.top())
	return g, nil
}

// Next implements [Generator]. It does not allocate.
func (g *Cached) Next(ctx context.Context) (int64, error) {
	w := g.window.Load()
	bases := w.bases // loaded before the claim, because a load after it would wait for the atomic increment
	if position, ok := w.ring.TakeOne(); ok {
		return w.idIn(bases, position), nil
	}
	w, position, _, err := g.slow(ctx, 1, waitForRenewal)
	if err != nil {
		return 0, err
	}
	return w.id(position), nil
}

// Fill implements [Generator]. It does not allocate. With NoWait, Fill makes either all ids or, if the borrowing limit
// or the end of the lease does not allow all of them, none.
func (g *Cached) Fill(ctx context.Context, ids []int64) error {
	return g.fill(ctx, ids, waitForRenewal)
}

// onExpiry is the caller's choice for a lease that is used up.
type onExpiry uint8

const (
	waitForRenewal onExpiry = iota // if a renewal may come
	failAtOnce
)

// fill is Fill with a choice for the end of the lease.
func (g *Cached) fill(ctx context.Context, ids []int64, expiry onExpiry) error {
	for len(ids) > 0 {
		want := uint64(len(ids))
		w := g.window.Load()
		var position, got uint64
		if w.ring.Has(want) { // else the claim would run over the end of the ring
			position, got = w.ring.Take(want)
		}
		if got == 0 {
			var err error
			if w, position, got, err = g.slow(ctx, want, expiry); err != nil {
				return err
			}
		}
		w.fill(ids[:got], position)
		ids = ids[got:]
	}
	return nil
}

// Close implements [Generator].
func (g *Cached) Close() {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.closed = true
	g.closeWindow()
	g.wake()
}

// Lead returns how far the next id is ahead of the clock; 0 if it is not ahead.
func (g *Cached) Lead() time.Duration {
	g.mu.Lock()
	defer g.mu.Unlock()
	w := g.window.Load()
	s := g.scale(w)
	next, now := w.reached(), s.at(g.clock.now())
	if next <= now {
		return 0
	}
	return s.duration(next - now)
}

func (g *Cached) scale(w *window) scale { return scale{&g.layout, w.laneBits} }

// end returns the first position that the lease of w does not allow.
func (g *Cached) end(w *window) uint64 { return g.scale(w).start(w.until + 1) }

// slow claims 1 to want positions, after the window gave none. Only slow waits, returns errors and opens windows.
func (g *Cached) slow(ctx context.Context, want uint64, expiry onExpiry) (w *window, position, got uint64, err error) {
	err = g.retry(ctx, func() (o outcome, err error) {
		if g.closed {
			return o, ErrClosed
		}
		w = g.window.Load()
		if g.open && w.ring.Has(want) { // another caller has opened it
			if position, got = w.ring.Take(want); got > 0 {
				return o, nil
			}
		}
		g.closeWindow()
		in := g.inputOf(w, want, g.clock.now())
		in.mayWait = in.mayWait && expiry == waitForRenewal
		w.raise(in.next)
		o.low = g.mayFollow(&g.layout, w.until)
		switch decide(in) {
		case handOut:
			position, got, o.low = g.grant(w, in)
		case waitForClock: // the next position is due when the limit is above it
			o.low, o.wait = false, max(min(g.scale(w).duration(in.next+1-in.limit), maxSleep), 1)
		case waitForNewer:
			o.lease, o.wait = true, min(g.leaseWait, maxSleep)
		case waitForLease:
			o.lease, o.wait = true, maxSleep
		case refuseLease:
			return o, exhausted(&g.layout, w.worker(), w.until, g.cause)
		case refuseBorrowing:
			return outcome{}, fmt.Errorf("%w: %d ids wanted, but only %d are left before ids are %v ahead of the clock",
				ErrBorrowLimit, want, in.free(), g.borrow)
		}
		return o, nil
	})
	if err != nil {
		return nil, 0, 0, err
	}
	return w, position, got, nil
}

// inputOf returns the input of decide, and advances the borrowing limit. Positions of the past count as handed out,
// unless the clock has passed the lease.
func (g *Cached) inputOf(w *window, want uint64, now time.Time) input {
	in := input{want: want, next: w.reached(), at: g.scale(w).at(now), limit: g.limit(w, now), end: g.end(w),
		noWait: g.noWait, mayWait: g.renewable(w), leaseWaitLeft: g.leaseWait > 0}
	if in.at < in.end {
		in.next = max(in.next, in.at)
	}
	return in
}

// grant hands out positions of the closed window w. It reports whether OnLow should be called.
func (g *Cached) grant(w *window, request input) (position, got uint64, low bool) {
	got = min(request.want, request.free())
	w.raise(request.next + got)
	g.made += int64(got)
	g.used = true
	low = g.isLow(w, request.next+got, request.at)
	if g.quick >= hurried && request.free()-got >= g.reopenAt(g.scale(w)) {
		g.openWindow(w, request.limit)
	}
	return request.next, got, low
}
