package generator_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/uidplugin/uidplugin/generator"
	"github.com/uidplugin/uidplugin/internal/testkit"
)

// A hammer has many goroutines take ids from one generator at once, in calls of all kinds, and then counts every id.
// The tests of this file and of hammer_disturbed_test.go change the generator meanwhile.
//
// It checks that the ids of each caller ascend, and that an id is larger than every id whose call had returned before
// its own call began.
type hammer struct {
	g      generator.Generator
	layout generator.Layout

	ids int // how many are taken, by all callers together

	// most is the length of the longest Fill, except for some that are ten times as long; 0 means that all calls are
	// Next.
	most int

	// ordered makes callers compare their ids with a shared maximum. That slows callers down, so they meet less often
	// in the generator. Therefore hammer without it, too.
	ordered bool

	// context makes the contexts of calls; nil means one context that ends only if the test hangs.
	context func(r *rand.Rand) (context.Context, context.CancelFunc)

	retry []error // errors after which a caller tries again
	end   error   // the error after which a caller leaves

	// meanwhile, if any, runs next to the callers until stop is set or they are done.
	meanwhile []func(h *hammer)

	calls  atomic.Int64 // begun so far; counted if something happens meanwhile
	stop   atomic.Bool  // set by meanwhile: callers leave
	done   atomic.Bool  // set when all callers have left: meanwhile returns
	closed atomic.Bool  // set by meanwhile after Close has returned
	newest atomic.Int64 // largest id of any call that has returned
	errors atomic.Int64 // calls that were tried again
	failed atomic.Int64 // ids that calls with an error wanted
	fewer  atomic.Bool  // set by meanwhile: a result of Made was lower than the one before
}

const hammerers = 64

// run takes the ids, checks that each came once and has worker id 9, and returns how many there are.
func (h *hammer) run(t *testing.T) int {
	t.Helper()
	taken := h.takeAll(t)
	n := 0
	for _, ids := range taken {
		n += len(ids)
	}
	once(t, h.layout, taken, func(id int64) bool { return id >= 0 && id>>h.layout.SequenceBits&h.layout.MaxWorkerID() == 9 })
	return n
}

// once checks that every id was made once, and that allowed accepts all ticks and workers. It looks at each id,
// because a sum can be right although one id came twice and another one never.
func once(tb testing.TB, l generator.Layout, taken [][]int64, allowed func(id int64) bool) {
	tb.Helper()
	ids := slices.Concat(taken...)
	slices.Sort(ids)
	for i, id := range ids {
		if i > 0 && id == ids[i-1] {
			tb.Errorf("id %d was made twice", id)
			return
		}
		if i > 0 && id>>l.SequenceBits == ids[i-1]>>l.SequenceBits {
			continue // of the same tick and worker as the one before
		}
		if !allowed(id) {
			tb.Errorf("id %d of tick %d must not be made", id, tickOf(l, id))
			return
		}
	}
}

// TestHammer_FindsWrongIDs makes sure that the hammers can fail.
func TestHammer_FindsWrongIDs(t *testing.T) {
	t.Parallel()

	l := ticks(1e9, 4)
	id := func(tick, worker, sequence int64) int64 { return tick<<9 | worker<<4 | sequence }
	good := []int64{id(5, 9, 3), id(5, 9, 4), id(4, 9, 3), id(1<<35, 9, 15), id(5, 9, 2), id(1<<20, 9, 3), id(5, 9, 5)}
	worker9 := func(id int64) bool { return id >= 0 && id>>4&31 == 9 }
	once(t, l, [][]int64{good}, worker9)
	for _, bad := range append(good, id(6, 8, 0), id(5, 8, 15), -1) {
		var quiet failures
		if once(&quiet, l, [][]int64{good, {bad}}, worker9); quiet.n != 1 {
			t.Errorf("id %d is not found to be wrong", bad)
		}
	}
}

// failures counts what it should report.
type failures struct {
	testing.TB
	n int
}

func (f *failures) Helper()               {}
func (f *failures) Errorf(string, ...any) { f.n++ }

// takeAll takes the ids and returns those of each caller.
func (h *hammer) takeAll(t *testing.T) [][]int64 {
	t.Helper()
	h.newest.Store(-1)
	leaseWait, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	taken := make([][]int64, hammerers)
	start := make(chan struct{}) // or the first caller is done before the last begins
	var callers, others sync.WaitGroup
	for _, meanwhile := range h.meanwhile {
		others.Go(func() { meanwhile(h) })
	}
	for i := range taken {
		callers.Go(func() {
			<-start
			taken[i] = h.take(t, leaseWait, random(uint64(i)))
		})
	}
	close(start)
	callers.Wait()
	h.done.Store(true)
	others.Wait()
	h.checkMade(t, taken)
	return taken
}

// A tallied generator counts what it has done.
type tallied interface {
	Made() int64
	Waits() int64
}

// checkMade compares the counters of the generator with the ids that the callers got. Calls that failed may have got
// some ids. Claims in vain are rare, however often windows are opened and closed.
func (h *hammer) checkMade(t *testing.T, taken [][]int64) {
	t.Helper()
	got := int64(0)
	for _, ids := range taken {
		got += int64(len(ids))
	}
	h.g.Close()
	most := got + h.failed.Load() + got/100 + hammerers*int64(max(h.most, 1))
	if made := h.g.(tallied).Made(); (made < got || made > most) && !t.Failed() {
		t.Errorf("Made() = %d; callers got %d ids, and calls for %d failed", made, got, h.failed.Load())
	}
	if h.fewer.Load() {
		t.Error("Made() went back")
	}
}

// take is what one caller does. It returns the ids that it was given.
func (h *hammer) take(t *testing.T, leaseWait context.Context, r *rand.Rand) []int64 {
	ids := make([]int64, 0, h.ids/hammerers)
	last := int64(-1)
	for len(ids) < cap(ids) && !h.stop.Load() {
		n := min(h.size(r), cap(ids)-len(ids))
		got := ids[len(ids) : len(ids)+max(n, 1)]
		ctx, cancel := leaseWait, context.CancelFunc(nil)
		if h.context != nil {
			ctx, cancel = h.context(r)
		}
		if r.IntN(256) == 0 {
			runtime.Gosched()
		}
		if len(h.meanwhile) > 0 {
			h.calls.Add(1)
		}
		closed, floor := h.closed.Load(), last
		if h.ordered {
			floor = h.newest.Load()
		}
		var err error
		if n == 0 {
			got[0], err = h.g.Next(ctx)
		} else {
			err = h.g.Fill(ctx, got)
		}
		if cancel != nil {
			cancel()
		}
		if err != nil {
			h.failed.Add(int64(n)) // of Next none
		}
		switch {
		case err == nil && closed:
			t.Errorf("id %d was made after Close", got[0])
			return ids
		case err == nil:
		case h.end != nil && errors.Is(err, h.end):
			return ids
		case leaseWait.Err() != nil:
			t.Errorf("the test hangs: %v", err)
			return ids
		case slices.ContainsFunc(h.retry, func(retry error) bool { return errors.Is(err, retry) }):
			h.errors.Add(1)
			runtime.Gosched()
			continue
		default:
			t.Errorf("a call for %d ids: %v", n, err)
			return ids
		}
		if got[0] <= max(floor, last) {
			t.Errorf("id %d was made after %d", got[0], max(floor, last))
			return ids
		}
		for i := range got[1:] {
			if got[i+1] <= got[i] {
				t.Errorf("Fill made %d after %d", got[i+1], got[i])
				return ids
			}
		}
		last = got[len(got)-1]
		ids = ids[:len(ids)+len(got)]
		for h.ordered {
			if newest := h.newest.Load(); newest >= last || h.newest.CompareAndSwap(newest, last) {
				break
			}
		}
	}
	return ids
}

// size returns how many ids the next call wants, 0 for Next.
func (h *hammer) size(r *rand.Rand) int {
	switch n := r.IntN(1000); {
	case h.most == 0 || n < 600:
		return 0
	case n < 995:
		return 1 + r.IntN(h.most)
	default:
		return 1 + r.IntN(10*h.most)
	}
}

// wait returns after n more calls have begun, or reports false if no more will begin.
func (h *hammer) wait(n int64) bool {
	for until := h.calls.Load() + n; h.calls.Load() < until; runtime.Gosched() {
		if h.done.Load() {
			return false
		}
	}
	return !h.done.Load()
}

// scaled makes a number of ids smaller where each costs more.
func scaled(n int) int {
	if testkit.Race {
		n /= 25
	}
	if testing.Short() {
		n /= 10
	}
	return n
}

// paced is scaled for ids whose number a millisecond is limited, so that the machine mostly waits. Without the race
// detector, which slows callers down, fewer of them show as much.
func paced(n int) int {
	if !testkit.Race && !testing.Short() {
		n = n * 2 / 5
	}
	return scaled(n)
}

// onProcs runs a test with 1, 2 and 8 threads for Go code, one after the other.
func onProcs(t *testing.T, test func(t *testing.T)) {
	t.Helper()
	for _, n := range []int{1, 2, 8} {
		t.Run(fmt.Sprintf("procs=%d", n), func(t *testing.T) {
			if testing.Short() && n != 8 {
				t.Skip("-short: only with 8 threads")
			}
			defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(n))
			test(t)
		})
	}
}

// wideLayout has room for all ids that a machine could make.
func wideLayout() generator.Layout {
	return generator.Layout{TimeBits: 28, WorkerBits: 4, SequenceBits: 31, Tick: time.Second, Epoch: time.Now().Add(-year)}
}

// TestHammer_MakesNoIDTwice takes ids as fast as it can: while windows open and close, with Next alone, because claims
// of single ids meet more often, and with few ids in a tick, so that callers of Snowflake wait for the next tick, and
// those of Cached borrow it.
func TestHammer_MakesNoIDTwice(t *testing.T) {
	onProcs(t, func(t *testing.T) {
		for _, tt := range []struct {
			name    string
			layout  generator.Layout
			ids     int
			most    int
			ordered bool

			disturbed bool
		}{
			{"ordered=true", wideLayout(), scaled(2_000_000), 10, true, true},
			{"ordered=false", wideLayout(), scaled(2_000_000), 10, false, true},
			{"alone", wideLayout(), scaled(2_000_000), 10, false, false},
			{"Next", wideLayout(), scaled(1_000_000), 0, false, false},
			{"full ticks", millis(8), paced(100_000), 20, true, false},
		} {
			for _, e := range engines {
				t.Run(e.name+"/"+tt.name, func(t *testing.T) {
					l := tt.layout
					h := hammer{g: e.must(t, l, l.FullLease(9, time.Now()), nil), layout: l, ids: tt.ids, most: tt.most, ordered: tt.ordered}
					if tt.disturbed && e.name == "Cached" {
						h.meanwhile = []func(*hammer){parking, visiting, looking}
					}
					if got := h.run(t); got != h.ids/hammerers*hammerers && !t.Failed() {
						t.Errorf("%d ids were made, want %d", got, h.ids)
					}
				})
			}
		}
	})
}
