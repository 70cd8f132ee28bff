package testkit

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/glebarez/sqlite"
	"gorm.io/gorm"
)

// A Wire is between a process and its SQLite database. A test sees every statement, and can delay it, lose it, lose its
// answer, or execute it twice or late. Several handles may share a wire. The zero Wire forwards everything. It may be
// used concurrently.
type Wire struct {
	mu    sync.Mutex
	hook  func(*Crossing) error
	list  []string
	conns int
	late  sync.WaitGroup // late executions
}

// A Crossing is a statement on its way to the database.
type Crossing struct {
	Context context.Context
	SQL     string // BEGIN, COMMIT, ROLLBACK, or the statement
	Conn    int    // number of the wire's connection, from 1
	Inside  bool   // in a transaction, including COMMIT and ROLLBACK

	conn  *wireConn
	run   func() error
	later bool   // Later was called
	drop  func() // releases the rows of a late execution; may be nil
}

// Run executes the statement, even if the context has ended, and returns its error. Call it twice to execute the
// statement twice. Like a server it waits for locks: for 10 s, or until the context ends.
func (c *Crossing) Run() error { return c.unlocked(c.Context) }

// maxLockWait limits the wait for a lock.
const maxLockWait = 10 * time.Second

// unlocked executes the statement once the file is unlocked. We wait here instead of in SQLite, because SQLite would
// ignore the end of the context.
func (c *Crossing) unlocked(ctx context.Context) error {
	var busy interface{ Code() int }
	for begin := time.Now(); ; {
		err := c.run()
		if !errors.As(err, &busy) || busy.Code() != sqliteBusy || time.Since(begin) > maxLockWait {
			return err
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(time.Millisecond):
		}
	}
}

const sqliteBusy = 5

// Is reports whether the statement begins with any of the texts. It ignores quotes.
func (c *Crossing) Is(texts ...string) bool {
	query := unquote.Replace(c.SQL)
	for _, t := range texts {
		if strings.HasPrefix(query, t) {
			return true
		}
	}
	return false
}

var unquote = strings.NewReplacer("`", "", `"`, "")

// Sleep waits for d, or returns the context's error.
func (c *Crossing) Sleep(d time.Duration) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-c.Context.Done():
		return c.Context.Err()
	}
}

// Later executes the statement after d, when the caller already has an answer, as after a delay in the network. The
// connection is not used again. Do not call Run as well. Later calls done, unless nil, with the outcome.
func (c *Crossing) Later(d time.Duration, done func(error)) {
	c.later = true
	c.conn.detach(func() {
		time.Sleep(d)
		err := c.unlocked(context.Background())
		if c.drop != nil {
			c.drop()
		}
		if done != nil {
			done(err)
		}
	})
}

// ErrUnchanged, returned from a hook, answers that the statement changed no rows.
var ErrUnchanged = errors.New("testkit: no row was changed")

// ErrLost, returned from a hook, also breaks the connection, so an open transaction is rolled back.
var ErrLost = errors.New("testkit: the connection was lost")

// Set sets the hook of further statements. It may call Run, and returns the answer. nil forwards them. Statements under
// way keep their hook. ROLLBACK is always forwarded, because database/sql holds a mutex meanwhile, and the clock of a
// synctest bubble stops while a goroutine waits for a mutex.
func (w *Wire) Set(hook func(*Crossing) error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.hook = hook
}

// Take returns the statements since the last Take, in the order of sending.
func (w *Wire) Take() []string {
	w.mu.Lock()
	defer w.mu.Unlock()
	list := w.list
	w.list = nil
	return list
}

func (w *Wire) cross(c *Crossing) error {
	if c.conn.detached() {
		return driver.ErrBadConn
	}
	w.mu.Lock()
	w.list = append(w.list, unquote.Replace(c.SQL))
	hook := w.hook
	w.mu.Unlock()
	if hook == nil || c.SQL == "ROLLBACK" {
		return c.Run()
	}
	err := hook(c)
	if errors.Is(err, ErrLost) {
		c.conn.mu.Lock()
		defer c.conn.mu.Unlock()
		c.conn.lost = true
	}
	return err
}

// Open returns a handle on a SQLite file through the wire. At the end of the test it closes the pool and waits for late
// executions.
func (w *Wire) Open(tb testing.TB, s SQLite) *gorm.DB {
	tb.Helper()
	if s.Path == "" {
		s.Path = SQLitePath(tb)
	}
	s.Params = append([]string{"_pragma=busy_timeout(0)"}, s.Params...)
	plain, err := sql.Open(sqlite.DriverName, s.DSN())
	Must(tb, err)
	pool := sql.OpenDB(&wireConnector{w, plain.Driver(), s.DSN()})
	Must(tb, plain.Close())
	pool.SetMaxOpenConns(s.Pool)
	tb.Cleanup(func() {
		_ = pool.Close()
		w.late.Wait()
	})
	db, err := gorm.Open(sqlite.Dialector{Conn: pool}, quiet(s.Config))
	Must(tb, err)
	return db
}

type wireConnector struct {
	wire   *Wire
	driver driver.Driver
	dsn    string
}

func (c *wireConnector) Driver() driver.Driver { return c.driver }

func (c *wireConnector) Connect(context.Context) (driver.Conn, error) {
	conn, err := c.driver.Open(c.dsn)
	if err != nil {
		return nil, err
	}
	c.wire.mu.Lock()
	defer c.wire.mu.Unlock()
	c.wire.conns++
	return &wireConn{Conn: conn, wire: c.wire, number: c.wire.conns}, nil
}

// A wireConn sends its statements through a wire.
type wireConn struct {
	driver.Conn
	wire   *Wire
	number int
	inside bool // in a transaction

	mu     sync.Mutex
	late   bool // a late execution is pending
	lost   bool // an answer was ErrLost
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

func (c *wireConn) Close() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed = true; c.late {
		return nil
	}
	return c.Conn.Close()
}

func (c *wireConn) IsValid() bool { return !c.detached() }

// Prepare implements [driver.Conn]. database/sql does not need it, because the connection executes statements itself.
func (c *wireConn) Prepare(string) (driver.Stmt, error) {
	return nil, errors.New("testkit: a wire has no prepared statements")
}

func (c *wireConn) crossing(ctx context.Context, query string, run func() error) *Crossing {
	return &Crossing{Context: ctx, SQL: query, Conn: c.number, Inside: c.inside, conn: c, run: run}
}

func (c *wireConn) BeginTx(ctx context.Context, opts driver.TxOptions) (driver.Tx, error) {
	t := &wireTx{conn: c}
	crossing := c.crossing(ctx, "BEGIN", func() error {
		tx, err := c.Conn.(driver.ConnBeginTx).BeginTx(context.WithoutCancel(ctx), opts)
		if err == nil { // because with an error a driver may return a nil pointer
			t.tx = tx
		}
		return err
	})
	if err := c.wire.cross(crossing); err != nil {
		if !crossing.later && t.tx != nil {
			_ = t.tx.Rollback() // the caller does not get it
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
	return t.conn.wire.cross(t.conn.crossing(context.Background(), query, run))
}

func (c *wireConn) ExecContext(ctx context.Context, query string, args []driver.NamedValue) (driver.Result, error) {
	var result driver.Result
	err := c.wire.cross(c.crossing(ctx, query, func() (err error) {
		result, err = c.Conn.(driver.ExecerContext).ExecContext(context.WithoutCancel(ctx), query, args)
		return err
	}))
	if errors.Is(err, ErrUnchanged) {
		return driver.RowsAffected(0), nil
	}
	if err != nil {
		return nil, err
	}
	return result, nil
}

func (c *wireConn) QueryContext(ctx context.Context, query string, args []driver.NamedValue) (driver.Rows, error) {
	var rows driver.Rows
	crossing := c.crossing(ctx, query, nil)
	crossing.drop = func() {
		if rows != nil {
			_ = rows.Close() // because SQLite keeps its locks until then
		}
	}
	crossing.run = func() (err error) {
		crossing.drop()
		rows, err = c.Conn.(driver.QueryerContext).QueryContext(context.WithoutCancel(ctx), query, args)
		return err
	}
	if err := c.wire.cross(crossing); err != nil {
		if !crossing.later {
			crossing.drop()
		}
		return nil, err
	}
	return rows, nil
}
