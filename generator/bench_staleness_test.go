//go:build unix

package generator_test

import (
	"context"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/uidplugin/uidplugin/generator"
)

// BenchmarkStaleness reports by how much the time in an id, the start of its tick,
// lies behind the clock, in the default layout, and what the generators cost of one
// core. The machine must be idle. The CPU time of the callers, who sleep and read
// the clock, is measured on its own and taken off. One op is two seconds of ids:
//
//	go test -run '^$' -bench Staleness ./generator/
func BenchmarkStaleness(b *testing.B) {
	for _, tt := range []struct {
		name       string
		generators int
		every      time.Duration // on average, between the bursts of a generator
		burst      int           // ids, one call each
	}{
		{"50x20", 50, 50 * time.Millisecond, 1},
		{"50x20x10", 50, 50 * time.Millisecond, 10},
		{"1x1000", 1, time.Millisecond, 1},
		{"4x10000", 4, 1600 * time.Microsecond, 16},
	} {
		b.Run(tt.name, func(b *testing.B) {
			l, clock := generator.DefaultLayout(), generator.NewClock(nil)
			all := make([]generator.Generator, tt.generators)
			for i := range all {
				all[i] = cached(b, generator.CachedConfig{Layout: l, Clock: clock})
			}
			var stale []time.Duration
			var used, idle time.Duration
			for b.Loop() {
				before := cpu(b)
				stale = append(stale, takeSteadily(b, l, all, tt.every, tt.burst)...)
				used += cpu(b) - before
				before = cpu(b)
				takeSteadily(b, l, make([]generator.Generator, tt.generators), tt.every, tt.burst)
				idle += cpu(b) - before
			}
			slices.Sort(stale)
			at := func(part float64) float64 { return stale[int(part*float64(len(stale)-1))].Seconds() * 1000 }
			b.ReportMetric(at(0.5), "ms-median")
			b.ReportMetric(at(0.99), "ms-p99")
			b.ReportMetric((used-idle).Seconds()/steadily.Seconds()/float64(b.N)*100, "%core")
			b.ReportMetric(0, "ns/op")
		})
	}
}

const steadily = 2 * time.Second

// takeSteadily takes bursts of ids from each generator, at random times, and returns
// how stale they were. Of a nil generator it only reads the clock.
func takeSteadily(b *testing.B, l generator.Layout, all []generator.Generator, every time.Duration, burst int) (stale []time.Duration) {
	ctx, cancel := context.WithTimeout(context.Background(), steadily)
	defer cancel()
	var mu sync.Mutex
	var callers sync.WaitGroup
	for _, g := range all {
		callers.Go(func() {
			var own []time.Duration
			for ctx.Err() == nil {
				time.Sleep(time.Duration(rand.Int64N(int64(2 * every))))
				for range burst {
					id := int64(0)
					if g != nil {
						var err error
						if id, err = g.Next(context.Background()); err != nil {
							b.Error(err)
							return
						}
					}
					own = append(own, time.Since(l.TimeOf(id>>(l.WorkerBits+l.SequenceBits))))
				}
			}
			mu.Lock()
			defer mu.Unlock()
			stale = append(stale, own...)
		})
	}
	callers.Wait()
	return stale
}
