package workernode_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/uidplugin/uidplugin/workernode"
)

func sessionRows(t *testing.T) *workernode.DB {
	t.Helper()
	db := tables(t)
	slot := `INSERT INTO "WORKER_SLOT" VALUES (?, 'l', ?, ?, 7, ?, 8, 'shop', 'h', 'p', '2026-06-01 12:00:00', 0)`
	run(t, db, slot, 1, 1, 500, "me")
	run(t, db, slot, 2, 0, 90, "")
	session := `INSERT INTO "WORKER_SESSION" VALUES (?, ?, ?, ?, 'h', 'p', 2, '2026-06-01 12:00:00.123', ?)`
	run(t, db, session, 1, 99, 0, "first", "a")     // 100 to 180
	run(t, db, session, 1, 199, 180, "second", "b") // 200 to 300; commits were lost, and the next holder does not know of 250 to 300
	run(t, db, session, 1, 349, 250, "third", "c")  // 350 to 500
	run(t, db, session, 2, 9, 0, "other", "d")
	for slot := 1; slot <= 2; slot++ { // each has the worker id of the same number
		run(t, db, `INSERT INTO "WORKER_NODE" ("ID", "HOST_NAME", "PORT", "TYPE", "LAUNCH_DATE", "SLOT") VALUES (?, 'h', 'p', 2, '2026-06-01', ?)`, slot, slot)
	}
	return open(t, db)
}

// Resolving never guesses: an id belongs to the session with the largest START_TICK below its tick, unless that session
// cannot have stamped it.
func TestDBTrace_NeverGuesses(t *testing.T) {
	t.Parallel()

	d := sessionRows(t)
	for _, tt := range []struct {
		slot, tick int64
		want       string // "" for unknown
		until      int64
	}{
		{1, 50, "", 0}, // before the first session
		{1, 99, "", 0}, // START_TICK is the last tick before it
		{1, 100, "first", 199},
		{1, 180, "first", 199},
		{1, 181, "", 0}, // above BEFORE_TICK of the second: nobody was granted it
		{1, 199, "", 0},
		{1, 200, "second", 349},
		{1, 250, "second", 349},
		{1, 251, "", 0}, // of commits that were lost
		{1, 349, "", 0},
		{1, 350, "third", -1},
		{1, 500, "third", -1},
		{1, 501, "", 0}, // above FENCE
		{1, 1 << 40, "", 0},
		{1, -1, "", 0},
		{2, 10, "other", -1},
		{2, 91, "", 0},
		{3, 10, "", 0}, // no such slot
		{0, 10, "", 0},
	} {
		n, s, ok, err := d.Trace(t.Context(), layout, tt.slot, tt.tick)
		must(t, err)
		until := time.Time{}
		if tt.until >= 0 {
			until = layout.TimeOf(tt.until + 1)
		}
		if ok != (tt.want != "") || ok && (s.Application != tt.want || !s.Until.Equal(until) || s.Slot != tt.slot || n.Slot != tt.slot) {
			t.Errorf("slot %d, tick %d: %+v, %v, want %q", tt.slot, tt.tick, s, ok, tt.want)
		}
	}
	_, s, _, err := d.Trace(t.Context(), layout, 1, 250)
	must(t, err)
	want := workernode.Session{Slot: 1, From: layout.TimeOf(200), Until: layout.TimeOf(350), Application: "second", Host: "h", Port: "p",
		Kind: workernode.Actual, Launched: time.Date(2026, 6, 1, 12, 0, 0, 123e6, time.UTC)}
	if s != want {
		t.Errorf("%+v, want %+v", s, want)
	}
}

// The sessions of a time are those that Trace returns for an id of the time, of all slots.
func TestDBSessionsAt_AreThoseOfATime(t *testing.T) {
	t.Parallel()

	d := sessionRows(t)
	for _, tt := range []struct {
		tick int64
		want []string
	}{
		{9, nil}, {10, []string{"other to 90"}}, {90, []string{"other to 90"}}, {91, nil},
		{100, []string{"first to 180"}}, {180, []string{"first to 180"}}, {181, nil},
		{200, []string{"second to 250"}}, {250, []string{"second to 250"}}, {251, nil},
		{350, []string{"third to 500"}}, {500, []string{"third to 500"}}, {501, nil},
	} {
		found, err := d.SessionsAt(t.Context(), layout, tt.tick)
		must(t, err)
		var got []string
		for _, o := range found {
			got = append(got, fmt.Sprintf("%s to %d", o.Application, layout.TickAt(o.Last)))
			o.Last = time.Time{}
			if _, single, ok, err := d.Trace(t.Context(), layout, o.Slot, tt.tick); err != nil || !ok || single != o {
				t.Errorf("tick %d: %+v, but Trace returns %+v, %v, %v", tt.tick, o, single, ok, err)
			}
		}
		if !slices.Equal(got, tt.want) {
			t.Errorf("tick %d: %q, want %q", tt.tick, got, tt.want)
		}
	}
}

// An id above BEFORE_TICK of any later session is unknown, not only of the next one: commits may be lost twice.
func TestDBTrace_LooksAtAllLaterSessions(t *testing.T) {
	t.Parallel()

	db := tables(t)
	run(t, db, `INSERT INTO "WORKER_SLOT" VALUES (1, 'l', 1, 900, 7, 'me', 8, 'shop', 'h', 'p', '2026-06-01 12:00:00', 0)`)
	run(t, db, `INSERT INTO "WORKER_NODE" ("ID", "HOST_NAME", "PORT", "TYPE", "LAUNCH_DATE", "SLOT") VALUES (1, 'h', 'p', 2, '2026-06-01', 1)`)
	for _, s := range [][2]int64{{99, 0}, {399, 390}, {599, 150}} {
		run(t, db, `INSERT INTO "WORKER_SESSION" VALUES (1, ?, ?, 'a', 'h', 'p', 2, '2026-06-01 12:00:00', 'x')`, s[0], s[1])
	}
	for tick, want := range map[int64]bool{100: true, 150: true, 151: false, 390: false, 400: false, 600: true, 900: true} {
		if _, _, ok, err := open(t, db).Trace(t.Context(), layout, 1, tick); err != nil || ok != want {
			t.Errorf("tick %d: %v, %v", tick, ok, err)
		}
	}
}

// Lists come in pages, and the latest sessions first. Each session ends where nobody was granted a later tick, also if
// the next one is on another page.
func TestDBSessions_ListsTheLatestFirst(t *testing.T) {
	t.Parallel()

	d := sessionRows(t)
	ends := map[int64]struct{ last, until int64 }{349: {500, -1}, 199: {250, 349}, 99: {180, 199}, 9: {90, -1}}
	for _, tt := range []struct {
		slot, before int64
		limit        int
		want         []int64
	}{
		{1, 1 << 40, 10, []int64{349, 199, 99}}, {1, 349, 10, []int64{199, 99}}, {1, 1 << 40, 2, []int64{349, 199}},
		{0, 1 << 40, 10, []int64{349, 199, 99, 9}}, {2, 1 << 40, 10, []int64{9}}, {3, 1 << 40, 10, nil}, {0, 1 << 40, 0, nil},
	} {
		sessions, err := d.Sessions(t.Context(), layout, tt.slot, layout.TimeOf(tt.before+1), tt.limit)
		must(t, err)
		var got []int64
		for _, s := range sessions {
			start, until := layout.TickAt(s.From)-1, int64(-1)
			if !s.Until.IsZero() {
				until = layout.TickAt(s.Until) - 1
			}
			got = append(got, start)
			if want := ends[start]; tt.slot != 0 && (until != want.until || layout.TickAt(s.Last) != want.last) {
				t.Errorf("%+v: the session after %d ends at %v, before %v", tt, start, s.Last, s.Until)
			}
		}
		if !slices.Equal(got, tt.want) {
			t.Errorf("%+v: %d", tt, got)
		}
	}
}

// SQLite keeps texts of any length: a list of fifty must not take hundreds of megabytes.
func TestDB_ListsCutLongTexts(t *testing.T) {
	t.Parallel()

	db := tables(t)
	long := strings.Repeat("é", 100_000)
	run(t, db, `INSERT INTO "WORKER_SLOT" VALUES (1, ?, 1, 500, 7, ?, 8, ?, ?, ?, '2026-06-01 12:00:00', 0)`, long, long, long, long, long)
	run(t, db, `INSERT INTO "WORKER_SESSION" VALUES (1, 99, 0, ?, ?, ?, 2, '2026-06-01 12:00:00', ?)`, long, long, long, long)
	run(t, db, `INSERT INTO "WORKER_NODE" ("ID", "HOST_NAME", "PORT", "TYPE", "LAUNCH_DATE", "SLOT", "DATABASE_NAME", "TABLE_NAME", "LAYOUT")`+
		` VALUES (1, '', '', 2, '2026-06-01', 1, ?, ?, ?)`, long, long, long)
	d := open(t, db)
	slots, err := d.Slots(t.Context(), layout, 0, 10)
	must(t, err)
	sessions, err := d.Sessions(t.Context(), layout, 1, time.Time{}, 10)
	must(t, err)
	nodes, err := d.Nodes(t.Context(), 0, 10)
	must(t, err)
	for list, texts := range map[string][]string{
		"slots":    {slots[0].Application, slots[0].Host, slots[0].Port},
		"sessions": {sessions[0].Application, sessions[0].Host, sessions[0].Port},
		"nodes":    {nodes[0].Table.Database, nodes[0].Table.Name, nodes[0].Layout},
	} {
		for i, text := range texts {
			if want := strings.Repeat("é", 200); text != want {
				t.Errorf("%s, text %d has %d bytes, want %d", list, i, len(text), len(want))
			}
		}
	}
}
