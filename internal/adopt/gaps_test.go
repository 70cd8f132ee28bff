package adopt

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/uidplugin/uidplugin/generator"
	"github.com/uidplugin/uidplugin/internal/config"
	"github.com/uidplugin/uidplugin/internal/supply"
	"github.com/uidplugin/uidplugin/internal/testkit"
)

func TestGap_LeavesAWorkerIDAHundredIDsASecond(t *testing.T) {
	t.Parallel()

	with := func(sequenceBits uint8, tick time.Duration) generator.Layout {
		l := generator.DefaultLayout()
		l.SequenceBits, l.Tick = sequenceBits, tick
		return l
	}
	for _, tt := range []struct {
		layout generator.Layout
		want   int64
	}{
		{generator.DefaultLayout(), 64},     // 250 a second are left, and a gap spans 4 worker ids
		{generator.JSSafeTablesLayout(), 8}, // 100
		{generator.JSSafeLayout(), 512},     // 128
		{generator.SnowflakeLayout(), 4096}, // 1,000
		{with(13, time.Second), 64},         // 128
		{with(6, time.Second), 1},           // 64 without gaps
		{with(7, time.Second), 1},           // 128 without gaps
		{with(8, time.Second), 2},           // 128
		{with(1, time.Millisecond), 8},      // 250, 4 worker ids
		{with(4, 5*time.Millisecond), 32},   // 100, 2 worker ids
		{with(11, time.Millisecond), 4096},  // 500, 2 worker ids
		{with(20, time.Millisecond), 4096},  // the largest
		{with(4, 160*time.Millisecond), 1},  // exactly 100 without gaps
		{with(5, 160*time.Millisecond), 2},  // exactly 100
		{with(20, 24*60*time.Minute), 1},    // 12 without gaps
	} {
		if got := gapOf(tt.layout); got != tt.want {
			t.Errorf("%v: %d, not %d", tt.layout, got, tt.want)
		}
	}
}

// All ids of a source with gaps begin one: for one goroutine or several, one id or many at once. Made counts them, and
// not the numbers between them.
func TestLeaveGaps_AllIDsBeginAGap(t *testing.T) {
	t.Parallel()

	for name, gap := range map[string]int64{supply.Cached: 64, supply.Snowflake: 16} { // a Snowflake makes callers wait
		n, src := numbering(t, name, nil)
		s := n.supply
		testkit.Must(t, s.Ensure(t.Context(), nil, []*supply.Source{src}))
		testkit.Must(t, src.Fill(t.Context(), make([]int64, 10), nil))
		n.leaveGaps(src)
		var mu sync.Mutex
		seen := map[int64]bool{}
		take := func(ids []int64) {
			mu.Lock()
			defer mu.Unlock()
			for _, id := range ids {
				if id == 0 || seen[id] || after(generator.DefaultLayout(), id, gap) != 0 {
					t.Errorf("%s: the id %d; seen before: %v", name, id, seen[id])
				}
				seen[id] = true
			}
		}
		var group sync.WaitGroup
		for range 4 {
			group.Go(func() {
				for n := range 20 {
					ids := make([]int64, n)
					testkit.Must(t, src.Fill(t.Context(), ids, nil))
					take(ids)
					for i := 1; i < n; i++ {
						if ids[i] <= ids[i-1] {
							t.Errorf("%s: %d after %d", name, ids[i], ids[i-1])
						}
					}
					before := s.States()[0].Made
					id, err := src.Next(t.Context(), nil)
					testkit.Must(t, err)
					take([]int64{id})
					if after := s.States()[0].Made; after < before {
						t.Errorf("%s: %d ids were made, before %d", name, after, before)
					}
				}
			})
		}
		group.Wait()
		if len(seen) != 4*(190+20) {
			t.Errorf("%s: %d ids", name, len(seen))
		}
		if made := s.States()[0].Made; made != 10+int64(len(seen)) {
			t.Errorf("%s: %d ids were made, and 10 before there were gaps; Made is %d", name, len(seen), made)
		}
	}
}

// A generator whose ids are not of the layout has no gaps, and an error of a generator leaves no ids behind.
func TestLeaveGaps_ErrorsAndForeignIDs(t *testing.T) {
	t.Parallel()

	g := &counting{}
	n, src := numbering(t, "foreign", g)
	testkit.Must(t, n.supply.Ensure(t.Context(), nil, []*supply.Source{src}))
	n.leaveGaps(src)
	id, err := src.Next(t.Context(), nil)
	if testkit.Must(t, err); id != 1 {
		t.Errorf("the foreign id %d", id)
	}

	n, src = numbering(t, "mine", g)
	testkit.Must(t, n.supply.Ensure(t.Context(), nil, []*supply.Source{src}))
	src.SetFilter(&filter{layout: n.Layout, gap: 8}) // less than the sequences of a tick
	ids := make([]int64, 3)
	testkit.Must(t, src.Fill(t.Context(), ids, nil))
	if ids[0] != 8 || ids[1] != 16 || ids[2] != 24 {
		t.Errorf("%v", ids)
	}
	g.err = errors.New("the cable is broken")
	testkit.IsError(t, src.Fill(t.Context(), ids, nil), g.err, "uidplugin: no id for table orders: the cable is broken")
	if ids[0] != 0 || ids[2] != 0 {
		t.Errorf("%v after an error", ids)
	}
}

// numbering returns a Numbering, and the source of a table that has the generator name. g is the generator of "mine",
// whose ids are of the layout, and of "foreign".
func numbering(t *testing.T, name string, g generator.Generator) (*Numbering, *supply.Source) {
	t.Helper()
	cfg := config.New()
	open := func(context.Context, supply.Opening) (generator.Generator, error) { return g, nil }
	cfg.Specs["mine"], cfg.Specs["foreign"] = supply.Spec{Open: open, OfLayout: true}, supply.Spec{Open: open}
	s := supply.New(supply.Config{Layout: cfg.Layout, Specs: cfg.Specs, Default: name, Timeout: 10 * time.Second, Log: slog.New(slog.DiscardHandler),
		DB: testkit.SQLite{}.Open(t), Now: time.Now, Time: time.Now, Clock: generator.NewClock(time.Now),
		Fixed: supply.NewFixed(cfg.Layout, 7, 0, time.Now)})
	t.Cleanup(func() { s.Close(context.Background()) })
	src, err := s.Source("orders", supply.Column{Name: "id", Primary: true}, "")
	testkit.Must(t, err)
	return &Numbering{Config: cfg, supply: s}, src
}

// counting counts up from 1 until it has an error.
type counting struct {
	last int64
	err  error
}

func (c *counting) Next(ctx context.Context) (int64, error) {
	var id [1]int64
	err := c.Fill(ctx, id[:])
	return id[0], err
}

func (c *counting) Fill(_ context.Context, ids []int64) error {
	for i := range ids {
		c.last++
		ids[i] = c.last
	}
	return c.err
}

func (c *counting) Close() {}

// odd makes odd ids only.
type odd struct{ counting }

func (o *odd) Fill(_ context.Context, ids []int64) error {
	for i := range ids {
		o.last += 2
		ids[i] = o.last - 1
	}
	return nil
}

// A large batch takes many fills, and all of its ids have gaps: formerly those at the end had none, because fills with
// and without an id that begins a gap were counted alike.
func TestLeaveGaps_ALargeBatchKeepsItsGaps(t *testing.T) {
	t.Parallel()

	f := &filter{layout: generator.SnowflakeLayout(), gap: largestGap}
	ids := make([]int64, 1100)
	testkit.Must(t, f.Fill(t.Context(), &counting{}, ids))
	for i, id := range ids {
		if id != int64(i+1)*largestGap {
			t.Fatalf("id %d is %d", i, id)
		}
	}
}

func TestLeaveGaps_AGeneratorWithoutSuchIDsKeepsItsOwn(t *testing.T) {
	t.Parallel()

	f := &filter{layout: generator.DefaultLayout(), gap: 16}
	ids := make([]int64, 2)
	testkit.Must(t, f.Fill(t.Context(), &odd{}, ids))
	if ids[0]%2 != 1 || ids[1] <= ids[0] {
		t.Errorf("%v", ids)
	}
}

// slow makes ids in order, a tick of 16 a while.
type slow struct{ counting }

func (s *slow) Fill(ctx context.Context, ids []int64) error {
	time.Sleep(slowFill + time.Millisecond)
	return s.counting.Fill(ctx, ids)
}

// While creates wait for ids, a gap costs no more ids than a tick has. Otherwise a table that needs nearly all ids of
// its worker id would stand still.
func TestLeaveGaps_AreSmallerWhileCreatesWait(t *testing.T) {
	t.Parallel()

	synctest.Test(t, func(t *testing.T) {
		f, g := &filter{layout: generator.DefaultLayout(), gap: 64}, &slow{}
		var id [1]int64
		taken := func() int64 {
			before := g.last
			testkit.Must(t, f.Fill(t.Context(), g, id[:]))
			if id[0]%16 != 0 {
				t.Errorf("the id %d", id[0])
			}
			return g.last - before
		}
		if first, second := taken(), taken(); first != 64 || second != 16 {
			t.Errorf("%d ids, then %d", first, second)
		}
		time.Sleep(time.Second)
		if n := taken(); n != 64 {
			t.Errorf("%d ids after a second", n)
		}
	})
}

// The numbers in a gap follow only its id: the worker ids of these numbers make no id in the same tick.
func TestBefore_IsTheIDThatANumberFollows(t *testing.T) {
	t.Parallel()

	l := generator.DefaultLayout()
	id := func(tick, worker, sequence int64) int64 { return tick<<22 | worker<<4 | sequence }
	for _, tt := range []struct{ number, want int64 }{ // 0: none, or it has the worker id
		{id(8, 4, 0), 0},
		{id(8, 4, 15), 0},
		{id(8, 5, 0), id(8, 4, 0)},
		{id(8, 7, 15), id(8, 4, 0)},
		{id(8, 8, 0), 0},
		{id(9, 4, 3), id(9, 1, 0)},
		{id(11, 3, 0), 0},
		{id(11, 2, 0), 0}, // its id would be of the tick before
		{id(10, 1<<18-1, 9), id(10, 1<<18-2, 0)},
	} {
		if got, ok := Before(l, tt.number); ok != (tt.want != 0) || ok && got != tt.want {
			t.Errorf("%d follows %d, %v, not %d", tt.number, got, ok, tt.want)
		}
	}
	for _, l := range []generator.Layout{generator.SnowflakeLayout(), generator.JSSafeTablesLayout(), generator.JSSafeLayout()} {
		if got, ok := Before(l, 1<<40|12345); ok {
			t.Errorf("%v: follows %d", l, got) // a gap is of one worker id
		}
	}
}
