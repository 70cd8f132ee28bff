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
	"github.com/uidplugin/uidplugin/internal/testkit"
)

// A lease is used up to its last id. Exactly its ids are made, each once, and then the error says whether the lease
// or the layout has ended, however the clock is set.
func TestGenerators_MakeEachIDOfTheLeaseOnce(t *testing.T) {
	t.Parallel()

	l := ticks(time.Second, 3)
	l.TimeBits = 26 // until February 2001
	for _, tt := range []struct {
		name  string
		ticks int64
		call  int // ids in one call
		end   bool
		want  error
	}{
		{"one tick, Next", 1, 1, false, generator.ErrLeaseExpired},
		{"five ticks, Fill", 5, 4, false, generator.ErrLeaseExpired},
		{"five ticks, Fill over ticks", 5, 20, false, generator.ErrLeaseExpired},
		{"last ticks of the layout, Next", 3, 1, true, generator.ErrTimeExhausted},
		{"last ticks of the layout, Fill", 3, 12, true, generator.ErrTimeExhausted},
	} {
		t.Run(tt.name, func(t *testing.T) {
			bubbles(t, func(t *testing.T, e engine) {
				if tt.end {
					time.Sleep(time.Until(l.Expires().Add(-time.Duration(tt.ticks) * l.Tick)))
				}
				var clock wall
				lease := lease(l, tt.ticks)
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
				for tick := lease.From; tick <= lease.Until; tick++ {
					want = append(want, tickIDs(l, tick, 9)...)
				}
				if !slices.Equal(got, want) {
					t.Fatalf("got ids %v, want %v", got, want)
				}
				for range 3 {
					if !errors.Is(err, tt.want) || tt.end && !strings.Contains(err.Error(), "no id is left") {
						t.Fatalf("got %v, want %v", err, tt.want)
					}
					testkit.IsError(t, g.Fill(t.Context(), make([]int64, 2)), tt.want)
					clock.step(time.Hour)
					_, err = g.Next(t.Context())
				}
			})
		})
	}
}

func TestGenerators_FillOfNothingCostsNoID(t *testing.T) {
	bubbles(t, func(t *testing.T, e engine) {
		l := ticks(time.Second, 10)
		g := e.must(t, l, lease(l, 10), nil)
		fill(t, g, 0)
		first := next(t, g)
		if err := g.Fill(t.Context(), nil); err != nil || next(t, g) != first+1 {
			t.Errorf("a Fill of nothing costs an id, or returns %v", err)
		}
	})
}

// blocked returns a generator with nothing to give for the next hour.
func blocked(t *testing.T, e engine, l generator.Layout) generator.Generator {
	t.Helper()
	g := e.must(t, l, l.FullLease(9, time.Now()), nil)
	if e.name == "Cached" {
		g = cached(t, generator.CachedConfig{Layout: l, MaxBorrow: l.Tick})
	}
	fill(t, g, int(l.MaxSequence())+1)
	return g
}

// All who wait get ErrClosed at once, whether they wait for the clock, for a lease, or for a newer lease.
func TestGenerators_CloseEndsWaits(t *testing.T) {
	bubbles(t, func(t *testing.T, e engine) {
		for name, open := range map[string]func() generator.Generator{
			"clock": func() generator.Generator { return blocked(t, e, ticks(2*time.Hour, 1)) },
			"lease": func() generator.Generator { g, _, _, _ := used(t, e, nobody); return g },
			"newer lease": func() generator.Generator {
				g, _, now, _ := used(t, e, nobody)
				now.Until++
				renew(t, g, now)
				time.Sleep(time.Hour)
				return g
			},
		} {
			g := open()
			var waiting sync.WaitGroup
			for i := range 20 {
				waiting.Go(func() {
					var err error
					if i%2 == 0 {
						_, err = g.Next(context.Background())
					} else {
						err = g.Fill(context.Background(), make([]int64, i))
					}
					if !errors.Is(err, generator.ErrClosed) {
						t.Errorf("%s: a waiting caller got %v", name, err)
					}
				})
			}
			time.Sleep(7 * time.Millisecond)
			synctest.Wait()
			start := time.Now()
			g.Close()
			g.Close()
			if waiting.Wait(); !time.Now().Equal(start) {
				t.Errorf("%s: callers waited for another %v", name, time.Since(start))
			}
			r := g.(generator.Renewable)
			if err := r.Renew(generator.Lease{WorkerID: 9, Until: 1e6}); !errors.Is(err, generator.ErrClosed) {
				t.Errorf("%s: Renew after Close: %v", name, err)
			}
			r.Suspend(errCause)
			if id, err := g.Next(t.Context()); id != 0 || !errors.Is(err, generator.ErrClosed) {
				t.Errorf("%s: Next after Close: %d, %v", name, id, err)
			}
			if err := g.Fill(t.Context(), make([]int64, 3)); !errors.Is(err, generator.ErrClosed) {
				t.Errorf("%s: Fill after Close: %v", name, err)
			}
		}
	})
}

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
