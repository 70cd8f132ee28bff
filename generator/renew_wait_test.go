package generator_test

import (
	"context"
	"errors"
	"math"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/uidplugin/uidplugin/generator"
)

// Without OnLow, the end of the lease is an error at once, until Renew.
func TestRenewableRenew_WithoutOnLowTheEndIsAnErrorAtOnce(t *testing.T) {
	bubbles(t, func(t *testing.T, e engine) {
		g, _, now, _ := used(t, e, nil)
		start := time.Now()
		for range 3 {
			if id, err := g.Next(t.Context()); id != 0 || !errors.Is(err, generator.ErrLeaseExpired) {
				t.Fatalf("got %d, %v; want ErrLeaseExpired", id, err)
			}
		}
		if !time.Now().Equal(start) || g.Usage().Waiting {
			t.Errorf("three errors took %v", time.Since(start))
		}
		g.Suspend(errCause)
		if _, err := g.Next(t.Context()); !errors.Is(err, generator.ErrLeaseExpired) || !errors.Is(err, errCause) {
			t.Errorf("suspended: %v", err)
		}
		now.Until += 10
		renew(t, g, now)
		time.Sleep(time.Second)
		next(t, g)
	})
}

// With OnLow, callers wait for the next lease for any time. When it arrives they get its ids at once, in the order in
// which they came. A context that ends skips no id.
func TestRenewableRenew_ServesThoseWhoWaitInOrder(t *testing.T) {
	bubbles(t, func(t *testing.T, e engine) {
		const callers = 20
		var asked atomic.Int64
		g, l, now, last := used(t, e, func() { asked.Add(1) })
		before := asked.Load()
		ids, when := make([]int64, callers), make([]time.Time, callers)
		var waiting sync.WaitGroup
		for i := range callers {
			waiting.Go(func() {
				ctx, cancel := context.WithCancel(context.Background())
				defer cancel()
				if i%3 == 0 {
					time.AfterFunc(time.Duration(i+1)*time.Second, cancel)
				}
				var err error
				if i%2 == 0 {
					ids[i], err = g.Next(ctx)
				} else {
					err = g.Fill(ctx, ids[i:i+1])
				}
				when[i] = time.Now()
				if want := i%3 == 0; want != errors.Is(err, context.Canceled) || want != (err != nil) {
					t.Errorf("caller %d got %v", i, err)
				}
			})
			synctest.Wait()
		}
		if asked.Load() == before || !g.Usage().Waiting {
			t.Errorf("with callers waiting Low was called %d times; %+v", asked.Load()-before, g.Usage())
		}
		start := time.Now()
		time.Sleep(time.Minute + 3*time.Millisecond)
		next := now
		next.From += 61
		next.Until += 100
		renew(t, g, next)
		waiting.Wait()
		for i, id := range ids {
			if i%3 == 0 {
				if when[i].Sub(start) != time.Duration(i+1)*time.Second {
					t.Errorf("caller %d has waited for %v", i, when[i].Sub(start))
				}
				continue
			}
			last = ascending(t, l, last, id)
			if tickOf(l, id) != next.From || id&l.MaxSequence() != int64(i-i/3-1) {
				t.Errorf("caller %d got sequence %d of tick %d", i, id&l.MaxSequence(), tickOf(l, id)-next.From)
			}
			if got := when[i].Sub(start); got != time.Minute+3*time.Millisecond {
				t.Errorf("caller %d got its id %v after it was there", i, got-time.Minute-3*time.Millisecond)
			}
		}
		if g.Usage().Waiting {
			t.Error("nobody waits any more")
		}
	})
}

// TestRenewableUsage_NobodyWaitsAfterTheContextHasEnded: nobody waits any more when the context of the only one has
// ended.
func TestRenewableUsage_NobodyWaitsAfterTheContextHasEnded(t *testing.T) {
	bubbles(t, func(t *testing.T, e engine) {
		g, _, _, _ := used(t, e, nobody)
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		time.AfterFunc(time.Second, func() {
			if !g.Usage().Waiting {
				t.Error("Usage does not say that a caller waits")
			}
		})
		if _, err := g.Next(ctx); !errors.Is(err, context.DeadlineExceeded) || g.Usage().Waiting {
			t.Errorf("got %v, then %+v", err, g.Usage())
		}
	})
}

// TestRenewableRenew_ServesAFillLongerThanALease: a Fill that is longer than a lease waits for one after the
// other, and OnLow, which may answer at once, is enough to have it served.
func TestRenewableRenew_ServesAFillLongerThanALease(t *testing.T) {
	bubbles(t, func(t *testing.T, e engine) {
		l := ticks(time.Second, 4)
		now := lease(l, 1)
		var g generator.Renewable
		renewals := 0
		g = e.renewable(t, l, now, func() {
			if g.Usage().Left == 0 {
				now.Until += 2
				renewals++
				renew(t, g, now)
			}
		}, nil)
		start := time.Now()
		ids := fill(t, g, 100)
		ascending(t, l, -1, ids...)
		if took := time.Since(start); e.name == "Cached" && took != 0 {
			t.Errorf("renewed at once, a Fill waited for %v", took)
		}
		if ids[99]-ids[0] != 6<<(l.WorkerBits+l.SequenceBits)+3 {
			t.Errorf("100 ids from %v to %v are not gapless", decompose(t, l, ids[0]), decompose(t, l, ids[99]))
		}
		if renewals != 3 {
			t.Errorf("of 16 and then 32 ids each 100 took %d renewals", renewals)
		}
	})
}

// TestRenewableSuspend_FailsCallersWithItsCauseUntilItIsLifted: what the lease has left is handed out; then callers
// fail at once, those who wait already too, with the cause, until it is lifted.
func TestRenewableSuspend_FailsCallersWithItsCauseUntilItIsLifted(t *testing.T) {
	bubbles(t, func(t *testing.T, e engine) {
		l := ticks(time.Second, 4)
		now := lease(l, 1)
		g := e.renewable(t, l, now, nobody, nil)
		g.Suspend(errCause)
		start := time.Now()
		after := ascending(t, l, -1, fill(t, g, 16)...)
		refused := func() {
			t.Helper()
			_, err := g.Next(t.Context())
			if !errors.Is(err, generator.ErrLeaseExpired) || !errors.Is(err, errCause) || !strings.Contains(err.Error(), "worker id 9") {
				t.Errorf("suspended: %v", err)
			}
			if err := g.Fill(t.Context(), make([]int64, 3)); !errors.Is(err, errCause) {
				t.Errorf("suspended: %v", err)
			}
		}
		refused()
		for range 3 {
			g.Suspend(nil) // so callers wait again
			var waiting sync.WaitGroup
			for range 5 {
				waiting.Go(func() {
					if _, err := g.Next(context.Background()); !errors.Is(err, generator.ErrLeaseExpired) || !errors.Is(err, errCause) {
						t.Errorf("suspended while waiting: %v", err)
					}
				})
			}
			synctest.Wait()
			if !g.Usage().Waiting || !time.Now().Equal(start) {
				t.Fatalf("callers do not wait: %+v", g.Usage())
			}
			time.Sleep(1234567)
			start = time.Now()
			g.Suspend(errCause)
			waiting.Wait()
			if !time.Now().Equal(start) || g.Usage().Waiting {
				t.Errorf("callers waited for another %v", time.Since(start))
			}
			refused()
		}
		now.Until += 5
		renew(t, g, now) // lifts it
		time.Sleep(2 * time.Second)
		after = ascending(t, l, after, fill(t, g, 16)...)
		now.From, now.Until = now.From+10, now.From+10
		renew(t, g, now)
		ascending(t, l, after, fill(t, g, 16)...)
		go g.Next(t.Context()) // would wait forever
		synctest.Wait()
		if !g.Usage().Waiting {
			t.Error("Renew has not lifted the suspension")
		}
		now.Until += 10
		renew(t, g, now)
	})
}

// TestRenewableRenew_CallersWaitOnceForANewerLease: when the clock has passed a lease that has ids left, callers wait
// for another for 100 ms, all together, before they get what is left.
func TestRenewableRenew_CallersWaitOnceForANewerLease(t *testing.T) {
	bubbles(t, func(t *testing.T, e engine) {
		const leaseWait = 100 * time.Millisecond
		l := ticks(time.Second, 4)
		now := lease(l, 3)
		var asked atomic.Int64
		g := e.renewable(t, l, now, func() { asked.Add(1) }, nil)
		took := func(n int) (ids []int64, d time.Duration) {
			t.Helper()
			start := time.Now()
			ids = fill(t, g, n)
			return ids, time.Since(start)
		}
		ids, _ := took(5)
		after := ascending(t, l, -1, ids...)

		time.Sleep(time.Hour) // the lease is over, and has 43 ids left
		before := asked.Load()
		var waiting sync.WaitGroup
		start := time.Now()
		for i := range 10 { // one after the other, 5 ms apart, some give up
			waiting.Go(func() {
				ctx, cancel := context.WithCancel(t.Context())
				defer cancel()
				if i < 3 {
					time.AfterFunc(60*time.Millisecond, cancel)
				}
				_, err := g.Next(ctx)
				if late := time.Since(start); i < 3 && (!errors.Is(err, context.Canceled) || late != 60*time.Millisecond+time.Duration(i)*5*time.Millisecond) {
					t.Errorf("caller %d: %v after %v", i, err, late)
				} else if i >= 3 && (err != nil || late != leaseWait) {
					t.Errorf("caller %d: %v after %v", i, err, late)
				}
			})
			time.Sleep(5 * time.Millisecond)
			if i == 5 && !g.Usage().Waiting {
				t.Error("Usage does not say that callers wait")
			}
		}
		waiting.Wait()
		if asked.Load() == before {
			t.Error("Low was not called")
		}
		// From now on nobody waits, however often the generator rests.
		ids, d := took(10)
		if d != 0 {
			t.Errorf("then a Fill waited for %v", d)
		}
		after = ascending(t, l, after, ids...)
		time.Sleep(time.Hour)
		ids, d = took(10)
		if d != 0 || tickOf(l, ids[9]) > now.Until {
			t.Errorf("an hour later a Fill waited for %v; last id %v", d, decompose(t, l, ids[9]))
		}
		after = ascending(t, l, after, ids...)

		// Renew in time: the next id is of the present.
		next := lease(l, 3)
		next.From = now.From
		renew(t, g, next)
		ids, d = took(1)
		if d != 0 || tickOf(l, ids[0]) != l.TickAt(time.Now()) {
			t.Errorf("renewed, an id waited for %v and is of %v", d, decompose(t, l, ids[0]).Time)
		}
		after = ascending(t, l, after, ids...)

		// Another worker id is another lease, with a wait of its own.
		renew(t, g, generator.Lease{WorkerID: 8, From: now.From, Until: l.TickAt(time.Now()) + 1})
		time.Sleep(time.Hour)
		if ids, d = took(1); d != leaseWait {
			t.Errorf("an id of another worker waited for %v", d)
		}
		renew(t, g, generator.Lease{WorkerID: 9, From: now.From, Until: l.TickAt(time.Now()) + 1})
		time.Sleep(time.Second) // for a tick that was not begun
		after = ascending(t, l, max(after, ids[0]), fill(t, g, 1)...)

		// While callers wait: they need not any more.
		time.Sleep(time.Hour)
		time.AfterFunc(33*time.Millisecond+1, func() { renew(t, g, generator.Lease{WorkerID: 9, From: now.From, Until: l.TickAt(time.Now()) + 2}) })
		ids, d = took(1)
		if d != 33*time.Millisecond+1 || tickOf(l, ids[0]) != l.TickAt(time.Now()) {
			t.Errorf("renewed while it waits, an id waited for %v and is of %v", d, decompose(t, l, ids[0]).Time)
		}
		after = ascending(t, l, after, ids...)

		// The next end of a lease has a new wait; a suspension has none.
		time.Sleep(time.Hour)
		time.AfterFunc(50*time.Millisecond, func() { g.Suspend(errCause) })
		if ids, d = took(1); d != 50*time.Millisecond {
			t.Errorf("suspended while it waits, an id waited for %v", d)
		}
		after = ascending(t, l, after, ids...)
		if ids, d = took(5); d != 0 {
			t.Errorf("suspended, a Fill waited for %v", d)
		}
		ascending(t, l, after, ids...)
		g.Suspend(nil)
		time.Sleep(generator.ClockEvery) // Cached looks when it is visited
		synctest.Wait()
		if _, d = took(5); d != 50*time.Millisecond {
			t.Errorf("with 50 ms of patience left, a Fill waited for %v", d)
		}
	})
}

// Close ends the wait for a lease at once, and no renewal is possible afterwards.
func TestRenewableClose_EndsTheWaitForALease(t *testing.T) {
	bubbles(t, func(t *testing.T, e engine) {
		for _, stale := range []bool{false, true} {
			g, _, now, _ := used(t, e, nobody)
			if stale {
				now.Until++
				renew(t, g, now)
				time.Sleep(time.Hour)
			}
			var waiting sync.WaitGroup
			for range 10 {
				waiting.Go(func() {
					if _, err := g.Next(context.Background()); !errors.Is(err, generator.ErrClosed) {
						t.Errorf("closed while waiting: %v", err)
					}
				})
			}
			time.Sleep(7 * time.Millisecond)
			synctest.Wait()
			start := time.Now()
			g.Close()
			waiting.Wait()
			if !time.Now().Equal(start) {
				t.Errorf("callers waited for another %v", time.Since(start))
			}
			now.Until = math.MaxInt32
			if err := g.Renew(now); !errors.Is(err, generator.ErrClosed) {
				t.Errorf("Renew after Close: %v", err)
			}
			g.Suspend(errCause)
			if _, err := g.Next(t.Context()); !errors.Is(err, generator.ErrClosed) {
				t.Errorf("Next after Close: %v", err)
			}
		}
	})
}
