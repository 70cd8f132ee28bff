package workernode

import (
	"context"
	"log/slog"
	"sync"
	"time"
)

// An asyncLog calls loggers of the application in order, in a goroutine that ends when there is
// nothing to log. A logger may be code that creates rows: what logs must not wait for it.
type asyncLog struct {
	log *slog.Logger

	mu    sync.Mutex
	queue []func()
	done  chan struct{} // closed when the goroutine has ended; nil if none runs
}

// add queues a record. It may be called with any lock held.
func (l *asyncLog) add(level slog.Level, text string, args ...any) {
	l.do(func() { l.log.Log(context.Background(), level, text, args...) })
}

// do queues a call of a logger. It may be called with any lock held.
func (l *asyncLog) do(call func()) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.queue = append(l.queue, call)
	if l.done == nil {
		l.done = make(chan struct{})
		go l.write(l.done)
	}
}

func (l *asyncLog) write(done chan struct{}) {
	defer close(done)
	for {
		l.mu.Lock()
		queue := l.queue
		if l.queue = nil; len(queue) == 0 {
			l.done = nil
			l.mu.Unlock()
			return
		}
		l.mu.Unlock()
		for _, call := range queue {
			call()
		}
	}
}

// flush waits until all records are written, or ctx ends, or for a time at most: a handler may
// never return.
func (l *asyncLog) flush(ctx context.Context, most time.Duration) {
	ctx, cancel := context.WithTimeout(ctx, most)
	defer cancel()
	l.mu.Lock()
	done := l.done
	l.mu.Unlock()
	if done == nil {
		return
	}
	select {
	case <-done:
	case <-ctx.Done():
	}
}
