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

// alone calls f with a connection of the pool. If f fails or panics, the connection is closed instead of given back.
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
		go func() { // in the background, because Raw waits for a statement that still runs
			_ = conn.Raw(func(any) error { return driver.ErrBadConn })
			_ = conn.Close()
		}()
	}()
	err = f(conn)
	whole = err == nil
	return err
}

// begin begins a transaction that goes on when ctx ends. Otherwise database/sql would roll back while the handler runs.
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

// savepoint is set before each call of a handler. If it is gone afterwards, the transaction has ended meanwhile.
const savepoint = "SAVEPOINT uid_consume"

// An attempt is a transaction of a handler.
type attempt struct {
	outcome consumer.Outcome
	cause   error // of Again, Failed and Skipped

	unusable bool // the connection must be closed
}

// transact changes the row of UID_CURSOR and calls handle, in one transaction. The change comes first for three
// reasons:
//
//   - It locks the row, so no other process handles the same rows.
//   - What the handler reads is not older than the lock.
//   - On SQLite it takes the lock of the only writer, like BEGIN IMMEDIATE. After a read it could fail.
//
// transact returns an error of its own statements. Then the outcome is unknown.
func (c *cursorRow) transact(ctx context.Context, conn *sql.Conn, step consumer.Step, handle func(ctx context.Context, tx *sql.Tx) attempt) (attempt, error) {
	tx, cancel, err := begin(ctx, conn)
	if err != nil {
		return attempt{}, err
	}
	defer cancel() // rolls back after a panic
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
	if failed := end("ROLLBACK", tx.Rollback); err == nil && failed != nil {
		a.unusable = true // the server rolls back when the connection is closed
	}
	return a, err
}
