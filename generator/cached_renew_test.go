package generator_test

import (
	"errors"
	"testing"
	"time"

	"github.com/uidplugin/uidplugin/generator"
)

// TestCachedRenew_NeverWaits: while a caller waits at the head of the queue, the generator accepts a lease. Of several
// the latest counts, but no end is lost.
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
		time.Sleep(time.Hour)
		start := time.Now()
		fill(t, g, 19)
		if err := g.Fill(t.Context(), make([]int64, 14)); !errors.Is(err, generator.ErrLeaseExpired) || asked != 2 {
			t.Errorf("more ids than there are: %v; OnLow was called %d times", err, asked)
		}
		fill(t, g, 13)
		if _, err := g.Next(t.Context()); !errors.Is(err, generator.ErrLeaseExpired) || asked != 4 || !time.Now().Equal(start) {
			t.Errorf("used up: %v after %v; OnLow was called %d times", err, time.Since(start), asked)
		}
	})
}
