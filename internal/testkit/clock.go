package testkit

import (
	"sync"
	"time"
)

// A Clock is set by a test. It is safe for concurrent use.
type Clock struct {
	mu    sync.Mutex
	shown time.Time // at the time since
	since time.Time
	speed float64
}

// NewClock returns a clock that shows t until the test sets it.
func NewClock(t time.Time) *Clock { return NewRunningClock(t, 0) }

// NewRunningClock returns a clock that starts at t and runs speed times as fast as the real one. With 0 it stands
// still.
func NewRunningClock(t time.Time, speed float64) *Clock {
	return &Clock{shown: t, since: time.Now(), speed: speed}
}

// Now returns what the clock shows.
func (c *Clock) Now() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.now()
}

func (c *Clock) now() time.Time {
	if c.speed == 0 {
		return c.shown
	}
	return c.shown.Add(time.Duration(float64(time.Since(c.since)) * c.speed))
}

// Set sets the clock.
func (c *Clock) Set(t time.Time) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.shown, c.since = t, time.Now()
}

// Add sets the clock forward, or back if d is negative, and returns what it then shows.
func (c *Clock) Add(d time.Duration) time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.shown, c.since = c.now().Add(d), time.Now()
	return c.shown
}
