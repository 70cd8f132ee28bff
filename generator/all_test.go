package generator_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/uidplugin/uidplugin/generator"
	"github.com/uidplugin/uidplugin/internal/testkit"
)

// A kind is an engine with its promises. Its generators have a lease of worker id 9, and one of a backup worker if they
// use one. Snowflake is the simplest, so the others are compared with it.
type kind struct {
	engine
	// ascends says that all ids ascend; otherwise those of one worker id do.
	ascends bool
	// borrows says that ids may be of the next ticks when the present one is used up.
	borrows bool
	// lanes is how many worker ids make ids in a tick.
	lanes int64
}

var kinds = []kind{
	{engines[0], true, true, 1},
	{engines[1], true, false, 1},
	{engine{"Paired", func(l generator.Layout, lease generator.Lease, low func(), now func() time.Time) (generator.Generator, error) {
		backup := lease
		backup.WorkerID = l.BackupWorker(lease.WorkerID)
		return generator.NewPaired(generator.PairedConfig{Layout: l, Main: lease, Backup: backup, OnLow: low, Clock: generator.NewClock(now)})
	}}, false, true, 2},
	{engine{"Buffered", func(l generator.Layout, lease generator.Lease, _ func(), now func() time.Time) (generator.Generator, error) {
		if now == nil {
			now = time.Now
		}
		return generator.NewBuffered(generator.BufferedConfig{Source: tickSource(l, lease, now), Size: 4 * (l.MaxSequence() + 1)})
	}}, true, true, 1},
}

// eachKind runs a law for each kind, in a bubble.
func eachKind(t *testing.T, law func(t *testing.T, k kind)) {
	t.Parallel()
	for _, k := range kinds {
		t.Run(k.name, func(t *testing.T) { bubble(t, func(t *testing.T) { law(t, k) }) })
	}
}

// A ledger has every id that was made, and what is wrong with it.
type ledger struct {
	mu    sync.Mutex
	l     generator.Layout
	lease generator.Lease
	ids   map[int64]bool
}

func (b *ledger) add(t *testing.T, k kind, last map[int64]int64, ids ...int64) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, id := range ids {
		p, err := b.l.Decompose(id)
		lane := p.WorkerID
		if k.ascends {
			lane = 0
		}
		switch tick := id >> (b.l.WorkerBits + b.l.SequenceBits); {
		case err != nil:
			t.Error(err)
		case b.ids[id]:
			t.Errorf("id %d was made twice", id)
		case tick < b.lease.From || tick > b.lease.Until:
			t.Errorf("id %d is of tick %d, the lease of %d to %d", id, tick, b.lease.From, b.lease.Until)
		case p.WorkerID != b.lease.WorkerID && (k.lanes == 1 || p.WorkerID != b.l.BackupWorker(b.lease.WorkerID)):
			t.Errorf("id %d is of worker %d", id, p.WorkerID)
		case id <= last[lane]:
			t.Errorf("id %d after %d", id, last[lane])
		}
		b.ids[id], last[lane] = true, id
	}
}

func (b *ledger) size() int64 {
	b.mu.Lock()
	defer b.mu.Unlock()
	return int64(len(b.ids))
}

// Many callers use up a lease while the clock is set back and forth. Each id is made once, the ids of one caller
// ascend, and at the end all callers get the error.
func TestGenerators_UseUpALease(t *testing.T) {
	eachKind(t, func(t *testing.T, k kind) {
		l := ticks(time.Second, 6)
		lease := lease(l, 200)
		var clock wall
		g := k.must(t, l, lease, clock.now)
		b := &ledger{l: l, lease: lease, ids: map[int64]bool{}}
		var all sync.WaitGroup
		for i := range 8 {
			all.Go(func() {
				last := map[int64]int64{}
				for r := random(uint64(i)); ; {
					ids, err := some(t.Context(), g, r, 100)
					if errors.Is(err, generator.ErrLeaseExpired) {
						return
					}
					if err != nil {
						t.Error(err)
						return
					}
					b.add(t, k, last, ids...)
					if k.borrows && r.IntN(20) == 0 {
						clock.step(time.Duration(r.IntN(5)-2) * time.Second)
					}
				}
			})
		}
		all.Wait()
		// A call that fails in the middle loses its ids, and a clock that jumps ahead skips ids. Without either,
		// exactly the ids of the lease are made.
		if most := k.lanes * 200 * 64; b.size() > most || b.size() < most/4 {
			t.Errorf("%d ids of a lease of %d", b.size(), most)
		}
	})
}

// The clock stands still, or goes back by a minute: generators that borrow continue, and the others wait.
func TestGenerators_GoOnWithAFrozenClock(t *testing.T) {
	eachKind(t, func(t *testing.T, k kind) {
		l := ticks(time.Second, 8)
		clock := testkit.NewClock(time.Now())
		g := k.must(t, l, lease(l, 3600), clock.Now)
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		made := 0
		var err error
		for ; err == nil && made < 20*256; made++ {
			if made == 10*256 {
				clock.Add(-time.Minute)
			}
			_, err = g.Next(ctx)
		}
		if k.borrows && err != nil {
			t.Errorf("after %d ids: %v", made, err)
		}
		if !k.borrows && (made != 256+1 || !errors.Is(err, context.DeadlineExceeded)) {
			t.Errorf("%d ids of one tick of 256: %v", made-1, err)
		}
	})
}

// A caller stops waiting when its context ends, and leaves no goroutine, because a bubble ends only when all its
// goroutines have ended.
func TestGenerators_HonourContexts(t *testing.T) {
	eachKind(t, func(t *testing.T, k kind) {
		l := ticks(time.Second, 2)
		lease := lease(l, 1e6)
		g := k.must(t, l, lease, nil)
		ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
		defer cancel()
		begin := time.Now()
		err := g.Fill(ctx, make([]int64, 1_000_000))
		if !errors.Is(err, context.DeadlineExceeded) || time.Since(begin) != 5*time.Second {
			t.Errorf("%v, after %v", err, time.Since(begin))
		}
		next(t, g)
	})
}

// Close ends the waiting of all, and no id is made when it is over.
func TestGenerators_CloseEndsLongFills(t *testing.T) {
	eachKind(t, func(t *testing.T, k kind) {
		l := ticks(time.Second, 2)
		g := k.must(t, l, lease(l, 1e6), nil)
		errs := make(chan error, 3)
		for range cap(errs) {
			go func() {
				errs <- g.Fill(t.Context(), make([]int64, 1_000_000))
			}()
		}
		synctest.Wait()
		g.Close()
		g.Close()
		for range cap(errs) {
			testkit.IsError(t, <-errs, generator.ErrClosed)
		}
		fails(t, g, generator.ErrClosed)
	})
}

func ExampleNewBuffered() {
	// A source of your own: here, the multiples of 1000 and the 9 numbers after each.
	thousand := int64(0)
	source := func(_ context.Context, _ int64) (generator.Run, error) {
		thousand += 1000
		return generator.Run{First: thousand, N: 10}, nil
	}
	g, err := generator.NewBuffered(generator.BufferedConfig{Source: source, Size: 100})
	if err != nil {
		fmt.Println(err)
		return
	}
	defer g.Close()
	ids := make([]int64, 12)
	fmt.Println(g.Fill(context.Background(), ids), ids)
	// Output: <nil> [1000 1001 1002 1003 1004 1005 1006 1007 1008 1009 2000 2001]
}
