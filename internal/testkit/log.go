package testkit

import (
	"bytes"
	"context"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"time"
)

// A Log keeps the output of a logger. The zero value is ready for use. It may be used concurrently.
type Log struct {
	mu     sync.Mutex
	buffer bytes.Buffer
}

// Logger returns a logger of all levels that writes one line per record to the log.
func (l *Log) Logger() *slog.Logger {
	return slog.New(slog.NewTextHandler(l, &slog.HandlerOptions{Level: slog.LevelDebug}))
}

// Write implements [io.Writer].
func (l *Log) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.buffer.Write(p)
}

// String returns the whole log.
func (l *Log) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.buffer.String()
}

// Lines returns the lines that contain text.
func (l *Log) Lines(text string) (lines []string) {
	for line := range strings.Lines(l.String()) {
		if strings.Contains(line, text) {
			lines = append(lines, line)
		}
	}
	return lines
}

// SaysOnce reports an error unless the log contains text exactly once. It waits up to a minute for the text.
func (l *Log) SaysOnce(tb testing.TB, text string) {
	tb.Helper()
	Eventually(tb, "a log that says "+text, time.Minute, func() bool { return strings.Contains(l.String(), text) })
	if n := strings.Count(l.String(), text); n != 1 {
		tb.Errorf("the log says %q %d times:\n%s", text, n, l)
	}
}

// LogFunc returns a logger that calls f with each record.
func LogFunc(f func(slog.Record)) *slog.Logger { return slog.New(handlerFunc(f)) }

type handlerFunc func(slog.Record)

func (f handlerFunc) Enabled(context.Context, slog.Level) bool      { return true }
func (f handlerFunc) Handle(_ context.Context, r slog.Record) error { f(r); return nil }
func (f handlerFunc) WithAttrs([]slog.Attr) slog.Handler            { return f }
func (f handlerFunc) WithGroup(string) slog.Handler                 { return f }
