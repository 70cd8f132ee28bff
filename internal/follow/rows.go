package follow

import (
	"context"
	"iter"
	"time"
)

// A Reader reads rows with ids between two, both exclusive, in ascending order, but not more than limit.
type Reader[T any] func(ctx context.Context, above, below int64, limit int) ([]T, error)

// Rows yields the rows above an id, each once, in ascending order, until the context ends or the caller stops. An error
// does not end it: a caller that goes on makes it try again after a second.
func Rows[T any](ctx context.Context, m *Mark, after int64, limit int, id func(T) int64, read Reader[T]) iter.Seq2[T, error] {
	return func(yield func(T, error) bool) {
		var none T
		cursor, pace := Cursor{Last: after}, &pace{last: time.Now()}
		for {
			rows, published, err := next(ctx, m, cursor, pace.interval(m, time.Now())/2, limit, read)
			if ctx.Err() != nil {
				yield(none, context.Cause(ctx))
				return
			}
			if err != nil {
				if !yield(none, err) || !sleep(ctx, errorPause) {
					return
				}
				continue
			}
			for _, row := range rows {
				if !yield(row, nil) {
					return
				}
			}
			last := int64(0)
			if len(rows) > 0 {
				last = id(rows[len(rows)-1])
				pace.saw(time.Now())
			}
			cursor.Read(last, len(rows), limit, published)
			if len(rows) < limit && !sleep(ctx, pace.interval(m, time.Now())) {
				yield(none, context.Cause(ctx))
				return
			}
		}
	}
}

// next asks for the published mark, and then for the rows below it. The order matters, because rows below a mark that is
// published later may come in between.
func next[T any](ctx context.Context, m *Mark, cursor Cursor, fresh time.Duration, limit int, read Reader[T]) ([]T, int64, error) {
	published, err := m.Advance(ctx, fresh)
	if err != nil {
		return nil, 0, err
	}
	above, below, any := cursor.Bounds(published)
	if !any {
		return nil, published, nil
	}
	rows, err := read(ctx, above, below, limit)
	return rows, published, err
}

// errorPause is the time from an error to the next try.
const errorPause = time.Second

// sleep reports false if the context ended.
func sleep(ctx context.Context, d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-ctx.Done():
		return false
	}
}

// A pace decides how often a follower asks: often while rows come, and once a second after a minute without one.
type pace struct {
	last time.Time // when a row was seen
}

func (p *pace) saw(now time.Time) { p.last = now }

func (p *pace) interval(m *Mark, now time.Time) time.Duration {
	if now.Sub(p.last) < idleAfter {
		return m.pause()
	}
	return idleInterval
}

const (
	idleAfter    = time.Minute
	idleInterval = time.Second
)
