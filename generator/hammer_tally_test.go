package generator_test

import (
	"testing"

	"github.com/uidplugin/uidplugin/generator"
)

// A tally has a bit for each id of one worker. It counts every id that was made,
// for sums and lengths can be right when an id came twice and another never.
type tally struct {
	layout generator.Layout
	worker int64
	pages  map[uint64]*page // by the upper bits of the position
	number uint64           // of the latest page
	latest *page
	ids    int

	first, last uint64 // least and largest position
}

const pageBits = 16

// A page holds a bit for each of 65,536 consecutive positions. A whole bitmap
// would be too long when the clock is set by years.
type page [1 << pageBits / 64]uint64

func newTally(l generator.Layout, worker int64) *tally {
	return &tally{layout: l, worker: worker, pages: map[uint64]*page{}, number: 1<<64 - 1}
}

// add marks ids and reports whether all is well with them.
func (a *tally) add(tb testing.TB, ids []int64) bool {
	tb.Helper()
	for _, id := range ids {
		if worker := id >> a.layout.SequenceBits & a.layout.MaxWorkerID(); id < 0 || worker != a.worker {
			tb.Errorf("id %d is of worker %d, want %d", id, worker, a.worker)
			return false
		}
		p := position(a.layout, id)
		if a.ids == 0 || p < a.first {
			a.first = p
		}
		a.last = max(a.last, p)
		a.ids++
		if n := p >> pageBits; n != a.number {
			if a.number, a.latest = n, a.pages[n]; a.latest == nil {
				a.latest = new(page)
				a.pages[n] = a.latest
			}
		}
		word, bit := &a.latest[p%(1<<pageBits)/64], uint64(1)<<(p%64)
		if *word&bit != 0 {
			tb.Errorf("id %d was made twice", id)
			return false
		}
		*word |= bit
	}
	return true
}

// TestTally_FindsWrongIDs makes sure that the hammers can fail.
func TestTally_FindsWrongIDs(t *testing.T) {
	t.Parallel()

	l := ticks(1e9, 4)
	id := func(tick, worker, sequence int64) int64 { return tick<<9 | worker<<4 | sequence }
	a := newTally(l, 9)
	good := []int64{id(5, 9, 3), id(5, 9, 4), id(4, 9, 3), id(1<<35, 9, 15), id(5, 9, 2), id(1<<20, 9, 3), id(5, 9, 5)}
	if !a.add(t, good) || a.ids != len(good) || a.first != 4<<4+3 || a.last != 1<<39+15 {
		t.Fatalf("good ids: %+v", a)
	}
	for _, bad := range append(good, id(6, 8, 0), -1) {
		var quiet failures
		if a.add(&quiet, []int64{bad}) || quiet.n != 1 {
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
