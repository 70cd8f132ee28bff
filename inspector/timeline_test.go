package inspector

import (
	"fmt"
	"math"
	"strings"
	"testing"
	"time"

	"github.com/uidplugin/uidplugin"
	"github.com/uidplugin/uidplugin/internal/testkit"
)

// noon is the present of the tests.
var noon = time.Date(2026, 6, 1, 12, 0, 0, 0, time.UTC)

func began(slot int64, ago time.Duration) uidplugin.Session {
	return uidplugin.Session{Slot: slot, Application: "app", Host: "host", Port: "1", From: noon.Add(-ago)}
}

func TestDraw_EndsEachSessionWhereTheNextOneOfItsSlotBegins(t *testing.T) {
	t.Parallel()
	slots := map[int64]uidplugin.Slot{
		1: {ID: 1, Held: true, Reusable: true, Fence: noon.Add(10 * time.Second), Seen: noon},
		2: {ID: 2, Reusable: true, Fence: noon, Seen: noon.Add(-30 * time.Minute)},
		3: {ID: 3, Held: true, Reusable: true, Fence: noon.Add(-15 * time.Minute)},
	}
	sessions := describe([]uidplugin.Session{began(3, 20*time.Minute), began(1, 30*time.Minute), began(2, 40*time.Minute),
		began(4, 45*time.Minute), began(1, time.Hour)}, slots, time.Time{}, noon)
	line := draw(sessions, slots, time.Time{}, noon)
	at := func(ago float64) string { return percent(100 * (61.2 - ago) / 61.2) } // minutes
	width := func(minutes float64) string { return percent(100 * minutes / 61.2) }
	want := []bar{
		{at(60), width(30), "ended", "until 2026-06-01 11:30:00.000"},
		{at(30), width(30), live, "and holds it now"},
		{at(40), width(10), "ended", "until it released it, about 2026-06-01 11:30:00.000"},
		{at(20), width(5), expired, "and did not release it"},
		{at(45), width(45), "ended", "until a session that is not shown"},
	}
	var got []bar
	for _, l := range line.Lanes {
		got = append(got, l.Bars...)
	}
	if len(got) != len(want) {
		t.Fatalf("%+v", got)
	}
	for i := range got {
		if !strings.HasSuffix(got[i].Label, want[i].Label) {
			t.Errorf("bar %d says %q, want %q", i, got[i].Label, want[i].Label)
		}
		if got[i].Label = want[i].Label; got[i] != want[i] {
			t.Errorf("bar %d: %+v, want %+v", i, got[i], want[i])
		}
	}
}

func TestDraw_IsBounded(t *testing.T) {
	t.Parallel()
	var sessions []session
	for slot := range int64(100) {
		sessions = append(sessions, session{Session: began(slot, time.Duration(slot)*time.Minute)})
	}
	line := draw(sessions, nil, time.Time{}, noon)
	if len(line.Lanes) != maxLanes || line.Left != 100-maxLanes || line.From.Before(noon.Add(-31*time.Minute)) {
		t.Errorf("%d lanes, %d left, from %v", len(line.Lanes), line.Left, line.From)
	}
	if draw(nil, nil, time.Time{}, noon) != nil {
		t.Error("a timeline of nothing")
	}
}

func TestDraw_StaysInside(t *testing.T) {
	t.Parallel()
	for _, from := range []time.Time{
		noon.Add(-time.Second), noon, noon.Add(time.Hour), noon.AddDate(100, 0, 0), noon.AddDate(-200, 0, 0), {},
	} {
		line := draw([]session{{Session: uidplugin.Session{Slot: 1, From: from}}}, nil, time.Time{}, noon)
		var x, width float64
		_, err := fmt.Sscanf(line.Lanes[0].Bars[0].X+" "+line.Lanes[0].Bars[0].Width, "%f%% %f%%", &x, &width)
		testkit.Must(t, err)
		if x < 0 || width < 0.49 || x+width > 100.01 || len(line.Marks) > 6 {
			t.Errorf("from %v: %+v, %d marks", from, line.Lanes[0].Bars[0], len(line.Marks))
		}
	}
}

func TestMarksOf_AreFewAndRound(t *testing.T) {
	t.Parallel()
	for _, width := range []time.Duration{
		time.Minute, time.Hour, 7 * time.Hour, 26 * time.Hour, 40 * day, 9000 * time.Hour, math.MaxInt64,
	} {
		marks := marksOf(noon.Add(-width), noon)
		if len(marks) < 2 || len(marks) > 6 {
			t.Errorf("%v: %+v", width, marks)
		}
	}
	if marks := marksOf(noon.Add(-time.Hour), noon); marks[0] != (mark{"25.00%", "11:15"}) {
		t.Errorf("%+v", marks)
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

func TestSpan_HasTwoUnits(t *testing.T) {
	t.Parallel()
	for d, want := range map[time.Duration]string{
		0: "0 ms", 250 * time.Millisecond: "250 ms", 1500 * time.Millisecond: "1.5 s", 61 * time.Second: "1 min 1 s",
		3*time.Hour + 12*time.Minute: "3 h 12 min", 50 * time.Hour: "2 d 2 h", 8766 * 2 * time.Hour: "2 y 0 d",
		-time.Second: "-1.0 s", math.MinInt64: "-292 y 98 d",
	} {
		if got := span(d); got != want {
			t.Errorf("%d: %s, want %s", d, got, want)
		}
	}
	if grouped(int64(math.MinInt64)) != "-9,223,372,036,854,775,808" || grouped(999) != "999" || grouped(1000) != "1,000" {
		t.Error(grouped(int64(math.MinInt64)), grouped(999), grouped(1000))
	}
}
