package generator

import (
	"sync"
	"time"
)

const (
	// clockEvery is the time between two visits of a Clock, and so how stale an id
	// from a window can be.
	clockEvery = time.Millisecond
	// clockIdle is how many visits in a row must find that hardly any id was taken
	// from a window before it is closed.
	clockIdle = 8
	// hardlyAny is the number of ids, since the last visit, below which a window is
	// not worth its visits.
	hardlyAny = 2

	// A window is opened by a caller who comes within soon of the one before, and that
	// one came as soon after its own, and so on: hurried times in a row.
	soon    = 125 * time.Microsecond
	hurried = 16
)

// A Clock keeps the [Cached] generators of a process up with the time, as long
// as many ids are taken from them: it visits these generators every millisecond, with
// one timer for all, and stops when none is left. A process that makes fewer ids, or
// none, has no timer and no goroutine.
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
