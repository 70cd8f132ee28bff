package generator_test

import (
	"errors"
	"testing"
	"time"

	"github.com/uidplugin/uidplugin/generator"
)

// A caller that waits for a lease gets its ids at once when a new lease arrives, even if the lease begins ahead of
// the clock by less than MaxBorrow.
func TestCachedRenew_WakesACallerAtOnce(t *testing.T) {
	bubble(t, func(t *testing.T) {
		l := manyWorkers(4)
		l.Tick = time.Hour
		now := lease(l, 1)
		g := cached(t, generator.CachedConfig{Layout: l, Lease: now, MaxBorrow: 31 * time.Hour, OnLow: nobody})
		fill(t, g, 16)
		for i := range int64(3) {
			start := time.Now()
			time.AfterFunc(time.Minute+1234567, func() {
				renew(t, g, leases(now.From+10*(i+1), now.From+10*(i+1), i)...)
			})
			id := next(t, g)
			if got := time.Since(start); got != time.Minute+1234567 || tickOf(l, id) != now.From+10*(i+1) {
				t.Errorf("a caller got its id after %v, of tick %d", got, tickOf(l, id)-now.From)
			}
			fill(t, g, 15)
		}
	})
}

// TestCachedRenew_NeverWaits: while a caller waits at the head of the queue, the generator accepts a lease. Of several the latest counts,
// but no end is lost.
func TestCachedRenew_NeverWaits(t *testing.T) {
	bubble(t, func(t *testing.T) {
		l := manyWorkers(4)
		now := lease(l, 2)
		for _, tt := range []struct {
			name  string
			calls [][]generator.Lease
			want  generator.Usage // Tick and Left from now
		}{
			{"one", [][]generator.Lease{leases(0, 9, 9)}, generator.Usage{Left: 160, Lanes: 1}},
			{"later end last", [][]generator.Lease{leases(0, 5, 9), leases(0, 9, 9)}, generator.Usage{Left: 160, Lanes: 1}},
			{"later end first", [][]generator.Lease{leases(0, 9, 9), leases(0, 5, 9)}, generator.Usage{Left: 160, Lanes: 1}},
			{"later beginning first", [][]generator.Lease{leases(5, 9, 9), leases(0, 9, 9)}, generator.Usage{Tick: 5, Left: 80, Lanes: 1}},
			{"others last", [][]generator.Lease{leases(0, 9, 9), leases(0, 4, 1, 2)}, generator.Usage{Left: 160, Lanes: 2}},
			{"others first", [][]generator.Lease{leases(0, 4, 1, 2), leases(0, 9, 9)}, generator.Usage{Left: 160, Lanes: 1}},
			{"others, later end first", [][]generator.Lease{leases(0, 4, 1, 2), leases(0, 3, 2, 1)}, generator.Usage{Left: 160, Lanes: 2}},
			{"three", [][]generator.Lease{leases(0, 99, 8), leases(0, 50, 1, 2), leases(0, 3, 5)}, generator.Usage{Left: 64, Lanes: 1}},
		} {
			g := cached(t, generator.CachedConfig{Layout: l, Lease: now})
			release := g.Hold()
			for _, call := range tt.calls {
				for i := range call {
					call[i].From += now.From
					call[i].Until += now.From
				}
				renew(t, g, call...)
			}
			tt.want.Tick += now.From
			if got := g.Usage(); got != tt.want {
				t.Errorf("%s: %+v, want %+v", tt.name, got, tt.want)
			}
			release()
		}
	})
}

// A generator that does not wait does not wait for a lease either, whether it is used up or has passed.
func TestCachedNoWait_NeverWaitsForALease(t *testing.T) {
	bubble(t, func(t *testing.T) {
		l := ticks(time.Second, 4)
		asked := 0
		g := cached(t, generator.CachedConfig{Layout: l, Lease: lease(l, 2), NoWait: true, OnLow: func() { asked++ }})
		fill(t, g, 10)
		time.Sleep(time.Hour)
		start := time.Now()
		if fill(t, g, 10); asked == 0 {
			t.Error("Low was not called for a lease that is over")
		}
		asked = 0
		if err := g.Fill(t.Context(), make([]int64, 13)); !errors.Is(err, generator.ErrLeaseExpired) || asked == 0 {
			t.Errorf("more ids than there are: %v; Low was called %d times", err, asked)
		}
		fill(t, g, 12)
		asked = 0
		if _, err := g.Next(t.Context()); !errors.Is(err, generator.ErrLeaseExpired) || asked == 0 {
			t.Errorf("used up: %v; Low was called %d times", err, asked)
		}
		g.Suspend(errCause)
		if _, err := g.Next(t.Context()); !errors.Is(err, generator.ErrLeaseExpired) || !errors.Is(err, errCause) {
			t.Errorf("suspended: %v", err)
		}
		if !time.Now().Equal(start) {
			t.Errorf("took %v", time.Since(start))
		}
	})
}
