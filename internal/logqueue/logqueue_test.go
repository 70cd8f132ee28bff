package logqueue_test

import (
	"context"
	"log/slog"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/uidplugin/uidplugin/internal/logqueue"
)

// Lines reach the logger in their order, once the gate is open, even if the logger panics or ends its goroutine.
func TestQueue_CallsInOrderAfterTheGateIsOpen(t *testing.T) {
	t.Parallel()

	synctest.Test(t, func(t *testing.T) {
		gate := make(chan struct{})
		q := logqueue.New(gate)
		var mu sync.Mutex
		var got []int
		for i := range 100 {
			q.Do(func() {
				mu.Lock()
				got = append(got, i)
				mu.Unlock()
				switch i {
				case 50:
					panic("a logger that panics")
				case 60:
					runtime.Goexit() // as t.FailNow does in the handler of a test
				}
			})
		}
		synctest.Wait()
		if len(got) != 0 {
			t.Fatalf("%d calls before the gate is open", len(got))
		}
		close(gate)
		q.Flush(t.Context(), time.Second)
		if len(got) != 100 || !slices.IsSorted(got) {
			t.Errorf("%v", got)
		}
	})
}

// If a logger hangs, logging does not block, Flush waits for its limit at most, and the queue is bounded.
func TestQueue_WaitsForNoLoggerThatHangs(t *testing.T) {
	t.Parallel()

	synctest.Test(t, func(t *testing.T) {
		q, release, n := logqueue.New(nil), make(chan struct{}), 0
		q.Do(func() { <-release })
		synctest.Wait()
		for range 20_000 {
			q.Do(func() { n++ })
		}
		begin := time.Now()
		q.Flush(t.Context(), time.Second)
		if took := time.Since(begin); took != time.Second {
			t.Errorf("Flush has waited %v", took)
		}
		ended, cancel := context.WithCancel(t.Context())
		cancel()
		q.Flush(ended, time.Hour)
		close(release)
		q.Flush(t.Context(), time.Hour)
		if n != 10_000 {
			t.Errorf("%d calls", n)
		}
	})
}

func TestQueueLogger_KeepsAttributesAndGroups(t *testing.T) {
	t.Parallel()

	var out strings.Builder
	q := logqueue.New(nil)
	q.Logger(slog.New(slog.NewTextHandler(&out, nil))).With("a", 1).WithGroup("g").Info("text", "b", 2)
	q.Flush(t.Context(), time.Minute)
	if line := out.String(); !strings.Contains(line, "msg=text a=1 g.b=2") {
		t.Error(line)
	}
}
