package testkit

import (
	"context"
	"database/sql/driver"
	"errors"
	"sync"
)

type wireConnector struct {
	wire     *Wire
	driver   driver.Driver
	dsn      string
	file     bool // the database is a SQLite file
	prepares bool // the driver prepares statements with arguments
}

func (c *wireConnector) Driver() driver.Driver { return c.driver }

func (c *wireConnector) Connect(ctx context.Context) (driver.Conn, error) {
	if c.wire.Shut.Load() {
		return nil, ErrShut
	}
	conn, err := c.open(ctx)
	if err != nil {
		return nil, err
	}
	c.wire.mu.Lock()
	defer c.wire.mu.Unlock()
	c.wire.conns++
	return &wireConn{Conn: conn, wireConnector: c, number: c.wire.conns}, nil
}

func (c *wireConnector) open(ctx context.Context) (driver.Conn, error) {
	d, ok := c.driver.(driver.DriverContext)
	if !ok {
		return c.driver.Open(c.dsn)
	}
	inner, err := d.OpenConnector(c.dsn)
	if err != nil {
		return nil, err
	}
	return inner.Connect(ctx)
}

// A wireConn sends its statements through a wire. All three drivers implement the interfaces with a context.
type wireConn struct {
	driver.Conn
	*wireConnector
	number int
	inside bool // in a transaction

	mu     sync.Mutex
	late   bool // a late execution is pending
	lost   bool // an answer was ErrLost or ErrShut
	closed bool // Close was called
}

func (c *wireConn) detach(f func()) {
	c.mu.Lock()
	c.late = true
	c.mu.Unlock()
	c.wire.late.Go(func() {
		f()
		c.mu.Lock()
		defer c.mu.Unlock()
		c.late = false
		if c.closed {
			_ = c.Conn.Close()
		}
	})
}

func (c *wireConn) detached() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.late || c.lost || c.closed
}

func (c *wireConn) lose() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.lost = true
}

func (c *wireConn) Close() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed = true; c.late {
		return nil
	}
	return c.Conn.Close()
}

func (c *wireConn) IsValid() bool {
	v, ok := c.Conn.(driver.Validator)
	return !c.detached() && (!ok || v.IsValid())
}

func (c *wireConn) Ping(ctx context.Context) error {
	if p, ok := c.Conn.(driver.Pinger); ok && !c.wire.Shut.Load() {
		return p.Ping(ctx)
	}
	return nil
}

func (c *wireConn) ResetSession(ctx context.Context) error {
	if r, ok := c.Conn.(driver.SessionResetter); ok {
		return r.ResetSession(ctx)
	}
	return nil
}

func (c *wireConn) CheckNamedValue(v *driver.NamedValue) error {
	if checker, ok := c.Conn.(driver.NamedValueChecker); ok {
		return checker.CheckNamedValue(v)
	}
	return driver.ErrSkip
}

func (c *wireConn) BeginTx(ctx context.Context, opts driver.TxOptions) (driver.Tx, error) {
	t := &wireTx{conn: c}
	x := c.crossing(ctx, "BEGIN", nil)
	x.run = func(ctx context.Context) error {
		tx, err := c.Conn.(driver.ConnBeginTx).BeginTx(ctx, opts)
		if err == nil { // after an error, the interface tx may hold a nil pointer, and then tx != nil
			t.tx = tx
		}
		return err
	}
	if err := c.wire.cross(x); err != nil {
		if !x.later && t.tx != nil {
			_ = t.tx.Rollback() // the caller does not get the transaction
		}
		return nil, err
	}
	c.inside = true
	return t, nil
}

type wireTx struct {
	conn *wireConn
	tx   driver.Tx
}

func (t *wireTx) Commit() error { return t.end("COMMIT", t.tx.Commit) }

func (t *wireTx) Rollback() error { return t.end("ROLLBACK", t.tx.Rollback) }

func (t *wireTx) end(query string, run func() error) error {
	defer func() { t.conn.inside = false }()
	x := t.conn.crossing(context.Background(), query, nil)
	x.run = func(context.Context) error { return run() }
	return t.conn.wire.cross(x)
}

func (c *wireConn) ExecContext(ctx context.Context, query string, args []driver.NamedValue) (driver.Result, error) {
	if c.prepares && len(args) > 0 {
		return nil, driver.ErrSkip
	}
	x := c.crossing(ctx, query, args)
	return x.exec(func(ctx context.Context) (driver.Result, error) {
		return c.Conn.(driver.ExecerContext).ExecContext(ctx, x.SQL, x.Args)
	})
}

func (c *wireConn) QueryContext(ctx context.Context, query string, args []driver.NamedValue) (driver.Rows, error) {
	if c.prepares && len(args) > 0 {
		return nil, driver.ErrSkip
	}
	x := c.crossing(ctx, query, args)
	return x.query(func(ctx context.Context) (driver.Rows, error) {
		return c.Conn.(driver.QueryerContext).QueryContext(ctx, x.SQL, x.Args)
	})
}

// PrepareContext makes no [Crossing], because the statement is executed later.
func (c *wireConn) PrepareContext(ctx context.Context, query string) (driver.Stmt, error) {
	if c.wire.Shut.Load() {
		c.lose()
		return nil, ErrShut
	}
	s, err := c.Conn.(driver.ConnPrepareContext).PrepareContext(ctx, query)
	if err != nil {
		return nil, err
	}
	return &wireStmt{s, c, query}, nil
}

type wireStmt struct {
	driver.Stmt
	conn *wireConn
	text string
}

// Close does not close a statement that will be executed late. Such a statement ends with its connection.
func (s *wireStmt) Close() error {
	s.conn.mu.Lock()
	defer s.conn.mu.Unlock()
	if s.conn.late {
		return nil
	}
	return s.Stmt.Close()
}

func (s *wireStmt) ExecContext(ctx context.Context, args []driver.NamedValue) (driver.Result, error) {
	return s.conn.crossing(ctx, s.text, args).exec(func(ctx context.Context) (driver.Result, error) {
		return s.Stmt.(driver.StmtExecContext).ExecContext(ctx, args)
	})
}

func (s *wireStmt) QueryContext(ctx context.Context, args []driver.NamedValue) (driver.Rows, error) {
	return s.conn.crossing(ctx, s.text, args).query(func(ctx context.Context) (driver.Rows, error) {
		return s.Stmt.(driver.StmtQueryContext).QueryContext(ctx, args)
	})
}

func (c *wireConn) crossing(ctx context.Context, query string, args []driver.NamedValue) *Crossing {
	return &Crossing{Context: ctx, SQL: query, Args: args, Conn: c.number, Inside: c.inside, conn: c}
}

func (c *Crossing) exec(send func(context.Context) (driver.Result, error)) (driver.Result, error) {
	c.run = func(ctx context.Context) (err error) {
		c.Result, err = send(ctx)
		return err
	}
	err := c.conn.wire.cross(c)
	if errors.Is(err, ErrUnchanged) {
		return driver.RowsAffected(0), nil
	}
	if err != nil {
		return nil, err
	}
	return c.Result, nil
}

func (c *Crossing) query(send func(context.Context) (driver.Rows, error)) (driver.Rows, error) {
	var rows driver.Rows
	c.drop = func() {
		if rows != nil {
			_ = rows.Close() // because SQLite keeps its locks until then
		}
	}
	c.run = func(ctx context.Context) (err error) {
		c.drop()
		rows, err = send(ctx)
		return err
	}
	if err := c.conn.wire.cross(c); err != nil {
		if !c.later {
			c.drop()
		}
		return nil, err
	}
	if c.Torn {
		return tornRows{rows}, nil
	}
	return rows, nil
}

// tornRows have values that nothing can scan.
type tornRows struct{ driver.Rows }

func (r tornRows) Next(values []driver.Value) error {
	err := r.Rows.Next(values)
	for i := range values {
		values[i] = r
	}
	return err
}
