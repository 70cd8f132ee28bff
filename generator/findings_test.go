package generator_test

import (
	"errors"
	"math"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/uidplugin/uidplugin/generator"
)

// Each test of this file failed when it was written: it shows something that was
// not as documented.

// A visit that is held up between reading the clock and using what it read must
// not make the same span count twice, or the limit runs ahead, by that span for
// each such visit, and never back.
func TestFindingStaleVisitCountsTwice(t *testing.T) {
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
func TestFindingLimitShrinks(t *testing.T) {
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

// Between two seconds before 1970 "the epoch in Unix seconds" was off by one: half
// a second before 1970 is -0.5, not -1.5.
func TestFindingStringOfSubSecondEpochBefore1970(t *testing.T) {
	t.Parallel()

	for ms, want := range map[int64]string{-500: "-0.5", -1500: "-1.5", -1: "-0.001", -1999: "-1.999"} {
		l := with(func(l *generator.Layout) { l.Epoch = time.UnixMilli(ms) })
		if got := l.String(); got != "1-28-22-13/1s@"+want {
			t.Errorf("an epoch %d ms before 1970 is %q, want %s", -ms, got, want)
		}
	}
}

// TickAt "returns -1 for every instant before the epoch, and math.MaxInt64 for one
// that is beyond all layouts". At the ends of what a Time holds the difference of
// seconds overflows, and the two were the wrong way round.
func TestFindingTickAtEndsOfTime(t *testing.T) {
	t.Parallel()

	l := generator.DefaultLayout()
	if past := time.Unix(math.MinInt64, 0); !past.Before(l.Epoch) || l.TickAt(past) != -1 {
		t.Errorf("TickAt in the year %d is %d, want -1", past.Year(), l.TickAt(past))
	}
	l.Epoch = time.Unix(-1<<53, 0)
	if future := time.Unix(math.MaxInt64-62135596800, 0); !future.After(l.Epoch) || l.TickAt(future) != math.MaxInt64 {
		t.Errorf("TickAt in the year %d is %d, want MaxInt64", future.Year(), l.TickAt(future))
	}
}

// A Fill that asks for more than the lease has left can never be served. A
// generator that does not wait answered ErrBorrowLimit, forever, which tells the
// caller to come back later.
func TestFindingNoWaitFillAcrossTheEnd(t *testing.T) {
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

// The target is 384 bytes.
func TestFindingMemory(t *testing.T) {
	if got := liveBytes(t, 10000); got > 384 {
		t.Errorf("an idle generator holds %.0f bytes (Cached %d, window %d, the rest is its channel and the clock's list); the target is 384",
			got, generator.CachedSize, generator.WindowSize)
	}
}
