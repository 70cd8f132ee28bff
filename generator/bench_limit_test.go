//go:build unix

package generator_test

import (
	"context"
	"slices"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/uidplugin/uidplugin/generator"
)

// BenchmarkCachedAtLimit has 64 callers take ids from a generator that is as far
// ahead of the clock as it may be: 8,192 ids a second. It
// reports how much of that rate they got, what it cost of a CPU, and how much the
// unluckiest caller got of its share. One op is an id, so run it for seconds:
//
//	go test -run '^$' -bench AtLimit -benchtime 40000x ./generator/
func BenchmarkCachedAtLimit(b *testing.B) {
	const callers = 64
	l := seconds(28, 22, 13)
	g, err := generator.NewCached(generator.CachedConfig{
		Layout: l, Lease: l.FullLease(1, time.Now()), MaxBorrow: 2 * time.Second,
	})
	if err != nil {
		b.Fatal(err)
	}
	defer g.Close()
	ctx := context.Background()
	if err := g.Fill(ctx, make([]int64, 2*8192+100)); err != nil { // up to the limit
		b.Fatal(err)
	}

	before := cpu(b)
	b.ResetTimer()
	var wg sync.WaitGroup
	left := make(chan struct{}, b.N)
	for range b.N {
		left <- struct{}{}
	}
	close(left)
	got := make([]int, callers)
	for i := range callers {
		wg.Go(func() {
			for range left {
				if _, err := g.Next(ctx); err != nil {
					b.Error(err)
					return
				}
				got[i]++
			}
		})
	}
	wg.Wait()
	b.StopTimer()
	elapsed := b.Elapsed()
	b.ReportMetric(float64(b.N)/elapsed.Seconds()/8192*100, "%rate")
	b.ReportMetric(float64(cpu(b)-before)/float64(elapsed)*100, "%cpu")
	b.ReportMetric(float64(slices.Min(got))*callers/float64(b.N)*100, "%least-share")
}

// cpu returns the CPU time that this process has used.
func cpu(tb testing.TB) time.Duration {
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		tb.Fatal(err)
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}
