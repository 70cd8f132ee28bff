package inspector

import (
	"fmt"
	"slices"
	"time"
)

// A timeline is the picture of sessions. Positions are percentages of its width.
type timeline struct {
	From, To time.Time
	Marks    []mark
	Lanes    []lane
}

type mark struct {
	X     string
	Label string
}

// A lane shows the sessions of one slot.
type lane struct {
	Slot        int64
	State       string // current state of the slot; empty if unknown
	Application string // of the latest session shown
	Host, Port  string
	Bars        []bar
}

// A bar is a time in which a process could make ids. During a thin bar it lived, but made no ids.
type bar struct {
	X, Width string
	Class    string // good, late, ended, pruned or thin
	Label    string
}

// draw returns the timeline of sessions. A zero end means now. A zero span means all sessions.
func draw(slots []holding, end time.Time, span time.Duration, now time.Time) *timeline {
	if len(slots) == 0 {
		return nil
	}
	t := &timeline{From: now, To: now}
	if !end.IsZero() && end.Before(now) {
		t.To = end
	}
	for _, v := range slots {
		if oldest := v.Sessions[len(v.Sessions)-1].From; oldest.Before(t.From) {
			t.From = oldest
		}
	}
	t.From = t.From.Add(-t.To.Sub(t.From) / 50) // margin on the left
	if span > 0 {
		t.From = t.To.Add(-span)
	}
	if t.To.Sub(t.From) < time.Minute {
		t.From = t.To.Add(-time.Minute)
	}
	for _, v := range slots {
		s := v.Sessions[0]
		l := lane{Slot: v.Slot, State: s.State, Application: s.Application, Host: s.Host, Port: s.Port}
		for i, s := range slices.Backward(v.Sessions) { // oldest first
			following := t.To
			if i > 0 {
				following = v.Sessions[i-1].From
			}
			l.Bars = append(l.Bars, t.bars(s, following, i > 0 && v.Sessions[i-1].Same)...)
		}
		t.Lanes = append(t.Lanes, l)
	}
	t.Marks = marksOf(t.From, t.To)
	return t
}

// bars returns the bar of a session, and a thin bar until the following session if the process lives on.
func (t *timeline) bars(s session, following time.Time, livesOn bool) (bars []bar) {
	end, class, ended := s.Last, "ended", "no id after "+clock(s.Last)
	switch s.State {
	case "live":
		end, class, ended = t.To, good, "and may make ids now"
	case "idle":
		livesOn, ended = true, ended+"; the process holds the slot"
	case "overdue", "expired":
		class, ended = late, ended+"; its process did not release the slot"
	case "free":
		ended = "released " + clock(s.Last)
	}
	who := fmt.Sprintf("%s on %s, port %s", s.Application, s.Host, s.Port)
	if s.Pruned() {
		who, class = "processes that are no longer known", "pruned"
	}
	add := func(from, to time.Time, class, label string) {
		if to.Before(t.From) || from.After(t.To) && from != s.From {
			return
		}
		const minWidth = 0.3
		x, end := t.percent(from), t.percent(to)
		if end-x < minWidth {
			x = min(x, 100-minWidth)
			end = x + minWidth
		}
		bars = append(bars, bar{percent(x), percent(end - x), class, printable(label)})
	}
	if end.Before(s.From) { // the session has no ids, or its end is unknown
		end = s.From
	}
	add(s.From, end, class, fmt.Sprintf("%s, from %s, %s", who, clock(s.From), ended))
	if livesOn && end.Before(following) {
		add(end, following, "thin", who+", made no ids from "+clock(end)+" to "+clock(following))
	}
	return bars
}

// percent returns the position of a time, 0 to 100.
func (t *timeline) percent(moment time.Time) float64 {
	return min(max(100*float64(moment.Sub(t.From))/float64(t.To.Sub(t.From)), 0), 100)
}

func percent(x float64) string { return fmt.Sprintf("%.2f%%", x) }

// steps are the possible distances between two marks, except for pictures of many years.
var steps = []time.Duration{
	time.Second, 2 * time.Second, 5 * time.Second, 10 * time.Second, 15 * time.Second, 30 * time.Second,
	time.Minute, 2 * time.Minute, 5 * time.Minute, 10 * time.Minute, 15 * time.Minute, 30 * time.Minute,
	time.Hour, 2 * time.Hour, 3 * time.Hour, 6 * time.Hour, 12 * time.Hour,
	day, 2 * day, 4 * day, 7 * day, 14 * day, 28 * day, 56 * day, 91 * day, 182 * day, 365 * day,
}

// marksOf returns at most five marks at round times.
func marksOf(from, to time.Time) (marks []mark) {
	width := to.Sub(from)
	step := steps[len(steps)-1]
	for _, s := range steps {
		if width/s < 5 {
			step = s
			break
		}
	}
	for width/step >= 5 {
		step *= 2
	}
	format := "2006-01-02"
	switch {
	case step < time.Minute:
		format = "15:04:05"
	case width < day:
		format = "15:04"
	case step < day:
		format = "01-02 15:04"
	}
	t := timeline{From: from, To: to}
	for at := from.UTC().Truncate(step).Add(step); at.Before(to) && len(marks) < 6; at = at.Add(step) {
		if x := t.percent(at); x > 6 && x < 94 { // leave room for the label
			marks = append(marks, mark{percent(x), at.Format(format)})
		}
	}
	return marks
}
