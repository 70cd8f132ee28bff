package generator_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/uidplugin/uidplugin/generator"
)

// stepLayout holds 1999 until July 2007, so that some steps leave it.
func stepLayout(sequenceBits uint8) generator.Layout {
	l := ticks(time.Second, sequenceBits)
	l.TimeBits = 28
	return l
}

// The clock is set away and back again. No call of Cached fails or waits. Snowflake makes no ids while the clock is
// behind its last id, or beyond the end of the layout.
func TestGenerators_ClockStepsStopOnlySnowflake(t *testing.T) {
	tests := []struct {
		name string
		by   time.Duration
		away error // of Snowflake, while the clock is wrong
		back error // of Snowflake, after it was set right
	}{
		{"1s back", -time.Second, generator.ErrClockBackwards, nil},
		{"1h back", -time.Hour, generator.ErrClockBackwards, nil},
		{"months back", -year / 2, generator.ErrClockBackwards, nil},
		{"to before the epoch", -2 * year, generator.ErrClockBackwards, nil},
		{"a century back", -100 * year, generator.ErrClockBackwards, nil},
		{"1s forward", time.Second, nil, generator.ErrClockBackwards},
		{"1h forward", time.Hour, nil, generator.ErrClockBackwards},
		{"years forward", 7 * year, nil, generator.ErrClockBackwards},
		{"to beyond the end", 8 * year, generator.ErrTimeExhausted, nil},
		{"a century forward", 100 * year, generator.ErrTimeExhausted, nil},
	}
	for _, tt := range tests {
		for _, w := range walls {
			t.Run(w.name+"/"+tt.name, func(t *testing.T) {
				bubbles(t, func(t *testing.T, e engine) {
					l, c := stepLayout(10), &wall{bare: w.bare}
					g := e.must(t, l, l.FullLease(9, c.now()), c.now)
					want := func(err error) error {
						if e.name == "Cached" {
							return nil
						}
						return err
					}
					after := int64(-1)
					take := func(where string, want error) {
						t.Helper()
						start := time.Now()
						for n := range 5 {
							ids := make([]int64, 1+3*n)
							err := g.Fill(t.Context(), ids)
							if !errors.Is(err, want) {
								t.Fatalf("%s: got %v, want %v", where, err, want)
							}
							if err == nil {
								after = ascending(t, l, after, ids...)
							}
						}
						if !time.Now().Equal(start) {
							t.Fatalf("%s: 35 ids of 1024 took %v", where, time.Since(start))
						}
					}
					take("before", nil)
					c.step(tt.by)
					take("at the step", want(tt.away))
					time.Sleep(time.Second / 2) // less than 1 s, the shortest step
					take("away", want(tt.away))
					c.step(-tt.by)
					take("at the step back", want(tt.back))
					time.Sleep(time.Second / 4)
					take("back", want(tt.back))
				})
			})
		}
	}
}

// At the limit, with the clock set back, ids are made at exactly the nominal rate. With the clock set forward,
// MaxBorrow counts from the new time, so as many ids as ever can be borrowed, and then no more.
func TestCachedSteps_MoveTheLimitForwardOnly(t *testing.T) {
	for _, w := range walls {
		t.Run(w.name, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				l, c := stepLayout(6), &wall{bare: w.bare}
				g := cached(t, generator.CachedConfig{
					Layout: l, MaxBorrow: 10 * time.Second, NoWait: true, Clock: generator.NewClock(c.now),
				})
				after, back := ascending(t, l, -1, fill(t, g, 640)...), time.Duration(0)
				for _, by := range []time.Duration{time.Hour, year, time.Minute, 3 * year, -time.Second, -time.Hour, -2 * year} {
					refused(t, g)
					time.Sleep(7 * time.Second)
					after = ascending(t, l, after, fill(t, g, 7*64)...)
					refused(t, g)
					c.step(by)
					if by > 0 {
						ids := fill(t, g, 640)
						after = ascending(t, l, after, ids...)
						if first := decompose(t, l, ids[0]); !first.Time.Equal(c.now()) {
							t.Errorf("after a step of %v to %v an id is of %v", by, c.now(), first.Time)
						}
					} else if back -= by; back < year && g.Lead() != 10*time.Second+back {
						t.Errorf("set back by %v at the limit, Lead is %v", back, g.Lead())
					}
				}
				refused(t, g)
			})
		})
	}
}

// A wall clock beyond the end of the layout is wrong. So it must move neither the ids nor their limit.
func TestCachedSteps_BeyondTheLayoutIsNotFollowed(t *testing.T) {
	bubble(t, func(t *testing.T) {
		l, c := stepLayout(6), &wall{}
		g := cached(t, generator.CachedConfig{
			Layout: l, MaxBorrow: 10 * time.Second, NoWait: true, Clock: generator.NewClock(c.now),
		})
		s := generator.NewScale(l)
		start := s.At(c.now())
		ids := fill(t, g, 640)
		for range 3 {
			c.step(20 * year)
			refused(t, g)
			time.Sleep(time.Second)
			ids = append(ids, fill(t, g, 64)...)
			refused(t, g)
			c.step(-20 * year)
			refused(t, g)
			time.Sleep(time.Second)
			ids = append(ids, fill(t, g, 64)...)
		}
		for i, id := range ids {
			if position(l, id) != start+uint64(i) {
				t.Fatalf("id %d lies at %d, want %d", i, position(l, id)-start, i)
			}
		}
	})
}

// If a lease begins further ahead of the clock than MaxBorrow, callers wait for it. Formerly its ids were handed out
// at once, and MaxBorrow more. Then a process that took over could not know how far ahead of the clock ids may be.
func TestCachedMaxBorrow_CountsFromTheClock(t *testing.T) {
	bubble(t, func(t *testing.T) {
		l := ticks(time.Second, 6)
		for _, renewed := range []bool{false, true} {
			for _, worker := range []int64{9, 8} {
				now := lease(l, 1)
				ahead := generator.Lease{WorkerID: worker, From: now.From + 10, Until: now.From + 99}
				open := func(noWait bool) *generator.Cached {
					c := generator.CachedConfig{Layout: l, Lease: ahead, MaxBorrow: 3 * time.Second, NoWait: noWait}
					if renewed {
						c.Lease = now
					}
					g := cached(t, c)
					if renewed {
						renew(t, g, ahead)
					}
					return g
				}
				refused(t, open(true))
				g, start := open(false), time.Now()
				ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
				if _, err := g.Next(ctx); !errors.Is(err, context.DeadlineExceeded) || time.Since(start) != 5*time.Second {
					t.Errorf("renewed %v: 5 s before its time an id is refused with %v after %v", renewed, err, time.Since(start))
				}
				cancel()
				id := next(t, g)
				if waited := time.Since(start) - 7*time.Second; waited < 0 || waited > 20*time.Millisecond || tickOf(l, id) != ahead.From {
					t.Errorf("renewed %v: the first id came %v after it was due, of tick %d", renewed, waited, tickOf(l, id)-now.From)
				}
				time.Sleep(time.Until(l.TimeOf(ahead.From))) // the next loop begins with a whole tick
			}
		}
	})
}
