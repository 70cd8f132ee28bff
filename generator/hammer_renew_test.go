package generator_test

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"runtime"
	"sync"
	"testing"
	"time"

	"github.com/uidplugin/uidplugin/generator"
)

// A renewer gives a generator leases of all kinds while many callers use it, and records what it has granted.
type renewer struct {
	g      generator.Renewable
	layout generator.Layout
	low    chan struct{}

	mu      sync.Mutex
	all     grants
	workers []int64
	lanes   int  // index of lanesInTurn
	wild    bool // several renew at once
}

var lanesInTurn = []int{1, 2, 4, 8, 4, 1}

// asked is an OnLow.
func (a *renewer) asked() {
	select {
	case a.low <- struct{}{}:
	default:
	}
}

// first returns the lease to begin with.
func (a *renewer) first() generator.Lease {
	l := lease(a.layout, 3)
	a.all.add(l)
	return l
}

// run renews, when it is asked to and more often, until the callers have left.
func (a *renewer) run(h *hammer) {
	r := random(uint64(len(a.low)))
	for !h.done.Load() {
		for until := h.calls.Load() + r.Int64N(100); h.calls.Load() < until && len(a.low) == 0 && !h.done.Load(); {
			runtime.Gosched()
		}
		select {
		case <-a.low:
		default:
		}
		a.renew(r)
	}
}

func (a *renewer) renew(r *rand.Rand) {
	given := a.next(r)
	if !a.wild { // else calls overtake one another
		a.mu.Lock()
		defer a.mu.Unlock()
	}
	if err := a.g.Renew(given...); err != nil && !errors.Is(err, generator.ErrClosed) {
		panic(err)
	}
}

// next returns, and notes, what to grant next.
func (a *renewer) next(r *rand.Rand) []generator.Lease {
	a.mu.Lock()
	defer a.mu.Unlock()
	usage := a.g.Usage()
	from := max(usage.Tick-1, 0)
	until := max(usage.Tick, a.layout.TickAt(time.Now())) + r.Int64N(4)
	switch n := r.IntN(10); {
	case n < 5: // the end only, which may be a smaller one
	case n == 5: // the beginning
		from = usage.Tick + r.Int64N(5)
	case n == 6: // the number of lanes
		a.lanes++
		a.replace(r)
	case n == 7: // the worker ids
		a.replace(r)
	case n == 8:
		a.g.Suspend(errCause)
		runtime.Gosched()
	case n == 9:
		from, until = max(from-100, 0), from+r.Int64N(3)
	}
	given := leases(from, max(from, until), a.workers...)
	r.Shuffle(len(given), func(i, j int) { given[i], given[j] = given[j], given[i] })
	a.all.add(given...)
	return given
}

// replace chooses other worker ids.
func (a *renewer) replace(r *rand.Rand) {
	n := 1
	if _, ok := a.g.(*generator.Cached); ok {
		n = lanesInTurn[a.lanes%len(lanesInTurn)]
	}
	a.workers = nil
	for _, w := range r.Perm(int(a.layout.MaxWorkerID()) + 1)[:n] {
		a.workers = append(a.workers, int64(w))
	}
}

// goroutines returns how many there are, once those that are about to end have ended.
func goroutines(atMost int) int {
	for range 1000 {
		if n := runtime.NumGoroutine(); n <= atMost {
			return n
		}
		time.Sleep(time.Millisecond)
	}
	return runtime.NumGoroutine()
}

// The lease is replaced while callers take ids: its beginning, its end, and the number, values and order of its
// worker ids.
func TestHammer_RenewKeepsToTheLeases(t *testing.T) {
	onProcs(t, func(t *testing.T) {
		for _, tt := range []struct {
			name   string
			bits   uint8
			borrow time.Duration // 0 is for Snowflake
			ids    int
			noWait bool
			wild   bool
		}{
			{"lease", 4, time.Hour, 32_000, false, false},
			{"lease, wild", 4, time.Hour, 16_000, false, true},
			{"limit", 7, 3 * time.Millisecond, 16_000, false, false},
			{"no wait", 4, time.Hour, 16_000, true, false},
			{"default", 8, 0, 8_000, false, false},
			{"default, wild", 8, 0, 8_000, false, true},
		} {
			for _, ordered := range []bool{true, false} {
				t.Run(fmt.Sprintf("%s/ordered=%v", tt.name, ordered), func(t *testing.T) {
					before := runtime.NumGoroutine()
					a := &renewer{layout: millis(tt.bits), low: make(chan struct{}, 1), all: grants{}, workers: []int64{9}, wild: tt.wild}
					h := hammer{
						layout: a.layout, ids: tt.ids, most: 20, ordered: ordered,
						retry:     []error{errCause},
						meanwhile: []func(*hammer){a.run},
					}
					if tt.noWait {
						h.retry = append(h.retry, generator.ErrLeaseExpired)
					}
					if tt.wild {
						h.meanwhile = append(h.meanwhile, a.run)
					}
					if tt.borrow > 0 {
						a.g = cached(t, generator.CachedConfig{Layout: a.layout, Lease: a.first(), OnLow: a.asked, MaxBorrow: tt.borrow, NoWait: tt.noWait})
						h.meanwhile = append(h.meanwhile, parking, visiting, looking)
					} else {
						a.g = defaults(t, generator.SnowflakeConfig{Layout: a.layout, Lease: a.first(), OnLow: a.asked, MaxClockBackwards: time.Second})
					}
					h.g = a.g
					once(t, a.layout, h.takeAll(t), func(id int64) bool { return a.all.allow(a.layout, id) })
					if n := goroutines(before); n > before {
						t.Errorf("%d goroutines are left", n-before)
					}
				})
			}
		}
	})
}
