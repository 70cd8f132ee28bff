package generator

import (
	"context"
	"fmt"
	"time"
)

// TickConfig configures [TickSource].
type TickConfig struct {
	Layout Layout // required
	Lease  Lease  // required

	// MaxBorrow bounds how far ahead of the clock a tick may be; 0 means
	// [DefaultMaxBorrow], the least is one tick. What is wanted beyond it waits.
	MaxBorrow time.Duration

	// Now reads the clock; nil means [time.Now]. Anything else is for tests.
	Now func() time.Time
}

// TickSource returns a source for [Buffered] that makes all ids of one tick of a layout at a time. Together they are
// the CachedUidGenerator of UidGenerator as it is built: it stores what [Cached] computes. It begins with the present
// tick and continues with the next ones. When it has fallen behind the clock it continues with the present tick, which
// UidGenerator does not.
//
// When the lease is used up its error wraps [ErrLeaseExpired], or [ErrTimeExhausted]. The error of TickSource wraps
// [ErrLayout] or [ErrConfig].
func TickSource(c TickConfig) (func(ctx context.Context, want int64) (Run, error), error) {
	if c.Now == nil {
		c.Now = time.Now
	}
	if err := c.Layout.ValidAt(c.Now()); err != nil {
		return nil, err
	}
	if err := c.Lease.validate(c.Layout); err != nil {
		return nil, err
	}
	if c.MaxBorrow == 0 {
		c.MaxBorrow = max(DefaultMaxBorrow, c.Layout.Tick)
	}
	if c.MaxBorrow < c.Layout.Tick {
		return nil, fmt.Errorf("%w: MaxBorrow %v is shorter than the tick of the layout, %v", ErrConfig, c.MaxBorrow, c.Layout.Tick)
	}
	next := c.Lease.From // the first tick that was not made
	ahead := max(int64(c.MaxBorrow/c.Layout.Tick), 1)
	return func(ctx context.Context, _ int64) (Run, error) {
		for {
			now := c.Now()
			present := c.Layout.TickAt(now)
			// A clock that has passed the lease cannot be followed: what is left is of the past.
			if present <= c.Lease.Until {
				next = max(next, present)
			}
			if next > c.Lease.Until {
				return Run{}, exhausted(&c.Layout, c.Lease.WorkerID, c.Lease.Until, nil)
			}
			if next < max(present, 0)+ahead {
				break
			}
			if err := sleep(ctx, min(max(c.Layout.TimeOf(next-ahead+1).Sub(now), time.Millisecond), maxSleep), nil); err != nil {
				return Run{}, err
			}
		}
		first := next<<(c.Layout.WorkerBits+c.Layout.SequenceBits) | c.Lease.WorkerID<<c.Layout.SequenceBits
		next++
		return Run{First: first, N: c.Layout.MaxSequence() + 1}, nil
	}, nil
}
