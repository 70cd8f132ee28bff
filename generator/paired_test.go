package generator_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/uidplugin/uidplugin/generator"
	"github.com/uidplugin/uidplugin/internal/testkit"
)

func paired(t *testing.T, c generator.PairedConfig) *generator.Paired {
	t.Helper()
	g, err := generator.NewPaired(c)
	testkit.Must(t, err)
	t.Cleanup(g.Close)
	return g
}

// pairOf configures worker id 3 of the 53-bit variant and its backup, 19.
func pairOf(c *testkit.Clock) generator.PairedConfig {
	l := generator.JSSafeLayout()
	return generator.PairedConfig{Layout: l, Main: l.FullLease(3, c.Now()), Backup: l.FullLease(l.BackupWorker(3), c.Now()), Clock: generator.NewClock(c.Now)}
}

// On a clock that stands still, the published code of the variant makes 65,535 ids on each lane, 65,535 more of the
// next second, and one more: 196,606. Then it fails.
func TestPaired_GoesOnWhereTheArticleStops(t *testing.T) {
	bubble(t, func(t *testing.T) {
		c := testkit.NewClock(date(2026, 1, 1))
		config := pairOf(c)
		g := paired(t, config)
		l := config.Layout
		ledger := testkit.NewLedger(t)
		of := map[int64]int{} // by worker id
		var latest time.Time
		for range 300_000 {
			id := next(t, g)
			p := decompose(t, l, id)
			if ledger.Add("pair", id); id > 1<<53-1 || p.Time.Before(c.Now()) {
				t.Fatalf("id %d, of %v", id, p.Time)
			}
			if p.WorkerID == 3 && !p.Time.Equal(c.Now()) {
				t.Fatalf("the main lane's id %d has %v", id, p.Time)
			}
			of[p.WorkerID]++
			if p.Time.After(latest) {
				latest = p.Time
			}
		}
		if len(of) != 2 || of[3] != 65_536 || of[19] != 300_000-65_536 || latest.Sub(c.Now()) != 3*time.Second {
			t.Errorf("%v, the latest %v ahead", of, latest.Sub(c.Now()))
		}
	})
}

// After the backup lane was used, the published code makes no id while the clock is more than a second back.
func TestPaired_MakesIDsAfterARollback(t *testing.T) {
	bubble(t, func(t *testing.T) {
		noon := date(2026, 1, 1)
		c := testkit.NewClock(noon)
		config := pairOf(c)
		g := paired(t, config)
		l := config.Layout
		ledger := testkit.NewLedger(t)
		take := func(n int, worker int64) {
			t.Helper()
			for range n {
				id := next(t, g)
				ledger.Add("pair", id)
				if p := decompose(t, l, id); p.WorkerID != worker {
					t.Fatalf("id %d of worker %d, want %d", id, p.WorkerID, worker)
				}
			}
		}
		take(10, 3)
		c.Set(noon.Add(-time.Minute))
		take(10, 19)
		c.Set(noon.Add(-2 * time.Minute))
		take(100_000, 19)
		c.Set(noon)
		take(10, 3)
		c.Set(noon.Add(time.Second))
		take(65_536, 3)
		take(10, 19)
	})
}

// At the bound callers wait until the clock has caught up, or their context ends.
func TestPaired_BorrowsUpToItsBound(t *testing.T) {
	bubble(t, func(t *testing.T) {
		l := ticks(time.Second, 4)
		now := time.Now()
		lease := l.FullLease(9, now)
		backup := lease
		backup.WorkerID = l.BackupWorker(9)
		g := paired(t, generator.PairedConfig{Layout: l, Main: lease, Backup: backup, MaxBorrow: 3 * time.Second})
		ctx, cancel := context.WithTimeout(t.Context(), time.Millisecond)
		defer cancel()
		n := 0
		for ; ; n++ {
			if _, err := g.Next(ctx); errors.Is(err, context.DeadlineExceeded) {
				break
			} else if err != nil {
				t.Fatal(err)
			}
		}
		if n != 16+3*16 {
			t.Errorf("%d ids at once", n)
		}
		fill(t, g, 200)
		// Two lanes make 32 a second.
		if took := time.Since(now); took < 6*time.Second || took > 8*time.Second {
			t.Errorf("200 more took %v", took)
		}
	})
}

// A call that gets ids from both lanes gets them in order.
func TestPairedFill_Ascends(t *testing.T) {
	bubble(t, func(t *testing.T) {
		l := ticks(time.Second, 4)
		for _, worker := range []int64{9, 25} { // the main lane may have the larger worker id
			lease := l.FullLease(worker, time.Now())
			backup := lease
			backup.WorkerID = l.BackupWorker(worker)
			g := paired(t, generator.PairedConfig{Layout: l, Main: lease, Backup: backup})
			for _, n := range []int{10, 30, 100, 1, 16} {
				if ids := fill(t, g, n); !slices.IsSorted(ids) {
					t.Errorf("%v", ids)
				}
			}
		}
	})
}

func TestPairedRenew_MovesBothLanes(t *testing.T) {
	bubble(t, func(t *testing.T) {
		l := ticks(time.Second, 2)
		from := l.TickAt(time.Now())
		lease := func(worker, n int64) generator.Lease { return leases(from, from+n-1, worker)[0] }
		asked := 0
		g := paired(t, generator.PairedConfig{Layout: l, Main: lease(5, 5), Backup: lease(7, 5), OnLow: func() { asked++ }})
		if u := g.Usage(); u.Lanes != 2 || u.MaxLanes != 2 || u.Left != 40 {
			t.Errorf("%+v", u)
		}
		workers := func(n int) map[int64]int {
			of := map[int64]int{}
			for _, id := range fill(t, g, n) {
				of[decompose(t, l, id).WorkerID]++
			}
			return of
		}
		if of := workers(4); of[5] != 4 {
			t.Errorf("at first: %v", of)
		}
		renew(t, g, lease(7, 10), lease(5, 10))
		if u := g.Usage(); u.Lanes != 2 || u.Left != 36+40 {
			t.Errorf("%+v", u)
		}
		if of := workers(8); of[5] != 0 || of[7] != 8 {
			t.Errorf("within the same tick: %v", of)
		}
		time.Sleep(time.Second)
		if of := workers(8); of[5] != 4 || of[7] != 4 {
			t.Errorf("in the next: %v", of)
		}
		renew(t, g, lease(2, 20), lease(4, 20))
		time.Sleep(time.Second)
		if of := workers(8); of[2] == 0 || of[4] == 0 || of[5]+of[7] != 0 {
			t.Errorf("with others: %v", of)
		}
		for _, leases := range [][]generator.Lease{{}, {lease(5, 9)}, {lease(1, 5), lease(2, 5), lease(3, 5), lease(4, 5)}, {lease(1, 5), lease(1, 5)}, {lease(1, 5), lease(2, 6)}} {
			if err := g.Renew(leases...); !errors.Is(err, generator.ErrConfig) {
				t.Errorf("%v: %v", leases, err)
			}
		}
		g.Suspend(errCause)
		if err := g.Fill(t.Context(), make([]int64, 1000)); !errors.Is(err, errCause) || asked == 0 {
			t.Errorf("%v, asked %d times", err, asked)
		}
		g.Close()
		testkit.IsError(t, g.Renew(lease(2, 20), lease(4, 20)), generator.ErrClosed)
	})
}

// A pair that shares a worker id, or has no lease for one, would make ids twice or none.
func TestNewPaired_RefusesBadSettings(t *testing.T) {
	t.Parallel()
	l := generator.JSSafeLayout()
	now := date(2026, 1, 1)
	c := testkit.NewClock(now)
	for _, change := range []func(*generator.PairedConfig){
		func(p *generator.PairedConfig) { p.Layout.TimeBits = 60 },
		func(p *generator.PairedConfig) { p.Main.WorkerID = 32 },
		func(p *generator.PairedConfig) { p.Backup.WorkerID = 32 },
		func(p *generator.PairedConfig) { p.Backup = p.Main },
		func(p *generator.PairedConfig) { p.Backup = generator.Lease{} },
		func(p *generator.PairedConfig) { p.Main = generator.Lease{From: 1} },
		func(p *generator.PairedConfig) { p.MaxBorrow = time.Millisecond },
	} {
		config := pairOf(c)
		change(&config)
		if _, err := generator.NewPaired(config); !errors.Is(err, generator.ErrConfig) && !errors.Is(err, generator.ErrLayout) {
			t.Errorf("%+v: %v", config, err)
		}
	}
	if l.BackupWorker(0) != 16 || l.BackupWorker(31) != 15 {
		t.Error("the highest bit is not what differs")
	}
}

// The main lane's worker id is lost, and replaced by a higher one: the backup's becomes the main's.
func TestPairedRenew_ReplacesItsWorkerIDs(t *testing.T) {
	c := testkit.NewClock(date(2026, 1, 1))
	l := seconds(28, 22, 13)
	tick := l.TickAt(c.Now())
	at := func(w int64) generator.Lease { return generator.Lease{WorkerID: w, From: tick, Until: tick + 60} }
	g := paired(t, generator.PairedConfig{Layout: l, Main: at(5), Backup: at(9), Clock: generator.NewClock(c.Now), OnLow: func() {}})
	ledger := testkit.NewLedger(t)
	for range 8192 * 6 {
		ledger.Add("before Renew", next(t, g))
	}
	c.Add(2 * time.Second)
	// guarded: the new lease of 12 begins later
	n9, n12 := at(9), at(12)
	n9.From, n12.From = tick+2, tick+2
	testkit.Must(t, g.Renew(n9, n12))
	for range 8192 * 3 {
		ledger.Add("after Renew", next(t, g))
	}
}

// No other lease arrives, and the main lane has ids of all future ticks. Formerly a caller that had changed to the
// backup lane waited there for a lease, without end unless the generator was suspended, although the main lane could
// serve it.
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

// Near the end of the layout the backup lane, which borrows, is used up before the main lane. Callers wait for that
// one.
func TestPaired_UsesUpItsMainLaneAtTheEndOfTheLayout(t *testing.T) {
	bubble(t, func(t *testing.T) {
		l := generator.Layout{TimeBits: 8, WorkerBits: 4, SequenceBits: 1, Tick: time.Second, Epoch: time.Now().Add(-253 * time.Second)}
		now := l.TickAt(time.Now()) // three ticks are left
		g := paired(t, generator.PairedConfig{Layout: l,
			Main: generator.Lease{WorkerID: 1, From: now, Until: l.MaxTick()}, Backup: generator.Lease{WorkerID: 9, From: now, Until: l.MaxTick()}})
		seen := map[int64]bool{}
		for len(seen) < 12 { // of both lanes
			id, err := g.Next(t.Context())
			if err != nil || seen[id] || g.Health() != nil && len(seen) < 11 {
				t.Fatalf("%d of 12: %d, %v; Health is %v", len(seen), id, err, g.Health())
			}
			seen[id] = true
		}
		fails(t, g, generator.ErrTimeExhausted)
		testkit.IsError(t, g.Health(), generator.ErrTimeExhausted)
	})
}
