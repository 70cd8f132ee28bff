package generator_test

import (
	"fmt"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/uidplugin/uidplugin/generator"
)

// One timer visits all generators that have a window, every millisecond, until hardly any ids are taken. Then nothing
// runs until an id is requested. The test counts the readings of the clock. The bubble ends only if no goroutine is
// left.
func TestCachedVisit_EndsWhenIdle(t *testing.T) {
	for _, n := range []int{1, 2, 500} {
		t.Run(fmt.Sprint(n), func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				var latest, instants atomic.Int64
				clock := generator.NewClock(func() time.Time {
					now := time.Now()
					if latest.Swap(now.UnixNano()) != now.UnixNano() {
						instants.Add(1)
					}
					return now
				})
				during := func(d time.Duration) int {
					before := instants.Load()
					time.Sleep(d)
					synctest.Wait()
					return int(instants.Load() - before)
				}
				l := ticks(time.Second, 10)
				all := make([]*generator.Cached, n)
				for i := range all {
					all[i] = cached(t, generator.CachedConfig{Layout: l, Clock: clock})
				}
				if got := during(time.Hour); got != 0 {
					t.Errorf("before any use the clock was read at %d instants", got)
				}
				for range 3 {
					for _, g := range all {
						window(t, g)
						g.Park() // to open another window is not to be visited more often
						window(t, g)
						time.Sleep(time.Microsecond) // timers of their own would be out of step
					}
					before := instants.Load()
					for range 20 {
						for _, g := range all {
							fill(t, g, 2)
						}
						time.Sleep(generator.ClockEvery)
					}
					if got := instants.Load() - before; got < 19 || got > 21 {
						t.Errorf("in use the clock was read at %d instants during 20 visits", got)
					}
					if got := during(time.Second); got < generator.ClockIdle-1 || got > generator.ClockIdle+1 {
						t.Errorf("after use the clock was read at %d instants", got)
					}
					if got := during(365 * 24 * time.Hour); got != 0 {
						t.Errorf("idle for a year the clock was read at %d instants", got)
					}
				}
				// Close ends the visits too, and at once.
				for _, g := range all {
					window(t, g)
				}
				for _, g := range all {
					g.Close()
				}
				if got := during(time.Hour); got > 1 {
					t.Errorf("closed, the clock was read at %d instants", got)
				}
			})
		})
	}
}

// If a generator is used at the nominal rate, visits extend its window. So no caller has to open another one, which
// would read the clock.
func TestCachedVisit_ExtendsTheWindow(t *testing.T) {
	bubble(t, func(t *testing.T) {
		var readings atomic.Int64
		l := ticks(time.Second, 12)
		g := cached(t, generator.CachedConfig{Layout: l, MaxBorrow: time.Second, Clock: generator.NewClock(func() time.Time {
			readings.Add(1)
			return time.Now()
		})})
		window(t, g)
		time.Sleep(generator.ClockEvery / 2)
		readings.Store(0)
		for range 3000 { // three times what the window had at first
			fill(t, g, 2)
			for range 2 {
				next(t, g)
			}
			time.Sleep(generator.ClockEvery)
		}
		if got := readings.Load(); got != 3000 {
			t.Errorf("in 3000 visits the clock was read %d times", got)
		}
	})
}

// If the lease of a generator in use ends, its callers wait for another lease from the next visit on, for up to
// leaseWait.
func TestCachedVisit_SeesTheEndOfTheLease(t *testing.T) {
	bubble(t, func(t *testing.T) {
		l := ticks(time.Second, 20)
		l.TimeBits = 38
		now := lease(l, 2)
		var asked atomic.Int64
		g := cached(t, generator.CachedConfig{Layout: l, Lease: now, OnLow: func() { asked.Add(1) }})
		var waited time.Duration
		window(t, g)
		for time.Since(l.TimeOf(now.From)) < 2200*time.Millisecond {
			start := time.Now()
			fill(t, g, 2)
			if d := time.Since(start); d > 0 {
				waited += d
				if late := start.Sub(l.TimeOf(now.Until + 1)); late < 0 || late > 3*generator.ClockEvery {
					t.Errorf("a caller waited %v after the end of the lease", late)
				}
			}
			time.Sleep(generator.ClockEvery + 1)
			if time.Now().Before(l.TimeOf(now.Until)) && asked.Load() > 0 {
				t.Fatalf("Low was called %v after the beginning of a lease of 2 s", time.Since(l.TimeOf(now.From)))
			}
		}
		if waited != 100*time.Millisecond || asked.Load() < 10 {
			t.Errorf("callers waited for %v, and Low was called %d times", waited, asked.Load())
		}
	})
}
