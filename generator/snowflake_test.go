package generator_test

import (
	"errors"
	"maps"
	"slices"
	"testing"
	"time"

	"github.com/uidplugin/uidplugin/generator"
	"github.com/uidplugin/uidplugin/internal/testkit"
)

func defaults(t *testing.T, c generator.SnowflakeConfig) *generator.Snowflake {
	t.Helper()
	if c.Lease == (generator.Lease{}) {
		c.Lease = c.Layout.FullLease(9, time.Now())
	}
	g, err := generator.NewSnowflake(c)
	testkit.Must(t, err)
	t.Cleanup(g.Close)
	return g
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

// The sequences of 4,000 ticks begin everywhere below RandomStart, and each tick is used up to its end.
func TestSnowflake_TicksBeginBelowRandomStart(t *testing.T) {
	bubble(t, func(t *testing.T) {
		l := ticks(time.Second, 7)
		for _, start := range []int64{0, 1, 2, 100, 128} {
			g := defaults(t, generator.SnowflakeConfig{Layout: l, RandomStart: start})
			seen := map[int64]bool{}
			for range 4000 {
				id := next(t, g)
				first := decompose(t, l, id).Sequence
				seen[first] = true
				if rest := fill(t, g, int(l.MaxSequence()-first)); len(rest) > 0 && rest[len(rest)-1] != id|127 {
					t.Fatalf("the tick of %d, from sequence %d on, ends with %d", id, first, rest[len(rest)-1])
				}
				time.Sleep(time.Second)
			}
			most := slices.Max(slices.Collect(maps.Keys(seen)))
			// The odds of fewer are below 1e-12.
			if want := max(start, 1); int64(len(seen)) != want || most != want-1 {
				t.Errorf("with %d, ticks begin with %d different sequences up to %d", start, len(seen), most)
			}
		}
	})
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

// The clock is set back after an id was made, 250 ms into its tick. Callers wait only until the start of that tick.
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
				testkit.SaysAll(t, err.Error(), reached, shown, (tt.back - 250*time.Millisecond).String(), tt.tolerance.String())
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
		l, c := ticks(time.Second, 4), &wall{}
		l.Epoch = time.Now()
		open := func(tolerance time.Duration) generator.Generator {
			return defaults(t, generator.SnowflakeConfig{
				Layout: l, Lease: generator.Lease{WorkerID: 9, Until: 1e6}, MaxClockBackwards: tolerance, Now: c.now,
			})
		}
		refuses, waits := open(time.Minute-1), open(time.Minute)
		c.step(-time.Minute)
		fails(t, refuses, generator.ErrClockBackwards)
		if id := next(t, waits); id != 9<<4 || time.Since(l.Epoch) != time.Minute {
			t.Errorf("after %v, the first id of the layout is %d", time.Since(l.Epoch), id)
		}
	})
}
