package workernode

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/uidplugin/uidplugin/generator"
)

// A request is a waiting call of [Manager.Assign].
type request struct {
	tables []Table
	lanes  []int
	done   chan struct{} // closed when leases or err is set
	leases []*TableLease
	err    error
	last   error // why the latest attempt failed
	tried  bool  // an attempt to serve it was made, so a failed statement concerns this request
}

// requests are the waiting calls of [Manager.Assign]. The methods lock mu, except failIf.
type requests struct {
	mu      sync.Mutex
	waiting []*request
	latest  time.Time // when Assign was last called
	ended   error     // why no further requests are accepted
}

func (q *requests) add(r *request, now time.Time) error {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.ended != nil {
		return q.ended
	}
	q.waiting = append(q.waiting, r)
	q.latest = now
	return nil
}

func (q *requests) wait(ctx context.Context, r *request) ([]*TableLease, error) {
	select {
	case <-r.done:
		return r.leases, r.err
	case <-ctx.Done():
	}
	q.mu.Lock()
	defer q.mu.Unlock()
	select {
	case <-r.done:
		return r.leases, r.err
	default:
	}
	q.waiting = slices.DeleteFunc(q.waiting, func(other *request) bool { return other == r })
	if r.last != nil {
		return nil, fmt.Errorf("workernode: no worker ids: %w: the last attempt: %w", ctx.Err(), r.last)
	}
	return nil, fmt.Errorf("workernode: no worker ids: the database has not answered: %w", ctx.Err())
}

func (q *requests) any() bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	return len(q.waiting) > 0
}

// lastUse returns when the latest request arrived.
func (q *requests) lastUse() time.Time {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.latest
}

// serve calls assign for each request. If assign returns leases, the request is done.
func (q *requests) serve(assign func(*request) []*TableLease) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.waiting = slices.DeleteFunc(q.waiting, func(r *request) bool {
		r.tried, r.leases = true, assign(r)
		if r.leases == nil {
			return false
		}
		close(r.done)
		return true
	})
}

// note records why the latest attempt to serve the requests failed.
func (q *requests) note(err error) {
	q.mu.Lock()
	defer q.mu.Unlock()
	for _, r := range q.waiting {
		r.last = err
	}
}

// fail ends the waiting requests that were tried, with an error. Others arrived while the failed statement ran, and
// may not need this statement.
func (q *requests) fail(err error) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.failIf(err, func(r *request) bool { return r.tried })
}

// failIf ends waiting requests with an error. The caller holds mu.
func (q *requests) failIf(err error, match func(*request) bool) {
	q.waiting = slices.DeleteFunc(q.waiting, func(r *request) bool {
		if !match(r) {
			return false
		}
		r.err = err
		close(r.done)
		return true
	})
}

// end ends all waiting and all later requests with an error. After Close, later requests get [generator.ErrClosed].
func (q *requests) end(err error) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if !errors.Is(q.ended, generator.ErrClosed) {
		q.ended = err
	}
	q.failIf(err, func(*request) bool { return true })
}
