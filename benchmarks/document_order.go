package main

import (
	"fmt"
	"math"
	"path/filepath"
	"slices"
	"strings"
)

// goalPoints is how many points more than with UUIDv7 a poller may miss.
const goalPoints = 0.2

// measured returns the runs on engines that were there.
func (o *Ordering) measured() (all []OrderedRun) {
	for _, r := range o.Runs {
		if r.Missing == "" {
			all = append(all, r)
		}
	}
	return all
}

// Title is the engine and the number of processes.
func (r OrderedRun) Title() string {
	return fmt.Sprintf("%s with %d processes", engineNames[r.Engine], r.Writers)
}

// kind returns the figures of a kind of key.
func (r OrderedRun) kind(name string) OrderedKind {
	i := slices.IndexFunc(r.Kinds, func(k OrderedKind) bool { return k.Name == name })
	if i < 0 {
		return OrderedKind{Name: name}
	}
	return r.Kinds[i]
}

// missed returns the part of the rows that a poller misses, in percent.
func (k OrderedKind) missed() float64 { return 100 * float64(k.Missed) / float64(max(1, k.Rows)) }

// all returns a kind of key in all runs together.
func (o *Ordering) all(name string) (sum OrderedKind) {
	for _, r := range o.measured() {
		k := r.kind(name)
		sum.Rows, sum.Missed = sum.Rows+k.Rows, sum.Missed+k.Missed
	}
	return sum
}

// more returns by how many points a poller misses more with one kind than with another, and what chance adds or takes
// away in 19 of 20 cases.
func more(kind, than OrderedKind) (points, chance float64) {
	a, b := kind.missed(), than.missed()
	return a - b, 1.96 * math.Sqrt(a*(100-a)/float64(max(1, kind.Rows))+b*(100-b)/float64(max(1, than.Rows)))
}

// Goals says for each kind of UUIDv7, and for a steady process and a rolling restart, whether the goal is met.
func (o *Ordering) Goals() (all []string) {
	for _, kind := range []string{orderUID, orderRolling} {
		for _, than := range []string{orderV7, orderGofrs} {
			points, chance := more(o.all(kind), o.all(than))
			verdict := "undecided"
			switch {
			case points+chance <= goalPoints:
				verdict = "met"
			case points-chance > goalPoints:
				verdict = "missed"
			}
			all = append(all, fmt.Sprintf("**%s**: %s misses %+.2f (±%.2f) points more than %s, in all runs together.",
				verdict, kind, points, chance, than))
		}
	}
	return all
}

// Table has all runs.
func (o *Ordering) Table() string {
	t := &table{head: []string{"", "rows", "missed", "below the row before", "in place", "1 or 2 places off",
		"3 or more", "at most"}}
	for _, r := range o.measured() {
		t.add(fmt.Sprintf("**%s**", r.Title()), "", "", "", "", "", "", "")
		for _, k := range r.Kinds {
			far := 0
			for _, n := range k.Distances[3:] {
				far += n
			}
			t.add(k.Name, number(float64(k.Rows)), percent(k.Missed, k.Rows), percent(k.Backwards, k.Rows),
				percent(k.Distances[0], k.Rows),
				percent(k.Distances[1]+k.Distances[2], k.Rows), percent(far, k.Rows), fmt.Sprint(k.Most))
		}
	}
	return t.String()
}

// Histogram is the run whose histogram is drawn: the one of the first engine with most processes.
func (o *Ordering) Histogram() OrderedRun {
	all := o.measured()
	if len(all) == 0 {
		return OrderedRun{}
	}
	best := all[0]
	for _, r := range all {
		if r.Engine == best.Engine && r.Writers > best.Writers {
			best = r
		}
	}
	return best
}

// InPlace says how many rows of the histogram are where they were committed.
func (o *Ordering) InPlace() string {
	var all []string
	for _, k := range o.Histogram().Kinds {
		all = append(all, fmt.Sprintf("%s with %s", percent(k.Distances[0], k.Rows), k.Name))
	}
	return strings.Join(all, ", ")
}

// Misses says how many rows a poller misses in the run of the histogram.
func (o *Ordering) Misses() string {
	var all []string
	for _, k := range o.Histogram().Kinds {
		all = append(all, fmt.Sprintf("%s with %s", percent(k.Missed, k.Rows), k.Name))
	}
	return strings.Join(all, ", ")
}

// worse says whose order is better, if that is not chance.
func (o *Ordering) worse() (all []string) {
	for _, kind := range []string{orderUID, orderRolling} {
		var better []string
		own := o.all(kind)
		for _, than := range []string{orderAuto, orderV7, orderGofrs} {
			other := o.all(than)
			if points, chance := more(own, other); points > chance {
				better = append(better, fmt.Sprintf("%s (%s)", than, percent(other.Missed, other.Rows)))
			}
		}
		if len(better) > 0 {
			all = append(all, fmt.Sprintf("A poller misses %s of the rows with %s. It misses fewer with these: %s.",
				percent(own.Missed, own.Rows), kind, strings.Join(better, ", ")))
		}
	}
	return all
}

// draw draws the charts of order.
func (o *Ordering) draw(folder string) error {
	runs := o.measured()
	if len(runs) == 0 {
		return nil
	}
	var titles, classes []string
	for _, r := range runs {
		titles = append(titles, fmt.Sprintf("%s\n%d", engineNames[r.Engine], r.Writers))
	}
	low := 0
	for _, high := range distances {
		if low == high {
			classes = append(classes, fmt.Sprint(high))
		} else {
			classes = append(classes, fmt.Sprintf("%d–%d", low, high))
		}
		low = high + 1
	}
	classes = append(classes, fmt.Sprintf("%d…", low))
	var missed, places []series
	for _, kind := range orderKinds {
		m, p := series{name: kind.name}, series{name: kind.name}
		for _, r := range runs {
			m.y = append(m.y, r.kind(kind.name).missed())
		}
		k := o.Histogram().kind(kind.name)
		for _, n := range k.Distances {
			p.y = append(p.y, 100*float64(n)/float64(max(1, k.Rows)))
		}
		missed, places = append(missed, m), append(places, p)
	}
	if err := histogram(filepath.Join(folder, "missed.svg"), "Rows that a poller never sees", "processes",
		"% of the rows", titles, missed); err != nil {
		return err
	}
	return histogram(filepath.Join(folder, "order.svg"), o.Histogram().Title(),
		"places between ORDER BY id and the order of commit", "% of the rows", classes, places)
}
