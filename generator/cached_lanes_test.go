package generator_test

import (
	"math"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"github.com/uidplugin/uidplugin/generator"
	"github.com/uidplugin/uidplugin/internal/testkit"
)

// manyWorkers is a layout for bubbles with room for all lanes.
func manyWorkers(sequenceBits uint8) generator.Layout {
	l := ticks(time.Second, sequenceBits)
	l.TimeBits, l.WorkerBits = 32, 10
	return l
}

// tickIDs returns all ids of a tick, in the order in which lanes make them.
func tickIDs(l generator.Layout, tick int64, workers ...int64) (ids []int64) {
	for _, w := range slices.Sorted(slices.Values(workers)) {
		for s := range l.MaxSequence() + 1 {
			ids = append(ids, tick<<(l.WorkerBits+l.SequenceBits)|w<<l.SequenceBits|s)
		}
	}
	return ids
}

// Within a tick the lanes are used up in the order of their worker ids, one after the other. Then the next tick
// begins. This holds for Next, and for Fill of any length, and whether the lease is renewed meanwhile or not.
func TestCachedLanes_AreUsedUpInOrder(t *testing.T) {
	bubble(t, func(t *testing.T) {
		l := manyWorkers(3)
		for lanes := 1; lanes <= generator.MaxLanes; lanes *= 2 {
			now := lease(l, 1)
			g := cached(t, generator.CachedConfig{Layout: l, Lease: now})
			workers := spread(lanes, 9, 15)
			renew(t, g, leases(now.From, now.From+9, workers...)...)
			if got := g.Usage(); got.Lanes != lanes || got.Left != uint64(10*8*lanes) || got.Tick != now.From {
				t.Errorf("%d lanes: %+v", lanes, got)
			}
			var want, got []int64
			for tick := now.From; tick <= now.From+9; tick++ {
				want = append(want, tickIDs(l, tick, workers...)...)
			}
			for r := random(uint64(lanes)); len(got) < len(want); {
				slices.Reverse(workers) // the same worker ids, so it continues within the tick
				renew(t, g, leases(now.From, now.From+9, workers...)...)
				ids, err := some(t.Context(), g, r, min(50, len(want)-len(got)))
				testkit.Must(t, err)
				got = append(got, ids...)
			}
			if !slices.Equal(got, want) {
				t.Errorf("%d lanes: got %v, want %v", lanes, got, want)
			}
			fails(t, g, generator.ErrLeaseExpired)
		}
	})
}

// After any change of the lanes, the next id begins the next tick that has no ids yet.
func TestCachedLanes_AChangeBeginsTheNextTick(t *testing.T) {
	bubble(t, func(t *testing.T) {
		l := manyWorkers(3)
		now := lease(l, 1)
		g := cached(t, generator.CachedConfig{Layout: l, Lease: now})
		after, tick := int64(-1), now.From
		for i, lanes := range []int{1, 2, 4, 8, 4, 1, 16, 1, 1, 16, 16, 2, 2} {
			// Each time the worker ids are smaller, and others.
			workers := spread(lanes, int64(100-3*i), 2)
			renew(t, g, leases(now.From, now.From+1000, workers...)...)
			all := tickIDs(l, tick, workers...)
			// Of the last tick all but one, one, all, or more than all.
			n := []int{len(all) - 1, 1, len(all), len(all) + 1}[i%4]
			all = append(all, tickIDs(l, tick+1, workers...)...)[:n]
			got := fill(t, g, n)
			if !slices.Equal(got, all) || got[0] <= after {
				t.Fatalf("%d lanes after %d: got %v, want %v", lanes, after, got, all)
			}
			after = got[n-1]
			tick = tickOf(l, after) + 1
			if i%3 == 0 {
				g.Park()
			}
		}
	})
}

// MaxBorrow is a time, so more lanes give more ids within it. When the number of lanes changes, borrowed time stays
// borrowed.
func TestCachedLanes_MultiplyTheIDsUpToTheLimit(t *testing.T) {
	bubble(t, func(t *testing.T) {
		l := manyWorkers(4)
		now := lease(l, 1000)
		g := cached(t, generator.CachedConfig{Layout: l, Lease: now, MaxBorrow: 10 * time.Second, NoWait: true})
		lanes := func(n int) { renew(t, g, leases(now.From, now.Until, spread(n, 300-int64(n), 1)...)...) }
		all := func(n int) {
			t.Helper()
			fill(t, g, n)
			refused(t, g)
		}
		fill(t, g, 5*16)
		lanes(8) // 5 s were borrowed, 5 are left
		all(5 * 16 * 8)
		lanes(2)
		all(0) // at the limit
		time.Sleep(500 * time.Millisecond)
		all(16)
		time.Sleep(time.Second)
		all(32)
		lanes(4) // of this tick half was used
		all(0)
		time.Sleep(time.Second)
		all(32)
		lanes(1)
		time.Sleep(3500 * time.Millisecond)
		all(3 * 16)
		time.Sleep(time.Hour)
		g.Suspend(nil)
		renew(t, g, leases(now.From, now.Until+10000, spread(16, 100, 1)...)...)
		all(16 * 16 * 10)
		if got := g.Lead(); got != 10*time.Second {
			t.Errorf("at the limit Lead is %v", got)
		}
	})
}

// What may be borrowed, and the time that passes, may each be more than the layout holds.
func TestCachedLanes_LimitOfTheWidestPositionsDoesNotOverflow(t *testing.T) {
	t.Parallel()

	l := generator.Layout{TimeBits: 45, WorkerBits: 4, SequenceBits: 14, Tick: time.Millisecond, Epoch: date(2000, 1, 1)}
	start := l.TimeOf(l.MaxTick())
	var centuries atomic.Int64
	g := cached(t, generator.CachedConfig{Layout: l, Lease: l.FullLease(9, start), MaxBorrow: math.MaxInt64, NoWait: true,
		Clock: generator.NewClock(func() time.Time { return start.Add(time.Duration(centuries.Load()) * 100 * year) })})
	renew(t, g, leases(l.MaxTick(), l.MaxTick(), spread(16, 0, 1)...)...)
	after := int64(-1)
	for i := range 8 {
		ids := fill(t, g, 1<<15)
		if ids[0] <= after || !slices.IsSorted(ids) {
			t.Fatalf("ids from %d after %d", ids[0], after)
		}
		after = ids[len(ids)-1]
		g.Park()
		centuries.Store(int64(i%2 + 1)) // the clock is wrong
	}
	if got := g.Usage(); got.Left != 0 {
		t.Errorf("at the end: %+v", got)
	}
}
