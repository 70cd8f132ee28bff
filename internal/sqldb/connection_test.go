package sqldb_test

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/uidplugin/uidplugin/internal/sqldb"
	"github.com/uidplugin/uidplugin/internal/testkit"
	"gorm.io/gorm"
	"gorm.io/gorm/logger"
)

// Formerly a task of several statements waited for a connection before each of them, so a process got no slot while two
// hundred callers shared two connections.
func TestDBHold_KeepsItsConnectionWhileOthersWait(t *testing.T) {
	t.Parallel()

	synctest.Test(t, func(t *testing.T) {
		db, _ := wiredHandle(t)
		pool, err := db.DB()
		must(t, err)
		pool.SetMaxOpenConns(1)
		d := open(t, db)
		held, release := d.Hold()
		must(t, held.Ready(t.Context()))
		var others atomic.Int64
		ctx, cancel := context.WithCancel(t.Context())
		var crowd sync.WaitGroup
		for range 20 {
			crowd.Go(func() {
				for ctx.Err() == nil {
					if conn, err := pool.Conn(ctx); err == nil {
						others.Add(1)
						time.Sleep(time.Second)
						_ = conn.Close()
					}
				}
			})
		}
		synctest.Wait()
		for range 3 {
			_, err = held.Exec(t.Context(), `INSERT INTO "T" VALUES (1)`)
			must(t, err)
			must(t, held.Transact(t.Context(), insertOne))
			must(t, held.Together(t.Context(), insertOne))
			err = held.Transact(t.Context(), func(ctx context.Context, tx *sqldb.DB) error {
				must(t, insertOne(ctx, tx))
				return sqldb.ErrRollback
			})
			if err != sqldb.ErrRollback {
				t.Error(err)
			}
		}
		if n := rowsOfT(t, held); n != 9 {
			t.Errorf("%d rows", n)
		}
		if n := others.Load(); n != 0 {
			t.Errorf("%d others had a connection meanwhile", n)
		}
		release()
		time.Sleep(10 * time.Second)
		if others.Load() == 0 {
			t.Error("the connection was not given back")
		}
		cancel()
		crowd.Wait()
	})
}

// A connection that turns out to be closed, or on which a transaction has failed, is replaced.
func TestDBHold_ReplacesItsConnection(t *testing.T) {
	t.Parallel()

	d, wire := wired(t, time.Minute)
	held, release := d.Hold()
	defer release()
	odd := errors.New("odd")
	for _, fault := range []struct {
		at  string
		err error
		run func() error
		ok  bool
	}{
		{"INSERT", driver.ErrBadConn, func() error { return insertOne(t.Context(), held) }, true},
		{"BEGIN", driver.ErrBadConn, func() error { return held.Transact(t.Context(), insertOne) }, true},
		{"INSERT", odd, func() error { return held.Transact(t.Context(), insertOne) }, false},
		{"COMMIT", odd, func() error { return held.Transact(t.Context(), insertOne) }, false},
		{"INSERT", driver.ErrBadConn, func() error { return held.Together(t.Context(), insertOne) }, true},
	} {
		must(t, held.Ready(t.Context()))
		before, failed := rowsOfT(t, held), 0
		wire.Set(func(c *testkit.Crossing) error {
			if failed == 0 && (c.SQL == fault.at || strings.HasPrefix(c.SQL, fault.at+" ")) {
				failed = c.Conn
				return fault.err
			}
			if c.Conn == failed {
				t.Errorf("%s on the connection on which %s has failed", c.SQL, fault.at)
			}
			return c.Run()
		})
		err := fault.run()
		if failed == 0 || (err == nil) != fault.ok {
			t.Errorf("%s fails with %v: %v", fault.at, fault.err, err)
		}
		n := rowsOfT(t, held)
		wire.Set(nil)
		if n != before+boolInt(fault.ok) {
			t.Errorf("%s fails with %v: %d rows, before %d", fault.at, fault.err, n, before)
		}
	}
}

func boolInt(b bool) int {
	if b {
		return 1
	}
	return 0
}

// The wait for a connection has a limit of its own. Formerly its error named the limit of a statement.
func TestDBReady_SaysHowLongItHasWaited(t *testing.T) {
	t.Parallel()

	synctest.Test(t, func(t *testing.T) {
		db, _ := wiredHandle(t)
		pool, err := db.DB()
		must(t, err)
		pool.SetMaxOpenConns(1)
		d := open(t, db).Limited(time.Second, 3*time.Second, nil)
		conn, err := pool.Conn(t.Context())
		must(t, err)
		defer func() { must(t, conn.Close()) }()
		held, release := d.Hold()
		defer release()
		err = held.Ready(t.Context())
		if !errors.Is(err, sqldb.ErrNoConnection) || !errors.Is(err, context.DeadlineExceeded) {
			t.Fatal(err)
		}
		saysAll(t, err.Error(), "get a connection", "no answer within 3s")
	})
}

// hangingDriver is a driver that answers BEGIN after 300 ms, whatever the context says, and ROLLBACK never.
type hangingDriver struct{ hang chan struct{} }

func (d hangingDriver) Connect(context.Context) (driver.Conn, error) { return d, nil }
func (d hangingDriver) Driver() driver.Driver                        { return nil }
func (d hangingDriver) Prepare(string) (driver.Stmt, error)          { return nil, errors.ErrUnsupported }
func (d hangingDriver) Close() error                                 { return nil }
func (d hangingDriver) Begin() (driver.Tx, error)                    { return nil, errors.ErrUnsupported }
func (d hangingDriver) Commit() error                                { <-d.hang; return nil }
func (d hangingDriver) Rollback() error                              { <-d.hang; return nil }
func (d hangingDriver) BeginTx(context.Context, driver.TxOptions) (driver.Tx, error) {
	time.Sleep(300 * time.Millisecond)
	return d, nil
}

// A ROLLBACK may hang, and the lease manager sends nothing else meanwhile.
func TestDBTransact_DoesNotWaitForARollbackThatHangs(t *testing.T) {
	t.Parallel()

	synctest.Test(t, func(t *testing.T) {
		hang := make(chan struct{})
		pool := sql.OpenDB(hangingDriver{hang})
		defer func() { must(t, pool.Close()) }()
		defer synctest.Wait()
		defer close(hang)
		db, err := gorm.Open(testkit.OnMySQL(pool), &gorm.Config{Logger: logger.Discard, DisableAutomaticPing: true})
		must(t, err)
		d, err := sqldb.Open(db, 200*time.Millisecond)
		must(t, err)
		begin := time.Now()
		err = d.Transact(t.Context(), func(context.Context, *sqldb.DB) error { return nil })
		if took := time.Since(begin); !errors.Is(err, context.DeadlineExceeded) || took > 300*time.Millisecond {
			t.Errorf("after %v: %v", took, err)
		}
	})
}

// tracer keeps what GORM's logger is told.
type tracer struct {
	logger.Interface
	took time.Duration
	err  error
}

func (l *tracer) Trace(ctx context.Context, begin time.Time, _ func() (string, int64), _ error) {
	l.took, l.err = time.Since(begin), ctx.Err()
}

// GORM's logger is called later. Formerly it logged the time until then as the time of the statement, and its context
// had ended.
func TestDBLimited_TellsGORMsLoggerHowLongTheStatementTook(t *testing.T) {
	t.Parallel()

	synctest.Test(t, func(t *testing.T) {
		l := &tracer{Interface: logger.Discard}
		wire := &testkit.Wire{}
		d := open(t, wire.Open(t, testkit.SQLite{Config: &gorm.Config{Logger: l}}))
		var queue []func()
		d = d.Limited(time.Second, time.Second, func(f func()) { queue = append(queue, f) })
		wire.Set(func(c *testkit.Crossing) error { return errors.Join(c.Sleep(100*time.Millisecond), c.Run()) })
		must(t, d.Query(t.Context(), func(*sql.Rows) error { return nil }, `SELECT 1`))
		time.Sleep(time.Minute)
		l.err = errors.New("not called")
		for _, f := range queue {
			f()
		}
		if l.err != nil || l.took != 100*time.Millisecond {
			t.Errorf("the statement took %v, and the context: %v", l.took, l.err)
		}
	})
}
