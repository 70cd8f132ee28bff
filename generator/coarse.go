package generator

import (
	"runtime"
	"sync/atomic"
	"time"
)

// CoarseClock is a clock that is read once a millisecond, however often it is asked. It is for a [Snowflake] or
// [Paired] generator with much longer ticks, whose ids it makes three times as cheap (BenchmarkCoarseClock). [Cached]
// reads no clock for an id, and does not need it.
//
// It has a timer only while it is in use. A reading is up to some milliseconds old. After a sleep of the machine or the
// process it is briefly as old as that sleep. Any number of goroutines may use a CoarseClock at once. Create it with
// [NewCoarseClock].
type CoarseClock struct {
	now func() time.Time

	// reading is nil while there is no timer. Only two write it: the timer's function, and the
	// caller that sets running and so starts the timer.
	reading atomic.Pointer[time.Time]
	running atomic.Bool
	used    atomic.Bool // since the timer's function looked last
}

const (
	coarseEvery = time.Millisecond
	coarseIdle  = 100 // readings in a row that no caller used, before the timer ends
)

// NewCoarseClock returns a clock that reads now, or [time.Now] if that is nil.
func NewCoarseClock(now func() time.Time) *CoarseClock {
	if now == nil {
		now = time.Now
	}
	return &CoarseClock{now: now}
}

// Now returns the latest reading. It never goes back, unless what it reads does.
func (c *CoarseClock) Now() time.Time {
	for {
		if r := c.reading.Load(); r != nil {
			if !c.used.Load() { // reading is cheaper than writing what others read
				c.used.Store(true)
			}
			return *r
		}
		if c.running.CompareAndSwap(false, true) {
			return c.start()
		}
		runtime.Gosched() // another caller is about to store a reading, or to end
	}
}

// start begins to read every millisecond, and returns the first reading.
func (c *CoarseClock) start() time.Time {
	now, idle := c.now(), 0
	var timer *time.Timer
	ready := make(chan struct{})
	timer = time.AfterFunc(coarseEvery, func() {
		<-ready
		idle++
		if c.used.Swap(false) {
			idle = 0
		}
		if idle >= coarseIdle {
			c.reading.Store(nil)
			c.running.Store(false)
			return
		}
		now := c.now()
		c.reading.Store(&now)
		timer.Reset(coarseEvery)
	})
	c.used.Store(true)
	c.reading.Store(&now)
	close(ready)
	return now
}
