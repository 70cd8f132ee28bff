package supply

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/uidplugin/uidplugin/generator"
	"github.com/uidplugin/uidplugin/internal/testkit"
)

// counting is a generator of the application.
type counting struct {
	mu     sync.Mutex
	last   int64
	err    error // of Next and Fill
	health func() error
	closed bool
}

func (c *counting) Next(context.Context) (int64, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed {
		return 0, generator.ErrClosed
	}
	c.last++
	return c.last, c.err
}

func (c *counting) Fill(ctx context.Context, ids []int64) (err error) {
	for i := range ids {
		if ids[i], err = c.Next(ctx); err != nil {
			return err
		}
	}
	return nil
}

func (c *counting) Close() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.closed = true
}

func (c *counting) Lead() time.Duration { return time.Minute }
func (c *counting) Made() int64         { return 12 }
func (c *counting) Waits() int64        { return 3 }

func (c *counting) Health() error {
	if c.health != nil {
		return c.health()
	}
	return nil
}

// opener makes the generators of a source of the application.
type opener func(ctx context.Context, table string) (generator.Generator, error)

// supplying returns a Supply with the worker id 7, and with the source "mine" of open. It is closed when the test ends.
func supplying(tb testing.TB, open opener, change ...func(*Config)) *Supply {
	tb.Helper()
	now := func() time.Time { return instant }
	c := Config{Layout: generator.DefaultLayout(), Specs: Builtin(), Default: Cached, Timeout: 10 * time.Second,
		Log: slog.New(slog.DiscardHandler), Now: now, Time: now}
	c.Clock = generator.NewClock(c.Time)
	c.Fixed = NewFixed(c.Layout, 7, 0, c.Now)
	c.DB = testkit.SQLite{}.Open(tb)
	c.Specs["mine"] = Spec{Open: func(ctx context.Context, o Opening) (generator.Generator, error) {
		return open(ctx, o.Table)
	}}
	c.Specs["counter"] = Spec{Counter: true, Open: c.Specs["mine"].Open}
	for _, f := range change {
		f(&c)
	}
	s := New(c)
	tb.Cleanup(func() { s.Close(context.Background()) })
	return s
}

// opens returns the generator g.
func opens(g generator.Generator) opener {
	return func(context.Context, string) (generator.Generator, error) { return g, nil }
}

// source returns the source of the primary key id of a table.
func (s *Supply) source(tb testing.TB, table, name string) *Source {
	tb.Helper()
	src, err := s.Source(table, Column{Name: "id", Primary: true}, name)
	testkit.Must(tb, err)
	return src
}

// Two columns that share a source never get one id twice; two sources of one worker id would.
func TestSupplySource_IsSharedByThoseWhoseIDsMustDiffer(t *testing.T) {
	t.Parallel()

	perTable := func(c *Config) { c.Fixed = nil }
	oneEach := func(c *Config) { c.Fixed, c.OneEach = nil, true }
	type of struct{ table, column, name string }
	for _, tt := range []struct {
		name   string
		change func(*Config)
		a, b   of
		same   bool
	}{
		{"a table each", perTable, of{"a", "id", ""}, of{"b", "id", ""}, false},
		{"two columns", perTable, of{"a", "id", ""}, of{"a", "trace", ""}, true},
		{"two spellings", perTable, of{"a", "id", ""}, of{"a", "id", " CACHED "}, true},
		{"two generators", perTable, of{"a", "id", ""}, of{"a", "id", "snowflake"}, false},
		{"a worker id each", oneEach, of{"a", "id", ""}, of{"b", "id", ""}, true},
		{"a worker id each, two generators", oneEach, of{"a", "id", ""}, of{"b", "id", "snowflake"}, false},
		{"a fixed worker id", func(*Config) {}, of{"a", "id", ""}, of{"b", "trace", "cached"}, true},
		{"counters", func(*Config) {}, of{"a", "id", "counter"}, of{"b", "id", "counter"}, false},
		{"counters of two columns", perTable, of{"a", "id", "counter"}, of{"a", "trace", "counter"}, false},
		{"counters of one column", perTable, of{"a", "id", "counter"}, of{"a", "id", "counter"}, true},
		{"a source of the application", oneEach, of{"a", "id", "mine"}, of{"b", "id", "mine"}, false},
		{"a source and two columns", oneEach, of{"a", "id", "mine"}, of{"a", "trace", "mine"}, true},
	} {
		s := supplying(t, opens(&counting{}), tt.change)
		var got [2]*Source
		for i, of := range [...]of{tt.a, tt.b} {
			var err error
			got[i], err = s.Source(of.table, Column{Name: of.column, Primary: of.column == "id"}, of.name)
			testkit.Must(t, err)
		}
		if (got[0] == got[1]) != tt.same {
			t.Errorf("%s: %+v and %+v", tt.name, got[0].tag, got[1].tag)
		}
		if foreign := got[0].Foreign || got[1].Foreign; s.AnyForeign() != foreign {
			t.Errorf("%s: sources of other ids: %t", tt.name, s.AnyForeign())
		}
	}
}

func TestSupplySource_RefusesGeneratorsThatThereAreNot(t *testing.T) {
	t.Parallel()

	s := supplying(t, opens(&counting{}))
	_, err := s.Source("orders", Column{Name: "id"}, "NoSuch")
	testkit.IsError(t, err, nil, `names the generator "nosuch"`,
		`but only these exist: cached, counter, mine, paired, snowflake`,
		`gorm:"uid" means cached`)
	_, err = s.Source("orders", Column{Name: "id"}, "default") // UidGenerator's name for snowflake is none of ours
	testkit.IsError(t, err, nil, `names the generator "default"`, `but only these exist: cached`)
	_, err = s.Source("orders", Column{Name: "id"}, "snowflake") // this was refused without a way out
	testkit.IsError(t, err, nil, `names the generator "snowflake"`,
		`but with WithWorkerID there is one for all tables, "cached": set it with WithDefaultGenerator("snowflake")`)
	if len(s.sources) != 0 {
		t.Errorf("%d sources", len(s.sources))
	}
}

// Callers that come while a generator is being made must wait for it, and not have it made again.
func TestSupplyEnsure_MakesEachGeneratorOnce(t *testing.T) {
	t.Parallel()

	synctest.Test(t, func(t *testing.T) {
		calls := 0
		s := supplying(t, func(context.Context, string) (generator.Generator, error) {
			calls++
			time.Sleep(time.Second)
			return &counting{}, nil
		})
		src := s.source(t, "orders", "mine")
		var callers sync.WaitGroup
		for range 20 {
			callers.Go(func() {
				if err := s.Ensure(t.Context(), nil, []*Source{src, src}); err != nil || !src.Ready() {
					t.Error(err)
				}
			})
		}
		callers.Wait()
		if testkit.Must(t, s.Ensure(t.Context(), nil, []*Source{src})); calls != 1 {
			t.Errorf("the opener was called %d times", calls)
		}
	})
}

func TestSupplyClose_ClosesAllGeneratorsAndRefusesMore(t *testing.T) {
	t.Parallel()

	mine := &counting{}
	s := supplying(t, opens(mine))
	foreign, ours, late := s.source(t, "a", "mine"), s.source(t, "b", ""), s.source(t, "c", "mine")
	testkit.Must(t, s.Ensure(t.Context(), nil, []*Source{foreign, ours}))
	if s.Closed() || !s.Close(t.Context()) || !s.Closed() || !mine.closed {
		t.Error("it is not closed")
	}
	for _, src := range []*Source{foreign, ours} {
		_, err := src.Next(t.Context(), nil)
		testkit.IsError(t, err, ErrClosed, "no id for "+src.named())
	}
	testkit.IsError(t, s.Ensure(t.Context(), nil, []*Source{late}), ErrClosed)
	if !s.Close(t.Context()) {
		t.Error("it cannot be closed again")
	}
}

// Close must return when its context ends, whatever an opener of the application does.
func TestSupplyClose_DoesNotWaitForAnOpenerThatHangs(t *testing.T) {
	t.Parallel()

	synctest.Test(t, func(t *testing.T) {
		end, late := make(chan struct{}), &counting{}
		s := supplying(t, func(context.Context, string) (generator.Generator, error) {
			<-end
			return late, nil
		})
		src := s.source(t, "orders", "mine")
		waits := make(chan error)
		go func() { waits <- s.Ensure(t.Context(), nil, []*Source{src}) }()
		synctest.Wait()
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if s.Close(ctx) {
			t.Error("it says that nothing goes on")
		}
		testkit.IsError(t, <-waits, ErrClosed, "no generator mine for table orders")
		close(end)
		s.Close(context.Background())
		if !late.closed || src.Ready() {
			t.Error("a generator that came after Close is used")
		}
	})
}

func TestList_IsShort(t *testing.T) {
	t.Parallel()

	for n, want := range map[int]string{
		0: "", 1: "0", 5: "0, 1, 2, 3, 4",
		6: "0, 1, 2, 3, 4 and 1 more", 9: "0, 1, 2, 3, 4 and 4 more",
	} {
		var names []string
		for i := range n {
			names = append(names, fmt.Sprint(i))
		}
		if got := list(slices.Clip(names)); got != want {
			t.Errorf("%d: %q", n, got)
		}
	}
}

// errBroken is how openers fail.
var errBroken = errors.New("the cable is broken")
