// Package testkit has helpers for the tests of several packages: databases, clocks, logs, child processes, and a
// ledger of duplicate ids. Only tests should import it.
package testkit

import (
	"context"
	"errors"
	"fmt"
	"os"
	"regexp"
	"strings"
	"testing"
	"time"
)

// Must ends the test if err is not nil. Call it on the test's goroutine.
func Must(tb testing.TB, err error) {
	tb.Helper()
	if err != nil {
		tb.Fatal(err)
	}
}

// MustClose closes a plugin or a lease manager. It tries again, because a statement may time out on a busy machine.
func MustClose(tb testing.TB, p interface {
	Close(ctx context.Context) error
}) {
	tb.Helper()
	for try := 0; ; try++ {
		err := p.Close(context.Background())
		if err == nil {
			return
		}
		if try == 5 {
			tb.Error(err)
			return
		}
	}
}

// SaysAll reports an error for each text in words that message does not contain.
func SaysAll(tb testing.TB, message string, words ...string) {
	tb.Helper()
	for _, w := range words {
		if !strings.Contains(message, w) {
			tb.Errorf("the message\n\t%s\ndoes not say %q", message, w)
		}
	}
}

// Eventually calls done until it returns true: every 2 ms, later every 50 ms, because done may ask a database.
// After the timeout it ends the test. failure names the awaited condition. Call it on the test's goroutine.
func Eventually(tb testing.TB, failure string, timeout time.Duration, done func() bool) {
	tb.Helper()
	for begin := time.Now(); !done(); {
		took := time.Since(begin)
		if took > timeout {
			tb.Fatalf("waited %v in vain: %s", timeout, failure)
		}
		time.Sleep(min(max(2*time.Millisecond, took/50), 50*time.Millisecond))
	}
}

// IsError reports a test error unless err wraps want and has each text in words. A nil want stands for any error.
func IsError(tb testing.TB, err, want error, words ...string) {
	tb.Helper()
	if err == nil || want != nil && !errors.Is(err, want) {
		tb.Errorf("error %v, want %v", err, want)
		return
	}
	SaysAll(tb, err.Error(), words...)
}

// SkipIfShort skips a long test with -short, and names the reason.
func SkipIfShort(tb testing.TB, reason string) {
	tb.Helper()
	if testing.Short() {
		tb.Skip("-short: " + reason)
	}
}

// Advanced advances the mark of a followed table, below which no new rows come, and returns the published mark. It
// tries for a minute, because a process that pauses, as on a busy machine, loses its turn.
func Advanced(tb testing.TB, m interface {
	Advance(ctx context.Context) (int64, error)
}) (published int64) {
	tb.Helper()
	var err error
	for begin := time.Now(); time.Since(begin) < time.Minute; time.Sleep(5 * time.Millisecond) {
		if published, err = m.Advance(tb.Context()); err == nil && published > 0 {
			return published
		}
	}
	tb.Fatalf("%d was published, %v", published, err)
	return 0
}

// LeftOut skips a test that should run, and says so by [Tell]. With CI=true it fails the test instead.
func LeftOut(t *testing.T, reason string) {
	t.Helper()
	if os.Getenv("CI") == "true" {
		t.Fatal(reason)
	}
	text := fmt.Sprintf("%s IS LEFT OUT: %s\n", t.Name(), reason)
	Tell(text)
	t.Skip(strings.TrimSpace(text))
}

// Tell writes a text to stdout, and to the terminal if there is one, because go test without -v hides the stdout of
// packages that pass.
func Tell(text string) {
	fmt.Print(text)
	if tty, err := os.OpenFile("/dev/tty", os.O_WRONLY, 0); err == nil {
		fmt.Fprint(tty, text)
		_ = tty.Close()
	}
}

// SkipWithRace skips a test under the race detector: one that counts allocations, which the detector changes, or a
// long one on a single goroutine, in which the detector finds nothing. make test runs it without the detector if
// its name matches UID_TEST_WITHOUT_RACE. If this is set and does not match, SkipWithRace fails the test.
func SkipWithRace(tb testing.TB) {
	tb.Helper()
	if !Race {
		return
	}
	if pattern := os.Getenv("UID_TEST_WITHOUT_RACE"); pattern != "" && !regexp.MustCompile(pattern).MatchString(tb.Name()) {
		tb.Fatalf("make test never runs this test: WITHOUT_RACE in the Makefile, %q, does not match its name", pattern)
	}
	tb.Skip("make test runs this test without the race detector, which would change its counts, or slow it down and find nothing")
}
