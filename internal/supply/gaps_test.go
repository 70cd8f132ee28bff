package supply

import (
	"context"
	"sync"
	"testing"
	"time"

	"github.com/uidplugin/uidplugin/generator"
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
		{generator.DefaultLayout(), 16},     // 1,000 a second are left
		{generator.JSSafeTablesLayout(), 8}, // 100
		{generator.JSSafeLayout(), 512},     // 128
		{generator.SnowflakeLayout(), 4096}, // 1,000
		{with(13, time.Second), 64},         // 128
		{with(6, time.Second), 1},           // 64 without gaps
		{with(7, time.Second), 1},           // 128 without gaps
		{with(8, time.Second), 2},           // 128
		{with(1, time.Millisecond), 2},      // 1,000
		{with(20, time.Millisecond), 4096},  // the largest
		{with(4, 160*time.Millisecond), 1},  // exactly 100 without gaps
		{with(5, 160*time.Millisecond), 2},  // exactly 100
		{with(20, 24*60*time.Minute), 1},    // 12 without gaps
	} {
		if got := Gap(tt.layout); got != tt.want {
			t.Errorf("%v: %d, not %d", tt.layout, got, tt.want)
		}
	}
}

// All ids of a source with gaps are multiples of the gap: for one goroutine or several, one id or many at once. Made
// counts them, and not the numbers between them.
func TestSupplyLeaveGaps_AllIDsAreMultiples(t *testing.T) {
	t.Parallel()

	for _, name := range []string{Cached, Snowflake} {
		s := supplying(t, opens(&counting{}), func(c *Config) {
			c.Default, c.Now, c.Time = name, time.Now, time.Now
			c.Clock = generator.NewClock(time.Now)
		})
		src := s.source(t, "orders", "")
		testkit.Must(t, s.Ensure(t.Context(), nil, []*Source{src}))
		testkit.Must(t, src.Fill(t.Context(), make([]int64, 10), nil))
		s.LeaveGaps(src)
		var mu sync.Mutex
		seen := map[int64]bool{}
		take := func(ids []int64) {
			mu.Lock()
			defer mu.Unlock()
			for _, id := range ids {
				if id%16 != 0 || id == 0 || seen[id] {
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
func TestSupplyLeaveGaps_ErrorsAndForeignIDs(t *testing.T) {
	t.Parallel()

	g := &counting{}
	s := supplying(t, opens(g))
	src := s.source(t, "orders", "mine")
	testkit.Must(t, s.Ensure(t.Context(), nil, []*Source{src}))
	s.LeaveGaps(src)
	id, err := src.Next(t.Context(), nil)
	if testkit.Must(t, err); id != 1 {
		t.Errorf("the foreign id %d", id)
	}
	src.gap.Store(8)
	ids := make([]int64, 3)
	testkit.Must(t, src.Fill(t.Context(), ids, nil))
	if ids[0] != 8 || ids[1] != 16 || ids[2] != 24 {
		t.Errorf("%v", ids)
	}
	g.err = errBroken
	testkit.IsError(t, src.Fill(t.Context(), ids, nil), errBroken, "uidplugin: no id for table orders: the cable is broken")
	if ids[0] != 0 || ids[2] != 0 {
		t.Errorf("%v after an error", ids)
	}
}

// odd makes odd ids only.
type odd struct{ counting }

func (o *odd) Fill(_ context.Context, ids []int64) error {
	for i := range ids {
		o.last += 2
		ids[i] = o.last - 1
	}
	return nil
}

// plain counts up from 1.
type plain struct {
	odd
	last int64
}

func (p *plain) Fill(_ context.Context, ids []int64) error {
	for i := range ids {
		p.last++
		ids[i] = p.last
	}
	return nil
}

// A large batch takes many fills, and all of its ids are multiples: those at the end were not, when fills with and without
// a multiple were counted alike.
func TestSupplyLeaveGaps_ALargeBatchKeepsItsGaps(t *testing.T) {
	t.Parallel()

	m := &made{Generator: &plain{}}
	ids := make([]int64, 1100)
	testkit.Must(t, m.fillWithGaps(t.Context(), ids, largestGap))
	for i, id := range ids {
		if id != int64(i+1)*largestGap {
			t.Fatalf("id %d is %d", i, id)
		}
	}
}

func TestSupplyLeaveGaps_AGeneratorWithoutMultiplesKeepsItsIDs(t *testing.T) {
	t.Parallel()

	m := &made{Generator: &odd{}}
	ids := make([]int64, 2)
	testkit.Must(t, m.fillWithGaps(t.Context(), ids, 16))
	if ids[0]%2 != 1 || ids[1] <= ids[0] {
		t.Errorf("%v", ids)
	}
}
