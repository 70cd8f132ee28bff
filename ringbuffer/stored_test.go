package ringbuffer_test

import (
	"fmt"
	"math/rand/v2"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/uidplugin/uidplugin/internal/testkit"
	"github.com/uidplugin/uidplugin/ringbuffer"
)

// Runs come out in the order in which they were put, whatever the lengths of the claims. A full ring refuses more.
func TestStored_IsAQueueOfRuns(t *testing.T) {
	t.Parallel()

	r := ringbuffer.NewStored(3) // 4
	if n := r.Free(); n != 4 {
		t.Errorf("room for %d runs", n)
	}
	if first, n := r.Take(1); n != 0 {
		t.Errorf("an empty ring has %d ids from %d", n, first)
	}
	for i, run := range [][2]int64{{10, 3}, {100, 1}, {7, ringbuffer.MaxRun}, {1 << 40, 5}} {
		if !r.Put(run[0], int(run[1])) {
			t.Fatalf("run %d is refused", i)
		}
	}
	if r.Put(1, 1) {
		t.Error("a fifth run was taken")
	}
	if n := r.Len(); n != 3+1+ringbuffer.MaxRun+5 {
		t.Errorf("%d ids", n)
	}
	for _, want := range []struct {
		want, n int
		first   int64
	}{
		{2, 2, 10}, {0, 1, 12}, {-1, 1, 100}, {ringbuffer.MaxRun - 1, ringbuffer.MaxRun - 1, 7},
		{1 << 30, 1, 7 + ringbuffer.MaxRun - 1}, {1 << 30, 5, 1 << 40}, {1, 0, 0},
	} {
		if first, n := r.Take(want.want); n != want.n || n > 0 && first != want.first {
			t.Errorf("Take(%d): %d from %d, want %d from %d", want.want, n, first, want.n, want.first)
		}
	}
	if r.Len() != 0 || r.Free() != 4 {
		t.Errorf("%d ids, room for %d runs", r.Len(), r.Free())
	}
	for _, n := range []int{0, -1, ringbuffer.MaxRun + 1} {
		if r.Put(1, n) {
			t.Errorf("a run of %d was taken", n)
		}
	}
	for _, runs := range []int{-1, 0, 1} {
		if n := ringbuffer.NewStored(runs).Free(); n != 1 {
			t.Errorf("NewStored(%d) has room for %d", runs, n)
		}
	}
	if n := ringbuffer.NewStored(1 << 30).Free(); n != 1<<20 {
		t.Errorf("the largest has room for %d", n)
	}
}

// Two takers read the last id, and the slot is written again before their swaps. The first taker must get neither the
// id of the second nor a later one. UidGenerator's ring gives both the same id here (baidu/uid-generator#105).
func TestStored_GivesTheLastIDToOneOfTwoTakers(t *testing.T) {
	t.Parallel()

	for _, again := range []bool{false, true} {
		r := ringbuffer.NewStored(1)
		r.Put(42, 1)
		a, b := r.Look(1), r.Look(1)
		if !r.Claim(b) {
			t.Fatal("the first claim fails")
		}
		if again {
			r.Put(43, 1)
		}
		if r.Claim(a) {
			first, n := a.Ids()
			t.Errorf("%d ids from %d were given twice", n, first)
		}
		if first, n := r.Take(1); again != (n == 1 && first == 43) {
			t.Errorf("then %d ids from %d", n, first)
		}
	}
}

// Runs of all sizes pass through rings of all sizes, to takers that want all numbers of ids. Every id is taken once,
// in order.
func TestStored_HandsOutEachIDOnce(t *testing.T) {
	n := 150_000
	if testkit.Race {
		n = 40_000
	}
	for _, slots := range []int{1, 2, 64} {
		for _, most := range []int{1, 3, 1000} {
			t.Run(fmt.Sprintf("%d slots/runs of %d", slots, most), func(t *testing.T) {
				t.Parallel()
				r := ringbuffer.NewStored(slots)
				taken := make([]atomic.Uint32, n)
				var left atomic.Int64
				left.Store(int64(n))
				var all sync.WaitGroup
				for i := range 16 {
					all.Go(func() {
						random, last := rand.New(rand.NewPCG(uint64(i), 1)), int64(-1)
						for left.Load() > 0 {
							if random.IntN(100) == 0 {
								if l := r.Len(); l < 0 || l > int64(n) {
									t.Errorf("%d ids in the ring", l)
								}
							}
							first, got := r.Take(1 + random.IntN(8))
							if got == 0 {
								runtime.Gosched()
								continue
							}
							if first <= last {
								t.Errorf("%d after %d", first, last)
							}
							for id := first; id < first+int64(got); id++ {
								taken[id].Add(1)
							}
							last = first + int64(got) - 1
							left.Add(-int64(got))
						}
					})
				}
				random := rand.New(rand.NewPCG(9, 9))
				for next := 0; next < n; {
					run := min(1+random.IntN(most), n-next)
					for !r.Put(int64(next), run) {
						runtime.Gosched()
					}
					next += run
				}
				all.Wait()
				for id := range taken {
					if c := taken[id].Load(); c != 1 {
						t.Fatalf("id %d was taken %d times", id, c)
					}
				}
				if r.Len() != 0 {
					t.Errorf("%d ids are left", r.Len())
				}
			})
		}
	}
}
