package sqldb

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"fmt"
)

// ErrNoConnection reports that the pool gave no connection, so nothing was sent.
var ErrNoConnection = errors.New("get a connection")

// Hold returns a DB whose statements share one connection, and a function that gives the connection back to the
// pool. Use it for tasks of several statements, because a caller that waits for a connection each time may starve.
//
// The first statement waits for the connection, or [DB.Ready] does. The DB replaces a connection that is closed, or
// that may still be busy after an error. Only one goroutine may use the DB. If the pool does not hand out
// connections, Hold returns d.
func (d *DB) Hold() (*DB, func()) {
	pool, ok := d.pool.(connector)
	if !ok {
		return d, func() {}
	}
	other := *d
	other.held = &held{pool: pool}
	return &other, other.held.release
}

// Ready waits for the connection of a DB from [DB.Hold], but no longer than the limit of a transaction. The error
// wraps ErrNoConnection.
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

// A held connection is reused by the next statement.
type held struct {
	pool connector
	conn *sql.Conn // nil until needed, and while a transaction uses it
}

func (h *held) release() {
	if h.conn != nil {
		_ = h.conn.Close()
		h.conn = nil
	}
}

// discard closes the connection instead of giving it back to the pool.
func (h *held) discard() {
	conn := h.conn
	h.conn = nil
	closeAfter(conn, driver.ErrBadConn)
}

func (d *DB) connection(ctx context.Context, pool connector) (*sql.Conn, error) {
	ctx, cancel := context.WithTimeout(ctx, d.limit())
	defer cancel()
	conn, err := pool.Conn(ctx)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrNoConnection, late(err, d.limit()))
	}
	return conn, nil
}

// take returns the held connection, or one of the pool. It returns nil if the pool does not hand out connections.
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

// giveBack returns a connection to d.held or the pool. After any error except ErrRollback it closes the connection.
func (d *DB) giveBack(conn *sql.Conn, err error) {
	if d.held != nil && (err == nil || err == ErrRollback) {
		d.held.conn = conn
		return
	}
	closeAfter(conn, err)
}

// closeAfter returns a connection to the pool. After any error except ErrRollback it closes the connection in the
// background, because closing waits for a statement that is still running.
func closeAfter(conn *sql.Conn, err error) {
	switch {
	case conn == nil:
	case err == nil || err == ErrRollback:
		_ = conn.Close()
	default:
		go func() {
			_ = conn.Raw(func(any) error { return driver.ErrBadConn }) // makes the pool close it
			_ = conn.Close()
		}()
	}
}
