package ringbuffer_test

import (
	"fmt"
	"math/rand/v2"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/uidplugin/uidplugin/internal/testkit"
	"github.com/uidplugin/uidplugin/ringbuffer"
)

// A span is the positions of a ring from first up to end.
type span struct {
	first, end uint64
	ring       int
}

// A numbered ring is one of a succession.
type numbered struct {
	ringbuffer.Computed
	number int
}

const (
	takers = 32
	// perTaker is the number of claims that each taker makes in a run.
	perTaker, perTakerRace = 15_000, 3_000
)

// A course is a sequence of rings. Each begins where the one before was closed. One owner opens, extends, raises and
// closes them.
type course struct {
	ring atomic.Pointer[numbered]

	// bound is set before a tail is moved there. No position at or above it may have been handed out.
	bound atomic.Uint64
	// newest is above all positions of calls that have returned.
	newest atomic.Uint64

	done atomic.Bool // the takers have left

	// The owner records where its rings began, where the last one was closed, and the positions that a Raise may have
	// skipped.
	begins []uint64
	passed []span
}

// Many goroutines claim positions, one at a time and several, while rings are extended, raised, closed and replaced.
// Every position was handed out once, refused, or skipped.
func TestHammer_AccountsForEveryPosition(t *testing.T) {
	for _, procs := range []int{1, 2, 8} {
		if testing.Short() && procs != 8 {
			t.Logf("-short: not with %d processors", procs)
			continue
		}
		for _, tt := range []struct {
			name                   string
			extend, raise, replace bool
		}{
			{"replace", false, false, true},
			{"extend", true, false, false},
			{"extend and replace", true, false, true},
			{"raise", false, true, true},
			{"all", true, true, true},
		} {
			t.Run(fmt.Sprintf("procs=%d/%s", procs, tt.name), func(t *testing.T) {
				defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(procs))
				c := course{}
				taken, refused := make([][]span, takers), make([][]span, takers)
				c.newest.Store(1000)
				c.open(1000, 1000)
				var owner, all sync.WaitGroup
				owner.Go(func() { c.own(tt.extend, tt.raise, tt.replace) })
				for i := range takers {
					all.Go(func() { taken[i], refused[i] = c.take(t, rand.New(rand.NewPCG(uint64(i), 7))) })
				}
				all.Wait()
				c.done.Store(true)
				owner.Wait()
				c.begins = append(c.begins, c.ring.Load().Close())
				c.account(t, slices.Concat(taken...), slices.Concat(refused...))
			})
		}
	}
}

func (c *course) open(cursor, tail uint64) {
	c.raiseBound(tail)
	r := &numbered{number: len(c.begins)}
	r.Open(cursor, tail)
	c.begins = append(c.begins, cursor)
	c.ring.Store(r)
}

func (c *course) raiseBound(tail uint64) { c.bound.Store(max(c.bound.Load(), tail)) }

// own is what the owner does until the takers have left.
func (c *course) own(extend, raise, replace bool) {
	r := rand.New(rand.NewPCG(3, 4))
	tail := uint64(1000)
	for !c.done.Load() {
		ring := c.ring.Load()
		switch n := r.Uint64N(500); {
		case extend && n < 300:
			// From a little to so much that the ring is not empty for a while.
			tail = max(tail, ring.Cursor()-min(n%50, ring.Cursor())) + n
			c.raiseBound(tail)
			ring.Extend(tail)
		case raise && n < 400:
			before := ring.Cursor()
			to := before + n%20
			ring.Raise(to)
			c.passed = append(c.passed, span{before, to, ring.number})
		case replace:
			from := ring.Close()
			tail = from + n
			c.open(from, tail)
		}
		if r.IntN(4) == 0 {
			runtime.Gosched()
		}
	}
}

// take does what a taker does. It returns the positions that it got, and those that it claimed but was refused.
func (c *course) take(t *testing.T, r *rand.Rand) (taken, refused []span) {
	claims := perTaker
	if testkit.Race {
		claims = perTakerRace
	}
	taken = make([]span, 0, claims)
	for len(taken) < claims && !t.Failed() {
		ring, floor := c.ring.Load(), c.newest.Load()
		var first, got, want uint64 = 0, 0, 1
		if r.IntN(2) == 0 {
			var ok bool
			if first, ok = ring.TakeOne(); ok {
				got = 1
			}
		} else {
			want = 1 + r.Uint64N(30)
			if r.IntN(2) == 0 && !ring.Has(want) {
				runtime.Gosched()
				continue
			}
			if first, got = ring.Take(want); got > want {
				t.Errorf("Take(%d) gave %d positions", want, got)
			}
		}
		if got < want {
			refused = append(refused, span{first + got, first + want, ring.number})
			runtime.Gosched()
		}
		if got == 0 {
			continue
		}
		end := first + got
		if bound := c.bound.Load(); end > bound {
			t.Errorf("positions up to %d were handed out of a ring that ends at %d", end, bound)
		}
		if first < floor {
			t.Errorf("position %d was handed out after a call that got %d had returned", first, floor-1)
		}
		for {
			newest := c.newest.Load()
			if newest >= end || c.newest.CompareAndSwap(newest, end) {
				break
			}
		}
		taken = append(taken, span{first, end, ring.number})
	}
	return taken, refused
}

// account goes through all positions of the course in order.
func (c *course) account(t *testing.T, taken, refused []span) {
	t.Helper()
	if !slices.IsSorted(c.begins) {
		t.Fatal("a ring was closed below its own beginning")
	}
	begin, end := c.begins[0], c.begins[len(c.begins)-1]
	given, excused := make([]bool, end-begin), make([]bool, end-begin)
	n := 0
	for _, s := range taken {
		// A ring hands out only positions before the one at which it is closed.
		if s.first < c.begins[s.ring] || s.end > c.begins[s.ring+1] {
			t.Fatalf("positions %d to %d were handed out by a ring for %d to %d",
				s.first, s.end-1, c.begins[s.ring], c.begins[s.ring+1]-1)
		}
		for p := s.first; p < s.end; p++ {
			if given[p-begin] {
				t.Fatalf("position %d was handed out twice", p)
			}
			given[p-begin] = true
			n++
		}
	}
	// A refused position is lost if it is below the final tail of the ring that refused it, or was claimed just when
	// the ring was closed. A position above is not lost, because the next ring hands it out.
	for _, s := range slices.Concat(refused, c.passed) {
		for p := s.first; p < min(s.end, c.begins[s.ring+1]); p++ {
			excused[p-begin] = true
		}
	}
	lost := 0
	for p, ok := range given {
		if !ok && !excused[p] {
			if lost++; lost < 5 {
				t.Errorf("position %d was neither handed out nor refused nor passed over", uint64(p)+begin)
			}
		}
	}
	if lost > 0 {
		t.Errorf("%d of %d positions were lost", lost, end-begin)
	}
	t.Logf("%d of %d positions handed out, %d claims refused, %d rings", n, end-begin, len(refused), len(c.begins)-1)
}
