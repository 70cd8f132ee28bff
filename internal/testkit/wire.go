package testkit

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"regexp"
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

// A Wire is between a connection pool and its driver, on every engine. A test sees every statement, and can delay
// it, change it, lose it, lose its answer, or execute it twice or late. Several handles may share a wire. The zero
// Wire forwards everything. It may be used concurrently.
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

// A Crossing is a statement on its way to the database. A hook may change SQL and Args before Run, unless the
// driver prepares the statement, and may change Result after Run.
type Crossing struct {
	Context context.Context
	SQL     string // BEGIN, COMMIT, ROLLBACK, or the statement
	Args    []driver.NamedValue
	Result  driver.Result // of an INSERT, UPDATE or DELETE
	Conn    int           // number of the wire's connection, from 1
	Inside  bool          // in a transaction, including COMMIT and ROLLBACK
	Torn    bool          // a hook sets it to make the rows unreadable, as if the context ended while they are read

	conn  *wireConn
	run   func(context.Context) error
	later bool   // Later was called
	drop  func() // releases the rows of a late execution; may be nil
}

// Run executes the statement and returns its error. Call it twice to execute the statement twice. On SQLite the end
// of the context does not stop a statement that is running, but ends its wait for locks, which takes at most 10 s,
// as on a server.
func (c *Crossing) Run() error { return c.unlocked(c.Context) }

const maxLockWait = 10 * time.Second

// unlocked retries while another connection locks the SQLite file, because SQLite itself would wait beyond the end
// of the context.
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

// Is reports whether the statement, without quotes and the schema of our tables, begins with any of the texts.
func (c *Crossing) Is(texts ...string) bool {
	query := inSchema.ReplaceAllString(unquote.Replace(c.SQL), "$1")
	for _, t := range texts {
		if strings.HasPrefix(query, t) {
			return true
		}
	}
	return false
}

var inSchema = regexp.MustCompile(`\w+\.(WORKER_|UID_FOLLOW|UID_CURSOR|leaf_alloc)`)

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

// Later executes the statement after d, as if the network had delayed it. The application gets the hook's result at
// once. The connection is not used again. Do not call Run as well.
func (c *Crossing) Later(d time.Duration) {
	c.later = true
	c.conn.detach(func() {
		time.Sleep(d)
		_ = c.unlocked(context.Background())
		if c.drop != nil {
			c.drop()
		}
	})
}

// ErrUnchanged, returned from a hook, answers that the statement changed no rows.
var ErrUnchanged = errors.New("testkit: no row was changed")

// ErrLost, returned from a hook, is the statement's error, and breaks the connection, which undoes a transaction.
var ErrLost = errors.New("testkit: the connection was lost")

// Set sets the hook of further statements; nil forwards them. A hook may call Run. The hook's result is the answer.
// A ROLLBACK never gets to the hook, which could sleep: database/sql holds a mutex during a ROLLBACK, and the clock
// of a synctest bubble stops while a goroutine waits for a mutex.
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

// Open returns a handle on a SQLite file through the wire. At the end of the test it waits for late executions.
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
