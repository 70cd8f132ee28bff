package generator_test

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/uidplugin/uidplugin/generator"
	"github.com/uidplugin/uidplugin/internal/testkit"
)

// counter is a source of runs of n ids from 1 on.
type counter struct {
	mu      sync.Mutex
	n, last int64
	calls   int
	wants   []int64
	takes   time.Duration // each call
	fails   func(call int) error
}

func (c *counter) fetch(ctx context.Context, want int64) (generator.Run, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.calls++
	c.wants = append(c.wants, want)
	if c.takes > 0 {
		select {
		case <-time.After(c.takes):
		case <-ctx.Done():
			return generator.Run{}, ctx.Err()
		}
	}
	if c.fails != nil {
		if err := c.fails(c.calls); err != nil {
			return generator.Run{}, err
		}
	}
	c.last += c.n
	return generator.Run{First: c.last - c.n + 1, N: c.n}, nil
}

func (c *counter) called() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.calls
}

func buffered(t *testing.T, c generator.BufferedConfig) *generator.Buffered {
	t.Helper()
	g, err := generator.NewBuffered(c)
	testkit.Must(t, err)
	t.Cleanup(g.Close)
	return g
}

var errAway = errors.New("away")

// A refill that comes late makes callers wait, and one that comes early asks the source for nothing.
func TestBuffered_IsFilledAtTheStartAndBelowItsThreshold(t *testing.T) {
	bubble(t, func(t *testing.T) {
		c := &counter{n: 10}
		g := buffered(t, generator.BufferedConfig{Source: c.fetch, Size: 100, RefillBelow: 30})
		synctest.Wait()
		if got := g.State(); got != (generator.BufferedState{Left: 100}) || c.wants[0] != 100 || c.wants[9] != 10 {
			t.Errorf("at the start: %+v, wanted %v", got, c.wants)
		}
		fill(t, g, 70)
		synctest.Wait()
		if c.called() != 10 {
			t.Error("refilled with 30 of 100 left")
		}
		next(t, g)
		synctest.Wait()
		if got := g.State(); got.Left < 90 {
			t.Errorf("below the threshold: %+v", got)
		}
		if ids := fill(t, g, 1000); ids[0] != 72 || ids[999] != 1071 {
			t.Errorf("%d to %d", ids[0], ids[999])
		}
	})
}

// With Every, a buffer above its threshold is filled up all the same; otherwise a burst finds it half empty.
func TestBuffered_IsFilledOnSchedule(t *testing.T) {
	bubble(t, func(t *testing.T) {
		c := &counter{n: 1}
		g := buffered(t, generator.BufferedConfig{Source: c.fetch, Size: 100, RefillBelow: 1, Every: time.Minute})
		synctest.Wait()
		fill(t, g, 50)
		synctest.Wait()
		if got := g.State().Left; got != 50 {
			t.Errorf("%d left", got)
		}
		time.Sleep(61 * time.Second)
		if got := g.State().Left; got != 100 {
			t.Errorf("after a minute: %d left", got)
		}
		fill(t, g, 50)
		time.Sleep(61 * time.Second)
		if got := g.State().Left; got != 100 {
			t.Errorf("after another: %d left", got)
		}
	})
}

// Empty decides whether callers are refused, try again or wait; without it they wait as long as their context lasts.
func TestBuffered_FollowsThePolicyOfAnEmptyBuffer(t *testing.T) {
	bubble(t, func(t *testing.T) {
		c := &counter{n: 10, takes: time.Second}
		g := buffered(t, generator.BufferedConfig{Source: c.fetch, Size: 10, Empty: refuse})
		fails(t, g, generator.ErrEmpty)
		time.Sleep(2 * time.Second)
		next(t, g)

		tries := 0
		c = &counter{n: 10, takes: time.Second}
		g = buffered(t, generator.BufferedConfig{Source: c.fetch, Size: 10, Empty: func(_ context.Context, try int) error {
			if tries++; try != tries {
				t.Errorf("try %d is called %d", tries, try)
			}
			time.Sleep(300 * time.Millisecond)
			return nil
		}})
		if id := next(t, g); id != 1 || tries != 4 {
			t.Errorf("call back and try again: id %d after %d tries", id, tries)
		}

		c = &counter{n: 10, takes: time.Hour}
		g = buffered(t, generator.BufferedConfig{Source: c.fetch, Size: 10})
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		_, err := g.Next(ctx)
		testkit.IsError(t, err, context.DeadlineExceeded)
	})
}

// Three slots of ids do not fit into two. The rest follows without a gap.
func TestBuffered_KeepsARunThatDoesNotFit(t *testing.T) {
	bubble(t, func(t *testing.T) {
		g := buffered(t, generator.BufferedConfig{Source: (&counter{n: 3 << 24}).fetch, Size: 2, RefillBelow: 100})
		time.Sleep(10 * time.Second)
		ids := make([]int64, 1<<20)
		for last, got := int64(0), 0; got < 6<<24; got += len(ids) {
			testkit.Must(t, g.Fill(t.Context(), ids))
			if ids[0] != last+1 {
				t.Fatalf("%d after %d", ids[0], last)
			}
			last = ids[len(ids)-1]
		}
	})
}

// For settings that cannot work the constructor returns an error, so there is no panic or endless wait later.
func TestNewBuffered_RefusesBadSettings(t *testing.T) {
	t.Parallel()
	good := (&counter{n: 1}).fetch
	for _, c := range []generator.BufferedConfig{
		{}, {Source: good, Size: -1}, {Source: good, Size: 1 << 40}, {Source: good, RefillBelow: -1},
		{Source: good, RefillBelow: 101}, {Source: good, Every: -1},
	} {
		if _, err := generator.NewBuffered(c); !errors.Is(err, generator.ErrConfig) {
			t.Errorf("%+v: %v", c, err)
		}
	}
}

// Many goroutines take single ids and batches, while the source returns runs of all lengths and sometimes fails.
// Every id is handed out once, in order.
func TestBuffered_HandsOutEachIDOnce(t *testing.T) {
	t.Parallel()
	n := int64(300_000)
	if testkit.Race {
		n = 50_000
	}
	var next atomic.Int64
	r := random(1)
	g := buffered(t, generator.BufferedConfig{Size: 500, Source: func(_ context.Context, want int64) (generator.Run, error) {
		switch r.IntN(50) {
		case 0:
			return generator.Run{}, errAway
		case 1:
			panic("a bug")
		}
		run := generator.Run{First: next.Load(), N: 1 + r.Int64N(2*want)}
		next.Add(run.N)
		return run, nil
	}})
	seen := make([]atomic.Uint32, 2*n)
	var taken atomic.Int64
	var all sync.WaitGroup
	for i := range 16 {
		all.Go(func() {
			last := int64(-1)
			for r := random(uint64(i + 2)); taken.Load() < n; {
				ids := make([]int64, 1+r.IntN(9))
				if r.IntN(100) == 0 {
					ids = make([]int64, 700)
				}
				if g.Fill(t.Context(), ids) != nil {
					continue // what it has taken is lost
				}
				for _, id := range ids {
					if id <= last {
						t.Errorf("%d after %d", id, last)
					}
					if last = id; id < 2*n && seen[id].Add(1) > 1 {
						t.Errorf("%d was made twice", id)
					}
				}
				taken.Add(int64(len(ids)))
			}
		})
	}
	all.Wait()
}

// refuse is an Empty that gives up at once.
func refuse(context.Context, int) error { return generator.ErrEmpty }

// An Empty that does not look at the context must not keep its caller.
func TestBufferedNext_EndsWithItsContext(t *testing.T) {
	bubble(t, func(t *testing.T) {
		g := buffered(t, generator.BufferedConfig{Source: (&counter{n: 1, takes: time.Hour}).fetch,
			Empty: func(context.Context, int) error { time.Sleep(time.Millisecond); return nil }})
		ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
		defer cancel()
		start := time.Now()
		if _, err := g.Next(ctx); !errors.Is(err, context.DeadlineExceeded) || time.Since(start) > 51*time.Millisecond {
			t.Errorf("after %v: %v", time.Since(start), err)
		}
		_, err := g.Next(ctx) // which has ended
		testkit.IsError(t, err, context.DeadlineExceeded)
	})
}
