package generator

import (
	"sync"
	"time"
)

const (
	// clockEvery is the time between two visits of a Clock, and so how stale an id from a window can be.
	clockEvery = time.Millisecond
	// clockIdle is the number of visits in a row that must find hardly any ids taken before a window closes.
	clockIdle = 8
	// hardlyAny: with fewer ids than this between two visits, the visits of a window cost more than they save.
	hardlyAny = 2

	// A caller opens a window when many calls have come in a row, each soon after the one before.
	soon    = 125 * time.Microsecond // the time between two such calls is shorter than this
	hurried = 16                     // the number of such calls
)

// A Clock keeps the [Cached] generators of a process up with the time while many ids are taken from them. It visits
// these generators every millisecond, with one timer for all, and stops when none needs it. A process that makes few
// ids has no timer and no goroutine.
//
// Create a Clock with [NewClock]. Any number of generators and goroutines may use it at once.
type Clock struct {
	now  func() time.Time
	base time.Time // durations are counted from here

	// A generator takes mu while it holds its own mutex. A visit holds mu, and only tries to take the generator's
	// mutex. Otherwise the two could deadlock.
	mu      sync.Mutex
	inUse   []*Cached
	ticking bool // a timer is pending, or its function runs
	latest  *settings
}

// settings never change, so the generators with the same configuration share them.
type settings struct {
	layout    Layout
	borrow    time.Duration // MaxBorrow
	noWait    bool
	laneAhead int64 // Layout.LaneAhead
	clock     *Clock
}

// NewClock returns a clock that reads the time with the function now; nil means [time.Now]. Tests pass another
// function, to move the clock in both directions.
func NewClock(now func() time.Time) *Clock {
	if now == nil {
		now = time.Now
	}
	return &Clock{now: now, base: now()}
}

// share returns s, or the settings of the previous generator if they are equal.
func (c *Clock) share(s settings) *settings {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.latest == nil || *c.latest != s {
		latest := s
		c.latest = &latest
	}
	return c.latest
}

// visitFromNow makes the Clock visit g until g is idle.
func (c *Clock) visitFromNow(g *Cached) {
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
	c.ticking = len(kept) > 0
	if c.ticking {
		time.AfterFunc(clockEvery, c.tick)
	}
}
