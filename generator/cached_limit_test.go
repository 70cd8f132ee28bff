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

// Callers take ids without a pause, for hours of a bubble. None is stamped later than the clock plus MaxBorrow, and
// none is refused or waits before that limit.
func TestCachedLimit_NoIDLiesBeyondIt(t *testing.T) {
	tests := []struct {
		layout generator.Layout
		borrow time.Duration
	}{
		{ticks(time.Second, 6), time.Second},
		{ticks(time.Second, 6), 90500 * time.Millisecond},
		{ticks(time.Millisecond, 4), time.Millisecond},
		{ticks(time.Millisecond, 4), 25 * time.Millisecond},
		{ticks(time.Hour, 1), time.Hour},
	}
	for _, tt := range tests {
		t.Run(tt.layout.String()+" "+tt.borrow.String(), func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				l, s := tt.layout, generator.NewScale(tt.layout)
				r := random(4)
				// At an instant between two positions, everything that is rounded differs.
				time.Sleep(123456789)
				g := cached(t, generator.CachedConfig{Layout: l, MaxBorrow: tt.borrow, NoWait: true})
				after, most := int64(-1), int(s.Count(tt.borrow))
				full := 0
				for range 3000 {
					ids, err := some(t.Context(), g, r, most)
					limit := s.At(time.Now()) + s.Count(tt.borrow)
					switch {
					case errors.Is(err, generator.ErrBorrowLimit):
						full++
						// If the limit has moved since the last visit, its ids are available, too.
						if left := limit - position(l, after) - 1; left >= uint64(len(ids)) {
							t.Fatalf("%d ids refused with %d left", len(ids), left)
						}
					case err != nil:
						t.Fatal(err)
					default:
						after = ascending(t, l, after, ids...)
						if position(l, after) >= limit {
							t.Fatalf("id %d positions beyond the limit", position(l, after)-limit+1)
						}
					}
					if r.IntN(10) == 0 {
						time.Sleep(time.Duration(r.Int64N(int64(tt.borrow))))
					}
				}
				if full < 100 {
					t.Errorf("only %d calls met the limit", full)
				}
			})
		})
	}
}

// A visit that is delayed between reading the clock and using the reading must not count the same span twice.
// Otherwise each such visit would move the limit ahead by that span permanently.
func TestCached_CountsTimeOnceIfAVisitIsLate(t *testing.T) {
	bubble(t, func(t *testing.T) {
		var hold atomic.Bool
		clock := func() time.Time {
			now := (&wall{}).now()
			if hold.CompareAndSwap(true, false) {
				time.Sleep(20 * time.Second) // the visiting thread loses its CPU
			}
			return now
		}
		l := ticks(time.Second, 6)
		s := generator.NewScale(l)
		g := cached(t, generator.CachedConfig{Layout: l, MaxBorrow: time.Minute, NoWait: true, Clock: generator.NewClock(clock)})
		for range 10 {
			next(t, g) // has the clock visit g
			hold.Store(true)
			time.Sleep(10 * time.Second) // and the first visit is held up
			g.Park()
			next(t, g) // reads a time 10 s later than that of the visit
			time.Sleep(15 * time.Second)
			synctest.Wait()
		}
		limit := s.At(time.Now()) + s.Count(time.Minute)
		var last uint64
		for {
			id, err := g.Next(t.Context())
			if err != nil {
				testkit.IsError(t, err, generator.ErrBorrowLimit)
				break
			}
			last = position(l, id)
		}
		if last >= limit {
			t.Errorf("MaxBorrow is a minute; an id was stamped %v ahead of the clock", time.Minute+s.Duration(last+1-limit))
		}
	})
}

// A clock whose readings have no monotonic part and that is set back and forth by
// 150 years gains more than a Duration holds. The limit must not shrink for that,
// or the generator refuses for centuries.
func TestCached_ItsLimitNeverShrinks(t *testing.T) {
	bubble(t, func(t *testing.T) {
		c := wall{bare: true}
		l := ticks(time.Second, 6)
		l.Epoch = date(1800, 1, 1)
		g := cached(t, generator.CachedConfig{Layout: l, MaxBorrow: time.Minute, NoWait: true, Clock: generator.NewClock(c.now)})
		next(t, g)
		for range 2 {
			c.step(-150 * year)
			g.Park()
			next(t, g)
			c.step(150 * year)
			g.Park()
			// The second round must allow as many ids as the first.
			if err := g.Fill(t.Context(), make([]int64, 64*120)); err != nil {
				t.Fatalf("with the clock set right: %v; ids are %v ahead", err, g.Lead())
			}
		}
	})
}
