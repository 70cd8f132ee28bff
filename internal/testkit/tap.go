package testkit

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
)

// A Tap is between a connection pool and its driver, on every engine. A test sees each statement, including BEGIN,
// COMMIT and ROLLBACK, and decides its outcome. The zero Tap sends everything. It may be used concurrently. For
// database files, [Wire] offers more.
type Tap struct {
	Sent atomic.Int64 // number of sent statements
	Shut atomic.Bool  // statements fail with ErrShut instead of reaching the database

	// Exec, unless nil, handles each INSERT, UPDATE or DELETE. It may call run with another statement instead. Set it
	// before the first statement.
	Exec func(query string, args []driver.NamedValue, run Executor) (driver.Result, error)

	hook atomic.Pointer[func(query string, run func() error) error]
}

// An Executor executes a statement.
type Executor func(query string, args []driver.NamedValue) (driver.Result, error)

// ErrShut is the error of statements while the Tap is shut.
var ErrShut = errors.New("the tap is shut")

// OpenTap returns a handle on a database through a new Tap, and closes its pool when the test ends.
func OpenTap(tb testing.TB, d *Database, params ...string) (*gorm.DB, *Tap) {
	tb.Helper()
	tap := &Tap{}
	db, err := tap.Connect(d.Engine, d.DSN(params...))
	Must(tb, err)
	tb.Cleanup(func() { _ = Close(db) })
	return db, tap
}

// Connect returns a handle through the tap. The caller should close its pool.
func (t *Tap) Connect(e Engine, dsn string) (*gorm.DB, error) {
	name := map[string]string{"sqlite": "sqlite", "postgres": "pgx"}[e.Name]
	if name == "" {
		name = "mysql"
	}
	plain, err := sql.Open(name, dsn)
	if err != nil {
		return nil, err
	}
	defer plain.Close()
	prepares := name == "mysql" && !strings.Contains(dsn, "interpolateParams=true")
	pool := sql.OpenDB(&tapConnector{t, plain.Driver(), dsn, prepares})
	var dialector gorm.Dialector
	switch name {
	case "sqlite":
		dialector = &sqlite.Dialector{Conn: pool}
	case "pgx":
		dialector = postgres.New(postgres.Config{Conn: pool})
	default:
		dialector = mysql.New(mysql.Config{Conn: pool})
	}
	db, err := gorm.Open(dialector, quiet(nil))
	if err != nil {
		_ = pool.Close()
	}
	return db, err
}

// Hook makes f handle all further statements. f calls run to send one; its error becomes the statement's. With nil, all
// statements are sent.
func (t *Tap) Hook(f func(query string, run func() error) error) { t.hook.Store(&f) }

func (c *tapConn) send(query string, run func() error) error {
	if c.tap.Shut.Load() {
		c.bad.Store(true)
		return ErrShut
	}
	c.tap.Sent.Add(1)
	if f := c.tap.hook.Load(); f != nil && *f != nil {
		return (*f)(query, run)
	}
	return run()
}

type tapConnector struct {
	tap      *Tap
	driver   driver.Driver
	dsn      string
	prepares bool
}

func (c *tapConnector) Driver() driver.Driver { return c.driver }

func (c *tapConnector) Connect(ctx context.Context) (driver.Conn, error) {
	if c.tap.Shut.Load() {
		return nil, ErrShut
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

// A tapConn wraps a driver's connection. It relies on the interfaces with a context, because all three drivers
// implement them.
type tapConn struct {
	driver.Conn
	tap      *Tap
	prepares bool        // the driver prepares statements with arguments
	bad      atomic.Bool // makes the pool close it
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
		if c.tap.Exec != nil {
			r, err = c.tap.Exec(query, args, run)
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
	if c.tap.Shut.Load() {
		c.bad.Store(true)
		return nil, ErrShut
	}
	s, err := c.Conn.(driver.ConnPrepareContext).PrepareContext(ctx, query)
	if err != nil {
		return nil, err
	}
	return &tapStmt{s, c, query}, nil
}

func (c *tapConn) Ping(ctx context.Context) error {
	if p, ok := c.Conn.(driver.Pinger); ok && !c.tap.Shut.Load() {
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
