package inspector

import (
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/uidplugin/uidplugin"
)

// A timeline is the picture of sessions: a lane for each slot, and time from left to right. All positions are
// percentages of the width.
type timeline struct {
	From, To time.Time
	Marks    []mark
	Lanes    []lane
	Left     int // slots that have no lane
}

// A mark is a time on the axis.
type mark struct {
	X     string
	Label string
}

// A lane has the sessions of one slot.
type lane struct {
	Slot        int64
	State       string // of the slot; empty if it is not known
	Application string // of its latest session
	Host, Port  string
	Bars        []bar
}

// A bar is a session.
type bar struct {
	X, Width string
	Class    string // live, expired or ended
	Label    string
}

// maxLanes bounds the lanes of a timeline.
const maxLanes = 30

// draw returns the timeline of sessions, which are in descending order of their start; nil if there are none. before is
// the end of the time shown; zero means now.
func draw(sessions []session, slots map[int64]uidplugin.Slot, before, now time.Time) *timeline {
	if len(sessions) == 0 {
		return nil
	}
	t := &timeline{From: sessions[0].From, To: now}
	if !before.IsZero() && before.Before(now) {
		t.To = before
	}
	lanes, left := map[int64]*lane{}, map[int64]bool{}
	for _, s := range sessions {
		if lanes[s.Slot] == nil && len(lanes) == maxLanes {
			left[s.Slot] = true
			continue
		}
		if lanes[s.Slot] == nil {
			lanes[s.Slot] = &lane{Slot: s.Slot, State: s.State, Application: s.Application, Host: s.Host, Port: s.Port}
		}
		if s.From.Before(t.From) {
			t.From = s.From
		}
	}
	if t.To.Sub(t.From) < time.Minute {
		t.From = t.To.Add(-time.Minute)
	}
	t.From = t.From.Add(-t.To.Sub(t.From) / 50)   // room to the left of the first
	for _, s := range slices.Backward(sessions) { // in the order in which they are read
		if l := lanes[s.Slot]; l != nil {
			l.Bars = append(l.Bars, t.bar(s, slots[s.Slot]))
		}
	}
	for _, slot := range slices.Sorted(maps.Keys(lanes)) {
		t.Lanes = append(t.Lanes, *lanes[slot])
	}
	t.Left = len(left)
	t.Marks = marksOf(t.From, t.To)
	return t
}

// bar returns the bar of a session.
func (t *timeline) bar(s session, slot uidplugin.Slot) bar {
	end, class, ended := s.Until, "ended", "until "+clock(s.Until)
	switch s.State {
	case live, idle:
		end, class, ended = t.To, live, "and holds it now"
	case expired:
		end, class, ended = slot.Fence, expired, "and did not release it"
	case retired:
		end, ended = slot.Fence, "and nobody will use it again"
	case free:
		end, ended = slot.Seen, "until it released it, about "+clock(slot.Seen)
	default:
		if end.IsZero() {
			end, ended = t.To, "until a session that is not shown"
		}
	}
	from, to := t.percent(s.From), t.percent(end)
	const least = 0.5 // so that it is seen
	if to-from < least {
		from = min(from, 100-least)
		to = from + least
	}
	who := fmt.Sprintf("%s on %s, port %s", s.Application, s.Host, s.Port)
	if s.Pruned() {
		who = "processes that are no longer known"
	}
	return bar{
		X: percent(from), Width: percent(to - from), Class: class,
		Label: printable(fmt.Sprintf("%s, from %s %s", who, clock(s.From), ended)),
	}
}

// percent returns where a time is: 0 to 100.
func (t *timeline) percent(at time.Time) float64 {
	return min(max(100*float64(at.Sub(t.From))/float64(t.To.Sub(t.From)), 0), 100)
}

func percent(x float64) string { return fmt.Sprintf("%.2f%%", x) }

// steps are the distances between marks.
var steps = []time.Duration{
	time.Second, 2 * time.Second, 5 * time.Second, 10 * time.Second, 15 * time.Second, 30 * time.Second,
	time.Minute, 2 * time.Minute, 5 * time.Minute, 10 * time.Minute, 15 * time.Minute, 30 * time.Minute,
	time.Hour, 2 * time.Hour, 3 * time.Hour, 6 * time.Hour, 12 * time.Hour,
	day, 2 * day, 4 * day, 7 * day, 14 * day, 28 * day, 56 * day, 91 * day, 182 * day, 365 * day,
}

// marksOf returns at most five marks of round times between two times.
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
		if x := t.percent(at); x > 6 && x < 94 { // with room for the label
			marks = append(marks, mark{percent(x), at.Format(format)})
		}
	}
	return marks
}
