package main

import (
	"slices"
	"strings"
	"testing"
	"time"
)

func TestJudge_CountsRowsOutOfPlace(t *testing.T) {
	t.Parallel()
	commits := []commit{{"05", 50}, {"02", 20}, {"04", 30}, {"01", 10}, {"03", 40}} // committed as 01 02 04 03 05
	k := judge("any", commits, map[string]bool{"01": true, "02": true, "04": true, "05": true})
	if k.Rows != 5 || k.Missed != 1 || !slices.Equal(k.Distances,
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
	if k.Missed != 100 || !slices.Equal(k.Distances, []int{0, 99, 0, 0, 0, 0, 1}) {
		t.Errorf("%+v", k)
	}
}

// A difference that chance explains must neither meet nor miss the goal.
func TestMore_IsUndecidedWithinChance(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		rows, uid, v7 int
		want          string
	}{
		{100_000, 1000, 1000, "| uidplugin | 1.00 % | +0.00 ± 0.09 | met |"},
		{100_000, 2000, 1000, "| uidplugin | 2.00 % | +1.00 ± 0.11 | missed |"},
		{1000, 10, 10, "| uidplugin | 1.00 % | +0.00 ± 0.87 | undecided |"},
	} {
		none := make([]int, len(distances)+1)
		got := orderTable([]Ordered{{Engine: "MariaDB 1", Kind: orderUID, Rows: tt.rows, Missed: tt.uid, Distances: none},
			{Engine: "MariaDB 1", Kind: orderV7, Rows: tt.rows, Missed: tt.v7, Distances: none}})
		if !strings.Contains(got, tt.want) {
			t.Errorf("%s\nwant %s", got, tt.want)
		}
	}
}

// An import far ahead of the clock must not meet the goals.
func TestJudgeImport_CountsRowsAfterALaterOne(t *testing.T) {
	t.Parallel()
	const ms = int64(time.Millisecond)
	ids := make([]int64, 3*importBatch) // 1 to 3,000
	for n := range ids {
		ids[n] = int64(n + 1)
	}
	batches := []batch{{At: 0}, {ms, 300e6}, {99 * ms, 62e6}, {100 * ms, 251e6}, {1000 * ms, 0}}
	i, err := judgeImport(ids, batches, []commit{{"2001", 50 * ms}, {"1501", 99*ms + 1}, {"9999", 1000 * ms}})
	if want := (Imported{3000, 1, 300, 251, 500}); err != nil || i != want {
		t.Errorf("%+v, %v; want %+v", i, err, want)
	}
	if rows, verdict := i.goal(); rows != 750 || verdict != "missed" {
		t.Errorf("%d rows, %s", rows, verdict)
	}
	i.Ahead = 250
	if _, verdict := i.goal(); verdict != "met" {
		t.Error(verdict)
	}
	i.After = 751
	if _, verdict := i.goal(); verdict != "missed" {
		t.Error(verdict)
	}
}
