package generator_test

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/uidplugin/uidplugin/generator"
	"github.com/uidplugin/uidplugin/internal/testkit"
)

// At the limit, callers get their ids in the order in which they came, each when its id is due. Some give up, among
// them the first, and cost no id.
func TestCachedLimit_ServesCallersInOrder(t *testing.T) {
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
				ctx, cancel := context.WithCancel(t.Context())
				defer cancel()
				if i%5 == 0 {
					time.AfterFunc(time.Duration(i)*time.Millisecond+5, cancel)
				}
				var err error
				if i%2 == 0 {
					ids[i], err = g.Next(ctx)
				} else {
					err = g.Fill(ctx, ids[i:i+1])
				}
				if err != nil && (i%5 != 0 || !errors.Is(err, context.Canceled)) {
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
		n := uint64(0)
		for i, id := range ids {
			if id == 0 {
				continue
			}
			n++
			if got := position(l, id); got != last+n {
				t.Errorf("caller %d got id %d of the queue, want %d", i, got-last, n)
			}
			if late := when[i].Sub(start.Add(s.Duration(n))); late < 0 || late > time.Microsecond {
				t.Errorf("caller %d got its id %v after it was due", i, late)
			}
		}
		if n < callers*4/5 || n == callers {
			t.Errorf("%d of %d callers were served", n, callers)
		}
	})
}

// The limit moves on while a caller waits for it. One that comes then does not overtake.
func TestCachedLimit_NewcomersDoNotOvertake(t *testing.T) {
	bubble(t, func(t *testing.T) {
		l, c := stepLayout(6), &wall{}
		g := cached(t, generator.CachedConfig{Layout: l, MaxBorrow: time.Second, Clock: generator.NewClock(c.now)})
		fill(t, g, 64)
		first := make(chan int64, 1)
		go func() { first <- next(t, g) }()
		synctest.Wait()
		c.step(time.Hour) // the waiting caller checks again later
		if newcomer, waited := next(t, g), <-first; newcomer <= waited {
			t.Errorf("a newcomer got %d, and the caller that waited %d", newcomer, waited)
		}
	})
}

// For ten seconds 64 callers take as many ids as they get. Together they get exactly the nominal rate, multiplied by
// the lanes, and each gets an equal share.
func TestCachedLimit_KeepsTheRateAndIsFair(t *testing.T) {
	for _, lanes := range []int{1, 8} {
		t.Run(fmt.Sprint(lanes), func(t *testing.T) { bubble(t, func(t *testing.T) { keepsTheRate(t, lanes) }) })
	}
}

func keepsTheRate(t *testing.T, lanes int) {
	const callers, seconds = 64, 10
	l := manyWorkers(10)
	perSecond := lanes << l.SequenceBits
	now := lease(l, 1000)
	g := cached(t, generator.CachedConfig{Layout: l, Lease: now, MaxBorrow: time.Second})
	renew(t, g, leases(now.From, now.Until, spread(lanes, 9, 1)...)...)
	before := fill(t, g, perSecond)
	ctx, cancel := context.WithTimeout(t.Context(), seconds*time.Second)
	defer cancel()
	got := make([][]int64, callers)
	var all sync.WaitGroup
	for i := range callers {
		all.Go(func() {
			for {
				id, err := g.Next(ctx)
				if err != nil {
					testkit.IsError(t, err, context.DeadlineExceeded)
					return
				}
				got[i] = append(got[i], id)
			}
		})
	}
	all.Wait()
	taken := slices.Concat(got...)
	slices.Sort(taken)
	for i, id := range taken { // before has all ids of a tick, so these are those of the next ticks
		if due := before[i%perSecond] + int64(i/perSecond+1)<<(l.WorkerBits+l.SequenceBits); id != due {
			t.Fatalf("id %d at the limit is %d, want %d: one was lost", i, id, due)
		}
	}
	if n := len(taken); n < seconds*perSecond-1 || n > seconds*perSecond {
		t.Errorf("%d ids in %d s, want %d", n, seconds, seconds*perSecond)
	}
	byCount := func(a, b []int64) int { return cmp.Compare(len(a), len(b)) }
	least, most := len(slices.MinFunc(got, byCount)), len(slices.MaxFunc(got, byCount))
	if fair := seconds * perSecond / callers; least < fair-5 || most > fair+5 {
		t.Errorf("callers got from %d to %d ids each, want %d", least, most, fair)
	}
}

// Next to a Fill that waits for many ids, callers of Next get as many.
func TestCachedLimit_LongFillTakesTurns(t *testing.T) {
	bubble(t, func(t *testing.T) {
		l := ticks(time.Second, 10)
		g := cached(t, generator.CachedConfig{Layout: l, MaxBorrow: time.Second})
		after := fill(t, g, 1024)[1023]
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
