package generator_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/uidplugin/uidplugin/generator"
)

// The main lane's worker id is lost, and replaced by a higher one: the backup's becomes the main's.
func TestPairedReplaced(t *testing.T) {
	c := &stopped{time: date(2026, 1, 1)}
	l := seconds(28, 22, 13)
	tick := l.TickAt(c.now())
	at := func(w int64) generator.Lease { return generator.Lease{WorkerID: w, From: tick, Until: tick + 60} }
	g := paired(t, generator.PairedConfig{Layout: l, Main: at(5), Backup: at(9), Clock: generator.NewClock(c.now), OnLow: func() {}})
	seen := map[int64]bool{}
	for range 8192 * 6 {
		seen[next(t, g)] = true
	}
	c.set(c.now().Add(2 * time.Second))
	// guarded: the new lease of 12 begins later
	n9, n12 := at(9), at(12)
	n9.From, n12.From = tick+2, tick+2
	if err := g.Renew(n9, n12); err != nil {
		t.Fatal(err)
	}
	for i := range 8192 * 3 {
		id := next(t, g)
		if seen[id] {
			p, _ := l.Decompose(id)
			t.Fatalf("twice: %d (%dth after Renew, %+v)", id, i, p)
		}
		seen[id] = true
	}
}

// No other lease arrives, and the main lane has ids of all ticks to come. A caller who
// had come to the backup lane waited there for a lease, without end unless the generator
// was suspended, although the main lane went on.
func TestPairedFill_GoesOnWithTheMainLane(t *testing.T) {
	for _, suspended := range []bool{false, true} {
		t.Run(fmt.Sprint(suspended), func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				l := generator.Layout{TimeBits: 30, WorkerBits: 10, SequenceBits: 4, Tick: time.Second, Epoch: date(2000, 1, 1).Add(-time.Hour)}
				now := time.Now()
				tick := l.TickAt(now)
				at := func(w int64) generator.Lease { return generator.Lease{WorkerID: w, From: tick, Until: tick + 9} }
				g := paired(t, generator.PairedConfig{Layout: l, Main: at(5), Backup: at(9), OnLow: nobody})
				if suspended {
					g.Suspend(errors.New("database away"))
				}
				for n := range 16 * 20 {
					ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
					_, err := g.Next(ctx)
					cancel()
					if err != nil {
						t.Fatalf("after %d ids of %d, %v, with %+v left: %v", n, 16*20, time.Since(now), g.Usage(), err)
					}
				}
			})
		})
	}
}

func TestBufferedCloseFull2(t *testing.T) {
	next := int64(0)
	g, err := generator.NewBuffered(generator.BufferedConfig{Size: 2,
		Source: func(context.Context, int64) (generator.Run, error) {
			next += 100_000_000
			return generator.Run{First: next, N: 3 << 24}, nil // a tick's, more than there is room for
		},
		Full: func(ctx context.Context, try int) error { time.Sleep(time.Millisecond); return nil }})
	if err != nil {
		t.Fatal(err)
	}
	time.Sleep(50 * time.Millisecond)
	closes(t, g)
}

func closes(t *testing.T, g generator.Generator) {
	t.Helper()
	done := make(chan struct{})
	go func() { g.Close(); close(done) }()
	select {
	case <-done:
	case <-time.After(3 * time.Second):
		t.Fatal("Close has not returned after 3 s")
	}
}

// An Empty that looks again at once.
func TestBufferedEmptyContext(t *testing.T) {
	g, err := generator.NewBuffered(generator.BufferedConfig{
		Source: func(ctx context.Context, _ int64) (generator.Run, error) {
			<-ctx.Done()
			return generator.Run{}, ctx.Err()
		},
		Empty: func(context.Context, int) error { time.Sleep(time.Millisecond); return nil }})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	done := make(chan error, 1)
	go func() { _, err := g.Next(ctx); done <- err }()
	select {
	case err := <-done:
		t.Log(err)
	case <-time.After(3 * time.Second):
		t.Error("Next has not returned 3 s after its context ended")
	}
	g.Close()
}
