package main

import (
	"errors"
	"slices"
	"testing"

	"github.com/uidplugin/uidplugin/internal/testkit"
)

// A figure must not depend on the other programs of the machine.
func TestFigure_LeavesOutDisturbedSamples(t *testing.T) {
	t.Parallel()
	calm := []sample{{value: 1}, {value: 2}, {value: 3}, {value: 4}, {value: 5}, {value: 1000, disturbed: true}}
	if got, want := figure(calm), (Figure{Median: 3, Low: 2, High: 4}); got != want {
		t.Errorf("%+v, want %+v", got, want)
	}
	noisy := []sample{{value: 1, disturbed: true}, {value: 3, disturbed: true}, {value: 5, disturbed: true}}
	if got, want := figure(noisy), (Figure{Median: 3, Low: 2, High: 4, Noisy: true}); got != want {
		t.Errorf("%+v, want %+v", got, want)
	}
	if got := figure(nil); got != (Figure{Noisy: true}) {
		t.Errorf("%+v of nothing", got)
	}
}

// In a rotation, each contestant would always follow the same one.
func TestInterleave_NoneAlwaysFollowsTheSame(t *testing.T) {
	t.Parallel()
	var order []int
	contestants := make([]contestant, 4)
	for i := range contestants {
		contestants[i] = func() (sample, error) {
			order = append(order, i)
			return sample{value: float64(i)}, nil
		}
	}
	rounds := 0
	figures, err := interleave(t.Context(), 20, contestants, func(int) { rounds++ })
	testkit.Must(t, err)
	for i, f := range figures {
		if f.Median != float64(i) {
			t.Errorf("contestant %d: %+v", i, f)
		}
	}
	before := map[int]bool{}
	for i, n := range order {
		if n == 0 && i > 0 {
			before[order[i-1]] = true
		}
	}
	if len(order) != 80 || rounds != 20 || len(before) < 3 {
		t.Errorf("%d measurements in %d rounds, one contestant after %v", len(order), rounds, before)
	}
	bad := errors.New("bad")
	contestants[2] = func() (sample, error) { return sample{}, bad }
	if _, err := interleave(t.Context(), 1, contestants, nil); !errors.Is(err, bad) {
		t.Errorf("it returned %v", err)
	}
	if first, again := turns(9), turns(9); !slices.Equal(first(), again()) {
		t.Error("two runs have different orders")
	}
}
