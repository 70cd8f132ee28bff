// Package partition plans the partitions of tables by the time of their ids. It returns statements and runs none.
package partition

import (
	"fmt"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/uidplugin/uidplugin/generator"
)

// A Request describes the partitions that a table should have.
type Request struct {
	Table string // as in the model, with or without a schema
	Every string // month, week or day
	Ahead int    // partitions after the present one
	Keep  int    // partitions before the present one; 0 means all
	Now   time.Time
}

// The actions of steps.
const (
	Convert = "convert" // make the table partitioned, with all its rows in the first partition
	Create  = "create"
	Drop    = "drop"
)

// A Step is a change of one partition.
type Step struct {
	Action    string    `json:"action"`
	Partition string    `json:"partition"`
	From      int64     `json:"from,string,omitzero"` // 0 means MINVALUE
	Below     int64     `json:"below,string"`
	Begin     time.Time `json:"begin,omitzero"`  // the time of From
	End       time.Time `json:"end"`             // the time of Below
	Notes     []string  `json:"notes,omitempty"` // what to know before running the statements
	SQL       []string  `json:"sql"`
}

// A part is an existing partition.
type part struct {
	name        string
	quoted      string // with its schema, for statements
	from, below int64  // minValue and maxValue mean MINVALUE and MAXVALUE
	detaching   bool   // a DETACH CONCURRENTLY was interrupted
}

const (
	minValue = math.MinInt64
	maxValue = math.MaxInt64
)

// mostSteps limits the partitions that one run creates. MySQL allows 8192 in a table.
const mostSteps = 1000

func (r Request) check() error {
	switch {
	case r.Every != "month" && r.Every != "week" && r.Every != "day":
		return fmt.Errorf("the period %q is unknown; use month, week or day", r.Every)
	case r.Ahead < 1:
		return fmt.Errorf("cannot create %d partitions ahead; at least 1 is needed, because ids may be ahead of the clock",
			r.Ahead)
	case r.Ahead > mostSteps:
		return fmt.Errorf("cannot create %d partitions ahead; at most %d are possible", r.Ahead, mostSteps)
	case r.Keep < 0:
		return fmt.Errorf("cannot keep %d partitions; keep at least 1, or 0 for all", r.Keep)
	}
	return nil
}

// start returns the start of the n-th period after the period of t, in UTC. Weeks start on Monday.
func (r Request) start(t time.Time, n int) time.Time {
	year, month, day := t.UTC().Date()
	switch r.Every {
	case "month":
		month, day = month+time.Month(n), 1
	case "week":
		day += 7*n - (int(t.UTC().Weekday())+6)%7
	default:
		day += n
	}
	return time.Date(year, month, day, 0, 0, 0, 0, time.UTC)
}

// name returns the name of a partition, in another form for each period, because a table may change its period.
func (r Request) name(start time.Time) string {
	switch r.Every {
	case "month":
		return start.Format("p2006_01")
	case "week":
		year, week := start.ISOWeek()
		return fmt.Sprintf("p%04d_w%02d", year, week)
	}
	return start.Format("p2006_01_02")
}

// first is the name of the partition that has the rows from before the conversion.
const first = "p_first"

// changes returns all steps. The drops come last, because MySQL refuses to drop the only partition of a table.
func (r Request) changes(layout generator.Layout, partitioned bool, parts []part) ([]Step, error) {
	create, err := r.creates(layout, partitioned, parts)
	if err != nil {
		return nil, err
	}
	drop, err := r.drops(layout, parts)
	return append(create, drop...), err
}

// creates returns partitions to create. A table's first begins at MINVALUE, as keys may be from AUTO_INCREMENT.
func (r Request) creates(layout generator.Layout, partitioned bool, parts []part) (list []Step, err error) {
	at, end := r.start(r.Now, 0), r.start(r.Now, r.Ahead+1)
	next := Step{Action: Create}
	switch {
	case !partitioned:
		// The first partition ends with the next period, so that the conversion has a whole period to finish.
		next.End = r.start(r.Now, 2)
		if next.Below, err = boundAt(layout, next.End); err != nil {
			return nil, err
		}
		next.Action, next.Partition = Convert, first
		list = append(list, next)
	case len(parts) > 0:
		next.Below = parts[len(parts)-1].below
		if next.End, err = r.endOf(layout, parts[len(parts)-1]); err != nil {
			return nil, err
		}
	default:
		next.End = at
	}
	for next.End.Before(end) {
		next = Step{Action: Create, From: next.Below, Begin: next.End, End: r.start(next.End, 1)}
		next.Partition = r.name(r.start(next.Begin, 0))
		if len(list) >= mostSteps {
			return nil, fmt.Errorf("its last partition ended at %s, so more than %d would have to be created; create one that"+
				" ends near the present", next.Begin.Format(time.DateOnly), mostSteps)
		}
		if next.Below, err = boundAt(layout, next.End); err != nil {
			return nil, err
		}
		switch {
		case next.From == next.Below:
			return nil, fmt.Errorf("a %s is shorter than a tick of the layout, %v", r.Every, layout.Tick)
		case slices.ContainsFunc(parts, func(p part) bool { return p.name == next.Partition }):
			return nil, fmt.Errorf("it already has a partition %s, which does not begin at %d", next.Partition, next.From)
		}
		if next.From == 0 {
			next.Begin = time.Time{}
		}
		list = append(list, next)
	}
	return list, nil
}

// drops returns the partitions to drop: those that are too old, and those whose removal was interrupted.
func (r Request) drops(layout generator.Layout, parts []part) (list []Step, err error) {
	oldest, present := int64(minValue), int64(0)
	if present, err = boundAt(layout, r.Now); err == nil && r.Keep > 0 {
		oldest, err = boundAt(layout, r.start(r.Now, -r.Keep))
	}
	if err != nil {
		return nil, err
	}
	for i, p := range parts {
		if i > 0 && parts[i-1].below < p.from && p.from > present {
			return nil, fmt.Errorf("it has no partition for ids from %d to %d, between %s and %s; create one first",
				parts[i-1].below, p.from-1, parts[i-1].name, p.name)
		}
		if p.below > oldest && !p.detaching {
			continue
		}
		s := Step{Action: Drop, Partition: p.name, Below: p.below, End: timeOf(layout, p.below)}
		if p.from != minValue {
			s.From, s.Begin = p.from, timeOf(layout, p.from)
		}
		list = append(list, s)
	}
	return list, nil
}

// endOf returns the time at which a partition ends, or the next start of a period if it is in the same tick.
func (r Request) endOf(layout generator.Layout, p part) (time.Time, error) {
	if p.below == maxValue {
		return time.Time{}, fmt.Errorf("its partition %s has no upper bound, so no other can be added after it; remove it"+
			" if it is empty, or split it", p.name)
	}
	end := timeOf(layout, p.below)
	if end.IsZero() {
		return end, fmt.Errorf("its partition %s ends at %d, which is not an id of the layout %s", p.name, p.below, layout)
	}
	if midnight := r.start(end, 1); layout.TickAt(midnight) == layout.TickAt(end) {
		return midnight, nil
	}
	return end, nil
}

// boundAt returns the smallest id of the tick at a time. Plugin.Range has the same bounds.
func boundAt(layout generator.Layout, t time.Time) (int64, error) {
	if t.Before(layout.Epoch) {
		t = layout.Epoch
	}
	return layout.Compose(generator.Parts{Time: t})
}

// timeOf returns the time of an id, or the zero time if the number is not an id of the layout.
func timeOf(layout generator.Layout, id int64) time.Time {
	p, err := layout.Decompose(id)
	if err != nil {
		return time.Time{}
	}
	return p.Time
}

// Statements returns the statements, the first with comments.
func (s Step) Statements() []string {
	from := "all ids"
	if !s.Begin.IsZero() {
		from = "ids from " + s.Begin.Format(time.DateTime)
	}
	lines := []string{fmt.Sprintf("%s %s: %s before %s UTC", s.Action, s.Partition, from, s.End.Format(time.DateTime))}
	list := slices.Clone(s.SQL)
	list[0] = "-- " + strings.Join(append(lines, s.Notes...), "\n-- ") + "\n" + list[0]
	return list
}
