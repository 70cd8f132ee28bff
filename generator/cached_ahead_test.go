package generator_test

import (
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/uidplugin/uidplugin/generator"
	"github.com/uidplugin/uidplugin/internal/testkit"
)

// The lease has ids for ten seconds, so without the limit the first call would come five seconds ahead of the clock.
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
