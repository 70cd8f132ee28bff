package sqldb

import (
	"cmp"
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"fmt"
	"reflect"
	"time"

	"gorm.io/gorm"
)

// ErrRollback, returned by the function of [DB.Transact], rolls back a transaction that has not failed.
var ErrRollback = errors.New("sqldb: the transaction was rolled back")

// Transact runs f in a transaction on one connection, and commits unless f returns an error. f must use only the
// given DB and context. After any error except ErrRollback the outcome may be unknown, and Transact closes the
// connection, because a statement may still be running.
func (d *DB) Transact(ctx context.Context, f func(ctx context.Context, tx *DB) error) error {
	conn, tx, err := d.begin(ctx)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, d.limit())
	defer cancel()
	err = errPanic
	defer func() {
		tx.Close()
		tx.whenIdle(func() { d.giveBack(conn, err) })
	}()
	if err = f(ctx, d.On(tx)); err == nil {
		err = tx.end(ctx, d.limit(), "COMMIT", tx.txPool.Commit)
	} else if failed := tx.end(ctx, d.limit(), "ROLLBACK", tx.txPool.Rollback); failed != nil && (err == ErrRollback || ctx.Err() == nil && !errors.Is(failed, sql.ErrTxDone)) {
		err = errors.Join(err, failed)
	}
	return err
}

// Together runs f with a DB whose statements share one connection. It opens a transaction only if the pool does not
// hand out connections. If the connection turns out to be closed, it calls f again, at most three times in total.
func (d *DB) Together(ctx context.Context, f func(ctx context.Context, conn *DB) error) error {
	for try := 0; ; try++ {
		conn, err := d.take(ctx)
		if err != nil {
			return err
		}
		if conn == nil {
			return d.Transact(ctx, f)
		}
		err = errPanic
		func() {
			defer func() { d.giveBack(conn, err) }()
			err = f(ctx, d.On(conn))
		}()
		if try >= 2 || !errors.Is(err, driver.ErrBadConn) {
			return err
		}
	}
}

// errPanic is the error of a function that has panicked, so that its connection is closed.
var errPanic = errors.New("sqldb: panic")

// limit returns the limit of a transaction, and of the wait for a connection.
func (d *DB) limit() time.Duration { return cmp.Or(d.whole, d.timeout) }

// begin begins a transaction. Like database/sql, it uses another connection if the first turns out to be closed.
func (d *DB) begin(ctx context.Context) (*sql.Conn, *Tx, error) {
	for try := 0; ; try++ {
		conn, err := d.take(ctx)
		if err != nil {
			return nil, nil, err
		}
		pool := d.pool
		if conn != nil {
			pool = conn
		}
		tx, err := Begin(ctx, pool, d.timeout, nil)
		if err == nil {
			return conn, tx, nil
		}
		closeAfter(conn, err)
		if conn == nil || try >= 2 || !errors.Is(err, driver.ErrBadConn) {
			return nil, nil, err
		}
	}
}

// A Tx is a transaction in which BEGIN, COMMIT and ROLLBACK each wait for a limited time.
type Tx struct {
	txPool
	limit  time.Duration
	cancel context.CancelFunc
	idle   chan struct{} // closed while neither COMMIT nor ROLLBACK is running
}

// Begin begins a transaction, and fails if BEGIN takes longer than limit. The end of ctx does not end the
// transaction, because database/sql could then roll back even while we close the connection. After an error, close
// the connection, because BEGIN may still be running. options may be nil.
func Begin(ctx context.Context, pool gorm.ConnPool, limit time.Duration, options *sql.TxOptions) (*Tx, error) {
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	t := &Tx{limit: limit, idle: make(chan struct{})}
	close(t.idle)
	var own context.Context
	own, t.cancel = context.WithCancel(context.WithoutCancel(ctx))
	stop := context.AfterFunc(ctx, t.cancel)
	var err error
	t.txPool, err = beginOn(own, pool, options)
	if !stop() {
		err = interrupted(ctx, err)
	}
	if err == nil {
		return t, nil
	}
	t.cancel()
	if t.txPool != nil {
		go func() { _ = t.txPool.Rollback() }()
	}
	return nil, fmt.Errorf("BEGIN: %w", late(err, limit))
}

// Close rolls back if neither Commit nor Rollback was called, for example after a panic.
func (t *Tx) Close() { t.cancel() }

// SQL returns the transaction. [Begin] must have got a pool or connection of database/sql.
func (t *Tx) SQL() *sql.Tx { return t.txPool.(*sql.Tx) }

// Commit commits. If there is no answer within the limit, it returns an error while COMMIT may still be running.
func (t *Tx) Commit() error { return t.within("COMMIT", t.txPool.Commit) }

// Rollback rolls back, with the same limit as [Tx.Commit].
func (t *Tx) Rollback() error { return t.within("ROLLBACK", t.txPool.Rollback) }

func (t *Tx) within(name string, f func() error) error {
	ctx, cancel := context.WithTimeout(context.Background(), t.limit)
	defer cancel()
	return t.end(ctx, t.limit, name, f)
}

// whenIdle calls f. If COMMIT or ROLLBACK is still running, it calls f afterwards, in the background.
func (t *Tx) whenIdle(f func()) {
	select {
	case <-t.idle:
		f()
	default:
		go func() {
			<-t.idle
			f()
		}()
	}
}

// end runs f, and waits for it only until ctx ends, because drivers may wait minutes for an answer.
func (t *Tx) end(ctx context.Context, limit time.Duration, name string, f func() error) (err error) {
	ended := make(chan error, 1)
	t.idle = make(chan struct{})
	go func() {
		err := f()
		close(t.idle)
		ended <- err
	}()
	select {
	case err = <-ended:
	case <-ctx.Done():
		err = late(ctx.Err(), limit)
	}
	if err != nil {
		err = fmt.Errorf("%s: %w", name, err)
	}
	return err
}

// RolledBack reports whether a connection can be used again after COMMIT or ROLLBACK has failed on it. It is always
// false except on SQLite, where a database in memory would end with its connection. There it first rolls back,
// because a failed COMMIT may leave the transaction open.
func (d *DB) RolledBack(ctx context.Context, failed error) bool {
	if d.Dialect() != "sqlite" || errors.Is(failed, context.DeadlineExceeded) {
		return false
	}
	ctx = context.WithoutCancel(ctx)
	_ = d.ExecRaw(ctx, "ROLLBACK")
	return d.ExecRaw(ctx, "BEGIN") == nil && d.ExecRaw(ctx, "ROLLBACK") == nil
}

// PoolError returns the error of a closed sql.DB, or nil. It sends nothing to the database, because it asks for a
// connection with a context that has ended.
func (d *DB) PoolError() error {
	pool, err := d.gorm.DB()
	if err != nil || pool == nil {
		return nil
	}
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	conn, err := pool.Conn(ctx)
	if err == nil {
		return conn.Close()
	}
	if IsPoolClosed(err) {
		return err
	}
	return nil
}

type txPool interface {
	gorm.ConnPool
	gorm.TxCommitter
}

func beginOn(ctx context.Context, pool gorm.ConnPool, options *sql.TxOptions) (txPool, error) {
	switch pool := pool.(type) {
	case gorm.TxBeginner:
		begun, err := pool.BeginTx(ctx, options)
		if err != nil {
			return nil, err
		}
		return begun, nil
	case gorm.ConnPoolBeginner:
		begun, err := pool.BeginTx(ctx, options)
		if err != nil {
			return nil, err
		}
		if tx, ok := begun.(txPool); ok {
			return tx, nil
		}
	}
	return nil, fmt.Errorf("the connection pool of type %T cannot begin transactions", pool)
}

// HoldsConnection reports whether a statement already has a connection: in a transaction, or after db.Connection.
func HoldsConnection(pool gorm.ConnPool) bool {
	switch pool := pool.(type) {
	case *sql.Conn:
		return true
	case gorm.TxCommitter:
		// gorm.io/sharding wraps every pool in a type that can both commit and begin.
		if _, begins := pool.(gorm.ConnPoolBeginner); begins {
			if v := reflect.Indirect(reflect.ValueOf(pool)); v.Kind() == reflect.Struct {
				if f := v.FieldByName("ConnPool"); f.IsValid() && f.CanInterface() {
					if inner, ok := f.Interface().(gorm.ConnPool); ok {
						return HoldsConnection(inner)
					}
				}
			}
		}
		return true
	}
	return false
}
