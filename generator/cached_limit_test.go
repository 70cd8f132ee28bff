package generator_test

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/uidplugin/uidplugin/generator"
)

// TestCachedLimit_NeverBeyondLimit takes ids without pity, for hours of a bubble: none is ever
// stamped later than the clock and MaxBorrow allow, and none is refused or waits
// before that.
func TestCachedLimit_NeverBeyondLimit(t *testing.T) {
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
						// The ids of a limit that moved since the last visit are there too.
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

// TestCachedLimit_Gapless: one caller who stays ahead of the clock gets all positions, one
// after the other. What is refused, cancelled, parked or visited in between costs
// no id.
func TestCachedLimit_Gapless(t *testing.T) {
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

// TestCachedLimit_RefusedPushNothing: a thousand refused calls are no reason why the next id,
// when it is due, should be another.
func TestCachedLimit_RefusedPushNothing(t *testing.T) {
	bubble(t, func(t *testing.T) {
		l := ticks(time.Second, 10)
		g := cached(t, generator.CachedConfig{Layout: l, MaxBorrow: 2 * time.Second, NoWait: true})
		one := generator.NewScale(l).Duration(1)
		last := position(l, fill(t, g, 2048)[2047])
		for range 50 {
			for range 500 {
				refused(t, g)
			}
			time.Sleep(one)
			// One id is there, so a Fill of two is refused, and leaves it.
			if err := g.Fill(t.Context(), make([]int64, 2)); !errors.Is(err, generator.ErrBorrowLimit) {
				t.Fatalf("Fill = %v", err)
			}
			if got := position(l, next(t, g)); got != last+1 {
				t.Fatalf("after refused calls comes position %d, want %d", got, last+1)
			}
			last++
		}
	})
}

// TestCachedLimit_FirstComeFirstServed: at the limit callers get their ids in the order in
// which they came, each when it is due.
func TestCachedLimit_FirstComeFirstServed(t *testing.T) {
	bubble(t, func(t *testing.T) {
		const callers = 200
		l := ticks(time.Second, 6)
		g := cached(t, generator.CachedConfig{Layout: l, MaxBorrow: time.Second})
		s := generator.NewScale(l)
		last := position(l, fill(t, g, 64)[63])
		start := time.Now()
		ids, when := make([]int64, callers), make([]time.Time, callers)
		var waiting sync.WaitGroup
		for i := range callers {
			waiting.Go(func() {
				var err error
				if i%2 == 0 {
					ids[i], err = g.Next(context.Background())
				} else {
					err = g.Fill(context.Background(), ids[i:i+1])
				}
				if err != nil {
					t.Error(err)
				}
				when[i] = time.Now()
			})
			synctest.Wait() // it waits now, behind those before it
		}
		if !time.Now().Equal(start) {
			t.Fatalf("%v passed before all were waiting", time.Since(start))
		}
		waiting.Wait()
		for i, id := range ids {
			if got := position(l, id); got != last+uint64(i)+1 {
				t.Errorf("caller %d got id %d of the queue", i, got-last-1)
			}
			due := start.Add(s.Duration(uint64(i + 1)))
			if late := when[i].Sub(due); late < 0 || late > time.Microsecond {
				t.Errorf("caller %d got its id %v after it was due", i, late)
			}
		}
	})
}

// TestCachedLimit_RateAtLimit: for ten seconds 64 callers take what they get. Together they
// get the nominal rate to one id, and each gets its share.
func TestCachedLimit_RateAtLimit(t *testing.T) {
	bubble(t, func(t *testing.T) {
		const callers, seconds = 64, 10
		l := ticks(time.Second, 13)
		g := cached(t, generator.CachedConfig{Layout: l, MaxBorrow: time.Second})
		last := position(l, fill(t, g, 8192)[8191])
		ctx, cancel := context.WithTimeout(t.Context(), seconds*time.Second)
		defer cancel()
		var got [callers][]uint64
		var all sync.WaitGroup
		for i := range callers {
			all.Go(func() {
				for {
					id, err := g.Next(ctx)
					if err != nil {
						if !errors.Is(err, context.DeadlineExceeded) {
							t.Error(err)
						}
						return
					}
					got[i] = append(got[i], position(l, id))
				}
			})
		}
		all.Wait()
		taken := slices.Concat(got[:]...)
		slices.Sort(taken)
		for i, p := range taken {
			if p != last+uint64(i)+1 {
				t.Fatalf("id %d at the limit lies at %d, want %d: one was lost", i, p-last, i+1)
			}
		}
		if n := len(taken); n < seconds*8192-1 || n > seconds*8192 {
			t.Errorf("%d ids in %d s, want %d", n, seconds, seconds*8192)
		}
		byCount := func(a, b []uint64) int { return cmp.Compare(len(a), len(b)) }
		least, most := len(slices.MinFunc(got[:], byCount)), len(slices.MaxFunc(got[:], byCount))
		if fair := seconds * 8192 / callers; least < fair-5 || most > fair+5 {
			t.Errorf("callers got from %d to %d ids each, want %d", least, most, fair)
		}
	})
}

// TestCachedLimit_FillAtLimit: a long Fill waits for all its ids, and takes turns with those
// who want one.
func TestCachedLimit_FillAtLimit(t *testing.T) {
	bubble(t, func(t *testing.T) {
		l := ticks(time.Second, 10)
		g := cached(t, generator.CachedConfig{Layout: l, MaxBorrow: time.Second})
		after := fill(t, g, 1024)[1023]
		start := time.Now()
		after = ascending(t, l, after, fill(t, g, 10*1024)...)
		if late := time.Since(start) - 10*time.Second; late < 0 || late > time.Second/1024 {
			t.Errorf("at 1024 ids a second a Fill of 10240 took %v", time.Since(start))
		}

		ctx, cancel := context.WithCancel(t.Context())
		var singles [9]int
		var all sync.WaitGroup
		for i := range singles {
			all.Go(func() {
				for {
					if _, err := g.Next(ctx); err != nil {
						return
					}
					singles[i]++
				}
			})
		}
		ascending(t, l, after, fill(t, g, 500)...)
		cancel()
		all.Wait()
		for i, n := range singles {
			if n < 495 || n > 505 {
				t.Errorf("next to a Fill of 500, caller %d got %d ids", i, n)
			}
		}
	})
}

// TestCachedLimit_CancelledCostsNothing: of many callers that wait, some give up, the first in
// the queue among them: the others get the ids that the generator had left, all.
func TestCachedLimit_CancelledCostsNothing(t *testing.T) {
	bubble(t, func(t *testing.T) {
		const callers = 300
		l := ticks(time.Second, 6)
		g := cached(t, generator.CachedConfig{Layout: l, MaxBorrow: time.Second})
		last := position(l, fill(t, g, 64)[63])
		var got [callers]uint64
		var all sync.WaitGroup
		for i := range callers {
			all.Go(func() {
				ctx, cancel := context.WithCancel(t.Context())
				defer cancel()
				if i%3 == 0 { // the first one before any id is due, others while they are
					time.AfterFunc(time.Duration(i)*time.Millisecond+5, cancel)
				}
				id, err := g.Next(ctx)
				if err == nil {
					got[i] = position(l, id)
				} else if i%3 != 0 || !errors.Is(err, context.Canceled) {
					t.Error(err)
				}
			})
			synctest.Wait()
		}
		all.Wait()
		want := last + 1
		served := 0
		for _, p := range got {
			if p == 0 {
				continue
			}
			if p != want {
				t.Fatalf("position %d was handed out, want %d", p-last, want-last)
			}
			want++
			served++
		}
		if served < 200 || served > 299 {
			t.Errorf("%d of %d callers were served", served, callers)
		}
		if got := position(l, next(t, g)); got != want {
			t.Errorf("then comes position %d, want %d", got-last, want-last)
		}
	})
}

// TestCachedLimit_AfterTheLimit: a generator that was at the limit and then rests can borrow again: the more,
// the longer it has rested, up to the full limit.
func TestCachedLimit_AfterTheLimit(t *testing.T) {
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

// A visit that is held up between reading the clock and using what it read must
// not make the same span count twice, or the limit runs ahead, by that span for
// each such visit, and never back.
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

// A Fill that asks for more than the lease has left can never be served. A
// generator that does not wait answered ErrBorrowLimit, forever, which tells the
// caller to come back later.
func TestCachedFill_AcrossTheEndWithoutWaiting(t *testing.T) {
	bubble(t, func(t *testing.T) {
		l := ticks(time.Second, 4)
		g := cached(t, generator.CachedConfig{Layout: l, Lease: lease(l, 2), NoWait: true})
		fill(t, g, 22)
		for range 3 {
			if err := g.Fill(t.Context(), make([]int64, 11)); !errors.Is(err, generator.ErrLeaseExpired) {
				t.Errorf("11 ids of the 10 that the lease has left: %v", err)
			}
			time.Sleep(time.Hour)
		}
	})
}
