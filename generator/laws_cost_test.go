package generator_test

import (
	"context"
	"runtime"
	"testing"
	"time"
	"unsafe"

	"github.com/uidplugin/uidplugin/generator"
	"github.com/uidplugin/uidplugin/internal/testkit"
)

// An id allocates no memory. A caller that waits has a timer, and a generator that becomes busy opens a window;
// neither is measured.
func TestGenerators_DoNotAllocate(t *testing.T) {
	testkit.SkipWithRace(t) // the race detector allocates
	l, ctx := wideLayout(), context.Background()
	for i, e := range append(engines, engines[0]) {
		g := e.renewable(t, l, lease(l, 1e6), nobody, nil)
		if i == len(engines) {
			e.name += " with eight lanes"
			renew(t, g, leases(l.TickAt(time.Now()), l.MaxTick(), spread(8, 1, 2)...)...)
		}
		if got := testing.AllocsPerRun(10000, func() { next(t, g) }); got != 0 {
			t.Errorf("%s: Next allocates %v times", e.name, got)
		}
		for _, n := range []int{1, 100, 10000} {
			ids := make([]int64, n)
			if got := testing.AllocsPerRun(1000, func() {
				testkit.Must(t, g.Fill(ctx, ids))
			}); got != 0 {
				t.Errorf("%s: Fill of %d allocates %v times", e.name, n, got)
			}
		}
		if c, ok := g.(*generator.Cached); ok {
			if got := testing.AllocsPerRun(1000, func() { c.Lead() }); got != 0 {
				t.Errorf("%s: Lead allocates %v times", e.name, got)
			}
		}
		if got := testing.AllocsPerRun(1000, func() { g.Usage() }); got != 0 {
			t.Errorf("%s: Usage allocates %v times", e.name, got)
		}
	}
}

// liveBytes returns the heap that one of n idle Cached uses: the generator, its channel and its window. They share a
// clock, have made an id each, and their leases were renewed.
func liveBytes(tb testing.TB, n int) float64 {
	tb.Helper()
	l, clock := seconds(28, 22, 13), generator.NewClock(nil)
	l.Epoch = time.Now().Add(-time.Hour)
	all := make([]*generator.Cached, n)
	before := heap()
	for i := range all {
		g, err := generator.NewCached(generator.CachedConfig{
			Layout: l, Lease: generator.Lease{WorkerID: int64(i), Until: 1e6}, Clock: clock, OnLow: nobody})
		testkit.Must(tb, err)
		next(tb, g)
		renew(tb, g, generator.Lease{WorkerID: int64(i), From: 3600, Until: 2e6})
		next(tb, g)
		g.Park()
		all[i] = g
	}
	after := heap()
	runtime.KeepAlive(all)
	return float64(int64(after-before)) / float64(n)
}

// heap returns the bytes of the heap that are in use.
func heap() uint64 {
	var m runtime.MemStats
	runtime.GC()
	runtime.GC()
	runtime.ReadMemStats(&m)
	return m.HeapAlloc
}

// A window needs two cache lines, and a generator no more.
func TestCached_WindowIsTwoCacheLines(t *testing.T) {
	t.Parallel()

	if generator.WindowSize != 128 && unsafe.Sizeof(uintptr(0)) == 8 || generator.CachedSize > 128 {
		t.Errorf("a window has %d bytes, a generator %d; want 128 and at most as many", generator.WindowSize, generator.CachedSize)
	}
}
