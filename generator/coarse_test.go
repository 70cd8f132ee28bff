package generator_test

import (
	"context"
	"sync"
	"testing"
	"time"

	"github.com/uidplugin/uidplugin/generator"
)

// A reading is a millisecond old at most, while time goes on, and there is no timer when
// nobody asks: a bubble ends.
func TestCoarseClock_IsAMillisecondOldAtMost(t *testing.T) {
	bubble(t, func(t *testing.T) {
		reads := 0
		var mu sync.Mutex
		c := generator.NewCoarseClock(func() time.Time {
			mu.Lock()
			defer mu.Unlock()
			reads++
			return time.Now()
		})
		for range 1000 {
			time.Sleep(137 * time.Microsecond)
			if old := time.Since(c.Now()); old < 0 || old > time.Millisecond {
				t.Fatalf("a reading is %v old", old)
			}
		}
		mu.Lock()
		if reads < 130 || reads > 145 {
			t.Errorf("read %d times in 137 ms", reads)
		}
		mu.Unlock()
		time.Sleep(time.Hour)
		mu.Lock()
		if reads > 145+101 {
			t.Errorf("read %d times, and nobody asked", reads)
		}
		mu.Unlock()
		if old := time.Since(c.Now()); old != 0 {
			t.Errorf("after a rest a reading is %v old", old)
		}
	})
}

// Many goroutines read it while it rests and wakes up: it never goes back.
func TestCoarseClock_NeverGoesBack(t *testing.T) {
	t.Parallel()
	c := generator.NewCoarseClock(nil)
	var all sync.WaitGroup
	for range 8 {
		all.Go(func() {
			var last time.Time
			for range 30 {
				for range 1000 {
					now := c.Now()
					if now.Before(last) {
						t.Errorf("%v after %v", now, last)
						return
					}
					last = now
				}
				time.Sleep(10 * time.Millisecond)
			}
		})
	}
	all.Wait()
}

// BenchmarkCoarseClock is what a generator that reads the clock for each id saves with one
// that is read once a millisecond.
//
//	go test -run '^$' -bench CoarseClock ./generator
func BenchmarkCoarseClock(b *testing.B) {
	l := generator.Layout{TimeBits: 33, WorkerBits: 5, SequenceBits: 24, Tick: time.Second, Epoch: date(2020, 1, 1)}
	for name, read := range map[string]func() time.Time{"machine": time.Now, "coarse": generator.NewCoarseClock(nil).Now} {
		b.Run("read/"+name, func(b *testing.B) {
			for b.Loop() {
				_ = read()
			}
		})
		b.Run("Snowflake/"+name, func(b *testing.B) {
			g, err := generator.NewSnowflake(generator.SnowflakeConfig{Layout: l, Lease: l.FullLease(9, time.Now()), Now: read})
			if err != nil {
				b.Fatal(err)
			}
			defer g.Close()
			for b.Loop() {
				if _, err := g.Next(context.Background()); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
	b.Run("Cached", func(b *testing.B) {
		g, err := generator.NewCached(generator.CachedConfig{Layout: l, Lease: l.FullLease(9, time.Now())})
		if err != nil {
			b.Fatal(err)
		}
		defer g.Close()
		for b.Loop() {
			if _, err := g.Next(context.Background()); err != nil {
				b.Fatal(err)
			}
		}
	})
}
