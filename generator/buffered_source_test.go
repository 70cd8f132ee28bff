package generator_test

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/uidplugin/uidplugin/generator"
	"github.com/uidplugin/uidplugin/internal/testkit"
)

// After a source has failed or panicked, later refills are still tried, and waiting callers get the reason.
func TestBuffered_RecoversFromItsSource(t *testing.T) {
	bubble(t, func(t *testing.T) {
		c := &counter{n: 10, fails: func(call int) error {
			switch {
			case call == 2:
				panic("a bug")
			case call < 5:
				return errAway
			}
			return nil
		}}
		g := buffered(t, generator.BufferedConfig{Source: c.fetch, Size: 10})
		var said []string
		for range 20 {
			id, err := g.Next(t.Context())
			if err == nil {
				if id != 1 {
					t.Errorf("id %d", id)
				}
				break
			}
			testkit.IsError(t, err, generator.ErrSource)
			said = append(said, err.Error())
		}
		if testkit.SaysAll(t, strings.Join(said, "; "), "Source panicked: a bug", "away"); len(said) > 4 {
			t.Errorf("%q", said)
		}
		if s := g.State(); s.Failed != 4 || s.LastError != nil {
			t.Errorf("%+v", s)
		}
	})
}

// All callers that wait when the source fails get the error at once.
func TestBuffered_TellsAllWhoWait(t *testing.T) {
	bubble(t, func(t *testing.T) {
		c := &counter{n: 10, takes: time.Second, fails: func(int) error { return errAway }}
		g := buffered(t, generator.BufferedConfig{Source: c.fetch})
		begin := time.Now()
		var all sync.WaitGroup
		for range 50 {
			all.Go(func() {
				if _, err := g.Next(t.Context()); !errors.Is(err, errAway) || time.Since(begin) != time.Second {
					t.Errorf("after %v: %v", time.Since(begin), err)
				}
			})
		}
		all.Wait()
	})
}

// While the source fails it is called once a second at most, however many callers wait.
func TestBuffered_DoesNotHammerItsSource(t *testing.T) {
	bubble(t, func(t *testing.T) {
		c := &counter{n: 10, fails: func(int) error { return errAway }}
		g := buffered(t, generator.BufferedConfig{Source: c.fetch})
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		var all sync.WaitGroup
		for range 10 {
			all.Go(func() {
				for ctx.Err() == nil {
					_, err := g.Next(ctx)
					if !errors.Is(err, errAway) && !errors.Is(err, context.DeadlineExceeded) {
						t.Error(err)
					}
				}
			})
		}
		all.Wait()
		if n := c.called(); n < 50 || n > 80 {
			t.Errorf("the source was asked %d times in a minute", n)
		}
	})
}

// Ids that do not ascend may have been handed out before.
func TestBuffered_RefusesRunsThatDoNotAscend(t *testing.T) {
	for _, runs := range [][]generator.Run{
		{{First: 5, N: 3}, {First: 7, N: 1}},
		{{First: 5, N: 3}, {First: 1, N: 100}},
		{{First: -1, N: 3}},
		{{First: 1, N: 0}},
		{{First: 1, N: -1}},
		{{First: math.MaxInt64 - 1, N: 3}},
	} {
		t.Run(fmt.Sprint(runs), func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				var i atomic.Int64
				g := buffered(t, generator.BufferedConfig{Size: 100, Source: func(context.Context, int64) (generator.Run, error) {
					return runs[min(int(i.Add(1)), len(runs))-1], nil
				}})
				if len(runs) > 1 {
					if ids := fill(t, g, 3); !slices.Equal(ids, []int64{5, 6, 7}) {
						t.Error(ids)
					}
				}
				fails(t, g, generator.ErrSource)
			})
		})
	}
	bubble(t, func(t *testing.T) { // to the very last
		g := buffered(t, generator.BufferedConfig{Size: 2, Source: func(context.Context, int64) (generator.Run, error) {
			return generator.Run{First: math.MaxInt64 - 1, N: 2}, nil
		}})
		if ids := fill(t, g, 2); ids[1] != math.MaxInt64 {
			t.Error(ids)
		}
	})
}
