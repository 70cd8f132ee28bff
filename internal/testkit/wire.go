package testkit

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/glebarez/sqlite"
	"gorm.io/driver/mysql"
	"gorm.io/driver/postgres"
	"gorm.io/gorm"
)

// A Wire is between a connection pool and its driver, on every engine. A test sees every statement, and can delay it,
// change it, lose it, lose its answer, or execute it twice or late. Several handles may share a wire. The zero Wire
// forwards everything. It may be used concurrently.
type Wire struct {
	Shut atomic.Bool // statements and new connections fail with ErrShut instead of reaching the database

	mu    sync.Mutex
	hook  func(*Crossing) error
	list  []string
	conns int
	late  sync.WaitGroup // late executions
}

// ErrShut is the error of statements while the Wire is shut.
var ErrShut = errors.New("the wire is shut")

// A Crossing is a statement on its way to the database. A hook may change SQL and Args before Run, unless the driver
// prepares the statement, and may change Result after Run.
type Crossing struct {
	Context context.Context
	SQL     string // BEGIN, COMMIT, ROLLBACK, or the statement
	Args    []driver.NamedValue
	Result  driver.Result // of an INSERT, UPDATE or DELETE
	Conn    int           // number of the wire's connection, from 1
	Inside  bool          // in a transaction, including COMMIT and ROLLBACK

	conn  *wireConn
	run   func(context.Context) error
	later bool   // Later was called
	drop  func() // releases the rows of a late execution; may be nil
}

// Run executes the statement and returns its error. Call it twice to execute the statement twice. SQLite executes it even
// if the context has ended. Like a server it waits for locks: for 10 s, or until the context ends.
func (c *Crossing) Run() error { return c.unlocked(c.Context) }

// maxLockWait limits the wait for a lock.
const maxLockWait = 10 * time.Second

// unlocked executes the statement once the file is unlocked. We wait here instead of in SQLite, because SQLite would
// ignore the end of the context.
func (c *Crossing) unlocked(ctx context.Context) error {
	var busy interface{ Code() int }
	running := ctx
	if c.conn.file {
		running = context.WithoutCancel(ctx)
	}
	for begin := time.Now(); ; {
		err := c.run(running)
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
	if w.Shut.Load() {
		c.conn.lose()
		return ErrShut
	}
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
		c.conn.lose()
	}
	return err
}

// OpenWire returns a handle on a database through a new Wire, and closes its pool when the test ends.
func OpenWire(tb testing.TB, d *Database, params ...string) (*gorm.DB, *Wire) {
	tb.Helper()
	wire := &Wire{}
	db, err := wire.Connect(d.Engine, d.DSN(params...))
	Must(tb, err)
	tb.Cleanup(func() { _ = Close(db) })
	return db, wire
}

// Open returns a handle on a SQLite file through the wire. At the end of the test it closes the pool and waits for late
// executions.
func (w *Wire) Open(tb testing.TB, s SQLite) *gorm.DB {
	tb.Helper()
	if s.Path == "" {
		s.Path = SQLitePath(tb)
	}
	db, pool, err := w.connect(Engine{Name: "sqlite"}, s.DSN(), s.Config)
	Must(tb, err)
	pool.SetMaxOpenConns(s.Pool)
	tb.Cleanup(func() {
		_ = pool.Close()
		w.late.Wait()
	})
	return db
}

// Connect returns a handle through the wire. The caller should close its pool.
func (w *Wire) Connect(e Engine, dsn string) (*gorm.DB, error) {
	db, _, err := w.connect(e, dsn, nil)
	return db, err
}

func (w *Wire) connect(e Engine, dsn string, config *gorm.Config) (*gorm.DB, *sql.DB, error) {
	c := &wireConnector{wire: w, dsn: dsn}
	var dialector func(*sql.DB) gorm.Dialector
	var name string
	switch e.Name {
	case "sqlite":
		name, c.file, c.dsn = sqlite.DriverName, true, dsn+"&_pragma=busy_timeout(0)"
		dialector = func(pool *sql.DB) gorm.Dialector { return &sqlite.Dialector{Conn: pool} }
	case "postgres":
		name = "pgx"
		dialector = func(pool *sql.DB) gorm.Dialector { return postgres.New(postgres.Config{Conn: pool}) }
	default:
		name, c.prepares = "mysql", !strings.Contains(dsn, "interpolateParams=true")
		dialector = func(pool *sql.DB) gorm.Dialector { return mysql.New(mysql.Config{Conn: pool}) }
	}
	plain, err := sql.Open(name, c.dsn)
	if err != nil {
		return nil, nil, err
	}
	defer plain.Close()
	c.driver = plain.Driver()
	pool := sql.OpenDB(c)
	db, err := gorm.Open(dialector(pool), quiet(config))
	if err != nil {
		_ = pool.Close()
	}
	return db, pool, err
}

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

// A wireConn sends its statements through a wire. It relies on the interfaces with a context, because all three drivers
// implement them.
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
		if err == nil { // because with an error a driver may return a nil pointer
			t.tx = tx
		}
		return err
	}
	if err := c.wire.cross(x); err != nil {
		if !x.later && t.tx != nil {
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

// PrepareContext is not a crossing, because the statement is executed later.
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

// A wireStmt sends a prepared statement through a wire.
type wireStmt struct {
	driver.Stmt
	conn *wireConn
	text string
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
	return rows, nil
}
