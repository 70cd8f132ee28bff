package generator_test

import (
	"errors"
	"testing"
	"time"

	"github.com/uidplugin/uidplugin/generator"
)

// The laws of this file, renew_wait_test.go and renew_low_test.go are those of renewing the lease, for all engines.

// used makes a generator for the present tick only, and takes its 16 ids.
func used(t *testing.T, e engine, low func()) (g generator.Renewable, l generator.Layout, now generator.Lease, last int64) {
	t.Helper()
	l = ticks(time.Second, 4)
	now = lease(l, 1)
	g = e.renewable(t, l, now, low, nil)
	return g, l, now, ascending(t, l, -1, fill(t, g, 16)...)
}

// Leases that no generator can hold are refused, and change nothing, not even a suspension.
func TestRenewableRenew_RefusesWhatNoGeneratorCanHold(t *testing.T) {
	bubbles(t, func(t *testing.T, e engine) {
		l := ticks(time.Second, 4)
		l.WorkerBits = 3
		now := lease(l, 1)
		now.WorkerID = 7
		g := e.renewable(t, l, now, nobody, nil)
		of := func(workers ...int64) []generator.Lease { return leases(now.From, now.Until+100, workers...) }
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
		fails(t, g, errCause) // a refused Renew does not lift the suspension
	})
}

// A renewal with the same worker id continues with the next id. The end of the lease only moves forward.
func TestRenewableRenew_MovesTheEnd(t *testing.T) {
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
		fails(t, g, generator.ErrLeaseExpired) // after the largest of all ends
	})
}

// If From is above the next id, the next id begins there at once, however far ahead of the clock. If From is below,
// it changes nothing.
func TestRenewableRenew_MovesTheBeginning(t *testing.T) {
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

// A new worker id begins at From, with a tick that has none of the earlier ids.
func TestRenewableRenew_ReplacesTheWorker(t *testing.T) {
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
		fails(t, g, generator.ErrLeaseExpired)
	})
}

// A generator that has made no id begins its new lease with its first tick.
func TestRenewableRenew_BeforeUseBeginsWithTheFirstTick(t *testing.T) {
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
