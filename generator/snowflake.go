package generator

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"time"
)

// SnowflakeConfig configures [NewSnowflake].
type SnowflakeConfig struct {
	Layout Layout // required
	Lease  Lease  // required; Renew replaces it

	// MaxClockBackwards is the longest time that callers wait for a clock that has gone back. If the clock has gone
	// back further, callers get [ErrClockBackwards] at once. 0 never waits, like UidGenerator; Leaf tolerates 5 ms.
	MaxClockBackwards time.Duration

	// RandomStart makes the sequence of each tick begin at a random number below RandomStart. So the low bits of
	// ids vary even if a process makes few ids. Leaf uses 100; 0 and 1 mean a beginning at 0. On average, each tick
	// loses RandomStart/2 ids. RandomStart may not exceed the number of ids in a tick.
	RandomStart int64

	// OnLow is as in [CachedConfig], except that only Next and Fill call it.
	OnLow func()

	// Now reads the clock; nil means [time.Now]. Other functions are for tests.
	Now func() time.Time
}

// Snowflake reads the clock for each id, as UidGenerator's DefaultUidGenerator, Leaf-snowflake and Twitter's snowflake
// do. The time in an id is the tick in which it was made. It is ahead of the clock or behind it only in two cases:
//
//   - A lease that begins ahead of the clock can be used at once. The first tick of the lease is stamped until the
//     ids of this tick are used up or the clock has reached it. If they are used up first, the next tick may be
//     stamped once the clock has moved by a tick, and so on. So ids are never further ahead of the clock than the
//     lease was.
//   - If the clock has passed the end of a lease that has ids left, and OnLow is set, callers wait for Renew, at most
//     100 ms in all for a lease, and then get ids of the past. Without OnLow they get [ErrLeaseExpired].
//
// When the sequence of a tick is used up, callers wait for the next tick. When the lease is used up, they wait for
// Renew, in the order of their arrival. A Snowflake has no goroutine and no timer except for waiting callers.
// Create it with [NewSnowflake].
type Snowflake struct {
	queue

	layout      Layout
	tolerance   time.Duration
	randomStart int64
	now         func() time.Time

	// mu guards the fields below.
	worker   int64 // of the lease
	until    int64 // last tick of the lease
	tick     int64 // of the latest id, or the one before the lease; no earlier tick is stamped any more
	sequence int64 // the next one in this tick; MaxSequence+1 if the tick is used up

	// lead is the number of ticks that ids may be ahead of the clock: as many as the first tick of a lease was
	// ahead when the lease came.
	lead int64
}

var _ Renewable = (*Snowflake)(nil)

// NewSnowflake returns a generator. An error wraps [ErrLayout] or [ErrConfig].
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
		queue:       queue{head: make(chan struct{}, 1), onLow: c.OnLow},
		layout:      c.Layout,
		tolerance:   c.MaxClockBackwards,
		randomStart: c.RandomStart,
		now:         c.Now,
		worker:      -1, // no lease yet
		tick:        -1,
		sequence:    c.Layout.MaxSequence() + 1,
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
	n, _, err := g.claim(ids)
	if rest := ids[n:]; err == nil && len(rest) > 0 {
		err = g.retry(ctx, func() (o outcome, err error) {
			for low := false; err == nil && len(rest) > 0 && o.wait == 0; low = o.low {
				n, o, err = g.attempt(rest)
				rest = rest[n:]
				o.low = o.low || low
			}
			return o, err
		})
	}
	if err != nil {
		clear(ids)
	}
	return err
}

// Made returns how many ids the generator has made, from 0. It counts ids of a Fill that failed, and never falls.
func (g *Snowflake) Made() int64 {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.made
}

// Close implements [Generator].
func (g *Snowflake) Close() {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.closed = true
	g.wake()
}

// Renew implements [Renewable] for one lease.
func (g *Snowflake) Renew(leases ...Lease) error {
	if _, err := workers(g.layout, leases); err != nil {
		return err
	}
	if len(leases) > 1 {
		return fmt.Errorf("%w: got %d leases, need 1, because this generator has one lane", ErrConfig, len(leases))
	}
	return g.renew(func() { g.accept(leases[0]) })
}

func (g *Snowflake) accept(l Lease) {
	same := l.WorkerID == g.worker
	if !same {
		g.sequence = g.layout.MaxSequence() + 1 // so that ids ascend even if the old worker id was larger
	}
	if l.From > g.tick {
		// Treat the tick before the lease as used up, so that we notice a clock that goes back to before the lease.
		g.tick, g.sequence = l.From-1, g.layout.MaxSequence()+1
		if present := g.layout.TickAt(g.now()); present >= 0 {
			g.lead = max(g.lead, l.From-present)
		}
	}
	if !same || l.Until > g.until {
		g.refillLeaseWait()
	}
	if same {
		l.From, l.Until = max(l.From, g.from), max(l.Until, g.until)
	}
	g.worker, g.from, g.until = l.WorkerID, l.From, l.Until
}

// Usage implements [Renewable].
func (g *Snowflake) Usage() Usage {
	g.mu.Lock()
	defer g.mu.Unlock()
	s := scale{layout: &g.layout}
	next := g.position()
	if present := g.layout.TickAt(g.now()); present <= g.until && present >= 0 {
		next = max(next, s.start(present))
	}
	u := g.usage(s, next, s.start(g.until+1))
	u.MaxLanes = 1
	return u
}

// position returns the lowest position that the next id may have.
func (g *Snowflake) position() uint64 {
	return scale{layout: &g.layout}.start(g.tick) + uint64(g.sequence)
}

// claim sets the first elements of ids, all in one tick, and returns how many. It calls OnLow if needed.
func (g *Snowflake) claim(ids []int64) (n int, o outcome, err error) {
	g.mu.Lock()
	n, o, err = g.attempt(ids)
	g.mu.Unlock()
	if o.low {
		g.onLow()
	}
	return n, o, err
}

// attempt is claim for a caller that holds mu. It does not call OnLow.
func (g *Snowflake) attempt(ids []int64) (n int, o outcome, err error) {
	if g.closed {
		return 0, o, ErrClosed
	}
	now := g.now()
	present, next := g.layout.TickAt(now), g.tick
	if g.sequence > g.layout.MaxSequence() {
		next++
	}
	over := present > g.until
	if present >= next && !over {
		g.lead = 0
	}
	// Before the epoch, present is -1. If a new lease begins with the epoch, g.tick is -1 as well.
	if present < 0 || present < g.tick-g.lead {
		o.alone = true
		o.wait, err = g.backwards(now)
		return 0, o, err
	}
	low := g.mayFollow(&g.layout, g.until)
	renewable := low && g.cause == nil
	tick := max(present, next)
	if over && low {
		tick = next // ids of the past may be left
	}
	switch {
	case tick > g.until && !renewable:
		return 0, outcome{low: low}, exhausted(&g.layout, g.worker, g.until, g.cause)
	case tick > g.until:
		return 0, outcome{wait: maxSleep, lease: true, low: low}, nil
	case over && g.leaseWait > 0 && renewable:
		return 0, outcome{wait: min(g.leaseWait, maxSleep), lease: true, low: low}, nil
	case tick-g.lead > present:
		return 0, outcome{wait: g.layout.TimeOf(tick - g.lead).Sub(now), alone: true}, nil
	}
	if tick > g.tick {
		g.tick, g.sequence = tick, 0
		if g.randomStart > 1 {
			g.sequence = rand.Int64N(g.randomStart)
		}
	}
	id := tick<<g.layout.timeShift() | g.worker<<g.layout.SequenceBits
	for n < len(ids) && g.sequence <= g.layout.MaxSequence() {
		ids[n] = id | g.sequence
		g.sequence++
		n++
	}
	g.used = g.used || n > 0
	g.made += int64(n)
	if low {
		s := scale{layout: &g.layout}
		o.low = scarce(s.start(g.from), s.start(g.until+1), g.position(), s.start(min(present, g.until+1)))
	}
	return n, o, nil
}

// backwards returns how long to wait until the clock has caught up, or an error if now is too far behind.
func (g *Snowflake) backwards(now time.Time) (wait time.Duration, err error) {
	reached := g.layout.TimeOf(max(g.tick-g.lead, 0))
	back := reached.Sub(now)
	if back > g.tolerance {
		return 0, fmt.Errorf("%w: it shows %s, but showed %s before, so it is %v behind; calls fail until it is at most %v behind (MaxClockBackwards)",
			ErrClockBackwards, format(now), format(reached), back, g.tolerance)
	}
	return back, nil
}
