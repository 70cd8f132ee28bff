package testkit

import (
	"sync"
	"time"
)

// A Clock shows the time that a test sets. It may be used concurrently.
type Clock struct {
	mu    sync.Mutex
	shown time.Time // time of this clock when it was set last
	since time.Time // time of the real clock at that moment
	speed float64
}

// NewClock returns a clock that shows t until the test sets it.
func NewClock(t time.Time) *Clock { return NewRunningClock(t, 0) }

// NewRunningClock returns a clock that starts at t and runs at speed times the real speed. With 0 it stands still.
func NewRunningClock(t time.Time, speed float64) *Clock {
	return &Clock{shown: t, since: time.Now(), speed: speed}
}

// Now returns the time of the clock.
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

// Add moves the clock forward, or back if d is negative, and returns the new time.
func (c *Clock) Add(d time.Duration) time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.shown, c.since = c.now().Add(d), time.Now()
	return c.shown
}
