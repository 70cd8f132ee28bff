package generator_test

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/uidplugin/uidplugin/generator"
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
				// At an instant between two positions all that is rounded differs.
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

// One caller that stays ahead of the clock gets all positions, one after the other. Refused and cancelled calls,
// closed windows and visits skip no id.
func TestCachedLimit_LeavesNoGap(t *testing.T) {
	t.Run("refuse", func(t *testing.T) { bubble(t, func(t *testing.T) { gapless(t, true) }) })
	t.Run("wait", func(t *testing.T) { bubble(t, func(t *testing.T) { gapless(t, false) }) })
}

func gapless(t *testing.T, noWait bool) {
	l := ticks(time.Second, 10)
	g := cached(t, generator.CachedConfig{Layout: l, MaxBorrow: time.Minute, NoWait: noWait})
	cancelled, cancel := context.WithCancel(t.Context())
	cancel()
	want := position(l, fill(t, g, 40*1024)[0]) + 40*1024
	refusals := 0
	got := func(ids []int64, err error, expected error) {
		t.Helper()
		if err != nil {
			if !errors.Is(err, expected) {
				t.Fatal(err)
			}
			refusals++
			return
		}
		for _, id := range ids {
			if position(l, id) != want {
				t.Fatalf("got position %d, want %d", position(l, id), want)
			}
			want++
		}
	}
	refuse := error(nil)
	if noWait {
		refuse = generator.ErrBorrowLimit
	}
	for r := random(5); r.IntN(20000) > 0; {
		switch r.IntN(8) {
		case 0:
			g.Park()
		case 1:
			g.Visit()
		case 2:
			time.Sleep(time.Duration(r.Int64N(int64(3 * time.Millisecond))))
		case 3: // meets the window, or sees that its context has ended
			id, err := g.Next(cancelled)
			got([]int64{id}, err, context.Canceled)
		case 4:
			if noWait { // more than there can ever be
				if err := g.Fill(t.Context(), make([]int64, 61*1024)); !errors.Is(err, refuse) {
					t.Fatal(err)
				}
			}
		default:
			ids, err := some(t.Context(), g, r, 30)
			got(ids, err, refuse)
		}
	}
	if refusals < 100 {
		t.Errorf("only %d calls were refused or cancelled", refusals)
	}
}

// TestCachedLimit_RestAllowsToBorrowAgain: a generator that was at the limit and then rests can borrow again: the more,
// the longer it has rested, up to the full limit.
func TestCachedLimit_RestAllowsToBorrowAgain(t *testing.T) {
	bubble(t, func(t *testing.T) {
		l := ticks(time.Second, 10)
		g := cached(t, generator.CachedConfig{Layout: l, MaxBorrow: 4 * time.Second, NoWait: true})
		after := ascending(t, l, -1, fill(t, g, 4*1024)...)
		for _, rest := range []int{1, 2, 3, 4, 5, 100, 100000} {
			refused(t, g)
			time.Sleep(time.Duration(rest) * time.Second)
			after = ascending(t, l, after, fill(t, g, min(rest, 4)*1024)...)
			// A generator that has rested for longer than it borrowed is at the present.
			if rest > 4 {
				if lead := g.Lead(); lead != 4*time.Second {
					t.Errorf("after a rest of %d s and a full burst Lead is %v", rest, lead)
				}
			}
		}
		refused(t, g)
	})
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
				if !errors.Is(err, generator.ErrBorrowLimit) {
					t.Fatal(err)
				}
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
			// There was nothing to refuse the first time, so there is not the second.
			if err := g.Fill(t.Context(), make([]int64, 64*120)); err != nil {
				t.Fatalf("with the clock set right: %v; ids are %v ahead", err, g.Lead())
			}
		}
	})
}
