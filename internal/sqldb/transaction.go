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

// ErrRollback is what f of [DB.Transact] returns to roll back a transaction that has not failed.
var ErrRollback = errors.New("sqldb: the transaction was rolled back")

// Transact runs f in a transaction on one connection, and commits it unless f returns an
// error. After any error but ErrRollback the outcome is unknown, and the connection is
// closed: a statement may still be on its way. f must use only the DB and the context that
// it is given.
func (d *DB) Transact(ctx context.Context, f func(ctx context.Context, tx *DB) error) error {
	tx, err := d.begin(ctx)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, d.limit())
	defer cancel()
	failed := f(ctx, d.On(tx))
	// COMMIT and ROLLBACK have no context. Drivers may wait for the answer until the network
	// gives up, after many minutes.
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

// Together runs f with a DB whose statements share one connection: outside of a transaction if the
// pool hands out connections. It calls f again, up to three times, if the connection turns out to be
// closed.
func (d *DB) Together(ctx context.Context, f func(ctx context.Context, conn *DB) error) error {
	for try := 0; ; try++ {
		conn, err := d.take(ctx)
		if err != nil {
			return err
		}
		if conn == nil {
			return d.Transact(ctx, f)
		}
		err = f(ctx, d.On(conn))
		d.giveBack(conn, err)
		if try >= 2 || !errors.Is(err, driver.ErrBadConn) {
			return err
		}
	}
}

// limit bounds a transaction, and the wait for a connection.
func (d *DB) limit() time.Duration { return cmp.Or(d.whole, d.timeout) }

// A transaction runs on a connection of its own, if the pool has connections.
type transaction struct {
	txPool
	conn   *sql.Conn // nil if the pool has none
	cancel context.CancelFunc
}

// end commits a transaction, or rolls it back if it has failed.
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

// begin begins a transaction. Like database/sql, it tries another connection if one turns
// out to be closed.
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
		go func() { // BEGIN may still be on its way, and what follows it may wait for the network
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

// begin sends BEGIN. The context and the timeout end that statement and no later one: database/sql
// would roll the transaction back at any time, while its connection is being closed here. With an
// error txPool is set if the transaction has begun all the same.
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

// PoolError returns the error of a sql.DB that was closed. It does not query the database, because the context of its
// call has ended.
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

// A txPool is a transaction that statements can be run in.
type txPool interface {
	gorm.ConnPool
	gorm.TxCommitter
}

// beginOn begins a transaction on a pool.
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
	return nil, fmt.Errorf("the connection pool, a %T, begins no transactions", pool)
}

// HoldsConnection reports whether a statement has a connection already: in a
// transaction, or by db.Connection.
func HoldsConnection(pool gorm.ConnPool) bool {
	switch pool := pool.(type) {
	case *sql.Conn:
		return true
	case gorm.TxCommitter:
		// gorm.io/sharding puts a pool that commits and begins around every other.
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
