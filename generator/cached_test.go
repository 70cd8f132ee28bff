package generator_test

import (
	"context"
	"fmt"
	"math"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/uidplugin/uidplugin/generator"
	"github.com/uidplugin/uidplugin/internal/testkit"
)

// An id has the present time: exactly after a pause of several visits, and at most one visit late while ids are taken
// from a window.
func TestCached_FollowsTheClock(t *testing.T) {
	for _, l := range []generator.Layout{ticks(time.Second, 13), ticks(time.Millisecond, 12), ticks(time.Hour, 18)} {
		t.Run(l.String(), func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				g := cached(t, generator.CachedConfig{Layout: l})
				s := generator.NewScale(l)
				after := int64(-1)
				for r := random(3); r.IntN(1000) > 0; {
					id := next(t, g)
					after = ascending(t, l, after, id)
					at := time.Now()
					if got := position(l, id); got > s.At(at) || got < s.At(at.Add(-generator.ClockEvery)) {
						t.Fatalf("an id lies %d positions from the clock", int64(got)-int64(s.At(at)))
					}
					// From twice the time of a position up to several visits.
					pause := 2*s.Duration(1) + time.Duration(r.Int64N(int64(20*time.Millisecond)))
					if r.IntN(10) == 0 {
						pause = []time.Duration{time.Second, time.Hour, 30 * 24 * time.Hour}[r.IntN(3)]
						time.Sleep(pause)
						if id := next(t, g); position(l, id) != s.At(time.Now()) {
							t.Fatalf("%v later an id lies %d positions from the clock", pause, int64(position(l, id))-int64(s.At(time.Now())))
						}
					}
					time.Sleep(pause)
				}
			})
		})
	}
}

// Ids that are taken from a window are at most a visit older than the clock.
func TestCachedNext_FollowsTheClockWithAWindow(t *testing.T) {
	bubble(t, func(t *testing.T) {
		l := ticks(time.Millisecond, 12)
		g := cached(t, generator.CachedConfig{Layout: l})
		s, r := generator.NewScale(l), random(5)
		window(t, g)
		for range 3000 {
			time.Sleep(time.Duration(r.Int64N(int64(2 * generator.ClockEvery))))
			for range 4 {
				at := time.Now()
				if got := position(l, next(t, g)); got > s.At(at)+4 || got < s.At(at.Add(-generator.ClockEvery)) {
					t.Fatalf("an id lies %d positions from the clock", int64(got)-int64(s.At(at)))
				}
			}
			if !g.Open() {
				t.Fatal("the window was closed although ids are taken from it")
			}
		}
	})
}

// If ids are rare, no window opens: each id has the time of its creation, and the process has no timer. Formerly ids
// of tables with some rows a second were 2 ms late at the median.
func TestCachedNext_IsExactWhenUsedSlowly(t *testing.T) {
	bubble(t, func(t *testing.T) {
		l := ticks(time.Millisecond, 12)
		var readings atomic.Int64
		g := cached(t, generator.CachedConfig{Layout: l, Clock: generator.NewClock(func() time.Time {
			readings.Add(1)
			return time.Now()
		})})
		s, r := generator.NewScale(l), random(5)
		readings.Store(0)
		for range 1000 {
			time.Sleep(time.Millisecond + time.Duration(r.IntN(1e8)))
			if got, want := position(l, next(t, g)), s.At(time.Now()); got != want {
				t.Fatalf("an id lies %d positions from the clock", int64(got)-int64(want))
			}
		}
		if got := readings.Load(); got != 1000 || g.Open() {
			t.Errorf("for 1000 ids the clock was read %d times; a window is open: %v", got, g.Open())
		}
	})
}

// Lead is 0 if ids are of the past or the present, otherwise how far they are ahead. Callers that wait do not count.
func TestCachedLead_IsHowFarIDsAreAhead(t *testing.T) {
	bubble(t, func(t *testing.T) {
		l := ticks(time.Second, 10)
		g := cached(t, generator.CachedConfig{Layout: l, MaxBorrow: time.Minute})
		want := func(lead time.Duration) {
			t.Helper()
			if got := g.Lead(); got != lead {
				t.Errorf("Lead is %v, want %v", got, lead)
			}
		}
		want(0)
		fill(t, g, 10*1024)
		want(10 * time.Second)
		for _, left := range []time.Duration{7 * time.Second, 4 * time.Second, time.Second, 0, 0} {
			time.Sleep(3 * time.Second)
			want(left)
		}
		fill(t, g, 60*1024)
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		for range 10 {
			go g.Next(ctx)
		}
		synctest.Wait()
		want(time.Minute)
		<-ctx.Done()
	})
}

// A MaxBorrow below a tick never lets an id out, and is refused; any other lets out exactly the ids of its time.
func TestNewCached_ChecksMaxBorrow(t *testing.T) {
	bubble(t, func(t *testing.T) {
		l := ticks(10*time.Second, 4)
		for borrow, ids := range map[time.Duration]int{ // available at once
			0: 16 * 360, 10 * time.Second: 16, 15 * time.Second: 24, time.Hour: 16 * 360,
			10*time.Second - 1: 0, 1: 0, -1: 0, math.MinInt64: 0, // refused
		} {
			g, err := generator.NewCached(generator.CachedConfig{Layout: l, Lease: l.FullLease(9, time.Now()), MaxBorrow: borrow, NoWait: true})
			if ids == 0 {
				testkit.IsError(t, err, generator.ErrConfig, borrow.String())
				continue
			}
			testkit.Must(t, err)
			fill(t, g, ids)
			refused(t, g)
			g.Close()
		}
		fill(t, cached(t, generator.CachedConfig{Layout: l, MaxBorrow: math.MaxInt64, NoWait: true}), 20_000)
		// The default never is less than a tick.
		l.Tick, l.TimeBits = 5*time.Hour, 30
		fill(t, cached(t, generator.CachedConfig{Layout: l, NoWait: true}), 16)
	})
}

func ExampleNewCached() {
	layout := generator.DefaultLayout()
	clock := generator.NewClock(func() time.Time { return time.Date(2026, 6, 1, 12, 0, 0, 0, time.UTC) })
	ids, err := generator.NewCached(generator.CachedConfig{
		Layout: layout,
		Lease:  layout.FullLease(1234, time.Date(2026, 6, 1, 0, 0, 0, 0, time.UTC)),
		Clock:  clock, // leave it out, and the generator reads time.Now
	})
	if err != nil {
		panic(err)
	}
	defer ids.Close()

	ctx := context.Background()
	one, err := ids.Next(ctx)
	if err != nil {
		panic(err)
	}
	more := make([]int64, 1000)
	if err := ids.Fill(ctx, more); err != nil {
		panic(err)
	}
	parts, err := layout.Decompose(one)
	if err != nil {
		panic(err)
	}
	fmt.Println(parts.Time, parts.WorkerID, parts.Sequence)
	fmt.Println("ascending:", one < more[0] && more[0] < more[999])
	// Output:
	// 2026-06-01 12:00:00 +0000 UTC 1234 0
	// ascending: true
}

// The target is 384 bytes.
func TestCached_HoldsLittleMemory(t *testing.T) {
	if got := liveBytes(t, 10000); got > 384 {
		t.Errorf("an idle generator holds %.0f bytes (Cached %d, window %d, the rest is its channel and the clock's list); the target is 384",
			got, generator.CachedSize, generator.WindowSize)
	}
}
