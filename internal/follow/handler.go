package follow

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"fmt"
	"time"

	"github.com/uidplugin/uidplugin/internal/follow/consumer"
	"github.com/uidplugin/uidplugin/internal/sqldb"
	"gorm.io/gorm"
)

// TransactionLimit is how long BEGIN, COMMIT, ROLLBACK, and the wait for a connection may take.
const TransactionLimit = 10 * time.Second

// withConn calls f with a connection of the pool. If f fails or panics, it closes the connection, unless usable
// reports that the pool can use it again.
func withConn(ctx context.Context, db *gorm.DB, usable func(conn *sql.Conn, err error) bool, f func(conn *sql.Conn) error) (err error) {
	pool, err := db.DB()
	if err != nil {
		return fmt.Errorf("%w: get the pool: %w", sqldb.ErrNoConnection, err)
	}
	wait, cancel := context.WithTimeout(ctx, TransactionLimit)
	defer cancel()
	conn, err := pool.Conn(wait)
	if err != nil {
		return fmt.Errorf("%w: %w", sqldb.ErrNoConnection, err)
	}
	err = errPanic
	defer func() {
		if err == nil || usable(conn, err) {
			_ = conn.Close()
			return
		}
		go func() { // in the background, because Raw waits for a statement that still runs
			_ = conn.Raw(func(any) error { return driver.ErrBadConn })
			_ = conn.Close()
		}()
	}()
	err = f(conn)
	return err
}

var errPanic = errors.New("panic")

// errEnded reports that the transaction of a handler was no longer there when it returned.
var errEnded = errors.New("the handler has returned nil, but its transaction has failed or ended: return the first error of its statements," +
	" close their rows, and send nothing that commits or rolls back, such as CREATE TABLE")

// savepoint is set before each call of a handler. If it is gone afterwards, the transaction has ended meanwhile.
const savepoint = "SAVEPOINT uid_consume"

// An attempt is a transaction of a handler.
type attempt struct {
	outcome consumer.Outcome
	cause   error // of Again, Failed and Skipped
	ended   error // why COMMIT or ROLLBACK has failed
}

// transact changes the row of UID_CURSOR and calls handle, in one transaction. The change comes first for three
// reasons:
//
//   - It locks the row, so no other process handles the same rows.
//   - What the handler reads is not older than the lock.
//   - On SQLite it takes the write lock. A transaction that has read first may not get that lock.
//
// If COMMIT fails, the outcome is Again, and a later step finds out whether the server has committed all the same.
// transact returns an error if one of its own statements fails before the handler is called.
func (c *cursorRow) transact(ctx context.Context, conn *sql.Conn, step consumer.Step, handle func(ctx context.Context, tx *sql.Tx) attempt) (attempt, error) {
	tx, err := sqldb.Begin(ctx, conn, TransactionLimit, nil)
	if err != nil {
		return attempt{}, err
	}
	returned := false
	defer func() {
		if !returned { // the handler has panicked
			_ = tx.Rollback()
		}
		tx.Close()
	}()
	own := c.db.On(tx)
	changed, err := c.change(ctx, own, step, "")
	if err == nil && changed {
		err = own.ExecRaw(ctx, savepoint)
	}
	a, begun := attempt{outcome: consumer.Lost}, time.Now()
	if err == nil && changed {
		if a = handle(ctx, tx.SQL()); a.outcome == consumer.Committed {
			if failed := own.ExecRaw(ctx, "RELEASE "+savepoint); failed != nil {
				a = attempt{outcome: consumer.Failed, cause: fmt.Errorf("%w: %w", errEnded, failed)}
				if isBroken(failed) {
					a = attempt{outcome: consumer.Again, cause: fmt.Errorf("the connection broke while the handler ran, or the handler left"+
						" rows of a prepared statement open, or the server ended it after %v without a statement: %w", idleLimit, failed)}
				}
			}
		}
		if a.outcome == consumer.Again && time.Since(begun) >= idleLimit && isBroken(a.cause) {
			a.outcome = consumer.Failed // the handler is probably to blame
		}
	}
	returned = true
	if err == nil && a.outcome == consumer.Committed {
		if failed := tx.Commit(); failed != nil { // a deferred constraint, or the answer was lost
			a = attempt{consumer.Again, failed, failed}
		}
		return a, nil
	}
	failed := tx.Rollback()
	if err == nil {
		a.ended = failed // makes the caller close the connection, so that a server rolls back
	} else if errors.Is(failed, context.DeadlineExceeded) {
		err = errors.Join(err, failed) // the connection is still busy, so RolledBack must not use it
	}
	return a, err
}

// handle handles fetched rows. If a connection breaks before the handler was called, it tries another one.
func (c *consuming[T]) handle(ctx context.Context, step consumer.Step) (err error) {
	for range 3 {
		var called bool
		if called, err = c.handleOn(ctx, step); called || !errors.Is(err, driver.ErrBadConn) {
			break
		}
	}
	return err
}

// handleOn handles rows on one connection, until one is not committed or the next step is of another kind. It reports
// whether the handler was called.
func (c *consuming[T]) handleOn(ctx context.Context, step consumer.Step) (called bool, failed error) {
	usable := func(conn *sql.Conn, err error) bool { return c.row.db.On(conn).RolledBack(ctx, err) }
	err := withConn(ctx, c.Effects, usable, func(conn *sql.Conn) error {
		restore, err := c.row.limit(ctx, c.row.db.On(conn), true)
		for err == nil && step.Kind == consumer.Handle && ctx.Err() == nil {
			var a attempt
			if a, err = c.transact(context.WithoutCancel(ctx), conn, step, &called); err != nil {
				break
			}
			if c.count(step, a); a.ended != nil {
				return a.ended // so that withConn closes the connection
			}
			if a.outcome != consumer.Committed {
				break
			}
			step = c.process.Next(c.now(), false)
		}
		if failed = err; err == nil {
			err = restore()
		}
		return err
	})
	if errors.Is(err, sqldb.ErrNoConnection) {
		failed = err
	}
	return called, failed
}

func (c *consuming[T]) transact(ctx context.Context, conn *sql.Conn, step consumer.Step, called *bool) (attempt, error) {
	rows := c.rows[len(c.rows)-len(c.process.IDs()):]
	return c.row.transact(ctx, conn, step, func(ctx context.Context, tx *sql.Tx) attempt {
		*called = true
		g := newGuard(tx, c.Effects)
		err := c.Handle(g.session(ctx), rows[:step.Rows:step.Rows])
		g.closeRows()
		broken, misuse := g.broken()
		switch {
		case misuse:
			return attempt{outcome: consumer.Failed, cause: broken}
		case errors.Is(err, ErrSkip):
			return attempt{outcome: consumer.Skipped, cause: err}
		case broken != nil && err != nil && !errors.Is(err, broken):
			return attempt{outcome: consumer.Again, cause: fmt.Errorf("%w; its transaction has failed: %w", err, broken)}
		case broken != nil:
			return attempt{outcome: consumer.Again, cause: broken}
		case err == nil:
			return attempt{outcome: consumer.Committed, cause: nil}
		case errors.Is(err, ErrTooLate) || sqldb.IsTransient(err):
			return attempt{outcome: consumer.Again, cause: err}
		}
		return attempt{outcome: consumer.Failed, cause: err}
	})
}

// count passes the outcome of a transaction to c.process, counts it and logs it.
func (c *consuming[T]) count(step consumer.Step, a attempt) {
	id, tries := c.process.IDs()[0], c.process.Row().Attempts+1
	outcome := c.process.Ended(step, a.outcome)
	c.state.set(func(s *ConsumerState) {
		s.Passed = c.process.Passed()
		switch outcome {
		case consumer.Committed:
			s.Last, s.Handled, s.StuckID, s.Err = step.Change.NewLast, s.Handled+int64(step.Rows), 0, nil
		case consumer.Failed:
			if s.Failed++; step.Rows == 1 {
				s.StuckID, c.stuckID, c.cause = id, id, a.cause
			}
			s.Err = a.cause
		case consumer.Skipped:
			if step.Rows == 1 {
				s.Skipped, s.StuckID, s.Err, c.cause = s.Skipped+1, 0, nil, nil
			}
		}
	})
	if outcome == consumer.Committed {
		c.nothingFails()
		if c.cause != nil || tries > 1 {
			c.log.Info("uidplugin: a consumer goes on", "after", steps[consumer.Handle], "id", id, "tries", tries)
		}
		c.cause = nil
	}
	switch {
	case step.Rows > 1 && outcome == consumer.Failed:
		c.log.Warn("uidplugin: the handler of a consumer has failed for a batch, whose rows come again one by one", "rows", step.Rows, "error", a.cause)
	case step.Rows > 1: // if the handler skips them, each row comes again alone, and is logged then
	case outcome == consumer.Failed:
		c.log.Error("uidplugin: the handler of a consumer has failed; the row comes again after a pause, and before any other row",
			"id", id, "tries", tries, "error", a.cause)
	case outcome == consumer.Skipped:
		c.log.Warn("uidplugin: the handler of a consumer has skipped a row", "id", id, "error", a.cause)
	}
}
