// Package logqueue calls loggers of the application in a goroutine of their own. A logger may be code that creates
// rows, hangs, or panics, so the code that logs must not wait for it.
package logqueue

import (
	"context"
	"log/slog"
	"sync"
	"time"
)

// most bounds the calls that wait for a logger. Further ones are dropped: the logger hangs.
const most = 10_000

// A Queue makes calls in their order, in a goroutine that ends when no call is left. It may be used concurrently, with
// any lock held.
type Queue struct {
	gate <-chan struct{} // nothing is called before it is closed; nil means at once

	mu    sync.Mutex
	calls []func()
	done  chan struct{} // closed when the goroutine has ended; nil if none runs
}

// New returns a Queue whose calls start when gate is closed; with a nil gate, at once.
func New(gate <-chan struct{}) *Queue { return &Queue{gate: gate} }

// Do queues a call. It never waits.
func (q *Queue) Do(call func()) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if len(q.calls) == most {
		return
	}
	q.calls = append(q.calls, call)
	if q.done == nil {
		q.done = make(chan struct{})
		go q.run(q.done)
	}
}

func (q *Queue) run(done chan struct{}) {
	ended := false
	defer func() {
		if !ended { // a logger has called runtime.Goexit, as t.FailNow does
			go q.run(done)
			return
		}
		close(done)
	}()
	if q.gate != nil {
		<-q.gate
	}
	for {
		call := q.next()
		if call == nil {
			ended = true
			return
		}
		protected(call)
	}
}

// next returns the next call. It returns nil if no call is left, and then the goroutine has to end.
func (q *Queue) next() (call func()) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if len(q.calls) == 0 {
		q.calls, q.done = nil, nil
		return nil
	}
	call = q.calls[0]
	q.calls[0] = nil
	q.calls = q.calls[1:]
	return call
}

// protected makes a call. One that panics must not end the program: there is no caller that could recover.
func protected(call func()) {
	defer func() { _ = recover() }()
	call()
}

// Flush waits until all calls are made, or ctx ends, or for limit.
func (q *Queue) Flush(ctx context.Context, limit time.Duration) {
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	q.mu.Lock()
	done := q.done
	q.mu.Unlock()
	if done == nil {
		return
	}
	select {
	case <-done:
	case <-ctx.Done():
	}
}

// Logger wraps log so that its records are handled by the queue.
func (q *Queue) Logger(log *slog.Logger) *slog.Logger { return slog.New(handler{log.Handler(), q}) }

// A handler queues records.
type handler struct {
	slog.Handler
	queue *Queue
}

// Handle implements [slog.Handler].
func (h handler) Handle(ctx context.Context, r slog.Record) error {
	ctx, r = context.WithoutCancel(ctx), r.Clone()
	h.queue.Do(func() {
		if h.Handler.Enabled(ctx, r.Level) {
			_ = h.Handler.Handle(ctx, r)
		}
	})
	return nil
}

// Enabled implements [slog.Handler]. The application's handler is asked by the queue.
func (h handler) Enabled(context.Context, slog.Level) bool { return true }

// WithAttrs implements [slog.Handler].
func (h handler) WithAttrs(attrs []slog.Attr) slog.Handler {
	return handler{h.Handler.WithAttrs(attrs), h.queue}
}

// WithGroup implements [slog.Handler].
func (h handler) WithGroup(name string) slog.Handler {
	return handler{h.Handler.WithGroup(name), h.queue}
}
