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

// ErrRollback makes [DB.Transact] roll back a transaction that has not failed. Return it from f.
var ErrRollback = errors.New("sqldb: the transaction was rolled back")

// Transact runs f in a transaction on one connection, and commits unless f returns an error. After any error but
// ErrRollback the outcome is unknown. It then closes the connection, because a statement may still be running. f must
// use only the given DB and context.
func (d *DB) Transact(ctx context.Context, f func(ctx context.Context, tx *DB) error) error {
	tx, err := d.begin(ctx)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, d.limit())
	defer cancel()
	failed := f(ctx, d.On(tx))
	// COMMIT and ROLLBACK have no context, so drivers may wait many minutes until the network gives up.
	ended := make(chan error, 1)
	go func() { ended <- tx.end(failed) }()
	select {
	case err = <-ended:
		d.giveBack(tx.conn, err)
	case <-ctx.Done():
		go func() { closeAfter(tx.conn, <-ended) }()
		err = failed
		if err == nil || err == ErrRollback {
			err = fmt.Errorf("COMMIT or ROLLBACK: %w", late(ctx.Err(), d.limit()))
		}
	}
	return err
}

// Together runs f with a DB whose statements share one connection. It opens a transaction only if the pool does not
// hand out connections. It calls f again, up to three times in total, if the connection turns out to be closed.
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

// errPanic is the error of a function that has panicked, for which its connection is closed.
var errPanic = errors.New("sqldb: panic")

// limit returns the limit of a transaction, and of the wait for a connection.
func (d *DB) limit() time.Duration { return cmp.Or(d.whole, d.timeout) }

// A transaction has a connection of its own if the pool hands out connections.
type transaction struct {
	txPool
	conn   *sql.Conn // nil if the pool hands out none
	cancel context.CancelFunc
}

// end commits the transaction, or rolls it back after an error.
func (t *transaction) end(failed error) (err error) {
	defer t.cancel()
	err = failed
	if err == nil {
		if err = t.Commit(); err != nil {
			err = fmt.Errorf("COMMIT: %w", err)
		}
	} else if rollback := t.Rollback(); rollback != nil && !errors.Is(rollback, sql.ErrTxDone) {
		err = errors.Join(err, fmt.Errorf("ROLLBACK: %w", rollback))
	}
	return err
}

// begin begins a transaction. Like database/sql, it retries on another connection if one turns out to be closed.
func (d *DB) begin(ctx context.Context) (*transaction, error) {
	for try := 0; ; try++ {
		conn, err := d.take(ctx)
		if err != nil {
			return nil, err
		}
		t, pool := &transaction{conn: conn}, d.pool
		if conn != nil {
			pool = conn
		}
		err = t.begin(ctx, d.timeout, pool)
		if err == nil {
			return t, nil
		}
		go func() { // BEGIN may still be running, and the cleanup may wait for the network
			if t.txPool != nil {
				_ = t.Rollback()
			}
			closeAfter(conn, err)
		}()
		if conn == nil || try >= 2 || !errors.Is(err, driver.ErrBadConn) {
			return nil, fmt.Errorf("BEGIN: %w", late(err, d.timeout))
		}
	}
}

// begin sends BEGIN. ctx and timeout must not reach later statements, because database/sql would roll back at any time,
// even while we close the connection. txPool may be set despite an error, if the transaction has begun.
func (t *transaction) begin(ctx context.Context, timeout time.Duration, pool gorm.ConnPool) (err error) {
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	var own context.Context
	own, t.cancel = context.WithCancel(context.WithoutCancel(ctx))
	stop := context.AfterFunc(ctx, t.cancel)
	t.txPool, err = beginOn(own, pool)
	if !stop() && err == nil {
		err = ctx.Err()
	}
	if err != nil {
		t.cancel()
	}
	return err
}

// PoolError returns the error of a closed sql.DB, or nil. It does not query the database, because its context has
// already ended.
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

func beginOn(ctx context.Context, pool gorm.ConnPool) (txPool, error) {
	switch pool := pool.(type) {
	case gorm.TxBeginner:
		begun, err := pool.BeginTx(ctx, nil)
		if err != nil {
			return nil, err
		}
		return begun, nil
	case gorm.ConnPoolBeginner:
		begun, err := pool.BeginTx(ctx, nil)
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
		// gorm.io/sharding wraps every pool in one that commits and begins.
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
