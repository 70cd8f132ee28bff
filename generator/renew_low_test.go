package generator_test

import (
	"errors"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/uidplugin/uidplugin/generator"
)

// OnLow may renew at once. Then the caller does not wait.
func TestRenewableRenew_MayBeCalledByOnLow(t *testing.T) {
	bubbles(t, func(t *testing.T, e engine) {
		l := ticks(time.Second, 4)
		for skip := range 4 {
			now := lease(l, 1)
			calls, left := 0, skip
			var g generator.Renewable
			g = e.renewable(t, l, now, func() {
				if g.Usage().Left > 0 {
					return
				}
				calls++
				if left--; left < 0 {
					now.From += 2
					now.Until += 2
					renew(t, g, now)
				}
			}, nil)
			fill(t, g, 16)
			start := time.Now()
			next(t, g)
			if took := time.Since(start); took > time.Duration(max(0, skip-1))*20*time.Millisecond {
				t.Errorf("with a Low that renews in its call %d an id took %v", calls, took)
			}
			time.Sleep(time.Until(time.Now().Truncate(time.Second).Add(time.Second)))
		}
	})
}

// At the end of the layout there is nothing to renew, nor to wait for.
func TestRenewableRenew_NothingComesAfterTheLastTick(t *testing.T) {
	bubbles(t, func(t *testing.T, e engine) {
		l := ticks(time.Second, 4)
		l.TimeBits = 26 // until February 2001
		at := l.Expires().Add(-time.Second)
		asked := 0
		g := e.renewable(t, l, generator.Lease{WorkerID: 9, From: l.MaxTick(), Until: l.MaxTick()},
			func() { asked++ }, func() time.Time { return at })
		fill(t, g, 16)
		for _, suspended := range []error{nil, errCause} {
			g.Suspend(suspended)
			start := time.Now()
			if _, err := g.Next(t.Context()); !errors.Is(err, generator.ErrTimeExhausted) || errors.Is(err, generator.ErrLeaseExpired) {
				t.Errorf("got %v, want ErrTimeExhausted", err)
			}
			if !time.Now().Equal(start) || asked != 0 {
				t.Errorf("waited for %v, and Low was called %d times", time.Since(start), asked)
			}
		}
	})
}

// OnLow is called when less is left than half of what there is from the present to the end.
func TestRenewableOnLow_IsCalledBelowHalfOfWhatLiesAhead(t *testing.T) {
	bubbles(t, func(t *testing.T, e engine) {
		l := ticks(time.Second, 4)
		for _, tt := range []struct {
			name        string
			from, until int64 // ticks from now
			free        int   // ids that are taken before OnLow is called
		}{
			{"now", 0, 0, 8},
			{"ahead", 10, 10, 8},
			{"begun", -100, 0, 8},
			{"renewed ahead", 20, 20, 8},
		} {
			now := l.TickAt(time.Now())
			var asked atomic.Int64
			lease := generator.Lease{WorkerID: 9, From: now + tt.from, Until: now + tt.until}
			if tt.name == "renewed ahead" {
				lease.From, lease.Until = now, now+10
			}
			g := e.renewable(t, l, lease, func() { asked.Add(1) }, nil)
			lease.From, lease.Until = now+tt.from, now+tt.until
			renew(t, g, lease)
			fill(t, g, tt.free)
			g.Usage()
			time.Sleep(generator.ClockEvery)
			synctest.Wait()
			if asked.Load() != 0 {
				t.Errorf("%s: Low was called after %d ids", tt.name, tt.free)
			}
			next(t, g)
			time.Sleep(generator.ClockEvery) // Cached looks when it is visited
			synctest.Wait()
			if asked.Load() == 0 {
				t.Errorf("%s: Low was not called after %d ids", tt.name, tt.free+1)
			}
			g.Close()
			time.Sleep(time.Until(time.Now().Truncate(time.Second).Add(time.Second)))
		}
	})
}

func TestRenewableUsage_TellsWhatWasTakenAndWhatIsLeft(t *testing.T) {
	bubbles(t, func(t *testing.T, e engine) {
		l := ticks(time.Second, 4)
		lease := lease(l, 5)
		g := e.renewable(t, l, lease, nobody, nil)
		var last generator.Usage
		want := func(where string, tick int64, left uint64, used bool) {
			t.Helper()
			w := generator.Usage{Tick: lease.From + tick, Left: left, Used: used, Lanes: 1}
			if e.name == "Snowflake" {
				w.MaxLanes = 1
			}
			if last = g.Usage(); last != w {
				t.Errorf("%s: %+v, want %+v", where, last, w)
			}
			w.Used = false
			if last = g.Usage(); last != w {
				t.Errorf("%s, again: %+v, want %+v", where, last, w)
			}
		}
		want("at first", 0, 80, false)
		next(t, g)
		want("after an id", 0, 79, true)
		fill(t, g, 10)
		want("after a Fill", 0, 69, true)
		time.Sleep(2 * time.Second)
		want("two ticks later", 2, 48, false) // visited and idle, but not used
		fill(t, g, 16)
		want("with a tick used up", 3, 32, true)
		time.Sleep(time.Hour)
		want("with the lease over", 3, 32, false)
		g.Suspend(errCause)
		fill(t, g, 32)
		want("used up", 5, 0, true)
		fails(t, g, errCause)
		want("after an error", 5, 0, false)
		lease.Until = l.TickAt(time.Now()) + 1
		renew(t, g, lease)
		want("renewed", 3602, 32, false)
		g.Close()
		want("closed", 3602, 32, false)
	})
}
