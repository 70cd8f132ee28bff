package main

import (
	"slices"
	"strings"
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
		{100_000, 1000, 1000, "| uidplugin | +0.00 ± 0.09 | met |"},
		{100_000, 2000, 1000, "| uidplugin | +1.00 ± 0.11 | missed |"},
		{1000, 10, 10, "| uidplugin | +0.00 ± 0.87 | undecided |"},
	} {
		if got := run(tt.rows, tt.uid, tt.v7).Goals(inEnglish); !strings.Contains(got, tt.want) {
			t.Errorf("%s\nwant %s", got, tt.want)
		}
	}
}

// What is worse says by how much a poller misses more than with one UUIDv7, and that it does not with the other one.
func TestOrderingWorse_SaysWhichUUIDv7IsEqual(t *testing.T) {
	t.Parallel()
	o := &Ordering{Runs: []OrderedRun{{Engine: "mariadb", Writers: 2, Kinds: []OrderedKind{
		{Name: orderUID, Rows: 100_000, Missed: 1000}, {Name: orderV7, Rows: 100_000, Missed: 400},
		{Name: orderGofrs, Rows: 100_000, Missed: 990}, {Name: orderAuto, Rows: 100_000, Missed: 1000},
	}}}}
	for in, want := range map[language][]string{
		inEnglish: {"0.60 (±0.07) percentage points more", "**missed**", "is equal (gofrs/uuid, +0.01 ± 0.09 points)"},
		inChinese: {"多 0.60（±0.07）个百分点", "**未达到**", "相当（gofrs/uuid，+0.01 ± 0.09 个百分点）"},
	} {
		all := o.worse(in)
		for _, part := range want {
			if len(all) != 1 || !strings.Contains(all[0], part) {
				t.Errorf("%q has no %q", all, part)
			}
		}
	}
	kinds := o.Runs[0].Kinds
	kinds[1].Missed, kinds[2].Missed = 1000, 400
	if all := o.worse(inEnglish); len(all) != 1 || !strings.HasPrefix(all[0], "A poller misses 0.60 (±0.07) points more") {
		t.Errorf("%q", all)
	}
}
