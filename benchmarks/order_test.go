package main

import (
	"slices"
	"testing"
)

func TestJudge_CountsWhatIsOutOfPlace(t *testing.T) {
	t.Parallel()
	commits := []commit{{"05", 50}, {"02", 20}, {"04", 30}, {"01", 10}, {"03", 40}} // committed as 01 02 04 03 05
	k := judge("any", commits, map[string]bool{"01": true, "02": true, "04": true, "05": true})
	if k.Rows != 5 || k.Missed != 1 || k.Backwards != 1 || k.Most != 1 || !slices.Equal(k.Distances,
		[]int{3, 2, 0, 0, 0, 0, 0}) {
		t.Errorf("%+v", k)
	}
	commits = nil
	for i := range 100 { // all in order but the first, which is committed last
		at := int64(i)
		if i == 0 {
			at = 100
		}
		commits = append(commits, commit{padded(string(rune('0'+i/10)) + string(rune('0'+i%10))), at})
	}
	k = judge("any", commits, nil)
	if k.Missed != 100 || k.Backwards != 1 || k.Most != 99 || !slices.Equal(k.Distances, []int{0, 99, 0, 0, 0, 0, 1}) {
		t.Errorf("%+v", k)
	}
}

// A difference that chance explains neither meets the goal nor misses it.
func TestOrderingGoals_SayWhatIsChance(t *testing.T) {
	t.Parallel()
	run := func(rows, uid, v7 int) *Ordering {
		return &Ordering{Runs: []OrderedRun{{Engine: "mariadb", Writers: 2, Kinds: []OrderedKind{
			{Name: orderUID, Rows: rows, Missed: uid}, {Name: orderV7, Rows: rows, Missed: v7},
		}}}}
	}
	for _, tt := range []struct {
		rows, uid, v7 int
		want          string
	}{
		{100_000, 1000, 1000, "**met**: uidplugin misses +0.00 (±0.09)"},
		{100_000, 2000, 1000, "**missed**: uidplugin misses +1.00 (±0.11)"},
		{1000, 10, 10, "**undecided**: uidplugin misses +0.00 (±0.87)"},
	} {
		want := tt.want + " points more than UUIDv7 of google/uuid, in all runs together."
		if got := run(tt.rows, tt.uid, tt.v7).Goals()[0]; got != want {
			t.Errorf("%s\nwant %s", got, want)
		}
	}
}
