package main

import (
	"fmt"
	"math"
	"path/filepath"
	"slices"
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
func (r OrderedRun) Title(in language) string {
	return in.say("%s with %d processes", "%s，%d 个进程", engineNames[r.Engine], r.Writers)
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

// Share returns the part of the rows that a poller misses with a kind of key, in all runs.
func (o *Ordering) Share(kind string) string {
	k := o.all(kind)
	return percent(k.Missed, k.Rows)
}

// Goal is what each kind of UUIDv7 may be exceeded by.
func (o *Ordering) Goal() float64 { return goalPoints }

// Goals says for each kind of UUIDv7, and for a steady process and a rolling restart, whether the goal is met.
func (o *Ordering) Goals(in language) string {
	t := &table{head: []string{"", in.say("points more than with google/uuid", "比 google/uuid 多几个百分点"),
		in.say("goal", "目标"), in.say("points more than with gofrs/uuid", "比 gofrs/uuid 多几个百分点"), in.say("goal", "目标")}}
	for _, kind := range []string{orderUID, orderRolling} {
		row := []string{in.name(kind)}
		for _, than := range []string{orderV7, orderGofrs} {
			points, chance := more(o.all(kind), o.all(than))
			row = append(row, fmt.Sprintf("%+.2f ± %.2f", points, chance), in.verdict(points, chance))
		}
		t.add(row...)
	}
	return t.String()
}

// verdict says whether the goal is met, as far as chance lets one know.
func (in language) verdict(points, chance float64) string {
	switch {
	case points+chance <= goalPoints:
		return in.say("met", "达到")
	case points-chance > goalPoints:
		return in.say("missed", "未达到")
	}
	return in.say("undecided", "无法判断")
}

// Table has all runs.
func (o *Ordering) Table(in language) string {
	t := &table{head: []string{"", in.say("rows", "行数"), in.say("missed", "漏掉"),
		in.say("below the row before", "小于前一行"), in.say("in place", "位置一致"),
		in.say("1 or 2 places off", "差 1 或 2 个位置"), in.say("3 or more", "差 3 个以上"), in.say("at most", "最多差")}}
	for _, r := range o.measured() {
		t.add(fmt.Sprintf("**%s**", r.Title(in)), "", "", "", "", "", "", "")
		for _, k := range r.Kinds {
			far := 0
			for _, n := range k.Distances[3:] {
				far += n
			}
			t.add(in.name(k.Name), number(float64(k.Rows)), percent(k.Missed, k.Rows), percent(k.Backwards, k.Rows),
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

// worse says whose order is better, if that is not chance.
func (o *Ordering) worse(in language) (all []string) {
	own := o.all(orderUID)
	if points, chance := more(own, o.all(orderV7)); points > chance {
		all = append(all, in.say("With `WHERE id > last`, a poller misses %.2f (±%.2f) percentage points more rows "+
			"than with google/uuid, whose UUIDv7 has fractions of a millisecond. "+
			"The goal, at most %.1f points more, is **%s**.",
			"用 `WHERE id > last` 轮询，漏掉的行比 google/uuid 多 %.2f（±%.2f）个百分点，因为后者的 UUIDv7 精确到毫秒以下。"+
				"目标是至多多漏 %.1f 个百分点：**%s**。", points, chance, goalPoints, in.verdict(points, chance)))
	}
	switch points, chance := more(own, o.all(orderGofrs)); {
	case points > chance:
		all = append(all, in.say("A poller misses %.2f (±%.2f) points more rows than with UUIDv7 "+
			"of millisecond precision (gofrs/uuid).",
			"轮询漏掉的行比毫秒精度的 UUIDv7（gofrs/uuid）多 %.2f（±%.2f）个百分点。", points, chance))
	case len(all) > 0 && points >= -chance:
		all[0] += in.say(" Against UUIDv7 of millisecond precision, "+
			"uidplugin is equal (gofrs/uuid, %+.2f ± %.2f points).",
			"毫秒精度的 UUIDv7 与 uidplugin 相当（gofrs/uuid，%+.2f ± %.2f 个百分点）。", points, chance)
	}
	if points, chance := more(own, o.all(orderAuto)); points > chance {
		all = append(all, in.say("A poller misses %s of the rows, and %s with AUTO_INCREMENT.",
			"轮询漏掉 %s 的行，用 AUTO_INCREMENT 时只漏 %s。", o.Share(orderUID), o.Share(orderAuto)))
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
		m, p := series{name: inEnglish.name(kind.name)}, series{name: inEnglish.name(kind.name)}
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
	return histogram(filepath.Join(folder, "order.svg"), o.Histogram().Title(inEnglish),
		"places between ORDER BY id and the order of commit", "% of the rows", classes, places)
}
