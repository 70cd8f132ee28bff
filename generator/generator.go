package generator

import (
	"context"
	"fmt"
	"time"
)

// A Generator makes ids. Its ids strictly ascend, in real time too: an id is
// larger than every id whose call had returned before its own call began.
//
// All methods may be called by any number of goroutines at once.
type Generator interface {
	// Next returns one id, never negative. It may wait, as its generator says,
	// until ctx ends; the error is then that of ctx. With an error the id is 0
	// and means nothing.
	Next(ctx context.Context) (int64, error)

	// Fill sets every element of ids to an id of its own, in ascending order.
	// Other callers' ids may lie between them. With an error the contents of ids
	// mean nothing, and no id of them is ever made again.
	Fill(ctx context.Context, ids []int64) error

	// Close makes every later call, and those that wait, return [ErrClosed].
	// When it has returned, no id is made any more. Closing again does nothing.
	Close()
}

// A Lease says what a generator may stamp: one worker id, and the ticks from
// From to Until, both included. Whoever grants a lease guarantees that nobody
// else ever holds the same worker id for any of these ticks.
type Lease struct {
	WorkerID int64
	From     int64 // first tick
	Until    int64 // last tick
}

// Endless returns the lease of worker for all ticks of the layout from the one
// that holds now.
func (l Layout) Endless(worker int64, now time.Time) Lease {
	return Lease{WorkerID: worker, From: max(l.TickAt(now), 0), Until: l.MaxTick()}
}

// validate returns an error wrapping [ErrLayout] if a field of the lease does
// not fit l.
func (l Lease) validate(layout Layout) error {
	switch {
	case l.WorkerID < 0 || l.WorkerID > layout.MaxWorkerID():
		return fmt.Errorf("%w: worker id %d is outside 0 to %d, the range of %d bits",
			ErrLayout, l.WorkerID, layout.MaxWorkerID(), layout.WorkerBits)
	case l.From < 0 || l.Until > layout.MaxTick() || l.From > l.Until:
		return fmt.Errorf("%w: a lease of the ticks %d to %d is not a span within 0 to %d",
			ErrLayout, l.From, l.Until, layout.MaxTick())
	}
	return nil
}

// exhausted is the error of a generator that has used up the last tick of its
// lease, until.
func exhausted(layout Layout, worker, until int64) error {
	if until == layout.MaxTick() {
		return fmt.Errorf("%w: the %d bits of %v since %s ended at %s",
			ErrTimeExhausted, layout.TimeBits, layout.Tick, format(layout.Epoch), format(layout.Expires()))
	}
	return fmt.Errorf("%w: worker id %d may stamp until %s",
		ErrLeaseExpired, worker, format(layout.TimeOf(until+1)))
}

// sleep waits for d, or until done is closed, or until ctx ends, whose error it
// then returns.
func sleep(ctx context.Context, d time.Duration, done <-chan struct{}) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-done:
	case <-timer.C:
	}
	return nil
}
