package generator_test

import (
	"context"
	"errors"
	"math"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/uidplugin/uidplugin/generator"
)

// Ids are taken in calls of all sizes, at once and after pauses, over many ticks. They ascend, have the worker id,
// and are in the lease.
func TestGenerators_IDsAscendWithinTheLease(t *testing.T) {
	t.Parallel()

	for _, l := range []generator.Layout{ticks(time.Second, 6), ticks(time.Millisecond, 1), ticks(7*time.Second, 13)} {
		t.Run(l.String(), func(t *testing.T) {
			bubbles(t, func(t *testing.T, e engine) {
				g := e.must(t, l, lease(l, 1e9), nil)
				after := int64(-1)
				for r := random(1); r.IntN(3000) > 0; {
					ids, err := some(t.Context(), g, r, 200)
					if err != nil {
						t.Fatal(err)
					}
					after = ascending(t, l, after, ids...)
					if r.IntN(5) == 0 {
						time.Sleep(time.Duration(r.Int64N(int64(2 * time.Second))))
					}
				}
				if p := decompose(t, l, after); p.Time.Before(date(2000, 1, 1)) {
					t.Errorf("last id is of %v", p.Time)
				}
			})
		})
	}
}

// A lease is used up to its last id. Exactly its ids are made, each once, and then the error says whether the lease
// or the layout has ended.
func TestGenerators_MakeEachIDOfTheLeaseOnce(t *testing.T) {
	t.Parallel()

	l := ticks(time.Second, 3)
	l.TimeBits = 26 // until February 2001
	tests := []struct {
		name string
		last int64         // tick of the lease, which begins with the present tick, 0
		now  time.Duration // since the bubble began
		call int           // ids in one call
		want error
	}{
		{"one tick, Next", 0, 0, 1, generator.ErrLeaseExpired},
		{"one tick, Fill", 0, 0, 4, generator.ErrLeaseExpired},
		{"five ticks, Next", 4, 0, 1, generator.ErrLeaseExpired},
		{"five ticks, Fill", 4, 0, 4, generator.ErrLeaseExpired},
		{"five ticks, Fill over ticks", 4, 0, 20, generator.ErrLeaseExpired},
		{"last tick of the layout, Next", 0, l.Expires().Sub(date(2000, 1, 1)) - time.Second, 1, generator.ErrTimeExhausted},
		{"last ticks of the layout, Next", 2, l.Expires().Sub(date(2000, 1, 1)) - 3*time.Second, 1, generator.ErrTimeExhausted},
		{"last ticks of the layout, Fill", 2, l.Expires().Sub(date(2000, 1, 1)) - 3*time.Second, 12, generator.ErrTimeExhausted},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			bubbles(t, func(t *testing.T, e engine) {
				time.Sleep(tt.now)
				var clock wall
				lease := lease(l, tt.last+1)
				g := e.must(t, l, lease, clock.now)

				var got, want []int64
				ids := make([]int64, tt.call)
				var err error
				for err == nil {
					if tt.call == 1 {
						ids[0], err = g.Next(t.Context())
					} else {
						err = g.Fill(t.Context(), ids)
					}
					if err == nil {
						got = append(got, ids...)
					}
				}
				if !errors.Is(err, tt.want) {
					t.Fatalf("got %v, want %v", err, tt.want)
				}
				// Its ids may be used up before its last tick has passed.
				if tt.want == generator.ErrTimeExhausted && !strings.Contains(err.Error(), "no id is left") {
					t.Errorf("the error does not say that ids are used up: %v", err)
				}
				for tick := lease.From; tick <= lease.Until; tick++ {
					for s := range l.MaxSequence() + 1 {
						id, err := l.Compose(generator.Parts{Time: l.TimeOf(tick), WorkerID: 9, Sequence: s})
						if err != nil {
							t.Fatal(err)
						}
						want = append(want, id)
					}
				}
				if !slices.Equal(got, want) {
					t.Fatalf("got ids %v, want %v", got, want)
				}

				// The error stays, for all requests and however the clock is set.
				for range 3 {
					if id, err := g.Next(t.Context()); id != 0 || !errors.Is(err, tt.want) {
						t.Fatalf("Next = %d, %v after the end", id, err)
					}
					if err := g.Fill(t.Context(), make([]int64, 2)); !errors.Is(err, tt.want) {
						t.Fatalf("Fill = %v after the end", err)
					}
					clock.step(time.Hour)
				}
			})
		})
	}
}

// A Fill for more ids than are left in the lease returns an error. No id that it used up comes again.
func TestGenerators_FillAcrossTheEndRepeatsNoID(t *testing.T) {
	bubbles(t, func(t *testing.T, e engine) {
		l := ticks(time.Second, 4)
		g := e.must(t, l, lease(l, 2), nil)
		after := ascending(t, l, -1, fill(t, g, 12)...)
		if err := g.Fill(t.Context(), make([]int64, 21)); !errors.Is(err, generator.ErrLeaseExpired) {
			t.Fatalf("got %v, want ErrLeaseExpired", err)
		}
		if id, err := g.Next(t.Context()); err == nil {
			ascending(t, l, after, id)
		}
	})
}

// A generator gets one lease after another of the same worker id. No id is made twice, and ids ascend.
func TestGenerators_AscendOverSuccessiveLeases(t *testing.T) {
	bubbles(t, func(t *testing.T, e engine) {
		l := ticks(time.Second, 4)
		now := lease(l, 1)
		after, n := int64(-1), 0
		for range 10 {
			g := e.must(t, l, now, nil)
			for {
				id, err := g.Next(t.Context())
				if errors.Is(err, generator.ErrLeaseExpired) || errors.Is(err, generator.ErrClockBackwards) {
					break
				}
				if err != nil {
					t.Fatal(err)
				}
				after = ascending(t, l, after, id)
				n++
			}
			now.From, now.Until = now.Until+1, now.Until+3
		}
		if e.name == "Cached" && n != (1+9*3)*16 {
			t.Errorf("ten leases of 28 ticks gave %d ids, want %d", n, (1+9*3)*16)
		}
	})
}

// TestGenerators_FillOfNothingCostsNoID costs nothing and always works.
func TestGenerators_FillOfNothingCostsNoID(t *testing.T) {
	bubbles(t, func(t *testing.T, e engine) {
		l := ticks(time.Second, 10)
		g := e.must(t, l, lease(l, 10), nil)
		for _, ids := range [][]int64{nil, {}} {
			if err := g.Fill(t.Context(), ids); err != nil {
				t.Errorf("Fill of no ids: %v", err)
			}
		}
		first := next(t, g)
		fill(t, g, 0)
		if id := next(t, g); id != first+1 {
			t.Errorf("after %d and a Fill of nothing comes %d", first, id)
		}
	})
}

// After Close, called once or by several at once, no call makes an id, whether the generator was used or not.
func TestGenerators_CloseEndsEveryLaterCall(t *testing.T) {
	bubbles(t, func(t *testing.T, e engine) {
		l := ticks(time.Second, 4)
		for _, used := range []bool{false, true} {
			g := e.must(t, l, lease(l, 10), nil)
			if used {
				next(t, g)
			}
			var closing sync.WaitGroup
			for range 5 {
				closing.Go(g.Close)
			}
			closing.Wait()
			for range 100 {
				if id, err := g.Next(t.Context()); id != 0 || !errors.Is(err, generator.ErrClosed) {
					t.Fatalf("Next after Close: %d, %v", id, err)
				}
				if err := g.Fill(t.Context(), make([]int64, 3)); !errors.Is(err, generator.ErrClosed) {
					t.Fatalf("Fill after Close: %v", err)
				}
				g.Close()
				time.Sleep(time.Second)
			}
		}
	})
}

// blocked returns a generator with nothing to give for the next hour.
func blocked(t *testing.T, e engine, l generator.Layout) generator.Generator {
	t.Helper()
	if e.name == "Cached" {
		g := cached(t, generator.CachedConfig{Layout: l, MaxBorrow: l.Tick})
		fill(t, g, int(l.MaxSequence())+1)
		return g
	}
	g := e.must(t, l, l.FullLease(9, time.Now()), nil)
	fill(t, g, int(l.MaxSequence())+1)
	return g
}

// All waiting callers get ErrClosed without delay, however long they would have waited.
func TestGenerators_CloseEndsWaits(t *testing.T) {
	bubbles(t, func(t *testing.T, e engine) {
		g := blocked(t, e, ticks(2*time.Hour, 1))
		var waiting sync.WaitGroup
		for i := range 50 {
			waiting.Go(func() {
				var err error
				if i%2 == 0 {
					_, err = g.Next(context.Background())
				} else {
					err = g.Fill(context.Background(), make([]int64, i))
				}
				if !errors.Is(err, generator.ErrClosed) {
					t.Errorf("a waiting caller got %v", err)
				}
			})
		}
		synctest.Wait()
		start := time.Now()
		g.Close()
		waiting.Wait()
		if waited := time.Since(start); waited > 100*time.Millisecond {
			t.Errorf("callers waited for another %v", waited)
		}
	})
}

// A waiting caller returns the error of its context, whether it is the first one in the queue or one of many behind
// it.
func TestGenerators_ContextEndsWaits(t *testing.T) {
	bubbles(t, func(t *testing.T, e engine) {
		g := blocked(t, e, ticks(2*time.Hour, 1))
		start := time.Now()
		var waiting sync.WaitGroup
		for i := range 50 {
			waiting.Go(func() {
				ctx, cancel := context.WithTimeout(context.Background(), time.Duration(i)*time.Minute)
				want := context.DeadlineExceeded
				if i%3 == 0 {
					ctx, cancel = context.WithCancel(context.Background())
					time.AfterFunc(time.Duration(i)*time.Minute, cancel)
					want = context.Canceled
				}
				defer cancel()
				var id int64
				var err error
				if i%2 == 0 {
					id, err = g.Next(ctx)
				} else {
					err = g.Fill(ctx, make([]int64, 2))
				}
				if id != 0 || !errors.Is(err, want) {
					t.Errorf("a waiting caller got %d, %v; want %v", id, err, want)
				}
				if waited := time.Since(start); waited != time.Duration(i)*time.Minute {
					t.Errorf("a caller with a context of %d minutes waited for %v", i, waited)
				}
			})
		}
		waiting.Wait()
	})
}

// Settings that cannot work are refused when a generator is made.
func TestGenerators_RefuseWhatCannotWork(t *testing.T) {
	bubbles(t, func(t *testing.T, e engine) {
		l := ticks(time.Second, 4)
		now := l.TickAt(time.Now())
		at := func(now time.Time) func() time.Time { return func() time.Time { return now } }
		tests := []struct {
			name   string
			layout generator.Layout
			lease  generator.Lease
			now    func() time.Time
			want   error
		}{
			{"good", l, generator.Lease{WorkerID: 31, From: now, Until: now}, nil, nil},
			{"whole layout", l, generator.Lease{From: 0, Until: l.MaxTick()}, nil, nil},
			{"first instant", l, generator.Lease{From: 0, Until: 0}, at(l.Epoch), nil},
			{"last instant", l, generator.Lease{From: l.MaxTick(), Until: l.MaxTick()}, at(l.Expires().Add(-1)), nil},
			{"lease that has not begun", l, generator.Lease{From: now + 100, Until: now + 200}, nil, nil},
			{"lease that has passed", l, generator.Lease{From: now - 200, Until: now - 100}, nil, nil},

			{"no layout", generator.Layout{}, generator.Lease{}, nil, generator.ErrLayout},
			{"before the epoch", l, generator.Lease{Until: 9}, at(l.Epoch.Add(-1)), generator.ErrLayout},
			{"after the end", l, generator.Lease{Until: 9}, at(l.Expires()), generator.ErrLayout},
			{"worker id too large", l, generator.Lease{WorkerID: 32, Until: 9}, nil, generator.ErrLayout},
			{"worker id far too large", l, generator.Lease{WorkerID: math.MaxInt64, Until: 9}, nil, generator.ErrLayout},
			{"worker id negative", l, generator.Lease{WorkerID: -1, Until: 9}, nil, generator.ErrLayout},
			{"lease from before the epoch", l, generator.Lease{From: -1, Until: 9}, nil, generator.ErrLayout},
			{"lease until after the end", l, generator.Lease{From: now, Until: l.MaxTick() + 1}, nil, generator.ErrLayout},
			{"lease without an end", l, generator.Lease{From: now, Until: math.MaxInt64}, nil, generator.ErrLayout},
			{"lease of no tick", l, generator.Lease{From: now, Until: now - 1}, nil, generator.ErrLayout},
			{"endless lease from after the end", l, l.FullLease(1, l.Expires()), nil, generator.ErrLayout},
		}
		for _, tt := range tests {
			g, err := e.open(tt.layout, tt.lease, nil, tt.now)
			if !errors.Is(err, tt.want) {
				t.Errorf("%s: got %v, want %v", tt.name, err, tt.want)
			}
			if err == nil {
				g.Close()
			}
		}
	})
}
