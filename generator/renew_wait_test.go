package generator_test

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/uidplugin/uidplugin/generator"
	"github.com/uidplugin/uidplugin/internal/testkit"
)

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

// Ids that the lease has left are handed out. Then callers fail at once with the cause, also those who wait already,
// until Suspend with nil or Renew lifts it.
func TestRenewableSuspend_FailsCallersWithItsCauseUntilItIsLifted(t *testing.T) {
	bubbles(t, func(t *testing.T, e engine) {
		l := ticks(time.Second, 4)
		now := lease(l, 1)
		g := e.renewable(t, l, now, nobody, nil)
		g.Suspend(errCause)
		after := ascending(t, l, -1, fill(t, g, 16)...)
		fails := func(start time.Time) {
			t.Helper()
			_, err := g.Next(context.Background())
			testkit.IsError(t, err, generator.ErrLeaseExpired, "worker id 9")
			testkit.IsError(t, err, errCause)
			if err := g.Fill(context.Background(), make([]int64, 3)); !errors.Is(err, errCause) || !time.Now().Equal(start) {
				t.Errorf("suspended: %v after %v", err, time.Since(start))
			}
		}
		fails(time.Now())
		for range 2 {
			g.Suspend(nil) // so callers wait again
			var waiting sync.WaitGroup
			end := time.Now().Add(1234567)
			for range 5 {
				waiting.Go(func() { fails(end) })
			}
			synctest.Wait()
			if !g.Usage().Waiting {
				t.Fatalf("callers do not wait: %+v", g.Usage())
			}
			time.Sleep(1234567)
			g.Suspend(errCause)
			if waiting.Wait(); g.Usage().Waiting {
				t.Error("Usage says that a caller waits")
			}
		}
		now.Until += 5
		renew(t, g, now)
		time.Sleep(2 * time.Second)
		ascending(t, l, after, fill(t, g, 4*16)...)
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		if _, err := g.Next(ctx); !errors.Is(err, context.DeadlineExceeded) || g.Usage().Waiting {
			t.Errorf("after Renew a caller gets %v; %+v", err, g.Usage())
		}
	})
}

// When the clock has passed a lease that has ids left, callers wait for another for 100 ms, all together, before they
// get what is left. Each new lease has such a wait; a suspension ends it.
func TestRenewableRenew_CallersWaitOnceForANewerLease(t *testing.T) {
	bubbles(t, func(t *testing.T, e engine) {
		l := ticks(time.Second, 4)
		var asked atomic.Int64
		g := e.renewable(t, l, lease(l, 3), func() { asked.Add(1) }, nil)
		after := ascending(t, l, -1, fill(t, g, 5)...)
		waits := func(where string, n int, want time.Duration) {
			t.Helper()
			time.Sleep(generator.ClockEvery) // Cached looks when it is visited
			synctest.Wait()
			start := time.Now()
			after = ascending(t, l, after, fill(t, g, n)...)
			if got := time.Since(start); got != want {
				t.Errorf("%s: a caller waited for %v, want %v", where, got, want)
			}
		}
		present := func(where string) {
			t.Helper()
			if tickOf(l, after) != l.TickAt(time.Now()) {
				t.Errorf("%s: an id is of %v", where, decompose(t, l, after).Time)
			}
		}
		renewed := func() { renew(t, g, leases(l.TickAt(time.Now())-9, l.TickAt(time.Now())+2, 9)...) }

		time.Sleep(time.Hour) // the lease is over, and has 43 ids left
		before := asked.Load()
		var waiting sync.WaitGroup
		start := time.Now()
		for i := range 10 { // 5 ms apart; some give up
			waiting.Go(func() {
				ctx, cancel := context.WithCancel(t.Context())
				defer cancel()
				if i < 3 {
					time.AfterFunc(60*time.Millisecond, cancel)
				}
				_, err := g.Next(ctx)
				if late := time.Since(start); i < 3 && (!errors.Is(err, context.Canceled) || late != time.Duration(60+5*i)*time.Millisecond) ||
					i >= 3 && (err != nil || late != 100*time.Millisecond) {
					t.Errorf("caller %d: %v after %v", i, err, late)
				}
			})
			time.Sleep(5 * time.Millisecond)
		}
		if waiting.Wait(); asked.Load() == before || g.Usage().Waiting {
			t.Errorf("OnLow was called %d times, %+v", asked.Load()-before, g.Usage())
		}
		after += 7 // those of the callers above
		waits("the wait is over", 10, 0)
		time.Sleep(time.Hour)
		waits("an hour later", 10, 0)
		renewed()
		waits("renewed", 1, 0)
		present("renewed")
		time.Sleep(time.Hour)
		time.AfterFunc(33*time.Millisecond+generator.ClockEvery, renewed)
		waits("renewed meanwhile", 1, 33*time.Millisecond)
		present("renewed meanwhile")
		time.Sleep(time.Hour)
		time.AfterFunc(50*time.Millisecond+generator.ClockEvery, func() { g.Suspend(errCause) })
		waits("suspended meanwhile", 1, 50*time.Millisecond)
		waits("suspended", 5, 0)
		g.Suspend(nil)
		waits("with 50 ms left", 5, 50*time.Millisecond)
	})
}
