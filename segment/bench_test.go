package segment_test

import (
	"sync"
	"testing"

	"github.com/uidplugin/uidplugin/segment"
)

// BenchmarkSegmentNext takes ids one at a time, ranges being fetched from SQLite
// meanwhile; ranges/Mop is how often, for a million ids. Mutex is a counter under a
// lock, to compare with:
//
//	go test -run '^$' -bench Segment -benchmem -cpu 1,2,8 ./segment/
func BenchmarkSegmentNext(b *testing.B) {
	b.Run("MaxStep", func(b *testing.B) { benchmarkNext(b, segment.Config{Step: 1_000_000}) })
	b.Run("Step2000", func(b *testing.B) { benchmarkNext(b, segment.Config{MaxStep: 1}) })
	b.Run("Mutex", func(b *testing.B) {
		var mu sync.Mutex
		var id int64
		b.ReportAllocs()
		b.RunParallel(func(pb *testing.PB) {
			for pb.Next() {
				mu.Lock()
				id++
				mu.Unlock()
			}
		})
	})
}

func benchmarkNext(b *testing.B, c segment.Config) {
	g := open(b, handle(b, file(b)), c)
	ctx := b.Context()
	next(b, g)
	before := g.State().Ranges
	b.ReportAllocs()
	b.ResetTimer()
	b.RunParallel(func(pb *testing.PB) {
		for pb.Next() {
			if _, err := g.Next(ctx); err != nil {
				b.Error(err)
			}
		}
	})
	b.ReportMetric(float64(g.State().Ranges-before)*1e6/float64(b.N), "ranges/Mop")
}

// BenchmarkSegmentFill takes ids 1000 at a time; an op is a batch.
func BenchmarkSegmentFill(b *testing.B) {
	g := open(b, handle(b, file(b)), segment.Config{Step: 1_000_000})
	ids, ctx := make([]int64, 1000), b.Context()
	next(b, g)
	b.ReportAllocs()
	for b.Loop() {
		if err := g.Fill(ctx, ids); err != nil {
			b.Fatal(err)
		}
	}
}
