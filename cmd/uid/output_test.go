package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"strings"
	"testing"
	"time"
	"unicode"

	"github.com/uidplugin/uidplugin/internal/admin"
	"github.com/uidplugin/uidplugin/internal/testkit"
)

// hostile is a text that would act on a terminal: colours, a title, the cursor, a line of its own, a change of
// direction, bytes that are no UTF-8.
const hostile = "a\x1b[31mred\x1b]0;title\x07\r\n\x9b2Jx\u009bK\u202etxt\u200b\xff\x00|商店 é"

// checkTame reports an error for each character of a text that a terminal would act on.
func checkTame(t *testing.T, text string) {
	t.Helper()
	for i, r := range text {
		if r != '\n' && !unicode.IsPrint(r) || r == unicode.ReplacementChar && !strings.HasPrefix(text[i:], "\ufffd") {
			t.Errorf("at %d there is %q in\n%q", i, r, text)
			return
		}
	}
}

func TestClean_EscapesWhatATerminalWouldActOn(t *testing.T) {
	t.Parallel()

	got := clean(hostile)
	checkTame(t, got)
	if want := `a\x1b[31mred\x1b]0;title\a\r\n\x9b2Jx\u009bK\u202etxt\u200b\xff\x00|商店 é`; got != want {
		t.Errorf("%s\nwant\n%s", got, want)
	}
	if got := clean("plain, 商店, é"); got != "plain, 商店, é" {
		t.Errorf("%q", got)
	}
	if got := oneLine("one\n\n  two\n"); got != "one; two" {
		t.Errorf("%q", got)
	}
}

func TestWriteJSON_IsOneTameLine(t *testing.T) {
	t.Parallel()

	text := strings.ToValidUTF8(hostile, "?") + "\U000e0001<&>"
	var out bytes.Buffer
	must(t, writeJSON(&out, map[string]string{"a": text}))
	checkTame(t, out.String())
	var back map[string]string
	must(t, json.Unmarshal(out.Bytes(), &back))
	if back["a"] != text || strings.Count(out.String(), "\n") != 1 {
		t.Errorf("%q, %s", back["a"], out.String())
	}
}

// Rows and names of hosts come from others, so they are escaped.
func TestWhere_HostileRowsAndHosts(t *testing.T) {
	t.Parallel()
	testkit.Each(t, func(t *testing.T, d *testkit.Database) {
		db := d.Open(t, nil)
		text := strings.ReplaceAll(strings.ToValidUTF8(hostile, "?"), "\x00", "")
		ids := shop(t, db, text[:30], text, strings.Repeat("long 商 ", 100))
		r := runner{t: t, dsn: dsn(d)}
		for _, args := range [][]string{
			{"where", "--row", ids[0].String()}, {"where", "--row", "--json", ids[0].String()},
			{"where", "--row", ids[1].String()},
			{"sessions"}, {"sessions", "--json"}, {"slots"}, {"slots", "--json"}, {"tables"},
			{"doctor", "--ignore", strings.Join(admin.Codes, ",")},
		} {
			got := r.run(args...).want(t, exitOK)
			checkTame(t, got.out+got.err)
		}
		got := r.run("where", "--row", ids[1].String())
		if line := len([]rune(got.out)) - len([]rune(strings.Split(got.out, "  text")[0])); line > 400 {
			t.Errorf("a text of 700 characters takes %d", line)
		}
		got.want(t, exitOK, "... (700 characters)")
		r.run("where", "--row", "--json", ids[1].String()).want(t, exitOK, strings.Repeat("long 商 ", 100))
		got = r.run("decode", "\x1b[31m", "--layout", "default").want(t, exitWrong, `\x1b`)
		checkTame(t, got.err)
	})
}

// SQLite keeps texts of any length, whatever the column says. One of them must not widen each line of a list.
func TestGrid_CutsLongTextsOff(t *testing.T) {
	t.Parallel()

	_, db, r := sqliteShop(t)
	id := r.id.String()
	long := strings.Repeat("商", 1<<18)
	exec(`UPDATE "WORKER_SLOT" SET "HOST_NAME" = '`+long+`'`, `UPDATE "WORKER_SESSION" SET "HOST_NAME" = '`+long+`'`,
		`UPDATE "WORKER_NODE" SET "TABLE_NAME" = '`+long+`'`)(t, db)
	for _, args := range [][]string{{"slots"}, {"sessions"}, {"tables"}, {"where", id}, {"sessions", "--at", at(time.Now())}} {
		if got := r.run(args...).want(t, exitOK); len(got.out) > 10_000 {
			t.Errorf("%v: %d bytes", args, len(got.out))
		}
	}
	r.run("slots", "--json").want(t, exitOK, long)
}

// NO_COLOR, a dumb terminal and a pipe have no colours.
func TestPaint_OnlyAtATerminal(t *testing.T) {
	t.Parallel()

	a := &app{env: func(string) string { return "" }}
	if got := a.paint(&bytes.Buffer{}, red, "x"); got != "x" {
		t.Errorf("%q", got)
	}
}

func TestParseTime_ReadsWhatPeopleWrite(t *testing.T) {
	t.Parallel()

	want := time.Date(2026, 11, 22, 15, 4, 5, 0, time.UTC)
	for text, want := range map[string]time.Time{
		"2026-11-22": want.Truncate(24 * time.Hour), "2026-11-22 15:04": want.Truncate(time.Minute),
		"2026-11-22 15:04:05":       want,
		"2026-11-22 15:04:05.250":   want.Add(250 * time.Millisecond),
		"2026-11-22T15:04:05":       want,
		"2026-11-22 15:04:05 UTC":   want,
		"2026-11-22T23:04:05+08:00": want,
		"2026-11-22T15:04:05.25Z":   want.Add(250 * time.Millisecond),
	} {
		if got, err := parseTime(text); err != nil || !got.Equal(want) {
			t.Errorf("%s: %v, %v", text, got, err)
		}
	}
	_, err := parseTime("22.11.2026")
	testkit.IsError(t, err, nil, "22.11.2026", "2026-11-22")
}

// A full is a writer to a full disk.
type full struct{}

func (full) Write([]byte) (int, error) { return 0, errors.New("no space left") }

// If output cannot be written, the exit code says so, because a script must not take it for success.
func TestRun_FailsIfTheAnswerCannotBeWritten(t *testing.T) {
	t.Parallel()

	d, _, r := sqliteShop(t)
	id := r.id.String()
	for _, args := range [][]string{
		{"decode", id}, {"decode", "--all", id}, {"doctor"}, {"status"}, {"tables"}, {"where", id}, {"version"},
	} {
		a := &app{in: strings.NewReader(""), out: full{}, err: io.Discard, now: time.Now, env: func(name string) string {
			return map[string]string{"UID_DSN": dsn(d)}[name]
		}}
		if code := a.run(t.Context(), args); code != exitFailed {
			t.Errorf("%v: exit code %d", args, code)
		}
	}
}
