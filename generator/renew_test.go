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

// The laws of this file are those of renewing the lease, for all engines.

var errCause = errors.New("the database is gone")

// nobody is an OnLow that renews nothing.
func nobody() {}

// renew gives g leases.
func renew(tb testing.TB, g generator.Renewable, leases ...generator.Lease) {
	tb.Helper()
	if err := g.Renew(leases...); err != nil {
		tb.Fatal(err)
	}
}

// tickOf returns the tick of an id.
func tickOf(l generator.Layout, id int64) int64 { return id >> (l.WorkerBits + l.SequenceBits) }

// used makes a generator for the present tick only, and takes its 16 ids.
func used(t *testing.T, e engine, low func()) (g generator.Renewable, l generator.Layout, now generator.Lease, last int64) {
	t.Helper()
	l = ticks(time.Second, 4)
	now = lease(l, 1)
	g = e.renewable(t, l, now, low, nil)
	return g, l, now, ascending(t, l, -1, fill(t, g, 16)...)
}

// TestRenew_Refused: what no generator can hold is refused, and changes nothing, a
// suspension included.
func TestRenew_Refused(t *testing.T) {
	bubbles(t, func(t *testing.T, e engine) {
		l := ticks(time.Second, 4)
		l.WorkerBits = 3
		now := lease(l, 1)
		now.WorkerID = 7
		g := e.renewable(t, l, now, nobody, nil)
		of := func(workers ...int64) (leases []generator.Lease) {
			for _, w := range workers {
				leases = append(leases, generator.Lease{WorkerID: w, From: now.From, Until: now.Until + 100})
			}
			return leases
		}
		but := func(leases []generator.Lease, change func(l *generator.Lease)) []generator.Lease {
			change(&leases[len(leases)-1])
			return leases
		}
		for _, tt := range []struct {
			name   string
			leases []generator.Lease
			want   error
		}{
			{"none", nil, generator.ErrConfig},
			{"three", of(1, 2, 3), generator.ErrConfig},
			{"six", of(1, 2, 3, 4, 5, 6), generator.ErrConfig},
			{"more than there are worker ids", of(0, 1, 2, 3, 4, 5, 6, 7, 0, 1, 2, 3, 4, 5, 6, 7), generator.ErrConfig},
			{"twice the same", of(4, 2, 3, 4), generator.ErrConfig},
			{"another beginning", but(of(4, 5), func(l *generator.Lease) { l.From-- }), generator.ErrConfig},
			{"another end", but(of(4, 5), func(l *generator.Lease) { l.Until++ }), generator.ErrConfig},
			{"worker id too large", of(8), generator.ErrLayout},
			{"worker id negative", of(3, -1), generator.ErrLayout},
			{"before the epoch", but(of(7), func(l *generator.Lease) { l.From = -1 }), generator.ErrLayout},
			{"after the end", but(of(7), func(m *generator.Lease) { m.Until = l.MaxTick() + 1 }), generator.ErrLayout},
			{"no tick", but(of(7), func(l *generator.Lease) { l.From = l.Until + 1 }), generator.ErrLayout},
		} {
			g.Suspend(errCause)
			if err := g.Renew(tt.leases...); !errors.Is(err, tt.want) {
				t.Errorf("%s: got %v, want %v", tt.name, err, tt.want)
			}
			if got := g.Usage(); got.Left != 16 || got.Lanes != 1 {
				t.Fatalf("%s: has changed the lease: %+v", tt.name, got)
			}
		}
		for _, id := range fill(t, g, 16) {
			if p := decompose(t, l, id); p.WorkerID != 7 {
				t.Fatalf("an id is of %v", p)
			}
		}
		if _, err := g.Next(t.Context()); !errors.Is(err, errCause) {
			t.Errorf("a refused Renew has lifted the suspension: %v", err)
		}
	})
}

// TestRenew_MovesTheEnd: with the worker id that it has a generator goes on from
// where it is, and its end only grows.
func TestRenew_MovesTheEnd(t *testing.T) {
	bubbles(t, func(t *testing.T, e engine) {
		g, l, now, last := used(t, e, nil)
		for _, until := range []int64{1, 2, 1, 0, 5, 4} { // more than now.Until
			end := now
			end.Until += until
			renew(t, g, end)
		}
		time.Sleep(time.Second) // Snowflake stamps no tick before its time
		for want := last&^l.MaxSequence() + 1<<(l.WorkerBits+l.SequenceBits); tickOf(l, last) < now.Until+5; {
			for _, id := range fill(t, g, 16) {
				if id != want {
					t.Fatalf("after %d comes %d, want %d", last, id, want)
				}
				last = id
				want++
			}
			want += 31 << l.SequenceBits
		}
		if _, err := g.Next(t.Context()); !errors.Is(err, generator.ErrLeaseExpired) {
			t.Errorf("after the largest of all ends: %v", err)
		}
	})
}

// TestRenew_MovesTheBeginning: From above the next id is where it begins, at once,
// however far ahead of the clock; From below changes nothing.
func TestRenew_MovesTheBeginning(t *testing.T) {
	bubbles(t, func(t *testing.T, e engine) {
		l := ticks(time.Second, 4)
		g := e.renewable(t, l, lease(l, 1000), nil, nil)
		now := lease(l, 1).From
		after := ascending(t, l, -1, fill(t, g, 5)...)
		began := time.Now()
		for _, tt := range []struct{ from, until, want int64 }{ // all from now
			{-5, 1000, 0}, {0, 1001, 0}, {1, 1001, 1}, {10, 1001, 10}, {9, 1001, 10}, {10, 1001, 10},
			{20, 30, 20}, // an end before the one it has is not moved
			{1000, 1001, 1000},
			{2000, 2000, 2000}, // nor is what lies between two leases stamped
		} {
			renew(t, g, generator.Lease{WorkerID: 9, From: now + tt.from, Until: now + tt.until})
			after = ascending(t, l, after, next(t, g))
			if got := tickOf(l, after) - now; got != tt.want {
				t.Errorf("with a lease from %d to %d the next id is of tick %d, want %d", tt.from, tt.until, got, tt.want)
			}
		}
		if !time.Now().Equal(began) {
			t.Errorf("nine ids took %v", time.Since(began))
		}
	})
}

// TestRenew_ReplacesTheWorker: another worker id begins with a tick that has none of
// the ids before, from From on.
func TestRenew_ReplacesTheWorker(t *testing.T) {
	bubbles(t, func(t *testing.T, e engine) {
		l := ticks(time.Second, 4)
		g := e.renewable(t, l, lease(l, 1000), nil, nil)
		now := lease(l, 1).From
		after := ascending(t, l, -1, fill(t, g, 5)...)
		for i, tt := range []struct {
			worker     int64
			from, want int64 // ticks from now
		}{
			{3, 0, 1},  // a smaller one
			{12, 0, 2}, // a larger one
			{2, 5, 5}, {12, 9, 9},
			{11, 10, 10}, // just the next
		} {
			if i == 1 || i == 2 {
				time.Sleep(time.Second) // Snowflake stamps no tick before its time
			}
			renew(t, g, generator.Lease{WorkerID: tt.worker, From: now + tt.from, Until: now + 1000})
			id := next(t, g)
			if p := decompose(t, l, id); id <= after || tickOf(l, id) != now+tt.want || p.WorkerID != tt.worker || p.Sequence != 0 {
				t.Errorf("after %d worker %d from %d begins with %v of tick %d, want %d",
					after, tt.worker, tt.from, p, tickOf(l, id)-now, tt.want)
			}
			after = id
		}
		// The end may be a smaller one with another worker id.
		renew(t, g, generator.Lease{WorkerID: 1, From: now, Until: now + 11})
		fill(t, g, 16)
		if id, err := g.Next(t.Context()); !errors.Is(err, generator.ErrLeaseExpired) {
			t.Errorf("beyond the lease of another worker: %d, %v", id, err)
		}
	})
}

// TestRenew_BeforeUse: a generator that has made no id begins its new lease with
// its first tick.
func TestRenew_BeforeUse(t *testing.T) {
	bubbles(t, func(t *testing.T, e engine) {
		l := ticks(time.Second, 4)
		now := lease(l, 100)
		for _, other := range []generator.Lease{{WorkerID: 3, From: now.From}, {WorkerID: 3}, {WorkerID: 20, From: now.From}} {
			g := e.renewable(t, l, now, nil, nil)
			other.Until = now.Until
			renew(t, g, other)
			if id := next(t, g); tickOf(l, id) != now.From {
				t.Errorf("the first id of lease %+v is of tick %d, want %d", other, tickOf(l, id), now.From)
			}
		}
	})
}

// TestRenew_LeaseEndWithoutLow: the error comes at once, and Renew lifts it.
func TestRenew_LeaseEndWithoutLow(t *testing.T) {
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

// TestRenew_WaitForRenew: with OnLow callers wait for the next lease, however long that
// takes, and get its ids at once when it is there, in the order in which they came.
// A context that ends costs none.
func TestRenew_WaitForRenew(t *testing.T) {
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

// TestRenew_WaitingEnds: nobody waits any more when the context of the only one has ended.
func TestRenew_WaitingEnds(t *testing.T) {
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

// TestRenew_FillOverRenewals: a Fill that is longer than a lease waits for one after the
// other, and OnLow, which may answer at once, is enough to have it served.
func TestRenew_FillOverRenewals(t *testing.T) {
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

// TestRenew_LowRenews: OnLow may renew whenever it is called, and the caller does not wait.
func TestRenew_LowRenews(t *testing.T) {
	bubbles(t, func(t *testing.T, e engine) {
		l := ticks(time.Second, 4)
		for skip := range 4 {
			now := lease(l, 1)
			calls, left := 0, skip
			var g generator.Renewable
			g = e.renewable(t, l, now, func() {
				if g.Usage().Left > 0 {
					return
				}
				calls++
				if left--; left < 0 {
					now.From += 2
					now.Until += 2
					renew(t, g, now)
				}
			}, nil)
			fill(t, g, 16)
			start := time.Now()
			next(t, g)
			if took := time.Since(start); took > time.Duration(max(0, skip-1))*20*time.Millisecond {
				t.Errorf("with a Low that renews in its call %d an id took %v", calls, took)
			}
			time.Sleep(time.Until(time.Now().Truncate(time.Second).Add(time.Second)))
		}
	})
}

// TestRenew_Suspend: what the lease has left is handed out; then callers fail at once,
// those who wait already too, with the cause, until it is lifted.
func TestRenew_Suspend(t *testing.T) {
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

// TestRenew_LastTickIsFinal: at the end of the layout there is nothing to renew, nor to
// wait for.
func TestRenew_LastTickIsFinal(t *testing.T) {
	bubbles(t, func(t *testing.T, e engine) {
		l := ticks(time.Second, 4)
		l.TimeBits = 26 // until February 2001
		at := l.Expires().Add(-time.Second)
		asked := 0
		g := e.renewable(t, l, generator.Lease{WorkerID: 9, From: l.MaxTick(), Until: l.MaxTick()},
			func() { asked++ }, func() time.Time { return at })
		fill(t, g, 16)
		for _, suspended := range []error{nil, errCause} {
			g.Suspend(suspended)
			start := time.Now()
			if _, err := g.Next(t.Context()); !errors.Is(err, generator.ErrTimeExhausted) || errors.Is(err, generator.ErrLeaseExpired) {
				t.Errorf("got %v, want ErrTimeExhausted", err)
			}
			if !time.Now().Equal(start) || asked != 0 {
				t.Errorf("waited for %v, and Low was called %d times", time.Since(start), asked)
			}
		}
	})
}

// TestRenew_Patience: when the clock has passed a lease that has ids left, callers wait
// for another for 100 ms, all together, before they get what is left.
func TestRenew_Patience(t *testing.T) {
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

// TestRenew_Low: it is called when less is left than half of what there is from the
// present to the end.
func TestRenew_Low(t *testing.T) {
	bubbles(t, func(t *testing.T, e engine) {
		l := ticks(time.Second, 4)
		for _, tt := range []struct {
			name        string
			from, until int64 // ticks from now
			free        int   // ids that are taken before OnLow is called
		}{
			{"now", 0, 0, 8},
			{"ahead", 10, 10, 8},
			{"begun", -100, 0, 8},
			{"renewed ahead", 20, 20, 8},
		} {
			now := l.TickAt(time.Now())
			var asked atomic.Int64
			lease := generator.Lease{WorkerID: 9, From: now + tt.from, Until: now + tt.until}
			if tt.name == "renewed ahead" {
				lease.From, lease.Until = now, now+10
			}
			g := e.renewable(t, l, lease, func() { asked.Add(1) }, nil)
			lease.From, lease.Until = now+tt.from, now+tt.until
			renew(t, g, lease)
			fill(t, g, tt.free)
			g.Usage()
			time.Sleep(generator.ClockEvery)
			synctest.Wait()
			if asked.Load() != 0 {
				t.Errorf("%s: Low was called after %d ids", tt.name, tt.free)
			}
			next(t, g)
			time.Sleep(generator.ClockEvery) // Cached looks when it is visited
			synctest.Wait()
			if asked.Load() == 0 {
				t.Errorf("%s: Low was not called after %d ids", tt.name, tt.free+1)
			}
			g.Close()
			time.Sleep(time.Until(time.Now().Truncate(time.Second).Add(time.Second)))
		}
	})
}

// TestRenew_Usage tells what was taken and what is left.
func TestRenew_Usage(t *testing.T) {
	bubbles(t, func(t *testing.T, e engine) {
		l := ticks(time.Second, 4)
		lease := lease(l, 5)
		g := e.renewable(t, l, lease, nobody, nil)
		var last generator.Usage
		want := func(where string, tick int64, left uint64, used bool) {
			t.Helper()
			w := generator.Usage{Tick: lease.From + tick, Left: left, Used: used, Lanes: 1}
			if e.name == "Snowflake" {
				w.MaxLanes = 1
			}
			if last = g.Usage(); last != w {
				t.Errorf("%s: %+v, want %+v", where, last, w)
			}
			w.Used = false
			if last = g.Usage(); last != w {
				t.Errorf("%s, again: %+v, want %+v", where, last, w)
			}
		}
		want("at first", 0, 80, false)
		next(t, g)
		want("after an id", 0, 79, true)
		fill(t, g, 10)
		want("after a Fill", 0, 69, true)
		time.Sleep(2 * time.Second)
		want("two ticks later", 2, 48, false) // visited and idle, but not used
		fill(t, g, 16)
		want("with a tick used up", 3, 32, true)
		time.Sleep(time.Hour)
		want("with the lease over", 3, 32, false)
		g.Suspend(errCause)
		fill(t, g, 32)
		want("used up", 5, 0, true)
		if _, err := g.Next(t.Context()); err == nil {
			t.Error("an id of a lease that is used up")
		}
		want("after an error", 5, 0, false)
		lease.Until = l.TickAt(time.Now()) + 1
		renew(t, g, lease)
		want("renewed", 3602, 32, false)
		g.Close()
		want("closed", 3602, 32, false)
	})
}

// TestRenew_CloseEndsWaitForRenew: at once, for those who wait for a lease; and nothing
// can be renewed any more.
func TestRenew_CloseEndsWaitForRenew(t *testing.T) {
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
