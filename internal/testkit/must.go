// Package testkit holds what the tests of several packages need: databases, clocks, logs, child processes and
// a ledger that finds ids that were made twice. Only tests import it.
package testkit

import (
	"errors"
	"fmt"
	"os"
	"regexp"
	"strings"
	"testing"
	"time"
)

// Must ends the test if err is not nil. Call it on the goroutine of the test.
func Must(tb testing.TB, err error) {
	tb.Helper()
	if err != nil {
		tb.Fatal(err)
	}
}

// SaysAll reports an error for each of words that message does not contain.
func SaysAll(tb testing.TB, message string, words ...string) {
	tb.Helper()
	for _, w := range words {
		if !strings.Contains(message, w) {
			tb.Errorf("the message\n\t%s\ndoes not say %q", message, w)
		}
	}
}

// Eventually calls done every few milliseconds until it returns true. It ends the test after timeout; why names
// what the test waited for. Call it on the goroutine of the test.
func Eventually(tb testing.TB, why string, timeout time.Duration, done func() bool) {
	tb.Helper()
	for begin := time.Now(); !done(); time.Sleep(2 * time.Millisecond) {
		if time.Since(begin) > timeout {
			tb.Fatalf("waited %v in vain: %s", timeout, why)
		}
	}
}

// IsError reports a test error unless err wraps want and its text contains each of words. With want nil, any error will
// do.
func IsError(tb testing.TB, err, want error, words ...string) {
	tb.Helper()
	if err == nil || want != nil && !errors.Is(err, want) {
		tb.Errorf("error %v, want %v", err, want)
		return
	}
	SaysAll(tb, err.Error(), words...)
}

// LeftOut skips a test that should run, loudly; with CI=true it fails.
func LeftOut(t *testing.T, why string) {
	t.Helper()
	if os.Getenv("CI") == "true" {
		t.Fatal(why)
	}
	text := fmt.Sprintf("%s IS LEFT OUT: %s\n", t.Name(), why)
	Tell(text)
	t.Skip(strings.TrimSpace(text))
}

// Tell writes a text to stdout, and to the terminal if there is one: go test shows what a package that passes prints
// only with -v.
func Tell(text string) {
	fmt.Print(text)
	if tty, err := os.OpenFile("/dev/tty", os.O_WRONLY, 0); err == nil {
		fmt.Fprint(tty, text)
		_ = tty.Close()
	}
}

// SkipWithRace skips a test in which the race detector finds nothing, or which it falsifies: long ones of one
// goroutine, and those that count allocations. make test runs these without the race detector, by the pattern in the
// environment variable UID_TEST_WITHOUT_RACE; with that variable set, a test whose name it does not match fails, for it
// would never run.
func SkipWithRace(tb testing.TB) {
	tb.Helper()
	if !Race {
		return
	}
	if pattern := os.Getenv("UID_TEST_WITHOUT_RACE"); pattern != "" && !regexp.MustCompile(pattern).MatchString(tb.Name()) {
		tb.Fatalf("make test never runs this test: WITHOUT_RACE in the Makefile, %q, does not match its name", pattern)
	}
	tb.Skip("the race detector falsifies it, or makes it slow and finds nothing in it; make test runs it without")
}
