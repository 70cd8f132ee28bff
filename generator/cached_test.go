package generator_test

import (
	"context"
	"errors"
	"fmt"
	"math"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/uidplugin/uidplugin/generator"
)

// The position of the first id within its tick depends on the time. Otherwise the ids of tables with few rows would
// all be divisible by the same power of two.
func TestCached_FirstIDLiesWhereTheInstantDoes(t *testing.T) {
	bubble(t, func(t *testing.T) {
		for _, tt := range []struct {
			tick  time.Duration
			bits  uint8
			pause time.Duration
			want  int64 // sequence
		}{
			{time.Second, 13, 0, 0},
			{time.Second, 13, time.Second / 2, 4096},
			{time.Second, 13, time.Second / 4, 6144},
			{time.Second, 13, time.Second/4 - 1, 8191},
			{time.Second, 1, time.Second / 2, 0}, // 500 ms less 1 ns
			{time.Second, 1, 1, 1},
			{time.Hour, 12, 30*time.Minute - 1500*time.Millisecond, 2048},
		} {
			time.Sleep(tt.pause)
			l := ticks(tt.tick, tt.bits)
			p := decompose(t, l, next(t, cached(t, generator.CachedConfig{Layout: l})))
			if p.Sequence != tt.want || !p.Time.Equal(time.Now().Truncate(tt.tick)) {
				t.Errorf("first id at %v is of %v with sequence %d, want %d", time.Now(), p.Time, p.Sequence, tt.want)
			}
		}
	})
}

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

// TestCachedLead_IsHowFarIDsAreAhead is 0 for ids of the past and present, else what they are ahead.
func TestCachedLead_IsHowFarIDsAreAhead(t *testing.T) {
	bubble(t, func(t *testing.T) {
		l := ticks(time.Second, 10)
		g := cached(t, generator.CachedConfig{Layout: l, MaxBorrow: time.Minute})
		if got := g.Lead(); got != 0 {
			t.Errorf("before any use Lead is %v", got)
		}
		fill(t, g, 10*1024)
		if got := g.Lead(); got != 10*time.Second {
			t.Errorf("after 10 s of ids Lead is %v", got)
		}
		for _, left := range []time.Duration{7 * time.Second, 4 * time.Second, time.Second, 0, 0} {
			time.Sleep(3 * time.Second)
			if got := g.Lead(); got != left {
				t.Errorf("Lead is %v, want %v", got, left)
			}
		}
		next(t, g)
		fill(t, g, 60*1024-1)
		if got := g.Lead(); got != time.Minute {
			t.Errorf("at the limit Lead is %v", got)
		}
		// Callers that wait do not count as ahead.
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		for range 10 {
			go g.Next(ctx)
		}
		synctest.Wait()
		if got := g.Lead(); got != time.Minute {
			t.Errorf("with callers waiting Lead is %v", got)
		}
		<-ctx.Done()
	})
}

// A lease whose last tick has passed still hands out its ids, from the first to the last, because they are as unique
// as any.
func TestCached_HandsOutALeaseThatHasPassed(t *testing.T) {
	bubble(t, func(t *testing.T) {
		l := ticks(time.Second, 4)
		for _, tt := range []struct {
			name        string
			from, until int64 // ticks from now
			before      int   // ids taken before the pause
			pause       time.Duration
			left        int // ids after the pause
		}{
			{"before the start", -20, -11, 0, 0, 160},
			{"while in use", 0, 4, 10, time.Minute, 70},
			{"in use until the end", 0, 4, 10, 100 * time.Millisecond, 70},
			{"in the middle of the last tick", 0, 4, 10, 4500 * time.Millisecond, 8},
			{"just over", 0, 4, 10, 5 * time.Second, 70},
		} {
			time.Sleep(time.Until(time.Now().Truncate(time.Second).Add(time.Second)))
			now := l.TickAt(time.Now())
			g := cached(t, generator.CachedConfig{Layout: l, Lease: generator.Lease{
				WorkerID: 9, From: now + tt.from, Until: now + tt.until}})
			first := l.TimeOf(now + tt.from)
			after := int64(-1)
			for range tt.before {
				after = ascending(t, l, after, next(t, g))
			}
			time.Sleep(tt.pause)
			for range tt.left {
				after = ascending(t, l, after, next(t, g))
				if p := decompose(t, l, after); p.Time.Before(first) || p.Time.After(l.TimeOf(now+tt.until)) {
					t.Fatalf("%s: id of %v outside the lease", tt.name, p.Time)
				}
			}
			if want := l.TimeOf(now + tt.until); !decompose(t, l, after).Time.Equal(want) || after&l.MaxSequence() != 15 {
				t.Errorf("%s: last id is %v, want the last of %v", tt.name, decompose(t, l, after), want)
			}
			for range 3 {
				if id, err := g.Next(t.Context()); !errors.Is(err, generator.ErrLeaseExpired) {
					t.Errorf("%s: after the last id comes %d, %v", tt.name, id, err)
				}
				time.Sleep(time.Minute)
			}
		}
	})
}

// A MaxBorrow below a tick never lets an id out, and is refused; any other lets out exactly the ids of its time.
func TestNewCached_ChecksMaxBorrow(t *testing.T) {
	bubble(t, func(t *testing.T) {
		l := ticks(10*time.Second, 4)
		for _, tt := range []struct {
			borrow time.Duration
			ids    int // available at once; 0 for ErrConfig
		}{
			{0, 16 * 360}, // an hour
			{10 * time.Second, 16},
			{10*time.Second - 1, 0},
			{1, 0},
			{-1, 0},
			{math.MinInt64, 0},
			{15 * time.Second, 24},
			{time.Hour, 16 * 360},
			{math.MaxInt64, 20000},
		} {
			c := generator.CachedConfig{Layout: l, Lease: l.FullLease(9, time.Now()), MaxBorrow: tt.borrow, NoWait: true}
			g, err := generator.NewCached(c)
			if tt.ids == 0 {
				if !errors.Is(err, generator.ErrConfig) {
					t.Errorf("MaxBorrow %v: got %v, want ErrConfig", tt.borrow, err)
				}
				continue
			}
			if err != nil {
				t.Errorf("MaxBorrow %v: %v", tt.borrow, err)
				continue
			}
			fill(t, g, tt.ids)
			if tt.borrow != math.MaxInt64 {
				refused(t, g)
			}
			g.Close()
		}
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
