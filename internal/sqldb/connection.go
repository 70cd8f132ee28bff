package sqldb

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"fmt"
)

// ErrNoConnection reports that nothing was sent: the pool gave no connection.
var ErrNoConnection = errors.New("get a connection")

// Hold returns a DB whose statements share one connection, and a function that gives the connection back to the pool.
// The first statement waits for the connection, or [DB.Ready] does. A connection that turns out to be closed, or that
// may still be busy after an error, is replaced.
//
// Where many callers wait for a connection, a caller that asks again and again may never get one. So a task of several
// statements should hold one.
//
// The DB is for one goroutine. If the pool hands out no connections the DB is d, and each statement goes to the pool.
func (d *DB) Hold() (*DB, func()) {
	pool, ok := d.pool.(connector)
	if !ok {
		return d, func() {}
	}
	other := *d
	other.held = &held{pool: pool}
	return &other, other.held.release
}

// Ready waits for the connection that a DB of [DB.Hold] has, as long as a transaction may take. The
// error wraps ErrNoConnection.
func (d *DB) Ready(ctx context.Context) error {
	if d.held == nil || d.held.conn != nil {
		return nil
	}
	conn, err := d.connection(ctx, d.held.pool)
	d.held.conn = conn
	return err
}

// A connector is a pool that hands out connections.
type connector interface {
	Conn(ctx context.Context) (*sql.Conn, error)
}

// A held connection is kept between statements.
type held struct {
	pool connector
	conn *sql.Conn // nil until it is needed, and while a transaction has it
}

// release gives the connection back to the pool.
func (h *held) release() {
	if h.conn != nil {
		_ = h.conn.Close()
		h.conn = nil
	}
}

// discard closes the connection.
func (h *held) discard() {
	conn := h.conn
	h.conn = nil
	go closeAfter(conn, driver.ErrBadConn)
}

// connection waits for a connection of the pool.
func (d *DB) connection(ctx context.Context, pool connector) (*sql.Conn, error) {
	ctx, cancel := context.WithTimeout(ctx, d.limit())
	defer cancel()
	conn, err := pool.Conn(ctx)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrNoConnection, late(err, d.limit()))
	}
	return conn, nil
}

// take returns a connection that the caller has to give back: the one that is held, or one of the pool. It returns nil
// if the pool hands out no connections.
func (d *DB) take(ctx context.Context) (*sql.Conn, error) {
	if d.held == nil {
		if pool, ok := d.pool.(connector); ok {
			return d.connection(ctx, pool)
		}
		return nil, nil
	}
	if err := d.Ready(ctx); err != nil {
		return nil, err
	}
	conn := d.held.conn
	d.held.conn = nil
	return conn, nil
}

// giveBack gives a connection back to its holder or to the pool. After an error it closes the connection.
func (d *DB) giveBack(conn *sql.Conn, err error) {
	if d.held != nil && (err == nil || err == ErrRollback) {
		d.held.conn = conn
		return
	}
	closeAfter(conn, err)
}

// closeAfter gives a connection back to the pool, and has the pool close it after an error.
func closeAfter(conn *sql.Conn, err error) {
	if conn == nil {
		return
	}
	if err != nil && err != ErrRollback {
		_ = conn.Raw(func(any) error { return driver.ErrBadConn }) // closes it
	}
	_ = conn.Close()
}
