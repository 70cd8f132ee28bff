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

// handlerLimit is how long BEGIN, COMMIT, and the wait for a connection may take.
const handlerLimit = 10 * time.Second

// alone calls f with a connection of the pool, and closes it if f fails or panics.
func alone(ctx context.Context, db *gorm.DB, f func(conn *sql.Conn) error) (err error) {
	pool, err := db.DB()
	if err != nil {
		return fmt.Errorf("%w: get the pool: %w", sqldb.ErrNoConnection, err)
	}
	wait, cancel := context.WithTimeout(ctx, handlerLimit)
	defer cancel()
	conn, err := pool.Conn(wait)
	if err != nil {
		return fmt.Errorf("%w: %w", sqldb.ErrNoConnection, err)
	}
	whole := false
	defer func() {
		if whole {
			_ = conn.Close()
			return
		}
		go func() { // a statement may still be running, and wait for the network
			_ = conn.Raw(func(any) error { return driver.ErrBadConn })
			_ = conn.Close()
		}()
	}()
	err = f(conn)
	whole = err == nil
	return err
}

// begin begins a transaction. ctx does not end it, because database/sql would roll back at any time.
func begin(ctx context.Context, conn *sql.Conn) (tx *sql.Tx, cancel context.CancelFunc, err error) {
	ctx, cancel = context.WithCancel(context.WithoutCancel(ctx))
	timer := time.AfterFunc(handlerLimit, cancel)
	if tx, err = conn.BeginTx(ctx, nil); err == nil && !timer.Stop() {
		err = context.DeadlineExceeded
	}
	if err != nil {
		cancel()
		return nil, nil, fmt.Errorf("BEGIN: %w", err)
	}
	return tx, cancel, nil
}

// end calls COMMIT or ROLLBACK, which have no context: drivers may wait many minutes until the network gives up.
func end(what string, f func() error) error {
	ended := make(chan error, 1)
	go func() { ended <- f() }()
	timer := time.NewTimer(handlerLimit)
	defer timer.Stop()
	var err error
	select {
	case err = <-ended:
	case <-timer.C:
		err = fmt.Errorf("no answer within %v: %w", handlerLimit, context.DeadlineExceeded)
	}
	if err != nil {
		err = fmt.Errorf("%s: %w", what, err)
	}
	return err
}

// errEnded reports that the transaction of a handler was no longer there when it returned.
var errEnded = errors.New("the handler has returned nil, but its transaction has failed or ended: return the first error of its statements," +
	" and do not use those that commit or roll back, such as CREATE TABLE")

// savepoint is in each transaction of a handler. It is gone if the transaction has ended, whatever the reason.
const savepoint = "SAVEPOINT uid_consume"

// An attempt is a transaction of a handler.
type attempt struct {
	outcome consumer.Outcome
	cause   error // for the outcomes that need one

	unusable bool // the connection must be closed
}

// transact changes the row and calls handle in one transaction. The change is the first statement, because it locks the
// row, and no snapshot is older; on SQLite it takes the lock of the only writer like BEGIN IMMEDIATE, because nothing was
// read before. An error is not the handler's, and the outcome is then unknown.
func (c *cursorRow) transact(ctx context.Context, conn *sql.Conn, step consumer.Step, handle func(ctx context.Context, tx *sql.Tx) attempt) (attempt, error) {
	tx, cancel, err := begin(ctx, conn)
	if err != nil {
		return attempt{}, err
	}
	defer cancel() // rolls back, if that is still to do, as after a panic
	own := c.db.On(tx)
	changed, err := c.change(ctx, own, step, "")
	if err == nil && changed {
		err = own.ExecRaw(ctx, savepoint)
	}
	a := attempt{outcome: consumer.Lost}
	if err == nil && changed {
		if a = handle(ctx, tx); a.outcome == consumer.Committed {
			if gone := own.ExecRaw(ctx, "RELEASE "+savepoint); gone != nil {
				a = attempt{outcome: consumer.Failed, cause: fmt.Errorf("%w: %w", errEnded, gone)}
			}
		}
	}
	if err == nil && a.outcome == consumer.Committed {
		return a, end("COMMIT", tx.Commit)
	}
	if failed := end("ROLLBACK", tx.Rollback); err == nil && failed != nil { // the server rolls back when the connection breaks
		a.unusable = true
	}
	return a, err
}
