package follow

import (
	"context"
	"errors"
	"time"

	"github.com/uidplugin/uidplugin/internal/follow/consumer"
	"gorm.io/gorm"
)

// A FetchReader is a [Reader] that calls the hooks for each of its transactions. It may use several transactions.
type FetchReader[T any] func(ctx context.Context, cursor Cursor, limit int, hooks FetchHooks) ([]T, int64, error)

// FetchHooks are the hooks of a read. A hook may be nil.
type FetchHooks struct {
	// Before is called before a transaction reads anything, and restore before that transaction ends.
	Before func(ctx context.Context, pool gorm.ConnPool) (restore func() error, err error)

	Committed func() // called after COMMIT
}

// fetch reads rows and changes the cursor in one transaction. A cursor in another database it changes afterwards.
func (c *consuming[T]) fetch(ctx context.Context, step consumer.Step) error {
	cursor, changed := Cursor{Last: step.After}, false
	next := step
	var hooks FetchHooks
	elsewhere := c.Space != nil
	if !elsewhere {
		hooks.Before = func(ctx context.Context, pool gorm.ConnPool) (func() error, error) {
			return c.changeFirst(ctx, pool, next)
		}
		// If a row cannot be read, the reader uses several transactions. Each of them expects the cursor as the
		// previous one has written it.
		hooks.Committed = func() {
			changed, step = true, next
			next.Change = next.Change.Next()
		}
	}
	end := c.keep(ctx, &step)
	defer end() // in case the reader panics
	rows, published, unread := c.Read(ctx, cursor, c.Limit, hooks)
	end()
	if unread != nil && len(rows) == 0 {
		return unread
	}
	recovered, err := c.recovered(ctx, step.Change.NewLast, published)
	if err != nil {
		return err
	}
	if elsewhere {
		if step.Change.Mark = -recovered; recovered == 0 && !c.Poll && published > step.Change.NewLast {
			step.Change.Mark = published
		}
		if changed, err = c.row.change(ctx, c.row.db, step, ""); err != nil {
			return err
		}
	}
	ids, last := c.keepOwn(rows, step.After)
	switch {
	case unread != nil || c.Poll: // it is not known whether there are rows after last
		cursor.Last = last
	default:
		cursor.Read(last, len(rows), c.Limit, published)
	}
	if len(rows) < c.Limit {
		c.emptyAt = time.Now()
	}
	c.process.Fetched(step, changed, ids, cursor.Last)
	switch c.looked = c.news; {
	case changed && recovered > 0:
		return c.goBack(recovered)
	case changed && unread == nil && len(rows) < c.Limit && len(ids) == 0: // no row is left that may fail
		c.nothingFails()
	}
	return nil
}

// keepOwn keeps the rows of this region for the handler, and returns their ids. The result last is the id of the
// last row of any region, or the argument cursor if there are no rows.
func (c *consuming[T]) keepOwn(rows []T, cursor int64) (ids []int64, last int64) {
	last, c.rows = cursor, nil
	for _, row := range rows {
		if last = c.ID(row); c.IsOwn(row) {
			c.rows, ids = append(c.rows, row), append(ids, last)
		}
	}
	return ids, last
}

// keep extends the term of this process while it reads rows and the cursor is in another database, where it is not
// locked meanwhile. It records errSlow if any read takes long. It changes step, so call end before you use step.
func (c *consuming[T]) keep(ctx context.Context, step *consumer.Step) (end func()) {
	reading, cancel := context.WithCancel(ctx)
	ended := make(chan struct{})
	name, first, begun := steps[step.Kind], step.Change.NewTerm, c.now()
	go func() {
		defer close(ended)
		for lost := c.Space == nil; sleep(reading, errorPause); {
			if c.now()-begun >= slowAfter { // keep goes on, because the statement may only be slow
				c.fail(name, errSlow)
			}
			if lost {
				continue
			}
			take := consumer.Step{Kind: consumer.Take, Change: step.Change}
			take.Change.NewTerm = first + c.now() - begun
			changed, err := c.row.change(ctx, c.row.db, take, "")
			if lost = err == nil && !changed; changed && err == nil {
				step.Change = take.Change.Next()
			}
		}
	}()
	return func() {
		cancel()
		<-ended
	}
}

// slowAfter is the time in milliseconds after which a read is noted as slow.
const slowAfter = 10_000

var errSlow = errors.New("the statement that reads rows has taken ten seconds: it is slow, or the server does not answer")

// changeFirst changes the cursor in a transaction that reads rows.
func (c *consuming[T]) changeFirst(ctx context.Context, pool gorm.ConnPool, step consumer.Step) (restore func() error, err error) {
	conn := c.row.db.On(pool)
	restore, err = c.row.limit(ctx, conn, false)
	if err != nil {
		return restore, err
	}
	ok, err := c.row.change(ctx, conn, step, "")
	if err == nil && !ok {
		err = ErrMoved
	}
	return restore, err
}
