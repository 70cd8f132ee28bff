package generator_test

import (
	"context"
	"errors"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/uidplugin/uidplugin/generator"
)

func defaults(t *testing.T, c generator.SnowflakeConfig) *generator.Snowflake {
	t.Helper()
	if c.Lease == (generator.Lease{}) {
		c.Lease = c.Layout.FullLease(9, time.Now())
	}
	g, err := generator.NewSnowflake(c)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(g.Close)
	return g
}

// An id has the tick in which it was made, neither earlier nor later, however many ids are requested.
func TestSnowflake_StampsThePresent(t *testing.T) {
	bubble(t, func(t *testing.T) {
		l := ticks(10*time.Millisecond, 5)
		g := defaults(t, generator.SnowflakeConfig{Layout: l})
		after := int64(-1)
		for r := random(2); r.IntN(500) > 0; {
			began := l.TickAt(time.Now())
			ids, err := some(t.Context(), g, r, 100)
			if err != nil {
				t.Fatal(err)
			}
			after = ascending(t, l, after, ids...)
			first, last := decompose(t, l, ids[0]), decompose(t, l, after)
			if l.TickAt(first.Time) < began || l.TickAt(last.Time) != l.TickAt(time.Now()) {
				t.Fatalf("ids of %v to %v, taken from tick %d until %v", first.Time, last.Time, began, time.Now())
			}
			if r.IntN(3) == 0 {
				time.Sleep(time.Duration(r.Int64N(int64(30 * time.Millisecond))))
			}
		}
	})
}

// A caller that finds no sequence left waits exactly for the next tick. A Fill that is longer than a tick uses as
// many ticks as it needs.
func TestSnowflake_WaitsForTheNextTickWhenOneIsFull(t *testing.T) {
	bubble(t, func(t *testing.T) {
		l := ticks(time.Second, 2)
		g := defaults(t, generator.SnowflakeConfig{Layout: l})
		start := time.Now()
		time.Sleep(300 * time.Millisecond)
		first := decompose(t, l, next(t, g))
		if !first.Time.Equal(start) || first.Sequence != 0 {
			t.Fatalf("first id is %v", first)
		}
		fill(t, g, 3)
		if got := time.Since(start); got != 300*time.Millisecond {
			t.Fatalf("a tick of four ids lasted until %v", got)
		}
		if p := decompose(t, l, next(t, g)); !p.Time.Equal(start.Add(time.Second)) || p.Sequence != 0 || time.Since(start) != time.Second {
			t.Fatalf("the fifth id is %v, after %v", p, time.Since(start))
		}
		for i, id := range fill(t, g, 10) {
			p := decompose(t, l, id)
			n := int64(i + 5) // ids since start
			if want := start.Add(time.Duration(n/4) * time.Second); !p.Time.Equal(want) || p.Sequence != n%4 {
				t.Fatalf("id %d is %v, want %v and %d", n, p, want, n%4)
			}
		}
		if got := time.Since(start); got != 3*time.Second {
			t.Fatalf("15 ids, four a second, took %v", got)
		}
	})
}

// At the full rate no id is lost.
func TestSnowflake_ManyCallersGetEveryID(t *testing.T) {
	bubble(t, func(t *testing.T) {
		l := ticks(time.Second, 6)
		g := defaults(t, generator.SnowflakeConfig{Layout: l})
		start := time.Now()
		positions := make(chan uint64, 64*64)
		var callers sync.WaitGroup
		for range 64 {
			callers.Go(func() {
				for range 64 {
					id, err := g.Next(context.Background())
					if err != nil {
						t.Error(err)
						return
					}
					positions <- position(l, id)
				}
			})
		}
		callers.Wait()
		close(positions)
		first := generator.NewScale(l).At(start)
		seen := map[uint64]bool{}
		for p := range positions {
			if seen[p] || p-first >= 64*64 {
				t.Fatalf("position %d comes twice or does not belong to the first 64 ticks", p-first)
			}
			seen[p] = true
		}
		if got := time.Since(start); got != 63*time.Second {
			t.Errorf("64 ticks full of ids took %v", got)
		}
	})
}

// TestSnowflake_TicksBeginBelowRandomStart looks at where the sequence of 4,000 ticks begins.
func TestSnowflake_TicksBeginBelowRandomStart(t *testing.T) {
	tests := []struct {
		start int64
		least int // different starts that must come up; the odds of fewer are below 1e-12
	}{{0, 1}, {1, 1}, {2, 2}, {100, 100}, {128, 128}}
	for _, tt := range tests {
		t.Run(time.Duration(tt.start).String(), func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				l := ticks(time.Second, 7)
				g := defaults(t, generator.SnowflakeConfig{Layout: l, RandomStart: tt.start})
				seen := map[int64]bool{}
				after := int64(-1)
				for range 4000 {
					first := decompose(t, l, next(t, g)).Sequence
					if first >= max(tt.start, 1) {
						t.Fatalf("a tick begins with sequence %d", first)
					}
					seen[first] = true
					// The rest of the tick is there, to its end.
					ids := fill(t, g, int(l.MaxSequence()-first))
					if len(ids) > 0 {
						after = ascending(t, l, after, ids...)
						if p := decompose(t, l, after); !p.Time.Equal(time.Now()) || p.Sequence != l.MaxSequence() {
							t.Fatalf("the last id at %v is %v", time.Now(), p)
						}
					}
					time.Sleep(time.Second)
				}
				if len(seen) < tt.least {
					t.Errorf("ticks begin with %d different sequences, want %d", len(seen), tt.least)
				}
			})
		})
	}
}

// A RandomStart beyond the sequence, or a negative tolerance, is refused and not cut.
func TestNewSnowflake_RefusesBadSettings(t *testing.T) {
	t.Parallel()

	l := seconds(28, 22, 13)
	now := func() time.Time { return date(2027, 1, 1) }
	for _, tt := range []struct {
		name string
		c    generator.SnowflakeConfig
		want error
	}{
		{"whole sequence random", generator.SnowflakeConfig{RandomStart: 8192}, nil},
		{"more than the sequence random", generator.SnowflakeConfig{RandomStart: 8193}, generator.ErrConfig},
		{"negative random", generator.SnowflakeConfig{RandomStart: -1}, generator.ErrConfig},
		{"negative tolerance", generator.SnowflakeConfig{MaxClockBackwards: -1}, generator.ErrConfig},
		{"long tolerance", generator.SnowflakeConfig{MaxClockBackwards: 1<<63 - 1}, nil},
	} {
		tt.c.Layout, tt.c.Lease, tt.c.Now = l, l.FullLease(1, now()), now
		if _, err := generator.NewSnowflake(tt.c); !errors.Is(err, tt.want) {
			t.Errorf("%s: got %v, want %v", tt.name, err, tt.want)
		}
	}
}

// TestSnowflake_WaitsForAClockSetBackWithinItsTolerance sets the clock back after an id was made, 250 ms into its
// tick: waited for is only what is missing to the start of that tick.
func TestSnowflake_WaitsForAClockSetBackWithinItsTolerance(t *testing.T) {
	tests := []struct {
		name      string
		tolerance time.Duration
		back      time.Duration
		refused   bool
	}{
		{"no tolerance, 1s", 0, time.Second, true},
		{"no tolerance, years", 0, 30 * year, true},
		{"within the tolerance", 5 * time.Second, time.Second, false},
		{"just within", 4750 * time.Millisecond, 5 * time.Second, false},
		{"just outside", 4750*time.Millisecond - 1, 5 * time.Second, true},
		{"an hour, tolerated", time.Hour, time.Hour, false},
		{"an hour, not tolerated", time.Minute, time.Hour, true},
		{"to before the epoch", time.Minute, 2 * year, true},
		{"to before the epoch, tolerated", 3 * year, 2 * year, false},
		{"further than a Duration reaches", 1<<63 - 2, 100 * year, false},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				var c wall
				l := ticks(time.Second, 10)
				g := defaults(t, generator.SnowflakeConfig{Layout: l, MaxClockBackwards: tt.tolerance, Now: c.now})
				time.Sleep(250 * time.Millisecond)
				id := next(t, g)
				c.step(-tt.back)
				start := time.Now()
				got, err := g.Next(t.Context())
				if !tt.refused {
					if waited := time.Since(start); err != nil || got != id+1 || waited != tt.back-250*time.Millisecond {
						t.Fatalf("got %d, %v after %v; want %d after %v", got, err, waited, id+1, tt.back-250*time.Millisecond)
					}
					return
				}
				if got != 0 || !errors.Is(err, generator.ErrClockBackwards) || !time.Now().Equal(start) {
					t.Fatalf("got %d, %v after %v; want ErrClockBackwards at once", got, err, time.Since(start))
				}
				reached := "2000-01-01 00:00:00 UTC"
				shown := c.now().UTC().Format("2006-01-02 15:04:05.999 MST")
				for _, says := range []string{reached, shown, (tt.back - 250*time.Millisecond).String(), tt.tolerance.String()} {
					if !strings.Contains(err.Error(), says) {
						t.Errorf("%q does not say %q", err, says)
					}
				}
				// As soon as the clock is right again, so is the generator.
				c.step(tt.back)
				if got := next(t, g); got != id+1 {
					t.Errorf("after %d and a step back and forward comes %d", id, got)
				}
			})
		})
	}
}

// The clock leaves the layout before the first id of a lease that begins with tick 0, so no earlier tick can have
// been used up.
func TestSnowflake_WaitsForTheEpochWithinItsTolerance(t *testing.T) {
	bubble(t, func(t *testing.T) {
		l := ticks(time.Second, 4)
		l.Epoch = time.Now()
		for _, tolerance := range []time.Duration{0, time.Minute - 1, time.Minute} {
			c := &wall{}
			g := defaults(t, generator.SnowflakeConfig{
				Layout: l, Lease: generator.Lease{WorkerID: 9, Until: 1e6}, MaxClockBackwards: tolerance, Now: c.now,
			})
			since := time.Since(l.Epoch)
			c.step(-since - time.Minute)
			id, err := g.Next(t.Context())
			if tolerance < time.Minute {
				if id != 0 || !errors.Is(err, generator.ErrClockBackwards) {
					t.Errorf("a minute before the epoch, with a tolerance of %v: %d, %v", tolerance, id, err)
				}
				continue
			}
			if err != nil || id != 9<<4 || time.Since(l.Epoch) != since+time.Minute {
				t.Errorf("after %v, first id of the layout is %d, %v; want %d after a minute", time.Since(l.Epoch)-since, id, err, 9<<4)
			}
		}
	})
}

// While many callers wait for the clock, it is set back further, and then beyond the tolerance.
func TestSnowflake_ManyCallersWaitForAClockSetBack(t *testing.T) {
	bubble(t, func(t *testing.T) {
		var c wall
		l := ticks(time.Second, 4)
		g := defaults(t, generator.SnowflakeConfig{Layout: l, MaxClockBackwards: 10 * time.Second, Now: c.now})
		after := next(t, g)
		c.step(-5 * time.Second)
		time.AfterFunc(2*time.Second, func() { c.step(-5 * time.Second) })
		time.AfterFunc(20*time.Second-1, func() { c.step(-20 * time.Second) })
		var mu sync.Mutex
		var ids []int64
		var callers sync.WaitGroup
		for range 300 {
			callers.Go(func() {
				id, err := g.Next(context.Background())
				mu.Lock()
				defer mu.Unlock()
				if err == nil {
					ids = append(ids, id)
				} else if !errors.Is(err, generator.ErrClockBackwards) {
					t.Error(err)
				}
			})
		}
		callers.Wait()
		seen := map[int64]bool{}
		for _, id := range ids {
			if ascending(t, l, after, id); seen[id] {
				t.Fatalf("%d comes twice", id)
			}
			seen[id] = true
		}
		// The clock catches up at 10 s. Until 20 s there are ten ticks of 16 ids, minus the one id from before.
		if len(ids) != 10*16-1 {
			t.Errorf("%d of 300 callers got an id, want %d", len(ids), 10*16-1)
		}
	})
}
