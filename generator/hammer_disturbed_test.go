package generator_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"runtime"
	"sync"
	"testing"
	"time"

	"github.com/uidplugin/uidplugin/generator"
)

// The hammers of this file fall while something happens to the generator.

// millis is a layout with few ids in a tick, so that callers are at a small borrowing limit all the time. It covers
// 70 years before the present and 70 years after it.
func millis(sequenceBits uint8) generator.Layout {
	return generator.Layout{TimeBits: 42, WorkerBits: 4, SequenceBits: sequenceBits, Tick: time.Millisecond,
		Epoch: time.Now().Add(-70 * year)}
}

// parking closes the window again and again, as a clock does when the generator is unused.
func parking(h *hammer) {
	for g := h.g.(*generator.Cached); h.wait(20); {
		g.Park()
	}
}

// visiting moves the cursor and the tail of the window over and over.
func visiting(h *hammer) {
	for g := h.g.(*generator.Cached); h.wait(1); {
		g.Visit()
	}
}

// looking calls the methods that only read the state.
func looking(h *hammer) {
	for g := h.g.(*generator.Cached); h.wait(5); {
		_ = g.Lead()
		_ = g.Usage()
		made := g.Made()
		if again := g.Made(); again < made {
			h.fewer.Store(true)
		}
	}
}

// Callers are at the borrowing limit, where a window closes soon after it opens, or does not open because it would be
// too short.
func TestHammer_CallersAtTheLimit(t *testing.T) {
	onProcs(t, func(t *testing.T) {
		for _, tt := range []struct {
			bits   uint8
			borrow time.Duration
			noWait bool
			ids    int
			park   bool
		}{
			{12, time.Millisecond, false, 1_000_000, false},
			{12, 2 * time.Millisecond, false, 1_000_000, true},
			{12, 2 * time.Millisecond, true, 1_000_000, false},
			{6, time.Millisecond, false, 10_000, true},
			{6, 30 * time.Millisecond, true, 10_000, true},
		} {
			t.Run(fmt.Sprintf("%d bits, %v, noWait=%v, park=%v", tt.bits, tt.borrow, tt.noWait, tt.park), func(t *testing.T) {
				l := millis(tt.bits)
				g := cached(t, generator.CachedConfig{Layout: l, MaxBorrow: tt.borrow, NoWait: tt.noWait})
				h := hammer{
					g: g, layout: l, ids: max(paced(tt.ids), 20*hammerers), most: 5, ordered: true,
					meanwhile: []func(*hammer){visiting, looking},
				}
				if tt.park {
					h.meanwhile = append(h.meanwhile, parking)
				}
				if tt.noWait {
					h.retry = []error{generator.ErrBorrowLimit}
				}
				h.run(t)
			})
		}
	})
}

// Contexts end before a call, while it waits as the first or behind others, and just when it gets its id.
func TestHammer_ContextsEndAtAnyTime(t *testing.T) {
	onProcs(t, func(t *testing.T) {
		for _, e := range engines {
			t.Run(e.name, func(t *testing.T) {
				l := millis(5) // so few ids a millisecond that callers wait, however slow the machine
				g := e.must(t, l, l.FullLease(9, time.Now()), nil)
				if e.name == "Cached" {
					g = cached(t, generator.CachedConfig{Layout: l, MaxBorrow: time.Millisecond})
				}
				h := hammer{
					g: g, layout: l, ids: max(paced(15_000), 20*hammerers), most: 20, ordered: true,
					context: func(r *rand.Rand) (context.Context, context.CancelFunc) {
						return context.WithTimeout(context.Background(), time.Duration(r.IntN(500))*time.Microsecond)
					},
					retry: []error{context.DeadlineExceeded},
				}
				h.run(t)
				if h.errors.Load() == 0 {
					t.Error("no context has ended")
				}
			})
		}
	})
}

// Generators are closed while many calls are in progress. After Close has returned, no new call makes an id, and all
// waiting calls have ended.
func TestHammer_CloseEndsAllCalls(t *testing.T) {
	onProcs(t, func(t *testing.T) {
		for _, e := range engines {
			for round := range 12 {
				l := wideLayout()
				if round%2 == 0 {
					l = millis(8)
				}
				g := e.must(t, l, l.FullLease(9, time.Now()), nil)
				if e.name == "Cached" && round%4 == 0 {
					g = cached(t, generator.CachedConfig{Layout: l, MaxBorrow: time.Millisecond})
				}
				h := hammer{
					g: g, layout: l, ids: 300_000, most: 20, end: generator.ErrClosed,
					meanwhile: []func(*hammer){func(h *hammer) {
						h.wait(int64(300 * round))
						var closing sync.WaitGroup
						for range 3 {
							closing.Go(func() {
								g.Close()
								h.closed.Store(true)
							})
						}
						closing.Wait()
					}},
				}
				if e.name == "Cached" {
					h.meanwhile = append(h.meanwhile, visiting, parking)
				}
				h.run(t)
				fails(t, g, generator.ErrClosed)
			}
		}
	})
}

// stepping sets the clock n times while callers take ids, by up to decades, even to times before the epoch and after
// the end.
func stepping(c *wall, n int) func(h *hammer) {
	return func(h *hammer) {
		r := random(uint64(n))
		steps := []time.Duration{time.Second, time.Minute, time.Hour, 24 * time.Hour, year, 10 * year, 80 * year}
		if c.bare { // or it gains more than a Duration holds
			steps = steps[:5]
		}
		var right time.Duration // when the clock shows what Snowflake needs
		for i := range n {
			by := time.Duration(r.Int64N(int64(steps[r.IntN(len(steps))]))).Truncate(time.Second)
			switch i % 4 {
			case 0:
				c.ahead.Store(int64((right - by) / time.Second))
			case 1:
				c.ahead.Store(int64((right + 80*year) / time.Second)) // beyond the end
				if c.bare {
					c.ahead.Store(int64((right + time.Minute) / time.Second))
					right += time.Minute
				}
			case 2:
				right += min(by, time.Hour)
				c.ahead.Store(int64(right / time.Second))
			case 3:
				c.ahead.Store(int64((right - by) / time.Second))
				h.wait(int64(r.IntN(300)))
				right += time.Second
				c.ahead.Store(int64(right / time.Second))
			}
			if !h.wait(int64(r.IntN(1000))) {
				return
			}
		}
		h.stop.Store(true)
	}
}

// However the clock is set, no id comes twice, and ids ascend.
func TestHammer_ClockStepsRepeatNoID(t *testing.T) {
	onProcs(t, func(t *testing.T) {
		for _, w := range walls {
			for _, e := range engines {
				for _, bits := range []uint8{8, 16} {
					t.Run(fmt.Sprintf("%s/%s/%d bits", w.name, e.name, bits), func(t *testing.T) {
						l, c := millis(bits), &wall{bare: w.bare}
						g := e.must(t, l, l.FullLease(9, time.Now()), c.now)
						h := hammer{
							g: g, layout: l, ids: 1_000_000, most: 10, ordered: true,
							retry:     []error{generator.ErrClockBackwards, generator.ErrTimeExhausted},
							meanwhile: []func(*hammer){stepping(c, 20)},
						}
						if e.name == "Cached" {
							h.g = cached(t, generator.CachedConfig{Layout: l, MaxBorrow: 10 * time.Millisecond, Clock: generator.NewClock(c.now)})
							h.meanwhile = append(h.meanwhile, parking, visiting)
							h.retry = nil
						}
						if got := h.run(t); got == 0 {
							t.Error("no ids were made")
						}
					})
				}
			}
		}
	})
}

// TestHammer_OneClockServesManyGenerators shares one clock among generators that are used, left alone and
// closed, so that it starts and stops while it is called.
func TestHammer_OneClockServesManyGenerators(t *testing.T) {
	onProcs(t, func(t *testing.T) {
		l := wideLayout()
		clock := generator.NewClock(nil)
		var all sync.WaitGroup
		for i := range hammerers {
			all.Go(func() {
				r := random(uint64(i))
				for range scaled(500) {
					g, err := generator.NewCached(generator.CachedConfig{Layout: l, Lease: l.FullLease(9, time.Now()), Clock: clock})
					if err != nil {
						t.Error(err)
						return
					}
					last := int64(-1)
					for range r.IntN(20) {
						id, err := g.Next(context.Background())
						if err != nil || id <= last {
							t.Errorf("after %d comes %d, %v", last, id, err)
						}
						last = id
						switch r.IntN(5) {
						case 0:
							g.Park()
						case 1:
							runtime.Gosched()
						}
					}
					if r.IntN(2) == 0 {
						g.Close()
					} // the others are left alone, and go with the half second
				}
			})
		}
		all.Wait()
	})
}
