package partition

import (
	"strings"
	"testing"
	"time"

	"github.com/uidplugin/uidplugin/generator"
	"github.com/uidplugin/uidplugin/internal/testkit"
)

func date(year int, month time.Month, day int) time.Time {
	return time.Date(year, month, day, 0, 0, 0, 0, time.UTC)
}

// describe writes changes as words such as "+p2026_11".
func describe(list []Step) string {
	var words []string
	for _, s := range list {
		words = append(words, map[string]string{Convert: "!", Create: "+", Drop: "-"}[s.Action]+s.Partition)
	}
	return strings.Join(words, " ")
}

// apply returns the partitions after changes.
func apply(parts []part, list []Step) []part {
	kept := append([]part(nil), parts...)
	for _, s := range list {
		if s.Action == Drop {
			kept = kept[1:]
			continue
		}
		p := part{name: s.Partition, from: s.From, below: s.Below}
		if p.from == 0 {
			p.from = minValue
		}
		kept = append(kept, p)
	}
	return kept
}

func layouts() []generator.Layout {
	coarse, odd := generator.JSSafeLayout(), generator.DefaultLayout()
	coarse.Tick = 7 * time.Second // midnight is within a tick
	odd.Tick, odd.Epoch = 3*time.Millisecond, time.Date(2019, 5, 17, 13, 7, 11, 123456789, time.UTC)
	return []generator.Layout{
		generator.DefaultLayout(), generator.SnowflakeLayout(), generator.JSSafeLayout(), generator.JSSafeTablesLayout(),
		coarse, odd,
	}
}

// Over years of daily runs each id has a partition named after its time, also shortly before and after midnight, and
// old ones leave.
func TestChanges_EveryIDHasThePartitionOfItsTime(t *testing.T) {
	t.Parallel()
	for _, layout := range layouts() {
		for _, every := range []string{"month", "week", "day"} {
			r := Request{Table: "orders", Every: every, Ahead: 2, Keep: 3}
			var parts []part
			partitioned := false
			for at := date(2024, 12, 20); at.Before(date(2026, 3, 1)); at = at.AddDate(0, 0, 1) {
				r.Now = at.Add(time.Hour)
				list, err := r.changes(layout, partitioned, parts)
				testkit.Must(t, err)
				parts, partitioned = apply(parts, list), true
				for _, n := range []int{-3, 0, 1, 2} {
					start := r.start(at, n)
					for _, stamp := range []time.Time{start, r.start(at, n+1).Add(-layout.Tick)} {
						id, err := layout.Compose(generator.Parts{Time: stamp, WorkerID: layout.MaxWorkerID()})
						testkit.Must(t, err)
						var in []string
						for _, p := range parts {
							if p.from <= id && id < p.below {
								in = append(in, p.name)
							}
						}
						if len(in) != 1 || in[0] != r.name(start) && in[0] != first {
							t.Fatalf("%s, %s: on %s the id of %s is in %q, want %s", layout, every, r.Now, stamp, in, r.name(start))
						}
					}
				}
				if n := len(parts); n > 3+1+2+1 {
					t.Fatalf("%s, %s: %d partitions on %s", layout, every, n, r.Now)
				}
			}
			if parts[0].name == first {
				t.Errorf("%s, %s: the first partition was never dropped", layout, every)
			}
		}
	}
}

func TestChanges_OfTablesInManyStates(t *testing.T) {
	t.Parallel()
	layout := generator.DefaultLayout()
	bound := func(at time.Time) int64 {
		id, err := boundAt(layout, at)
		testkit.Must(t, err)
		return id
	}
	old := []part{
		{name: "low", from: minValue, below: bound(date(2026, 9, 1))},
		{name: "p2026_09", from: bound(date(2026, 9, 1)), below: bound(date(2026, 10, 1))},
	}
	now := time.Date(2026, 11, 30, 23, 59, 59, 0, time.UTC)
	for name, c := range map[string]struct {
		r     Request
		parts []part
		plain bool
		want  string
	}{
		"not partitioned":   {Request{Every: "month", Ahead: 3}, nil, true, "!p_first +p2027_01 +p2027_02"},
		"one ahead":         {Request{Every: "month", Ahead: 1}, nil, true, "!p_first"},
		"no partition":      {Request{Every: "month", Ahead: 1}, nil, false, "+p2026_11 +p2026_12"},
		"a month is absent": {Request{Every: "month", Ahead: 1}, old, false, "+p2026_10 +p2026_11 +p2026_12"},
		"drop": {Request{Every: "month", Ahead: 1, Keep: 2}, old, false,
			"+p2026_10 +p2026_11 +p2026_12 -low"},
		"drop all": {Request{Every: "month", Ahead: 1, Keep: 1}, old, false,
			"+p2026_10 +p2026_11 +p2026_12 -low -p2026_09"},
		"weeks from now on": {Request{Every: "week", Ahead: 1},
			append(old, part{name: "p2026_10", from: old[1].below, below: bound(date(2026, 12, 1))}), false,
			"+p2026_w49 +p2026_w50"},
		"interrupted": {Request{Every: "month", Ahead: 1},
			[]part{{name: "p2026_12", from: 5, below: bound(date(2027, 1, 1)), detaching: true}}, false, "-p2026_12"},
	} {
		c.r.Now = now
		list, err := c.r.changes(layout, !c.plain, c.parts)
		if got := describe(list); err != nil || got != c.want {
			t.Errorf("%s: %q, %v; want %q", name, got, err, c.want)
		}
	}
	slow := layout
	slow.Tick, slow.TimeBits = 36*time.Hour, 20
	for want, c := range map[string]struct {
		r      Request
		layout generator.Layout
		parts  []part
	}{
		"has no upper bound": {Request{Every: "month", Ahead: 1}, layout,
			[]part{{name: "pmax", from: minValue, below: maxValue}}},
		"no partition for ids from": {Request{Every: "month", Ahead: 1}, layout,
			append(old, part{name: "p2026_12", from: bound(date(2026, 12, 1)), below: bound(date(2027, 1, 1))})},
		"already has a partition p2026_10": {Request{Every: "month", Ahead: 1}, layout,
			[]part{{name: "p2026_10", from: minValue, below: bound(date(2026, 10, 1))}}},
		"more than 1000": {Request{Every: "day", Ahead: 1}, layout,
			[]part{{name: "a", from: minValue, below: bound(date(2020, 1, 1))}}},
		"shorter than a": {Request{Every: "day", Ahead: 5}, slow, nil},
		"is not an id": {Request{Every: "month", Ahead: 1}, layout,
			[]part{{name: "a", from: minValue, below: -1}}},
		"is outside the lay": {Request{Every: "month", Ahead: 999}, layout, nil},
	} {
		c.r.Now = now
		if list, err := c.r.changes(c.layout, true, c.parts); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %q, %v", want, describe(list), err)
		}
	}
}

func TestRequest_RefusesNumbersThatLoseRows(t *testing.T) {
	t.Parallel()
	for want, r := range map[string]Request{
		`period "year" is unknown`:  {Every: "year", Ahead: 1},
		"cannot create 0":           {Every: "month"},
		"at most 1000 are possible": {Every: "day", Ahead: 1001},
		"cannot keep -1":            {Every: "day", Ahead: 1, Keep: -1},
	} {
		if err := r.check(); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%+v: %v, want %s", r, err, want)
		}
	}
}
