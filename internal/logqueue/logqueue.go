// Package logqueue calls the application's loggers in a separate goroutine. Callers should not wait for a logger,
// because it may create rows, hang or panic.
package logqueue

import (
	"context"
	"log/slog"
	"sync"
	"time"
)

// most is the largest number of queued calls. Further calls are dropped, because by then the logger probably hangs.
const most = 10_000

// A Queue runs calls in order, in a goroutine that ends when the queue is empty. It may be used concurrently and
// with any lock held.
type Queue struct {
	gate <-chan struct{} // calls start after it is closed; nil means at once

	mu    sync.Mutex
	calls []func()
	done  chan struct{} // closed at the end of the goroutine; nil if none runs
}

// New returns a Queue whose calls start when gate is closed. With a nil gate they start at once.
func New(gate <-chan struct{}) *Queue { return &Queue{gate: gate} }

// Do queues a call without waiting. It drops the call if the queue is full.
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

// next returns the next call. If it returns nil, the goroutine must end.
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

// protected runs a call. It recovers from a panic of the logger, which would end the program.
func protected(call func()) {
	defer func() { _ = recover() }()
	call()
}

// Flush waits until all calls have returned, but not longer than limit or beyond the end of ctx.
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

// Logger returns a logger whose records are passed to log by the calls of the queue.
func (q *Queue) Logger(log *slog.Logger) *slog.Logger { return slog.New(handler{log.Handler(), q}) }

type handler struct {
	slog.Handler
	queue *Queue
}

func (h handler) Handle(ctx context.Context, r slog.Record) error {
	ctx, r = context.WithoutCancel(ctx), r.Clone()
	h.queue.Do(func() {
		if h.Handler.Enabled(ctx, r.Level) {
			_ = h.Handler.Handle(ctx, r)
		}
	})
	return nil
}

// Enabled returns true, because the queued call of Handle asks the application's handler.
func (h handler) Enabled(context.Context, slog.Level) bool { return true }

func (h handler) WithAttrs(attrs []slog.Attr) slog.Handler {
	return handler{h.Handler.WithAttrs(attrs), h.queue}
}

func (h handler) WithGroup(name string) slog.Handler {
	return handler{h.Handler.WithGroup(name), h.queue}
}
