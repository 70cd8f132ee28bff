package generator_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/uidplugin/uidplugin/generator"
	"github.com/uidplugin/uidplugin/internal/testkit"
)

// counts checks what a generator counts.
func counts(t *testing.T, g generator.Generator, made, waits int64) {
	t.Helper()
	if c := g.(tallied); c.Made() != made || c.Waits() != waits {
		t.Errorf("%d ids were made and %d calls have waited; want %d and %d", c.Made(), c.Waits(), made, waits)
	}
}

// Other worker ids, another number of lanes, a jump of the clock and Close take nothing away, and add nothing.
func TestCachedMade_CountsAcrossWindowsAndLanes(t *testing.T) {
	bubble(t, func(t *testing.T) {
		l := ticks(time.Millisecond, 4)
		g := cached(t, generator.CachedConfig{Layout: l, Lease: lease(l, 100_000), OnLow: func() {}})
		want := int64(0)
		take := func(n int) {
			t.Helper()
			for range n {
				next(t, g)
			}
			fill(t, g, n)
			want += 2 * int64(n)
			counts(t, g, want, 0)
		}
		take(1)
		take(1000) // opens a window
		if !g.Open() {
			t.Fatal("no window is open")
		}
		from := l.TickAt(time.Now())
		for _, workers := range [][]int64{{9, 10, 11, 12}, {9}, {3}, {1, 2}} {
			renew(t, g, leases(from, from+200_000, workers...)...)
			counts(t, g, want, 0)
			take(500)
			time.Sleep(10 * time.Second) // far beyond all ids: positions are passed over
			counts(t, g, want, 0)
			take(50)
		}
		g.Close()
		fails(t, g, generator.ErrClosed)
		counts(t, g, want, 0)
	})
}

// A call that waits counts once, however long, and so do those behind it. One that is refused at once does not.
func TestCachedWaits_CountsCallsThatWait(t *testing.T) {
	bubble(t, func(t *testing.T) {
		l := ticks(time.Millisecond, 4)
		g := cached(t, generator.CachedConfig{Layout: l, Lease: lease(l, 100_000), MaxBorrow: time.Millisecond})
		fill(t, g, 16)
		counts(t, g, 16, 0)
		for range 3 { // the first waits for the clock, the others behind it
			go func() { _, _ = g.Next(context.Background()) }()
			synctest.Wait()
		}
		time.Sleep(time.Second)
		counts(t, g, 19, 3)
		fill(t, g, 200) // each millisecond has 16 of them
		made := g.Made()
		if waits := g.Waits(); made != 219 || waits < 4 || waits > 3+200 {
			t.Errorf("%d ids, %d waits", made, waits)
		}
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		before := g.Waits()
		_, err := g.Next(ctx)
		testkit.IsError(t, err, context.Canceled)
		counts(t, g, 219, before)
	})
}

func TestSnowflakeMade_CountsIDsAndWaits(t *testing.T) {
	bubble(t, func(t *testing.T) {
		l := ticks(time.Millisecond, 4)
		g := defaults(t, generator.SnowflakeConfig{Layout: l, Lease: lease(l, 100_000)})
		fill(t, g, 16)
		counts(t, g, 16, 0)
		fill(t, g, 48) // waits for three ticks
		counts(t, g, 64, 1)
		from := l.TickAt(time.Now())
		renew(t, g, leases(from, from+1000, 3)...)
		next(t, g)
		if made := g.Made(); made != 65 {
			t.Errorf("%d ids", made)
		}
	})
}

func TestPairedMade_CountsBothLanes(t *testing.T) {
	bubble(t, func(t *testing.T) {
		l := ticks(time.Millisecond, 4)
		main, backup := lease(l, 100_000), lease(l, 100_000)
		backup.WorkerID = 25
		c := generator.PairedConfig{Layout: l, Main: main, Backup: backup, MaxBorrow: time.Millisecond}
		g := paired(t, c)
		fill(t, g, 32) // 16 of each lane
		counts(t, g, 32, 0)
		next(t, g)
		counts(t, g, 33, 1)
	})
}

func TestBufferedMade_CountsWhatWasTaken(t *testing.T) {
	bubble(t, func(t *testing.T) {
		last := int64(0)
		source := func(context.Context, int64) (generator.Run, error) {
			time.Sleep(time.Second)
			last += 7
			return generator.Run{First: last, N: 7}, nil
		}
		g := buffered(t, generator.BufferedConfig{Size: 10, Source: source})
		fill(t, g, 7)
		counts(t, g, 7, 1)
		time.Sleep(time.Minute) // the buffer is full
		counts(t, g, 7, 1)
		next(t, g)
		counts(t, g, 8, 1)
	})
}
