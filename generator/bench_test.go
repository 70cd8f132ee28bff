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

// BenchmarkNext measures the cost of an id, for one caller and for many. Compare each figure with that of the atomic
// add in the same run:
//
//	go test -run '^$' -bench . -count 10 -cpu 1,2 ./generator/
func BenchmarkNext(b *testing.B) {
	for _, m := range makers {
		b.Run(m.name, func(b *testing.B) {
			next := m.open(b)
			b.Run("one", func(b *testing.B) {
				b.ReportAllocs()
				for b.Loop() {
					if err := next(); err != nil {
						b.Fatal(err)
					}
				}
			})
			b.Run("parallel", func(b *testing.B) {
				b.ReportAllocs()
				b.RunParallel(func(pb *testing.PB) {
					for pb.Next() {
						if err := next(); err != nil {
							b.Error(err)
							return
						}
					}
				})
			})
		})
	}
}

var now time.Time // so that the compiler keeps the call

// makers are the generators, a look at the clock, and the simplest things that could be right, without a clock and without a layout.
var makers = []struct {
	name string
	open func(b *testing.B) (next func() error)
}{
	{"time.Now", func(*testing.B) func() error { return func() error { now = time.Now(); return nil } }},
	{"atomic add", func(*testing.B) func() error {
		var x struct { // alone on its cache line
			_ [64]byte
			n atomic.Uint64
			_ [56]byte
		}
		return func() error { x.n.Add(1); return nil }
	}},
	{"mutex", func(*testing.B) func() error {
		var mu sync.Mutex
		n := 0
		return func() error {
			mu.Lock()
			defer mu.Unlock()
			n++
			return nil
		}
	}},
	{"Cached", func(b *testing.B) func() error { return nextOf(wide(b)) }},
	{"Cached with eight lanes", func(b *testing.B) func() error { return nextOf(wideLanes(b)) }},
	{"Snowflake", func(b *testing.B) func() error { return nextOf(roomy(b, "Snowflake")) }},
	{"Paired", func(b *testing.B) func() error { return nextOf(roomy(b, "Paired")) }},
	{"Buffered", func(b *testing.B) func() error {
		last := int64(0)
		g, err := generator.NewBuffered(generator.BufferedConfig{Size: 1 << 16, Source: func(context.Context, int64) (generator.Run, error) {
			last += 1 << 13
			return generator.Run{First: last, N: 1 << 13}, nil
		}})
		if err != nil {
			b.Fatal(err)
		}
		b.Cleanup(g.Close)
		return nextOf(g)
	}},
}

func nextOf(g generator.Generator) func() error {
	ctx := context.Background()
	return func() error { _, err := g.Next(ctx); return err }
}

// roomy makes one of kinds with a sequence so long that no benchmark waits for a tick.
func roomy(b *testing.B, name string) generator.Generator {
	l := generator.Layout{TimeBits: 28, WorkerBits: 4, SequenceBits: 31, Tick: time.Second, Epoch: date(2026, 1, 1)}
	for _, k := range kinds {
		if k.name == name {
			return k.must(b, l, l.FullLease(1, time.Now()), nil)
		}
	}
	b.Fatalf("no kind is called %s", name)
	return nil
}

// wide returns a generator with the default layout that may borrow so much that no benchmark reaches the limit.
func wide(tb testing.TB) *generator.Cached {
	return cached(tb, generator.CachedConfig{Layout: generator.DefaultLayout(), MaxBorrow: math.MaxInt64})
}

// wideLanes is wide with eight lanes.
func wideLanes(tb testing.TB) *generator.Cached {
	g, l := wide(tb), generator.DefaultLayout()
	renew(tb, g, leases(l.TickAt(time.Now()), l.MaxTick(), spread(8, 1, 7)...)...)
	return g
}

// BenchmarkCachedFill1000 reports the time of one id, not of a thousand.
func BenchmarkCachedFill1000(b *testing.B) {
	for name, open := range map[string]func(testing.TB) *generator.Cached{"one lane": wide, "eight lanes": wideLanes} {
		b.Run(name, func(b *testing.B) {
			g, ctx := open(b), context.Background()
			ids := make([]int64, 1000)
			b.ReportAllocs()
			for b.Loop() {
				if err := g.Fill(ctx, ids); err != nil {
					b.Fatal(err)
				}
			}
			b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/1000, "ns/id")
		})
	}
}
