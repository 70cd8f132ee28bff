package inspector

import (
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/uidplugin/uidplugin/internal/testkit"
	"github.com/uidplugin/uidplugin/workernode"
)

// noon is the present of the tests.
var noon = time.Date(2026, 6, 1, 12, 0, 0, 0, time.UTC)

func ago(d time.Duration) time.Time { return noon.Add(-d) }

// ran is a session of a process that was launched at its start, in minutes before noon. Zero minutes for next are none.
func ran(from, last, next float64) workernode.Session {
	minutes := func(m float64) time.Time { return ago(time.Duration(m * float64(time.Minute))) }
	s := workernode.Session{
		Slot: 1, Application: "app", Host: "host", Port: fmt.Sprint("pid-", from), Launched: minutes(from), From: minutes(from),
		Last: minutes(last),
	}
	if next != 0 {
		s.Until = minutes(next)
	}
	return s
}

// A bar ends where no later id can be. A process that lives on without ids, such as in an outage, has a thin one.
func TestDraw_EndsEachBarAfterTheLastID(t *testing.T) {
	t.Parallel()
	held := workernode.Slot{ID: 1, Held: true, Reusable: true, Seen: ago(time.Second), Fence: noon.Add(9 * time.Second)}
	renewed := ran(30, -0.15, 0) // a session of the process that was launched an hour ago
	renewed.Port, renewed.Launched = "pid-60", ago(time.Hour)
	type drawn struct{ X, Width, Class, Ends string }
	at := func(ago float64) string { return percent(100 * (61.2 - ago) / 61.2) } // minutes
	width := func(minutes float64) string { return percent(100 * minutes / 61.2) }
	for name, tt := range map[string]struct {
		slot     workernode.Slot
		sessions []workernode.Session // the latest first
		want     []drawn
	}{
		"killed, and another process after ten minutes": {
			held, []workernode.Session{ran(30, -0.15, 0), ran(60, 40, 30)}, []drawn{
				{at(60), width(20), "ended", "no id after 2026-06-01 11:20:00.000"},
				{at(30), width(30), good, "and may make ids now"},
			},
		},
		"an outage of ten minutes": {held, []workernode.Session{renewed, ran(60, 40, 30)}, []drawn{
			{at(60), width(20), "ended", "no id after 2026-06-01 11:20:00.000"},
			{at(40), width(10), "thin", "made no ids from 2026-06-01 11:20:00.000 to 2026-06-01 11:30:00.000"},
			{at(30), width(30), good, "and may make ids now"},
		}},
		"killed": {
			workernode.Slot{ID: 1, Held: true, Reusable: true, Seen: ago(20 * time.Minute), Fence: ago(15 * time.Minute)},
			[]workernode.Session{ran(60, 15, 0)},
			[]drawn{{at(60), width(45), late, "its process did not release the slot"}},
		},
		"released, and its fence is later": {
			workernode.Slot{ID: 1, Reusable: true, Seen: ago(30 * time.Minute), Fence: ago(20 * time.Minute)},
			[]workernode.Session{ran(60, 20, 0)},
			[]drawn{{at(60), width(30), "ended", "released 2026-06-01 11:30:00.000"}},
		},
		"idle": {
			workernode.Slot{ID: 1, Held: true, Reusable: true, Seen: ago(10 * time.Second), Fence: ago(40 * time.Minute)},
			[]workernode.Session{ran(60, 40, 0)}, []drawn{
				{at(60), width(20), "ended", "the process holds the slot"},
				{at(40), width(40), "thin", "made no ids from 2026-06-01 11:20:00.000 to 2026-06-01 12:00:00.000"},
			},
		},
	} {
		line := draw([]holding{holdingOf(tt.slot, tt.sessions, 50, nil, noon)}, time.Time{}, 0, noon)
		var got []drawn
		for i, b := range line.Lanes[0].Bars {
			if d := (drawn{b.X, b.Width, b.Class, ""}); i < len(tt.want) && strings.HasSuffix(b.Label, tt.want[i].Ends) {
				d.Ends = tt.want[i].Ends
				got = append(got, d)
			} else {
				t.Errorf("%s: bar %d says %q", name, i, b.Label)
			}
		}
		if !slices.Equal(got, tt.want) {
			t.Errorf("%s:\n%v, want\n%v", name, got, tt.want)
		}
	}
	if draw(nil, time.Time{}, 0, noon) != nil {
		t.Error("a timeline of nothing")
	}
}

func TestDraw_ShowsASpan(t *testing.T) {
	t.Parallel()
	free := workernode.Slot{ID: 1, Reusable: true, Seen: noon, Fence: noon}
	list := []workernode.Session{ran(20, 0, 0), ran(90, 45, 20), ran(300, 200, 90)}
	line := draw([]holding{holdingOf(free, list, 50, nil, noon)}, time.Time{}, time.Hour, noon)
	bars := line.Lanes[0].Bars
	if !line.From.Equal(ago(time.Hour)) || len(bars) != 2 || bars[0].X != "0.00%" || bars[0].Width != "25.00%" {
		t.Errorf("from %v: %+v", line.From, bars)
	}
}

func TestDraw_StaysInside(t *testing.T) {
	t.Parallel()
	for _, from := range []time.Time{
		noon.Add(-time.Second), noon, noon.Add(time.Hour), noon.AddDate(100, 0, 0), noon.AddDate(-200, 0, 0), {},
	} {
		for _, span := range []time.Duration{0, 1, time.Hour, math.MaxInt64} {
			one := session{Session: workernode.Session{Slot: 1, From: from, Last: from.Add(-time.Hour)}}
			line := draw([]holding{{Slot: 1, Sessions: []session{one}}}, time.Time{}, span, noon)
			if len(line.Marks) > 6 {
				t.Errorf("from %v: %d marks", from, len(line.Marks))
			}
			for _, b := range line.Lanes[0].Bars {
				var x, width float64
				_, err := fmt.Sscanf(b.X+" "+b.Width, "%f%% %f%%", &x, &width)
				testkit.Must(t, err)
				if x < 0 || width < 0.29 || x+width > 100.01 {
					t.Errorf("from %v: %+v", from, b)
				}
			}
		}
	}
}

func TestPrintable_HasNoControlCharacters(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		"plain, ünïcode 名": "plain, ünïcode 名", "a\x1b[31m": `a\x1b[31m`, "\x00\xff": `\x00\xff`,
		"\u202eabc": `\u202eabc`,
		"\uFFFD":    "\uFFFD", "a\nb": "a\nb", strings.Repeat("é", 1001): strings.Repeat("é", 1000) + "… (2002 bytes)",
	} {
		if got := printable(text); got != want {
			t.Errorf("%q: %q", text, got)
		}
	}
}
