package generator_test

import (
	"errors"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/uidplugin/uidplugin/generator"
	"github.com/uidplugin/uidplugin/internal/testkit"
)

// While a caller waits at the head of the queue, the generator accepts a lease. Of several leases the latest counts,
// but none moves the end back.
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

// The lease has ids for ten seconds, so without the limit the first call of OnLow would come five seconds ahead of the
// clock.
func TestCachedOnLow_AsksForLanes50msAhead(t *testing.T) {
	bubble(t, func(t *testing.T) {
		l := manyWorkers(4)
		l.Tick, l.TimeBits = time.Millisecond, 41
		for _, tt := range []struct {
			name  string
			begin int64 // first tick of the lease, from now
			lanes int
			free  int // ids after which OnLow is not yet called
		}{
			{"one lane", 0, 1, 51*16 - 1},
			{"16 lanes", 0, 16, 16 * (51*16 - 1)},
			{"a lease that has begun", -5000, 1, 51*16 - 1},
			{"a lease that begins ahead of the clock", 3000, 1, 51*16 - 1},
		} {
			for _, opened := range []bool{false, true} {
				time.Sleep(time.Minute) // the generator before has no more visits
				now := l.TickAt(time.Now())
				var asked atomic.Int64
				g := cached(t, generator.CachedConfig{Layout: l, OnLow: func() { asked.Add(1) },
					Lease: generator.Lease{WorkerID: 9, From: now + tt.begin, Until: now + 10_000}})
				if tt.lanes > 1 {
					renew(t, g, leases(now, now+10_000, spread(tt.lanes, 9, 1)...)...)
				}
				free := tt.free
				if opened {
					free -= window(t, g)
				}
				fill(t, g, free)
				g.Usage()
				if asked.Load() != 0 {
					t.Errorf("%s, window %v: OnLow was called after %d ids", tt.name, opened, tt.free)
				}
				fill(t, g, 40*tt.lanes) // also those of the ticks until the visit
				time.Sleep(generator.ClockEvery)
				synctest.Wait()
				if asked.Load() == 0 {
					t.Errorf("%s, window %v: OnLow was not called", tt.name, opened)
				}
				g.Close()
			}
		}
	})
}

// A layout with few ids a second would otherwise give lanes to tables with batches of some rows, and one with long
// ticks to each batch at the end of a tick.
func TestLayoutLaneAhead_Is50msOr800IDsOrATick(t *testing.T) {
	t.Parallel()

	for text, want := range map[string]int64{
		"1-41-18-4/1ms": 50, "1-41-10-12/1ms": 50, "1-44-18-1/1ms": 400,
		"11-37-13-3/10ms": 100, "11-32-5-16/1s": 1, "1-28-22-13/1s": 1,
	} {
		l, err := generator.ParseLayout(text + "@1514764800")
		testkit.Must(t, err)
		if l.LaneAhead() != want {
			t.Errorf("%s: %d, want %d", text, l.LaneAhead(), want)
		}
	}
}
