package generator

import (
	"sync"
	"time"
)

const (
	// clockEvery is the time between two visits of a Clock, and so how stale an id
	// of a generator in use can be.
	clockEvery = 4 * time.Millisecond
	// clockIdle is how many visits in a row must find a generator unused before it
	// is left alone, half a second.
	clockIdle = 125
)

// A Clock keeps the [Cached] generators of a process up with the time, as long
// as they are used: it visits those in use every 4 ms, in one timer for all, and
// stops when none is left. An idle process has no timer and no goroutine.
//
// A Clock must be made by [NewClock]. It may be used by any number of
// generators and goroutines at once.
type Clock struct {
	now  func() time.Time
	base time.Time // what durations are counted from

	// mu is taken by a generator that holds its own semaphore; the other way
	// round, a visit only tries to take the semaphore, so the two cannot lock up.
	mu      sync.Mutex
	inUse   []*Cached
	ticking bool // a timer is pending, or its function runs
	latest  *settings
}

// settings are what generators that are configured alike have in common. They never
// change, and such generators share one copy of them.
type settings struct {
	layout Layout
	borrow time.Duration // MaxBorrow
	noWait bool
	clock  *Clock
}

// NewClock returns a clock that reads the time from now; nil means [time.Now].
// Anything else is for tests, which can so move the clock in both directions.
func NewClock(now func() time.Time) *Clock {
	if now == nil {
		now = time.Now
	}
	return &Clock{now: now, base: now()}
}

// share returns the settings s, in the copy of the generator before if it has the
// same.
func (c *Clock) share(s settings) *settings {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.latest == nil || *c.latest != s {
		latest := s
		c.latest = &latest
	}
	return c.latest
}

// keep has g visited until it is idle.
func (c *Clock) keep(g *Cached) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.inUse = append(c.inUse, g)
	if !c.ticking {
		c.ticking = true
		time.AfterFunc(clockEvery, c.tick)
	}
}

func (c *Clock) tick() {
	c.mu.Lock()
	defer c.mu.Unlock()
	kept := c.inUse[:0]
	for _, g := range c.inUse {
		if g.visit() {
			kept = append(kept, g)
		}
	}
	clear(c.inUse[len(kept):])
	c.inUse = kept
	if c.ticking = len(kept) > 0; c.ticking {
		time.AfterFunc(clockEvery, c.tick)
	}
}
