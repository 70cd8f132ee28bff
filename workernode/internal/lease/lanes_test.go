package lease

import (
	"testing"

	"github.com/uidplugin/uidplugin/generator"
)

// A generator that is up with the clock is not in need, however few ids its lease still has.
func TestInNeed_ComparesWithWhatLiesAhead(t *testing.T) {
	t.Parallel()

	for _, tt := range []struct {
		name       string
		usage      generator.Usage
		until, now int64
		want       bool
	}{
		{"up with the clock", generator.Usage{Tick: 100, Left: 1, Lanes: 1}, 199, 100, false},
		{"half is used", generator.Usage{Tick: 150, Left: 800, Lanes: 1}, 199, 100, false},
		{"more than half is used", generator.Usage{Tick: 150, Left: 799, Lanes: 1}, 199, 100, true},
		{"the same with two lanes", generator.Usage{Tick: 150, Left: 1_599, Lanes: 2}, 199, 100, true},
		{"a caller waits for the lease", generator.Usage{Tick: 200, Left: 0, Lanes: 1, Waiting: true}, 199, 100, true},
		{"a caller waits at the borrowing limit", generator.Usage{Tick: 100, Left: 900, Lanes: 1, Waiting: true}, 199, 100, false},
		{"the lease is of the past, and nobody waits", generator.Usage{Tick: 90, Left: 5, Lanes: 1}, 99, 100, false},
		{"no lease", generator.Usage{}, 0, 100, false},
	} {
		if got := InNeed(tt.usage, tt.until, tt.now, 16); got != tt.want {
			t.Errorf("%s: %v", tt.name, got)
		}
	}
}

// A generator whose lease begins ahead of the clock makes no burst: lanes for it would stay with the slot for nothing.
func TestAhead_BeginsWithTheLease(t *testing.T) {
	t.Parallel()

	for _, tt := range []struct{ tick, from, now, want int64 }{
		{150, 90, 100, 50}, {100, 90, 100, 0}, {90, 80, 100, 0}, {150, 150, 100, 0}, {150, 140, 100, 10},
	} {
		if got := Ahead(generator.Usage{Tick: tt.tick}, tt.from, tt.now); got != tt.want {
			t.Errorf("%+v: %d", tt, got)
		}
	}
}

// The number of lanes is a power of two that never falls; anything else is refused by generators.
func TestMostLanes_IsAPowerOfTwoThatNeverFalls(t *testing.T) {
	t.Parallel()

	layout := generator.DefaultLayout()
	half := layout.MaxWorkerID() / 2
	for _, tt := range []struct {
		most, have, free int
		given            int64
		want             int
	}{
		{16, 1, 0, half, 16},
		{16, 1, 0, half + 1, 1},
		{16, 1, 6, half + 1, 4}, // worker ids of the slot
		{16, 4, 20, half + 1, 16},
		{3, 1, 0, 0, 2},
		{4, 8, 0, 0, 8}, // the most was lowered
	} {
		if got := MostLanes(tt.most, tt.have, tt.free, tt.given, layout); got != tt.want {
			t.Errorf("%+v: %d", tt, got)
		}
	}
}

// A layout with few worker ids must have some left for other tables and processes.
func TestLayoutMaxLanes_LeavesWorkerIDsForOthers(t *testing.T) {
	t.Parallel()

	for bits, want := range map[uint8]int{1: 1, 2: 1, 3: 1, 4: 2, 5: 4, 6: 8, 7: 16, 8: 16, 18: 16} {
		l := generator.DefaultLayout()
		if l.WorkerBits = bits; l.MaxLanes() != want {
			t.Errorf("%d bits: %d lanes, want %d", bits, l.MaxLanes(), want)
		}
	}
}
