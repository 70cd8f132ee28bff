package generator

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"time"
)

// DefaultConfig configures [NewDefault].
type DefaultConfig struct {
	Layout Layout // required
	Lease  Lease  // required

	// MaxClockBackwards is how far the clock may have gone back for a caller to
	// wait until it has caught up; further back is [ErrClockBackwards] at once. 0
	// waits for nothing, as UidGenerator does; Leaf tolerates 5 ms.
	MaxClockBackwards time.Duration

	// RandomStart makes the sequence of each tick begin at a random number below
	// it, so that the low bits of ids that are made now and then differ. Leaf uses
	// 100; 0 and 1 mean that it begins at 0. It costs half of it, on average, of
	// the ids of a tick, and may not exceed the ids of a tick.
	RandomStart int64

	// Now reads the clock; nil means [time.Now]. Anything else is for tests.
	Now func() time.Time
}

// Default reads the clock for each id, as UidGenerator's DefaultUidGenerator,
// Leaf-snowflake and Twitter's snowflake do. The time in an id is the tick in
// which it was made, and never ahead of the clock.
//
// When the sequence of a tick is used up, callers wait for the next tick. It has
// no goroutine and no timer but those of waiting callers, and must be made by
// [NewDefault].
type Default struct {
	layout    Layout
	worker    int64
	until     int64
	tolerance time.Duration
	random    int64
	now       func() time.Time
	done      chan struct{} // closed by Close

	mu       sync.Mutex
	tick     int64 // of the latest id; every id of an earlier tick is history
	sequence int64 // next one in tick; MaxSequence+1 if there is none
	closed   bool
}

var _ Generator = (*Default)(nil)

// NewDefault returns a generator, or an error that wraps [ErrLayout] or
// [ErrConfig].
func NewDefault(c DefaultConfig) (*Default, error) {
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
	return &Default{
		layout:    c.Layout,
		worker:    c.Lease.WorkerID,
		until:     c.Lease.Until,
		tolerance: c.MaxClockBackwards,
		random:    c.RandomStart,
		now:       c.Now,
		done:      make(chan struct{}),
		// As if the tick before the lease were used up, so that a clock that is
		// behind the lease is a clock that went back.
		tick:     c.Lease.From - 1,
		sequence: c.Layout.MaxSequence() + 1,
	}, nil
}

// Next implements [Generator].
func (g *Default) Next(ctx context.Context) (int64, error) {
	var id [1]int64
	err := g.Fill(ctx, id[:])
	return id[0], err
}

// Fill implements [Generator].
func (g *Default) Fill(ctx context.Context, ids []int64) error {
	for {
		n, wait, err := g.claim(ids)
		if err != nil {
			clear(ids)
			return err
		}
		if ids = ids[n:]; len(ids) == 0 {
			return nil
		}
		if err := sleep(ctx, wait, g.done); err != nil {
			clear(ids)
			return err
		}
	}
}

// Close implements [Generator].
func (g *Default) Close() {
	g.mu.Lock()
	defer g.mu.Unlock()
	if !g.closed {
		g.closed = true
		close(g.done)
	}
}

// claim sets as many of ids as the present tick has left, and says how long to
// wait before it is worth trying again.
func (g *Default) claim(ids []int64) (n int, wait time.Duration, err error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.closed {
		return 0, 0, ErrClosed
	}
	now := g.now()
	tick := g.layout.TickAt(now)
	// The tick before the lease is -1 for a lease from the epoch on, which is no
	// place for a clock to be in either.
	if tick < g.tick || tick < 0 {
		wait, err = g.backwards(now)
		return 0, wait, err
	}
	if tick > g.until {
		return 0, 0, exhausted(g.layout, g.worker, g.until)
	}
	if tick > g.tick {
		g.tick, g.sequence = tick, 0
		if g.random > 1 {
			g.sequence = rand.Int64N(g.random)
		}
	}
	id := tick<<(g.layout.WorkerBits+g.layout.SequenceBits) | g.worker<<g.layout.SequenceBits
	for n < len(ids) && g.sequence <= g.layout.MaxSequence() {
		ids[n] = id | g.sequence
		g.sequence++
		n++
	}
	return n, g.layout.TimeOf(tick + 1).Sub(now), nil
}

// backwards returns how long to wait for a clock that shows now to catch up, or
// why not to.
func (g *Default) backwards(now time.Time) (wait time.Duration, err error) {
	reached := g.layout.TimeOf(max(g.tick, 0))
	back := reached.Sub(now)
	if back > g.tolerance {
		return 0, fmt.Errorf("%w: it shows %s, %v less than the %s that ids have reached; at most %v are waited for",
			ErrClockBackwards, format(now), back, format(reached), g.tolerance)
	}
	return back, nil
}
