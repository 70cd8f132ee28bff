package generator

import (
	"context"
	"sync"
	"sync/atomic"
	"time"
)

// leaseWait limits how long callers wait for a renewal when the clock has passed the end of a lease that has ids left.
// All callers together wait that long for each lease. It is short because a caller may hold, in its transaction, the
// only connection with which the lease can be renewed.
const leaseWait = 100 * time.Millisecond

// maxSleep is the longest time between two checks of a caller that waits.
const maxSleep = 20 * time.Millisecond

// A queue is the part of [Cached] and [Snowflake] where callers wait and leases arrive.
type queue struct {
	// head contains a value while a caller is at the head of the queue. It is a channel and not a mutex, because a
	// channel serves the other callers in the order of their arrival, and a context can end their wait.
	head chan struct{}

	waits atomic.Int64 // calls that waited
	onLow func()       // of the configuration; immutable

	// mu guards the fields below, and the state of the generator. A caller releases mu before waiting or calling
	// OnLow, because Renew, Suspend and Usage must never wait for a caller, and OnLow may call them.
	mu sync.Mutex

	// changed is closed, and becomes nil, when waiting callers should look again. A caller that must wait makes the
	// channel before it releases mu, because otherwise it could miss a change.
	changed chan struct{}

	cause     error         // of the suspension, or nil
	from      int64         // the lease's first tick
	leaseWait time.Duration // how long callers may still wait when the clock has passed the lease
	made      int64         // number of ids made so far

	waiting bool  // the caller at the head waits for Renew
	used    bool  // ids were taken since Usage was called
	closed  bool  // by Close
	refills uint8 // how often leaseWait was refilled

	// These belong to Cached. They are here to share a word of memory with the fields above.
	open    bool  // the window is open
	visited bool  // the clock visits this generator
	idle    uint8 // visits in a row that found hardly any id taken
	quick   uint8 // readings of the clock in a row, each soon after the one before; at most hurried
}

// An outcome is the result of an attempt to take ids. The zero outcome means that the ids were taken.
type outcome struct {
	wait  time.Duration // how long until it is worth trying again
	lease bool          // the wait is for another lease
	alone bool          // callers wait without a queue, because their order does not matter
	low   bool          // OnLow should be called
}

// retry calls the function try with mu held, until try has taken ids or returns an error. Between calls it waits.
func (g *queue) retry(ctx context.Context, try func() (outcome, error)) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	atHead, waited := false, false
	defer func() {
		if atHead {
			g.leave()
		}
	}()
	lineUp := len(g.head) > 0
	for {
		if lineUp {
			if len(g.head) > 0 && !waited {
				waited = true
				g.waits.Add(1)
			}
			select {
			case g.head <- struct{}{}:
				atHead = true
			case <-ctx.Done():
				return ctx.Err()
			}
		}
		g.mu.Lock()
		o, err := try()
		lineUp = err == nil && o.wait > 0 && !atHead && !o.alone
		var changed chan struct{}
		if err == nil && o.wait > 0 && !lineUp {
			if g.changed == nil {
				g.changed = make(chan struct{})
			}
			changed = g.changed
			if atHead {
				g.waiting = o.lease
			}
		}
		refills := g.refills
		g.mu.Unlock()
		if o.low {
			g.onLow()
		}
		switch {
		case err != nil || o.wait == 0:
			return err
		case lineUp:
			continue
		case !waited:
			waited = true
			g.waits.Add(1)
		}
		if err := g.pause(ctx, o, changed, refills); err != nil {
			return err
		}
	}
}

// pause waits as long as o requires, or until changed is closed or ctx ends.
func (g *queue) pause(ctx context.Context, o outcome, changed <-chan struct{}, refills uint8) error {
	start := time.Now()
	err := sleep(ctx, o.wait, changed)
	if o.lease {
		g.mu.Lock()
		if g.refills == refills { // else the wait was for an earlier lease
			g.leaseWait -= time.Since(start)
		}
		g.mu.Unlock()
	}
	return err
}

// leave lets the next caller move to the head of the queue.
func (g *queue) leave() {
	g.mu.Lock()
	g.waiting = false
	g.mu.Unlock()
	<-g.head
}

// wake makes the callers that wait look again. The caller of wake holds mu.
func (g *queue) wake() {
	g.waiting = false
	if g.changed != nil {
		close(g.changed)
		g.changed = nil
	}
}

// renew replaces the lease, by calling accept with mu held, and lifts a suspension.
func (g *queue) renew(accept func()) error {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.closed {
		return ErrClosed
	}
	accept()
	g.cause = nil
	g.wake()
	return nil
}

// refillLeaseWait lets callers wait for 100 ms again, when the clock passes the lease just accepted.
func (g *queue) refillLeaseWait() {
	g.leaseWait = leaseWait
	g.refills++
}

// Suspend implements [Renewable].
func (g *queue) Suspend(cause error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.cause = cause
	g.wake()
}

// Waits counts, from 0, the calls that have waited for the clock, for a tick, at the borrowing limit, or for a
// renewal of the lease. A call that queues behind another counts, too. A call counts once, even if its context has
// ended. The number never goes down, and Waits itself never waits.
func (g *queue) Waits() int64 { return g.waits.Load() }

// mayFollow reports whether another lease may follow a lease with this last tick.
func (g *queue) mayFollow(l *Layout, last int64) bool { return g.onLow != nil && last < l.MaxTick() }

// usage returns the Usage of a lease that ends before the position end. Its first unused position is next.
func (g *queue) usage(s scale, next, end uint64) Usage {
	next = min(next, end)
	u := Usage{Tick: s.tick(next), Left: end - next, Waiting: g.waiting, Used: g.used, Lanes: 1 << s.laneBits}
	g.used = false
	return u
}
