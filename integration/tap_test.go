package integration_test

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/glebarez/sqlite"
	"gorm.io/driver/mysql"
	"gorm.io/driver/postgres"
	"gorm.io/gorm"
	"gorm.io/gorm/logger"
)

// A tap sits between a connection pool and its driver. It sees each statement, BEGIN, COMMIT and ROLLBACK, on all
// engines, inside and outside of transactions.
type tap struct {
	n    atomic.Int64 // what was sent
	shut atomic.Bool  // nothing reaches the database

	around atomic.Pointer[around]

	// exec, if it is not nil, may execute another statement; it is set before the first one.
	exec func(query string, args []driver.NamedValue, run executor) (driver.Result, error)
}

type executor func(query string, args []driver.NamedValue) (driver.Result, error)

// around is called instead of sending a statement; run sends it. The statement fails if around returns an error.
type around func(query string, run func() error) error

var errShut = errors.New("the tap is shut")

// tapped returns a new handle through a tap.
func tapped(t *testing.T, d *database, params ...string) (*gorm.DB, *tap) {
	t.Helper()
	name := map[string]string{"sqlite": "sqlite", "postgres": "pgx"}[d.name]
	if name == "" {
		name = "mysql"
	}
	dsn := d.dsn(params...)
	plain, err := sql.Open(name, dsn)
	must(t, err)
	tap := &tap{}
	pool := sql.OpenDB(&tapConnector{tap, plain.Driver(), dsn, name == "mysql" &&
		!strings.Contains(dsn, "interpolateParams=true")})
	must(t, plain.Close())
	t.Cleanup(func() { _ = pool.Close() })
	var dialector gorm.Dialector
	switch name {
	case "sqlite":
		dialector = &sqlite.Dialector{Conn: pool}
	case "pgx":
		dialector = postgres.New(postgres.Config{Conn: pool})
	default:
		dialector = mysql.New(mysql.Config{Conn: pool})
	}
	db, err := gorm.Open(dialector, &gorm.Config{Logger: logger.Discard})
	must(t, err)
	return db, tap
}

// meet makes f what happens to statements from now on; nil sends them.
func (t *tap) meet(f around) { t.around.Store(&f) }

func (c *tapConn) send(query string, run func() error) error {
	if c.tap.shut.Load() {
		c.bad.Store(true)
		return errShut
	}
	c.tap.n.Add(1)
	if f := c.tap.around.Load(); f != nil && *f != nil {
		return (*f)(query, run)
	}
	return run()
}

type tapConnector struct {
	tap      *tap
	driver   driver.Driver
	dsn      string
	prepares bool
}

func (c *tapConnector) Driver() driver.Driver { return c.driver }

func (c *tapConnector) Connect(ctx context.Context) (driver.Conn, error) {
	if c.tap.shut.Load() {
		return nil, errShut
	}
	var conn driver.Conn
	var err error
	if d, ok := c.driver.(driver.DriverContext); ok {
		var inner driver.Connector
		if inner, err = d.OpenConnector(c.dsn); err == nil {
			conn, err = inner.Connect(ctx)
		}
	} else {
		conn, err = c.driver.Open(c.dsn)
	}
	if err != nil {
		return nil, err
	}
	return &tapConn{Conn: conn, tap: c.tap, prepares: c.prepares}, nil
}

// A tapConn is a connection of a driver that implements the interfaces with a context, as all three drivers do.
type tapConn struct {
	driver.Conn
	tap      *tap
	prepares bool        // the driver prepares statements with arguments
	bad      atomic.Bool // the pool closes it
}

func (c *tapConn) BeginTx(ctx context.Context, o driver.TxOptions) (tx driver.Tx, err error) {
	err = c.send("BEGIN", func() (err error) {
		tx, err = c.Conn.(driver.ConnBeginTx).BeginTx(ctx, o)
		return err
	})
	if err != nil && tx != nil {
		_ = tx.Rollback()
	}
	return &tapTx{tx, c}, err
}

func (c *tapConn) ExecContext(ctx context.Context, query string, args []driver.NamedValue) (r driver.Result,
	err error) {
	if c.prepares && len(args) > 0 {
		return nil, driver.ErrSkip
	}
	run := func(query string, args []driver.NamedValue) (driver.Result, error) {
		return c.Conn.(driver.ExecerContext).ExecContext(ctx, query, args)
	}
	err = c.send(query, func() (err error) {
		if c.tap.exec != nil {
			r, err = c.tap.exec(query, args, run)
		} else {
			r, err = run(query, args)
		}
		return err
	})
	return r, err
}

func (c *tapConn) QueryContext(ctx context.Context, query string, args []driver.NamedValue) (r driver.Rows, err error) {
	if c.prepares && len(args) > 0 {
		return nil, driver.ErrSkip
	}
	err = c.send(query, func() (err error) {
		r, err = c.Conn.(driver.QueryerContext).QueryContext(ctx, query, args)
		return err
	})
	if err != nil && r != nil {
		_ = r.Close()
	}
	return r, err
}

func (c *tapConn) PrepareContext(ctx context.Context, query string) (driver.Stmt, error) {
	if c.tap.shut.Load() {
		c.bad.Store(true)
		return nil, errShut
	}
	s, err := c.Conn.(driver.ConnPrepareContext).PrepareContext(ctx, query)
	if err != nil {
		return nil, err
	}
	return &tapStmt{s, c, query}, nil
}

func (c *tapConn) Ping(ctx context.Context) error {
	if p, ok := c.Conn.(driver.Pinger); ok && !c.tap.shut.Load() {
		return p.Ping(ctx)
	}
	return nil
}

func (c *tapConn) ResetSession(ctx context.Context) error {
	if r, ok := c.Conn.(driver.SessionResetter); ok {
		return r.ResetSession(ctx)
	}
	return nil
}

func (c *tapConn) IsValid() bool {
	v, ok := c.Conn.(driver.Validator)
	return !c.bad.Load() && (!ok || v.IsValid())
}

func (c *tapConn) CheckNamedValue(v *driver.NamedValue) error {
	if checker, ok := c.Conn.(driver.NamedValueChecker); ok {
		return checker.CheckNamedValue(v)
	}
	return driver.ErrSkip
}

type tapTx struct {
	driver.Tx
	conn *tapConn
}

func (t *tapTx) Commit() error   { return t.conn.send("COMMIT", t.Tx.Commit) }
func (t *tapTx) Rollback() error { return t.conn.send("ROLLBACK", t.Tx.Rollback) }

type tapStmt struct {
	driver.Stmt
	conn  *tapConn
	query string
}

func (s *tapStmt) ExecContext(ctx context.Context, args []driver.NamedValue) (r driver.Result, err error) {
	err = s.conn.send(s.query, func() (err error) {
		r, err = s.Stmt.(driver.StmtExecContext).ExecContext(ctx, args)
		return err
	})
	return r, err
}

func (s *tapStmt) QueryContext(ctx context.Context, args []driver.NamedValue) (r driver.Rows, err error) {
	err = s.conn.send(s.query, func() (err error) {
		r, err = s.Stmt.(driver.StmtQueryContext).QueryContext(ctx, args)
		return err
	})
	if err != nil && r != nil {
		_ = r.Close()
	}
	return r, err
}
