package supply

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/uidplugin/uidplugin/generator"
	"github.com/uidplugin/uidplugin/internal/testkit"
)

// Close of one plugin fails its own callers, also those that wait, and leaves the generator to the others.
func TestShareFixed_CloseEndsOnlyOnePlugin(t *testing.T) {
	t.Parallel()

	synctest.Test(t, func(t *testing.T) {
		l := generator.Layout{TimeBits: 30, WorkerBits: 10, SequenceBits: 4, Tick: time.Hour, Epoch: time.Now().Add(-time.Minute)}
		sharing := func() (*Supply, *Source) {
			s := supplying(t, hangs, func(c *Config) {
				c.Layout, c.Now, c.Time, c.Clock, c.Default = l, time.Now, time.Now, generator.NewClock(time.Now), Snowflake
				var err error
				c.Fixed, err = ShareFixed(l, 1, 0, time.Now, Snowflake, 1)
				testkit.Must(t, err)
			})
			src := s.source(t, "orders", "")
			testkit.Must(t, s.Ensure(t.Context(), nil, []*Source{src}))
			return s, src
		}
		one, a := sharing()
		two, b := sharing()
		ledger := testkit.NewLedger(t)
		for i := range 16 { // all of the hour
			id, err := []*Source{a, b}[i%2].Next(t.Context(), nil)
			testkit.Must(t, err)
			ledger.Add("orders", id)
		}
		failed, ended := make(chan error), make(chan error)
		ctx, cancel := context.WithCancel(t.Context())
		go func() {
			_, err := a.Next(context.Background(), nil)
			failed <- err
		}()
		go func() {
			failed <- a.Fill(ctx, make([]int64, 3), nil)
		}()
		go func() {
			_, err := b.Next(ctx, nil)
			ended <- err
		}()
		synctest.Wait()
		one.Close(t.Context())
		for range 2 {
			testkit.IsError(t, <-failed, ErrClosed)
		}
		cancel()
		testkit.IsError(t, <-ended, context.Canceled)
		_, err := a.Next(t.Context(), nil)
		testkit.IsError(t, err, ErrClosed)
		id, err := b.Next(t.Context(), nil) // in the next hour
		testkit.Must(t, err)
		ledger.Add("orders", id)
		two.Close(t.Context())
		_, err = b.Next(t.Context(), nil)
		testkit.IsError(t, err, ErrClosed)
		time.Sleep(time.Until(l.TimeOf(id>>14+1)) - 5*time.Second) // the next plugin waits for the next hour
		_, c := sharing()                                          // must not begin in the tick of the last id
		next, err := c.Next(t.Context(), nil)
		if testkit.Must(t, err); next>>14 <= id>>14 {
			t.Errorf("%d after %d", next, id)
		}
	})
}

// The plugin allocates nothing for an id, as long as it is the only one with its worker id.
func TestShareFixed_OfOnePluginAllocatesNothing(t *testing.T) {
	s := supplying(t, hangs, func(c *Config) {
		var err error
		c.Fixed, err = ShareFixed(c.Layout, 140, 0, c.Now, Cached, 1)
		testkit.Must(t, err)
	})
	src := s.source(t, "orders", "")
	testkit.Must(t, s.Ensure(t.Context(), nil, []*Source{src}))
	ids := make([]int64, 10)
	if n := testing.AllocsPerRun(100, func() {
		_, err := src.Next(t.Context(), nil)
		testkit.Must(t, errors.Join(err, src.Fill(t.Context(), ids, nil)))
	}); n > 0 {
		t.Errorf("%v allocations", n)
	}
}
