package follow

import (
	"context"
	"iter"
	"time"
)

// A Reader reads the published mark, and then the first rows above the cursor and below the mark in ascending
// order, in one transaction. Without the transaction, a failover between the two reads could lose the mark, and the
// rows could come from a database that still accepts rows below it. If a row cannot be read, a Reader may return
// the rows before it with the error.
type Reader[T any] func(ctx context.Context, cursor Cursor, limit int) (rows []T, published int64, err error)

// Options of [Rows].
type Options[T any] struct {
	Limit  int           // number of rows in a read
	Rewind bool          // go back if the database has lost the published mark
	ID     func(T) int64 // the id of a row
	IsOwn  func(T) bool  // reports whether to yield a row; nil yields all rows
}

// Rows yields the rows above the cursor, each once, in ascending order, until the context ends or the caller stops.
// An error does not end the sequence: if the caller continues, Rows tries again after about a second.
func Rows[T any](ctx context.Context, m *Mark, cursor Cursor, o Options[T], reader Reader[T]) iter.Seq2[T, error] {
	return func(yield func(T, error) bool) {
		defer m.follow()()
		cursor := cursor // so that the sequence can be used again
		var none T
		reported := m.news() // the news whose error was yielded, or is from before this follower
		losses := len(reported.recovered)
		for ctx.Err() == nil {
			n := m.news()
			if n == reported && n.err != nil {
				n.wait(ctx)
				continue
			}
			for ; o.Rewind && losses < len(n.recovered); losses++ {
				cursor.Last = min(cursor.Last, n.recovered[losses]-1)
			}
			rows, err := []T(nil), n.err
			published := n.published
			if _, _, any := cursor.Bounds(published); err == nil && (any || o.Rewind && cursor.lost(published)) {
				rows, published, err = reader(ctx, cursor, o.Limit)
			}
			switch {
			case ctx.Err() != nil:
				continue
			case err == nil && o.Rewind && cursor.lost(published):
				cursor.Last = published - 1
				continue
			}
			last := cursor.Last
			for _, row := range rows {
				if (o.IsOwn == nil || o.IsOwn(row)) && !yield(row, nil) {
					return
				}
				last = o.ID(row)
			}
			if err != nil {
				cursor.Last = last
				if !yield(none, err) {
					return
				}
				if reported = n; n.err == nil {
					sleep(ctx, errorPause)
				}
				continue
			}
			cursor.Read(last, len(rows), o.Limit, published)
			if len(rows) < o.Limit {
				n.wait(ctx)
			}
		}
		yield(none, context.Cause(ctx))
	}
}

// Poll yields rows like [Rows], but misses rows that become visible after a row with a higher id. It is for tests
// of applications, because the ids in such tests need not have a time.
func Poll[T any](ctx context.Context, cursor Cursor, o Options[T], reader Reader[T]) iter.Seq2[T, error] {
	return func(yield func(T, error) bool) {
		cursor := cursor
		var none T
		for ctx.Err() == nil {
			rows, _, err := reader(ctx, cursor, o.Limit)
			for _, row := range rows {
				if !yield(row, nil) {
					return
				}
				cursor.Last = o.ID(row)
			}
			if err != nil && ctx.Err() == nil && !yield(none, err) {
				return
			}
			if len(rows) < o.Limit {
				sleep(ctx, pollPause)
			}
		}
		yield(none, context.Cause(ctx))
	}
}

// pollPause is the time between two reads of [Poll], and of a consumer without a mark.
const pollPause = 10 * time.Millisecond

// errorPause is the time from an error to the next try.
const errorPause = time.Second

// sleep waits for d. It reports false if the context ended.
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
