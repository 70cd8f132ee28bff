package main

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/uidplugin/uidplugin"
	"github.com/uidplugin/uidplugin/generator"
	"github.com/uidplugin/uidplugin/internal/admin"
	"github.com/uidplugin/uidplugin/internal/testkit"
)

// crowd is a database with many tables, slots and sessions, several of which began at one tick.
func crowd(t *testing.T) (runner, *testkit.Database) {
	t.Helper()
	d := testkit.Engine{Name: "sqlite"}.New(t)
	db := d.Open(t, nil)
	shop(t, db, "web-1")
	now := generator.DefaultLayout().TickAt(time.Now())
	for i := range 25 {
		slot := 100 + i
		must(t, db.Exec(`INSERT INTO "WORKER_SLOT" VALUES (?, '1-41-18-4/1ms@1514764800', 1, ?, 7, ?, ?,
			'app', 'h', 'p', '2026-06-01 12:00:00', 0)`, slot, now-int64(i)*1e6, []string{"", "me"}[i%2], now-int64(i)*1e6).Error)
		must(t, db.Exec(`INSERT INTO "WORKER_SESSION" VALUES (?, ?, 0, 'app', 'h', 'p', 2, '2026-06-01 12:00:00', 'x')`,
			slot, 1000+i/4).Error)
		must(t, db.Exec(`INSERT INTO "WORKER_NODE" VALUES (?, 'h', 'p', 1, '2026-01-01', '2026-01-01', '2026-01-01', ?, ?, ?,
			'1-41-18-4/1ms@1514764800', 0)`, 1000+i, slot, []string{"", "a.b", "other"}[i%3], fmt.Sprintf("t%02d", i/2)).Error)
	}
	return runner{t: t, dsn: dsn(d)}, d
}

// pages follows the hints for the next page, and returns how often each line of JSON came.
func pages(t *testing.T, r runner, args ...string) map[string]int {
	t.Helper()
	seen := map[string]int{}
	base := append([]string{}, args...)
	for range 200 {
		got := r.run(append(args, "--json")...).want(t, exitOK)
		for line := range strings.Lines(got.out) {
			seen[line]++
		}
		_, next, ok := strings.Cut(got.err, "more: uid ")
		if !ok {
			return seen
		}
		args = append([]string{}, base...)
		for _, word := range strings.Fields(next)[1:] {
			args = append(args, strings.Trim(word, `"`))
		}
	}
	t.Fatal("the pages do not end")
	return nil
}

// Each line is on exactly one page, whatever the size of the pages.
func TestLists_ComeInPages(t *testing.T) {
	t.Parallel()

	r, _ := crowd(t)
	for _, command := range []string{"tables", "slots", "sessions"} {
		all := r.run(command, "--json", "--limit", "1000").want(t, exitOK)
		lines := strings.Count(all.out, "\n")
		if lines < 20 || all.err != "" {
			t.Fatalf("%s: %d lines, %s", command, lines, all.err)
		}
		for _, limit := range []string{"1", "3", "7", "24", "26"} {
			seen := pages(t, r, command, "--limit", limit)
			for line, n := range seen {
				if n != 1 || !strings.Contains(all.out, line) {
					t.Errorf("%s --limit %s: %d times %s", command, limit, n, line)
				}
			}
			if len(seen) != lines {
				t.Errorf("%s --limit %s: %d lines, want %d", command, limit, len(seen), lines)
			}
		}
	}
}

// Formerly year 1, which is Go's zero time, counted as no bound.
func TestFilter_BoundsAtYearOne(t *testing.T) {
	t.Parallel()
	r, _ := crowd(t)
	for _, command := range []string{"slots", "sessions", "tables"} {
		if got := r.run(command, "--json", "--until", "0001-01-01").want(t, exitOK); got.out != "" {
			t.Errorf("%s: %s", command, got.out)
		}
	}
}

// On SQLite other programs may have written anything. A value that is not a date is left out of a list. For a value
// that is not a number the error names table, row and column, and commands that do not need the number still work.
func TestLists_NameARowThatCannotBeRead(t *testing.T) {
	t.Parallel()

	for _, tt := range []struct{ spoil, wrong, words string }{
		{`UPDATE "WORKER_SESSION" SET "LAUNCHED" = 'soon' WHERE "SLOT" = 105`, "", ""},
		{`UPDATE "WORKER_NODE" SET "LAUNCH_DATE" = 1.5 WHERE "ID" = 1005`, "", ""},
		{`UPDATE "WORKER_SLOT" SET "SEEN_TICK" = 'x' WHERE "ID" = 105`, "slots", `WORKER_SLOT, with ID = 105, |"SEEN_TICK"`},
		{`UPDATE "WORKER_NODE" SET "START_TICK" = 1.5 WHERE "ID" = 1005`, "tables", `TABLE_NAME = "t02"|START_TICK`},
		{`UPDATE "WORKER_SESSION" SET "START_TICK" = 1.5 WHERE "SLOT" = 105`, "slots sessions",
			`WORKER_SESSION, with SLOT = 105|START_TICK`},
	} {
		r, d := crowd(t)
		must(t, d.Open(t, nil).Exec(tt.spoil).Error)
		for _, command := range []string{"slots", "tables", "sessions"} {
			got := r.run(command)
			if !strings.Contains(tt.wrong, command) {
				got.want(t, exitOK)
				continue
			}
			got.want(t, exitFailed, strings.Split(tt.words, "|")...)
		}
		r.run("next", "orders").want(t, exitOK)
	}
}

// The ticks of some layouts go on beyond the years that JSON has.
func TestLists_WriteNoYearAfter9999(t *testing.T) {
	t.Parallel()

	_, db, r := sqliteShop(t)
	for _, s := range []string{
		`UPDATE "WORKER_REGISTRY" SET "LAYOUT" = '1-41-18-4/1s@1514764800', "LEAD_TICKS" = 600`,
		`UPDATE "WORKER_NODE" SET "START_TICK" = 1900000000000`,
		`UPDATE "WORKER_SLOT" SET "FENCE" = 2000000000000, "SEEN_TICK" = 2000000000000`,
		`UPDATE "WORKER_SESSION" SET "START_TICK" = 1900000000000`,
	} {
		must(t, db.Exec(s).Error)
	}
	for _, command := range []string{"slots", "tables", "sessions"} {
		r.run(command, "--json").want(t, exitOK, `"9999-12-31T23:59:59Z"`)
	}
}

func TestSlots_OfEachState(t *testing.T) {
	t.Parallel()

	r, _ := crowd(t)
	total := 0
	for _, state := range admin.StateNames() {
		for line := range pages(t, r, "slots", "--state", state, "--limit", "2") {
			var s admin.Slot
			must(t, json.Unmarshal([]byte(line), &s))
			if total++; s.State != state || s.WorkerIDs == 0 || s.Since.IsZero() {
				t.Errorf("%s: %+v", state, s)
			}
		}
	}
	if total != 26 {
		t.Errorf("%d slots of 26", total)
	}
}

// tickOf returns the tick that an id is stamped with.
func tickOf(t *testing.T, l generator.Layout, id uidplugin.ID) int64 {
	t.Helper()
	parts, err := l.Decompose(int64(id))
	must(t, err)
	return l.TickAt(parts.Time)
}

// Ids of pruned sessions keep their table. The command asks first, and says what it removes.
func TestPrune_AsksAndRemoves(t *testing.T) {
	t.Parallel()

	_, db, r := sqliteShop(t)
	id := r.id
	layout := generator.DefaultLayout()
	tick := tickOf(t, layout, id)
	// Two sessions follow, one of them a year later.
	later := tick + 365*24*3600*1000
	for i, start := range []int64{tick + 1000, later} {
		must(t, db.Exec(`INSERT INTO "WORKER_SESSION" VALUES (1, ?, ?, 'shop', 'web-2', 'p', 2, '2026-06-01 12:00:00', 'x')`,
			start, tick+500+int64(i)*1000).Error)
	}
	r.now = func() time.Time { return layout.TimeOf(later).Add(time.Hour) }
	date := layout.TimeOf(later - 1000).Format(time.RFC3339)
	r.run("where", id.String()).want(t, exitOK, "web-1")
	r.run("sessions", "prune", "--before", date).want(t, exitFailed, "standard input is not a terminal", "--yes")
	r.run("sessions", "prune", "--before", date, "--dry-run").
		want(t, exitOK, "1 session of 1 slot before ", "to be removed")
	r.run("sessions", "prune", "--before", date, "--yes", "--dry-run").want(t, exitFailed, "dry-run")
	r.run("where", id.String()).want(t, exitOK, "web-1")
	r.run("sessions", "prune", "--before", date, "--yes", "--json").want(t, exitOK, `"slots":1,"sessions":1,"done":true`)
	r.run("sessions", "prune", "--before", date, "--yes").want(t, exitOK, "nothing to remove")
	got := r.run("where", id.String()).want(t, exitOK, "orders", "(pruned)")
	if strings.Contains(got.out, "web-") {
		t.Errorf("%s", got.out)
	}
	r.run("where", "--json", id.String()).
		want(t, exitOK, `"table":"orders"`, `"session":{"application":"","host":"","port":""}`)
	got = r.run("sessions").want(t, exitOK, "(pruned)", "web-2")
	host := strings.Index(got.out, "HOST") // of the first line
	for line := range strings.Lines(got.out) {
		if len(line) <= host || line[host-1] != ' ' || line[host] == ' ' {
			t.Errorf("the columns are not below each other:\n%s", got.out)
		}
	}
}

// sessions --at lists the processes to which ids of that time resolve. Pruned ones have no name.
func TestSessionsAt_ListsTheProcessesOfATime(t *testing.T) {
	t.Parallel()

	_, db, r := sqliteShop(t)
	id := r.id
	layout := generator.DefaultLayout()
	tick := tickOf(t, layout, id)
	// The first process ended half a second after its id, and another one followed half a second later.
	must(t, db.Exec(`INSERT INTO "WORKER_SESSION" VALUES
		(1, ?, ?, 'shop', 'web-2', 'p', 2, '2026-06-01 12:00:00', 'x')`, tick+1000, tick+500).Error)
	for _, tt := range []struct {
		after int64
		want  string // host; empty for nobody
	}{{-1e9, ""}, {0, "web-1"}, {500, "web-1"}, {501, ""}, {1000, ""}, {1001, "web-2"}, {1e9, ""}} {
		when := layout.TimeOf(tick + tt.after)
		got := r.run("sessions", "--json", "--at", at(when)).want(t, exitOK)
		var p struct {
			Host        string
			Until, Last time.Time
		}
		if tt.want != "" {
			must(t, json.Unmarshal([]byte(got.out), &p))
		}
		if p.Host != tt.want || strings.Count(got.out, "\n") > 1 || tt.want == "" && got.out != "" {
			t.Errorf("%d ms after the id: %s", tt.after, got.out)
		}
		if tt.want == "web-1" && (!p.Last.Equal(layout.TimeOf(tick+500)) || !p.Until.Equal(layout.TimeOf(tick+1001))) {
			t.Errorf("%d ms after the id: %s", tt.after, got.out)
		}
	}
	r.run("sessions", "--at", at(layout.TimeOf(tick))+" UTC").want(t, exitOK, "LAST", "web-1")
	r.run("sessions", "--at", "2017-01-01").want(t, exitFailed, "2018-01-01", "2087-09-07")
	r.run("sessions", "--at", "then").want(t, exitFailed, "not a time")
	r.run("sessions", "--at", "2026-11-22", "--slot", "1").want(t, exitFailed, "slot")
}
