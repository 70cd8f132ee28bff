package generator

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"time"
)

// SnowflakeConfig configures [NewSnowflake].
type SnowflakeConfig struct {
	Layout Layout // required
	Lease  Lease  // required; Renew replaces it

	// MaxClockBackwards is how far the clock may have gone back for a caller to wait until it has caught up. If it has
	// gone back further, the caller gets [ErrClockBackwards] at once. 0 never waits, as UidGenerator does; Leaf
	// tolerates 5 ms.
	MaxClockBackwards time.Duration

	// RandomStart makes the sequence of each tick begin at a random number below RandomStart. Then the low bits of ids
	// that are made now and then differ. Leaf uses 100; 0 and 1 mean that it begins at 0. It costs half of RandomStart,
	// on average, of the ids of a tick, and may not exceed the ids of a tick.
	RandomStart int64

	// OnLow is called when the lease should be renewed:
	//
	//   - fewer ids are left than half of those from the present, or the lease's beginning if that is later, to its end
	//   - the end of the lease has passed
	//   - the lease is used up
	//
	// nil means that the lease is never renewed: callers get [ErrLeaseExpired] when it is used up or its end has
	// passed. Otherwise they wait, unless the generator is suspended.
	//
	// Callers call OnLow, several at once, again and again while the condition holds, but never for a lease up to the
	// last tick of the layout. It must not block.
	OnLow func()

	// Now reads the clock; nil means [time.Now]. Anything else is for tests.
	Now func() time.Time
}

// Snowflake reads the clock for each id, as UidGenerator's DefaultUidGenerator, Leaf-snowflake and Twitter's snowflake
// do. The time in an id is the tick in which it was made. It is ahead of the clock or behind it only in two cases:
//
//   - A lease that begins ahead of the clock can be used at once. Its first tick is stamped until it is used up or the
//     clock has reached it. If it is used up before, the next tick may be stamped when the clock has moved by a tick,
//     and so on. So ids are never further ahead of the clock than the lease was, and only as far as they have to be.
//   - A lease whose end the clock has passed before its ids were used up has ids of the past. If OnLow is set they are
//     handed out, after callers have waited for Renew for 100 ms at most, all callers of that lease together.
//
// When the sequence of a tick is used up, callers wait for the next tick. When the lease is used up, they wait for
// Renew, in the order of their arrival. A Snowflake has no goroutine and no timer except those of waiting callers.
// Create it with [NewSnowflake].
type Snowflake struct {
	layout    Layout
	tolerance time.Duration
	random    int64
	low       func()
	now       func() time.Time

	// turn is held, by a value in it, by the caller that waits for the lease. A channel serves the callers behind it in
	// the order of their arrival.
	turn chan struct{}

	waits atomic.Int64 // calls that waited

	mu       sync.Mutex // never held by a waiting caller; guards what follows
	lease    Lease
	tick     int64 // of the latest id; every id of an earlier tick is history
	sequence int64 // next one in tick; MaxSequence+1 if tick is used up

	// lead is by how many ticks ids may be ahead of the clock: what the lease was
	// when it came. It is 0 again when the clock has reached the next id, within the lease.
	lead      int64
	leaseWait time.Duration // how long callers may still wait when the clock has passed the lease
	cause     error         // why it is suspended, or nil
	waiting   bool          // the caller that has the turn waits for Renew
	used      bool          // since Usage was called
	made      int64         // ids, ever
	closed    bool
	changed   chan struct{} // closed, and replaced, to end what waits there are
}

var _ Renewable = (*Snowflake)(nil)

// NewSnowflake returns a generator, or an error that wraps [ErrLayout] or
// [ErrConfig].
func NewSnowflake(c SnowflakeConfig) (*Snowflake, error) {
	if c.Now == nil {
		c.Now = time.Now
	}
	if err := c.Layout.ValidAt(c.Now()); err != nil {
		return nil, err
	}
	if err := c.Lease.validate(c.Layout); err != nil {
		return nil, err
	}
	var errs []error
	if c.MaxClockBackwards < 0 {
		errs = append(errs, fmt.Errorf("%w: MaxClockBackwards %v is negative", ErrConfig, c.MaxClockBackwards))
	}
	if c.RandomStart < 0 || c.RandomStart > c.Layout.MaxSequence()+1 {
		errs = append(errs, fmt.Errorf("%w: RandomStart %d is outside 0 to %d, the ids of a tick",
			ErrConfig, c.RandomStart, c.Layout.MaxSequence()+1))
	}
	if err := errors.Join(errs...); err != nil {
		return nil, err
	}
	g := &Snowflake{
		layout:    c.Layout,
		tolerance: c.MaxClockBackwards,
		random:    c.RandomStart,
		low:       c.OnLow,
		now:       c.Now,
		turn:      make(chan struct{}, 1),
		lease:     Lease{WorkerID: -1}, // no lease yet
		tick:      -1,
		sequence:  c.Layout.MaxSequence() + 1,
		changed:   make(chan struct{}),
	}
	g.accept(c.Lease)
	return g, nil
}

// Next implements [Generator].
func (g *Snowflake) Next(ctx context.Context) (int64, error) {
	var id [1]int64
	err := g.Fill(ctx, id[:])
	return id[0], err
}

// Fill implements [Generator].
func (g *Snowflake) Fill(ctx context.Context, ids []int64) error {
	c, err := g.claim(ids)
	if err == nil && c.n < len(ids) {
		err = g.wait(ctx, ids, c)
	}
	if err != nil {
		clear(ids)
	}
	return err
}

// wait sets what the claim c has left of ids. It is where callers wait.
func (g *Snowflake) wait(ctx context.Context, ids []int64, c claim) (err error) {
	first, waited := false, false // first holds turn
	defer func() {
		if first {
			g.leave()
		}
	}()
	for {
		ids = ids[c.n:]
		if len(ids) == 0 {
			return nil
		}
		if c.n == 0 && !waited {
			waited = true
			g.waits.Add(1)
		}
		switch {
		case c.n > 0: // there may be more
		case c.lease && !first:
			select {
			case g.turn <- struct{}{}:
				first = true
			case <-ctx.Done():
				return ctx.Err()
			}
		case c.lease:
			err = g.pause(ctx, c)
		default:
			err = sleep(ctx, c.wait, c.changed)
		}
		if err != nil {
			return err
		}
		if c, err = g.claim(ids); err != nil {
			return err
		}
	}
}

// Made returns how many ids the generator has made, from 0. Those of a Fill that failed count, too. It never goes back.
func (g *Snowflake) Made() int64 {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.made
}

// Waits returns how many calls have waited, from 0: for the next tick, for a clock that went back, or for the lease to
// be renewed. A call counts once, also if its context has ended. It never goes back.
func (g *Snowflake) Waits() int64 { return g.waits.Load() }

// pause waits for Renew, as long as c says.
func (g *Snowflake) pause(ctx context.Context, c claim) error {
	g.mu.Lock()
	g.waiting = true
	lease := g.lease
	g.mu.Unlock()
	start := time.Now()
	err := sleep(ctx, c.wait, c.changed)
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.lease == lease { // else it belongs to another
		g.leaseWait -= time.Since(start)
	}
	return err
}

// leave gives the turn to the next caller that waits for Renew.
func (g *Snowflake) leave() {
	g.mu.Lock()
	g.waiting = false
	g.mu.Unlock()
	<-g.turn
}

// Close implements [Generator].
func (g *Snowflake) Close() {
	g.mu.Lock()
	defer g.mu.Unlock()
	if !g.closed {
		g.closed = true
		close(g.changed)
	}
}

// Renew implements [Renewable] for one lease.
func (g *Snowflake) Renew(leases ...Lease) error {
	if _, err := workers(g.layout, leases); err != nil {
		return err
	}
	if len(leases) > 1 {
		return fmt.Errorf("%w: %d leases; this generator has one lane", ErrConfig, len(leases))
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.closed {
		return ErrClosed
	}
	g.accept(leases[0])
	g.suspend(nil)
	return nil
}

// Suspend implements [Renewable].
func (g *Snowflake) Suspend(cause error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if !g.closed {
		g.suspend(cause)
	}
}

// suspend notes why no other lease is available, or nil, and makes waiting callers look again.
func (g *Snowflake) suspend(cause error) {
	g.cause, g.waiting = cause, false
	close(g.changed)
	g.changed = make(chan struct{})
}

// accept makes l the lease.
func (g *Snowflake) accept(l Lease) {
	same := l.WorkerID == g.lease.WorkerID
	if !same {
		g.sequence = g.layout.MaxSequence() + 1 // the larger worker id may have been the old one
	}
	if l.From > g.tick {
		// Treat the tick before the lease as used up. Then a clock that goes back behind the lease counts as a clock
		// that went back.
		g.tick, g.sequence = l.From-1, g.layout.MaxSequence()+1
		if present := g.layout.TickAt(g.now()); present >= 0 {
			g.lead = max(g.lead, l.From-present)
		}
	}
	if same {
		l.From, l.Until = max(l.From, g.lease.From), max(l.Until, g.lease.Until)
	}
	if !same || l.Until > g.lease.Until {
		g.leaseWait = leaseWait
	}
	g.lease = l
}

// Usage implements [Renewable].
func (g *Snowflake) Usage() Usage {
	g.mu.Lock()
	defer g.mu.Unlock()
	s := scale{layout: &g.layout}
	end, next := s.start(g.lease.Until+1), g.position()
	if present := g.layout.TickAt(g.now()); present <= g.lease.Until && present >= 0 {
		next = max(next, s.start(present))
	}
	next = min(next, end)
	used := g.used
	g.used = false
	return Usage{Tick: s.tick(next), Left: end - next, Waiting: g.waiting, Used: used, Lanes: 1, MaxLanes: 1}
}

// position returns that of the next id, if it were taken now and the clock were not
// beyond its tick.
func (g *Snowflake) position() uint64 {
	return scale{layout: &g.layout}.start(g.tick) + uint64(g.sequence)
}

// renewable reports whether a caller may wait for the lease to be renewed.
func (g *Snowflake) renewable() bool {
	return g.low != nil && g.lease.Until < g.layout.MaxTick() && g.cause == nil
}

// A claim is what became of an attempt to set ids.
type claim struct {
	n       int             // how many were set, the first ones
	wait    time.Duration   // if none: how long, until it is worth trying again
	lease   bool            // what is waited for is another lease
	changed <-chan struct{} // what ends the wait early
}

// claim sets as many of ids as the present tick has left, and asks for a renewal of the lease if one is due.
func (g *Snowflake) claim(ids []int64) (claim, error) {
	c, low, err := g.attempt(ids)
	if low {
		g.low()
	}
	return c, err
}

// attempt is claim, but only says whether the lease should be renewed.
func (g *Snowflake) attempt(ids []int64) (c claim, low bool, err error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.closed {
		return c, false, ErrClosed
	}
	c.changed = g.changed
	now := g.now()
	present, next := g.layout.TickAt(now), g.tick
	if g.sequence > g.layout.MaxSequence() {
		next++
	}
	until := g.lease.Until
	over := present > until
	if present >= next && !over {
		g.lead = 0
	}
	// For a lease from the epoch on, the tick before the lease is -1. The clock must not be there either.
	if present < 0 || present < g.tick-g.lead {
		c.wait, err = g.backwards(now)
		return c, false, err
	}
	low = g.low != nil && until < g.layout.MaxTick() // so far, if it should be renewed
	tick := max(present, next)
	if over && low {
		tick = next // the past has ids left, perhaps
	}
	switch {
	case tick > until && !g.renewable():
		return c, low, exhausted(&g.layout, g.lease.WorkerID, until, g.cause)
	case tick > until:
		c.wait, c.lease = maxSleep, true
		return c, low, nil
	case over && g.leaseWait > 0 && g.renewable():
		c.wait, c.lease = min(g.leaseWait, maxSleep), true
		return c, low, nil
	case tick-g.lead > present:
		c.wait = g.layout.TimeOf(tick - g.lead).Sub(now)
		return c, false, nil
	}
	if tick > g.tick {
		g.tick, g.sequence = tick, 0
		if g.random > 1 {
			g.sequence = rand.Int64N(g.random)
		}
	}
	id := tick<<(g.layout.WorkerBits+g.layout.SequenceBits) | g.lease.WorkerID<<g.layout.SequenceBits
	for c.n < len(ids) && g.sequence <= g.layout.MaxSequence() {
		ids[c.n] = id | g.sequence
		g.sequence++
		c.n++
	}
	g.used = g.used || c.n > 0
	g.made += int64(c.n)
	if low {
		s := scale{layout: &g.layout}
		low = scarce(s.start(g.lease.From), s.start(until+1), g.position(), s.start(min(present, until+1)))
	}
	return c, low, nil
}

// backwards returns how long to wait for a clock that shows now to catch up, or
// why not to.
func (g *Snowflake) backwards(now time.Time) (wait time.Duration, err error) {
	reached := g.layout.TimeOf(max(g.tick-g.lead, 0))
	back := reached.Sub(now)
	if back > g.tolerance {
		return 0, fmt.Errorf("%w: it shows %s, %v less than the %s that it had reached; at most %v are waited for",
			ErrClockBackwards, format(now), back, format(reached), g.tolerance)
	}
	return back, nil
}
