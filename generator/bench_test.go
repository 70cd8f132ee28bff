package generator_test

import (
	"context"
	"math"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/uidplugin/uidplugin/generator"
)

// Every figure is meant as a ratio to BenchmarkAtomicAdd of the same run:
//
//	go test -run '^$' -bench . -count 10 -cpu 1,2 ./generator/

// lone is an integer on a cache line of its own.
type lone struct {
	_ [64]byte
	n atomic.Uint64
	_ [56]byte
}

func BenchmarkAtomicAdd(b *testing.B) {
	var x lone
	b.ReportAllocs()
	for b.Loop() {
		x.n.Add(1)
	}
}

func BenchmarkAtomicAddParallel(b *testing.B) {
	var x lone
	b.ReportAllocs()
	b.RunParallel(func(pb *testing.PB) {
		for pb.Next() {
			x.n.Add(1)
		}
	})
}

// BenchmarkMutexCounter is the simplest thing that could be right, without a
// clock and without a layout.
func BenchmarkMutexCounter(b *testing.B) {
	var mu sync.Mutex
	var n uint64
	b.ReportAllocs()
	for b.Loop() {
		mu.Lock()
		n++
		mu.Unlock()
	}
}

// wide has the default layout, and may borrow so much that no benchmark comes to the
// limit.
func wide(tb testing.TB) *generator.Cached {
	l := generator.DefaultLayout()
	g, err := generator.NewCached(generator.CachedConfig{Layout: l, Lease: l.FullLease(1, time.Now()), MaxBorrow: math.MaxInt64})
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(g.Close)
	return g
}

func BenchmarkCachedNext(b *testing.B) {
	g, ctx := wide(b), context.Background()
	b.ReportAllocs()
	for b.Loop() {
		if _, err := g.Next(ctx); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkCachedNextParallel(b *testing.B) {
	g, ctx := wide(b), context.Background()
	b.ReportAllocs()
	b.RunParallel(func(pb *testing.PB) {
		for pb.Next() {
			if _, err := g.Next(ctx); err != nil {
				b.Error(err)
				return
			}
		}
	})
}

// BenchmarkCachedFill1000 reports the time of one id, not of a thousand.
func BenchmarkCachedFill1000(b *testing.B) {
	g, ctx := wide(b), context.Background()
	ids := make([]int64, 1000)
	b.ReportAllocs()
	for b.Loop() {
		if err := g.Fill(ctx, ids); err != nil {
			b.Fatal(err)
		}
	}
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/1000, "ns/id")
}

// wideLanes is wide with eight lanes.
func wideLanes(tb testing.TB) *generator.Cached {
	g, l := wide(tb), generator.DefaultLayout()
	from := l.TickAt(time.Now())
	leases := make([]generator.Lease, 8)
	for i := range leases {
		leases[i] = generator.Lease{WorkerID: int64(i*i + 1), From: from, Until: l.MaxTick()}
	}
	if err := g.Renew(leases...); err != nil {
		tb.Fatal(err)
	}
	return g
}

func BenchmarkCachedNextLanes8(b *testing.B) {
	g, ctx := wideLanes(b), context.Background()
	b.ReportAllocs()
	for b.Loop() {
		if _, err := g.Next(ctx); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkCachedNextLanes8Parallel(b *testing.B) {
	g, ctx := wideLanes(b), context.Background()
	b.ReportAllocs()
	b.RunParallel(func(pb *testing.PB) {
		for pb.Next() {
			if _, err := g.Next(ctx); err != nil {
				b.Error(err)
				return
			}
		}
	})
}

// BenchmarkCachedFill1000Lanes8 reports the time of one id, not of a thousand.
func BenchmarkCachedFill1000Lanes8(b *testing.B) {
	g, ctx := wideLanes(b), context.Background()
	ids := make([]int64, 1000)
	b.ReportAllocs()
	for b.Loop() {
		if err := g.Fill(ctx, ids); err != nil {
			b.Fatal(err)
		}
	}
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/1000, "ns/id")
}

// BenchmarkSnowflakeNext has a sequence so long that it never waits for a tick:
// the price of a mutex and of reading the clock.
func BenchmarkSnowflakeNext(b *testing.B) {
	g, ctx := wideDefault(b), context.Background()
	b.ReportAllocs()
	for b.Loop() {
		if _, err := g.Next(ctx); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkSnowflakeNextParallel(b *testing.B) {
	g, ctx := wideDefault(b), context.Background()
	b.ReportAllocs()
	b.RunParallel(func(pb *testing.PB) {
		for pb.Next() {
			if _, err := g.Next(ctx); err != nil {
				b.Error(err)
				return
			}
		}
	})
}

func wideDefault(tb testing.TB) *generator.Snowflake {
	l := seconds(28, 22, 13)
	l.WorkerBits, l.SequenceBits = 4, 31
	g, err := generator.NewSnowflake(generator.SnowflakeConfig{Layout: l, Lease: l.FullLease(1, time.Now())})
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(g.Close)
	return g
}

// BenchmarkCachedMemory makes a generator and its first id. It reports the live
// heap of one out of 10,000 that have made an id and are idle.
func BenchmarkCachedMemory(b *testing.B) {
	bytes := liveBytes(b, 10000)
	l, ctx, clock := generator.DefaultLayout(), context.Background(), generator.NewClock(nil)
	lease := l.FullLease(1, time.Now())
	b.ReportAllocs()
	for b.Loop() {
		g, err := generator.NewCached(generator.CachedConfig{Layout: l, Lease: lease, Clock: clock})
		if err != nil {
			b.Fatal(err)
		}
		if _, err := g.Next(ctx); err != nil {
			b.Fatal(err)
		}
		g.Close()
	}
	b.ReportMetric(bytes, "B/generator")
}
