package main

import (
	"bytes"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/glebarez/sqlite"
	"github.com/uidplugin/uidplugin/internal/testkit"
)

func TestMain(m *testing.M) {
	testkit.RunRole(testkit.Roles{"writer": testkit.Role(writer), "worker": testkit.Role(worker)})
	os.Exit(m.Run())
}

// The consumers of the second run continue where those of the first have stopped, with the next number.
func TestRun(t *testing.T) {
	t.Parallel()
	dsn := filepath.Join(t.TempDir(), "outbox.db") + "?_pragma=busy_timeout(10000)&_pragma=journal_mode(WAL)"
	for _, want := range []string{
		"6 events. invoice 1 Ada, 10 invoice 2 Bob, 20 invoice 3 Ada, 30 invoice 4 Cem, 40 invoice 5 Bob, 50 invoice 6 Ada, 60 Ada, 3, 100 Bob, 2, 70 Cem, 1, 40",
		"12 events. invoice 7 Ada, 10 invoice 8 Bob, 20 invoice 9 Ada, 30 invoice 10 Cem, 40 invoice 11 Bob, 50 invoice 12 Ada, 60 Ada, 6, 200 Bob, 4, 140 Cem, 2, 80",
	} {
		var out bytes.Buffer
		testkit.Must(t, run(t.Context(), sqlite.Open(dsn), &out))
		text := regexp.MustCompile(`There are|The last invoices:|All sales:|of the event \d+:|orders: |total: `).ReplaceAllString(out.String(), "")
		if got := strings.Join(strings.Fields(text), " "); got != want {
			t.Fatalf("it printed\n%s\nwant\n%s", got, want)
		}
	}
}
