package generator

import (
	"context"
	"fmt"
	"slices"
	"time"
)

// A Generator makes ids. Its ids strictly ascend, in real time too: an id is larger than every id whose call returned
// before its own call began. Only a [Paired] does not promise this.
//
// Any number of goroutines may call its methods at once.
type Generator interface {
	// Next returns one id, never negative. It may wait, as each generator documents. If ctx ends meanwhile, the error
	// is ctx's own. With an error the id is 0 and means nothing.
	Next(ctx context.Context) (int64, error)

	// Fill sets every element of ids to an id of its own, in ascending order. Ids of other callers may come between
	// them. With an error the contents of ids mean nothing, and none of these ids is ever made again.
	Fill(ctx context.Context, ids []int64) error

	// Close makes every later call, and every call that waits, return [ErrClosed]. When it has returned, no id is made
	// any more. Closing again does nothing.
	Close()
}

// A Lease is the right to stamp the ticks from From to Until, both included, with one worker id. The granter
// of a lease guarantees that no other generator ever holds the same worker id for any of these ticks.
type Lease struct {
	WorkerID int64
	From     int64 // first tick
	Until    int64 // last tick
}

// A Renewable generator accepts other leases while it makes ids. [Cached], [Snowflake] and [Paired] are Renewable. When
// the lease runs low, a generator calls its OnLow. The answer is Renew, or Suspend if no lease is available.
type Renewable interface {
	Generator

	// Renew replaces the generator's leases. Each lease makes a lane. The number of leases is a power of two, at
	// most [MaxLanes], and at most the number of worker ids of the layout. A [Snowflake] has one lane, a [Paired]
	// two. The worker ids differ; From and Until are the same for all. Within a tick the lanes are used up one
	// after the other, in the order of their worker ids, not of the arguments. Then the next tick begins.
	//
	// After the call, an id carries a tick from From to Until, and is larger than every id that the generator made
	// before:
	//
	//   - With the same worker ids, a generator continues from where it is, or at From if that is later. Neither
	//     From nor Until goes down. A call with earlier ticks leaves the later ones unchanged, because calls may
	//     overtake one another.
	//   - With other worker ids, or more or fewer of them, the next id begins a tick: the first tick, at From or
	//     later, that the generator has not begun. Until may be earlier than before. Calls that change worker ids must
	//     come in order.
	//
	// [Cached] and [Snowflake] document what they do with a lease that begins ahead of the clock.
	//
	// Renew lifts a suspension, and wakes the callers that wait. It never waits for callers. After Close it returns
	// [ErrClosed]. Any other error wraps [ErrConfig], or [ErrLayout] for a lease that does not fit the layout, and
	// changes nothing.
	Renew(leases ...Lease) error

	// After Suspend, callers that find no id left fail at once instead of waiting for Renew. Callers that already
	// wait fail, too. Their error wraps [ErrLeaseExpired] and cause. Ids that are left in the lease are handed out
	// as before. Renew ends the suspension, and so does Suspend with nil.
	Suspend(cause error)

	// Usage returns how far the lease is used up. It never waits.
	Usage() Usage
}

// Usage is the state of a generator at one moment. While a caller takes ids or a lease is being replaced, it may be the
// state before.
type Usage struct {
	// Tick is the tick of the next id: the present one, or a later one if ids are ahead of the clock. When the
	// clock is beyond the lease and ids are left, Tick is earlier than the present tick. When the lease is used
	// up, it is the tick after the lease.
	Tick int64

	// Left is the number of ids left in the lease, 0 when it is used up. It counts every sequence of a tick in each
	// lane, even if the generator skips some.
	Left uint64

	// Waiting is true while a caller waits for the lease to be renewed.
	Waiting bool

	// Used is true if ids were taken since the previous call of Usage, or before the first call. Ids taken at
	// about the time of a call count for this call or the next.
	Used bool

	// Lanes is the number of leases, at least 1. MaxLanes is how many leases Renew takes at most; 0 means [MaxLanes].
	Lanes, MaxLanes int
}

// FullLease returns the lease of worker for all ticks of the layout, from the present one on.
func (l Layout) FullLease(worker int64, now time.Time) Lease {
	return Lease{WorkerID: worker, From: max(l.TickAt(now), 0), Until: l.MaxTick()}
}

// validate returns an error wrapping [ErrLayout] if a field of the lease does not fit layout.
func (l Lease) validate(layout Layout) error {
	switch {
	case l.WorkerID < 0 || l.WorkerID > layout.MaxWorkerID():
		return fmt.Errorf("%w: worker id %d is outside 0 to %d, the range of %d bits",
			ErrLayout, l.WorkerID, layout.MaxWorkerID(), layout.WorkerBits)
	case l.From < 0 || l.Until > layout.MaxTick() || l.From > l.Until:
		return fmt.Errorf("%w: the lease of the ticks %d to %d must be a span within 0 to %d",
			ErrLayout, l.From, l.Until, layout.MaxTick())
	}
	return nil
}

// workers returns the worker ids of leases in ascending order, or an error if one generator cannot hold them all.
func workers(layout Layout, leases []Lease) ([]int64, error) {
	n := len(leases)
	if n == 0 || n&(n-1) != 0 || n > MaxLanes || int64(n) > layout.MaxWorkerID()+1 {
		return nil, fmt.Errorf("%w: got %d leases; their number must be a power of two up to %d",
			ErrConfig, n, min(MaxLanes, layout.MaxWorkerID()+1))
	}
	ids := make([]int64, n)
	for i, l := range leases {
		if err := l.validate(layout); err != nil {
			return nil, err
		}
		if l.From != leases[0].From || l.Until != leases[0].Until {
			return nil, fmt.Errorf("%w: all leases must have the same ticks, but one has %d to %d and another %d to %d",
				ErrConfig, l.From, l.Until, leases[0].From, leases[0].Until)
		}
		ids[i] = l.WorkerID
	}
	slices.Sort(ids)
	for i := 1; i < n; i++ {
		if ids[i] == ids[i-1] {
			return nil, fmt.Errorf("%w: two leases have the worker id %d", ErrConfig, ids[i])
		}
	}
	return ids, nil
}

// exhausted is the error of a generator that has used up its lease. worker is its first worker id, and last is the
// last tick of the lease. If cause is not nil, it is the reason that no other lease came.
func exhausted(layout *Layout, worker, last int64, cause error) error {
	if last == layout.MaxTick() {
		return fmt.Errorf("%w: no id is left: the 2^%d ticks of %v since %s end at %s; new ids need a layout with a later epoch or more time bits",
			ErrTimeExhausted, layout.TimeBits, layout.Tick, format(layout.Epoch), format(layout.Expires()))
	}
	err := fmt.Errorf("%w: worker id %d may make ids only until %s", ErrLeaseExpired, worker, format(layout.TimeOf(last+1)))
	if cause != nil {
		err = fmt.Errorf("%w, and the lease was not renewed: %w", err, cause)
	}
	return err
}

// scarce reports whether a lease should be renewed. The lease has the positions from begin up to end. The next id
// has the position next, and the clock is at the position now. CachedConfig.OnLow has the conditions.
func scarce(begin, end, next, now uint64) bool {
	all := end - min(max(begin, now), end)
	return end-min(next, end) < all-all/2 || now >= end || next >= end
}

// sleep waits for d, or until wake is closed or has a value. If ctx ends first, it returns the error of ctx.
func sleep(ctx context.Context, d time.Duration, wake <-chan struct{}) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-wake:
	case <-timer.C:
	}
	return nil
}
