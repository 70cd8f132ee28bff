package rounded_test

import (
	"slices"
	"testing"

	"github.com/uidplugin/uidplugin/internal/rounded"
)

// JavaScript, Python and spreadsheets turn 1176816959799427126 into these numbers.
func TestIs_KnowsWhatProgramsMakeOfAnID(t *testing.T) {
	t.Parallel()

	const id int64 = 1176816959799427126
	for name, n := range map[string]int64{
		"String(Number(id))":      1176816959799427000,
		"BigInt(Number(id))":      1176816959799427072,
		"a spreadsheet":           1176816959799430000,
		"a spreadsheet that cuts": 1176816959799420000,
	} {
		low, high := rounded.Near(n)
		if !rounded.Is(n, id) || !rounded.Looks(n) || id < low || id > high {
			t.Errorf("%s: %d is %v, looks %v, near %d to %d", name, n, rounded.Is(n, id), rounded.Looks(n), low, high)
		}
	}
	for _, n := range []int64{id, id + 1, id - 1000, 1176816959799427200, 0, -1} {
		if rounded.Is(n, id) {
			t.Errorf("%d is rounded from %d", n, id)
		}
	}
	for _, n := range []int64{id, 100, 1 << 52, -100, 1176816959799427101} {
		if rounded.Looks(n) {
			t.Errorf("%d looks rounded", n)
		}
	}
	if low, high := rounded.Near(1<<63 - 1); low > high || high != 1<<63-1 {
		t.Errorf("%d to %d", low, high)
	}
}

// The originals of a rounded number include the id, and all of them round to it.
func TestOriginals_IncludeTheID(t *testing.T) {
	t.Parallel()
	const id int64 = 1176816959799427126
	list := rounded.Originals(1176816959799427072)
	if !slices.Contains(list, id) {
		t.Errorf("%d is not among %d originals", id, len(list))
	}
	for _, n := range list {
		if !rounded.Is(1176816959799427072, n) {
			t.Errorf("%d does not round to it", n)
		}
	}
	if list := rounded.Originals(id); len(list) > 0 {
		t.Errorf("a number that was not rounded has the originals %d", list)
	}
}
