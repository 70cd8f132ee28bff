package testkit

import (
	"bytes"
	"log/slog"
	"strings"
	"sync"
)

// A Log keeps what a logger writes. The zero value is empty and ready for use, also by several goroutines.
type Log struct {
	mu     sync.Mutex
	buffer bytes.Buffer
}

// Logger returns a logger of all levels that writes to the log, one line for each record.
func (l *Log) Logger() *slog.Logger {
	return slog.New(slog.NewTextHandler(l, &slog.HandlerOptions{Level: slog.LevelDebug}))
}

// Write implements [io.Writer].
func (l *Log) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.buffer.Write(p)
}

// String returns all that was logged.
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
