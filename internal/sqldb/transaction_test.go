package sqldb_test

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"runtime"
	"testing"
	"testing/synctest"
	"time"

	"github.com/uidplugin/uidplugin/internal/sqldb"
	"github.com/uidplugin/uidplugin/internal/testkit"
	"gorm.io/gorm"
	"gorm.io/gorm/logger"
	"gorm.io/gorm/utils/tests"
)

// Any error rolls back. ErrRollback means that this is no failure, and is returned unchanged.
func TestDBTransact_CommitsUnlessThereIsAnError(t *testing.T) {
	t.Parallel()

	broken := errors.New("broken")
	for _, tt := range []struct {
		err  error
		rows int
	}{
		{nil, 1}, {sqldb.ErrRollback, 0}, {broken, 0},
	} {
		d, _ := wired(t, time.Minute)
		err := d.Transact(t.Context(), func(ctx context.Context, tx *sqldb.DB) error {
			must(t, insertOne(ctx, tx))
			return tt.err
		})
		if n := rowsOfT(t, d); err != tt.err || n != tt.rows {
			t.Errorf("%v: %d rows, %v", tt.err, n, err)
		}
	}
}

// A connection that was closed while it was idle must not fail what is only read. The third failure is returned.
func TestDBTogether_TriesAgainOnAnotherConnection(t *testing.T) {
	t.Parallel()

	for faults, want := range map[int]error{0: nil, 1: nil, 2: nil, 3: driver.ErrBadConn} {
		d, _ := wired(t, time.Minute)
		calls := 0
		err := d.Together(t.Context(), func(ctx context.Context, conn *sqldb.DB) error {
			if calls++; calls <= faults {
				return driver.ErrBadConn
			}
			return insertOne(ctx, conn)
		})
		if err != want || calls != min(faults+1, 3) || rowsOfT(t, d) != calls-faults && want == nil {
			t.Errorf("%d faults: %d calls, %v", faults, calls, err)
		}
	}
	d, _ := wired(t, time.Minute)
	calls, broken := 0, errors.New("broken")
	err := d.Together(t.Context(), func(context.Context, *sqldb.DB) error { calls++; return broken })
	if err != broken || calls != 1 {
		t.Errorf("another error: %d calls, %v", calls, err)
	}
}

// noPool is a pool without connections or transactions.
type noPool struct{ gorm.ConnPool }

func TestDBTransact_SaysWhichPoolBeginsNoTransactions(t *testing.T) {
	t.Parallel()

	db, err := gorm.Open(tests.DummyDialector{}, &gorm.Config{ConnPool: noPool{}, Logger: logger.Discard})
	must(t, err)
	d, err := sqldb.Open(db, time.Second)
	must(t, err)
	none := func(context.Context, *sqldb.DB) error { t.Error("it was called all the same"); return nil }
	testkit.IsError(t, d.Transact(t.Context(), none), nil,
		"BEGIN: the connection pool of type sqldb_test.noPool cannot begin transactions")
	testkit.IsError(t, d.Together(t.Context(), none), nil, "BEGIN: the connection pool")
	must(t, d.PoolError()) // there is none that could be closed
}

// beginner begins transactions itself, as the pools of other plugins do.
type beginner struct{ *sql.DB }

func (b beginner) BeginTx(ctx context.Context, o *sql.TxOptions) (gorm.ConnPool, error) {
	return b.DB.BeginTx(ctx, o)
}

func TestDBTransact_BeginsOnAPoolOfAnotherPlugin(t *testing.T) {
	t.Parallel()

	db, _ := wiredHandle(t)
	pool, err := db.DB()
	must(t, err)
	d := open(t, db).On(struct {
		gorm.ConnPoolBeginner
		gorm.ConnPool
	}{beginner{pool}, noPool{}})
	must(t, d.Transact(t.Context(), insertOne))
	must(t, d.Together(t.Context(), insertOne))
	if n := rowsOfT(t, open(t, db)); n != 2 {
		t.Errorf("%d rows", n)
	}
}

// shardingPool is as gorm.io/sharding's, which commits and begins around any other pool.
type shardingPool struct{ gorm.ConnPool }

func (shardingPool) Commit() error                                                  { return nil }
func (shardingPool) Rollback() error                                                { return nil }
func (shardingPool) BeginTx(context.Context, *sql.TxOptions) (gorm.ConnPool, error) { return nil, nil }

// opaquePool is one that hides what it is around.
type opaquePool struct {
	shardingPool
	ConnPool int
}

// A create whose statement has a connection must not wait for another one as long as others.
func TestHoldsConnection_TellsTransactionsFromPools(t *testing.T) {
	t.Parallel()

	for _, tt := range []struct {
		name string
		pool gorm.ConnPool
		want bool
	}{
		{"none", nil, false},
		{"a pool", &sql.DB{}, false},
		{"prepared statements", &gorm.PreparedStmtDB{}, false},
		{"db.Connection", &sql.Conn{}, true},
		{"a transaction", &sql.Tx{}, true},
		{"a transaction of prepared statements", &gorm.PreparedStmtTX{}, true},
		{"sharding around a pool", shardingPool{&sql.DB{}}, false},
		{"sharding around a pool, as a pointer", &shardingPool{&sql.DB{}}, false},
		{"sharding around a transaction", &shardingPool{&sql.Tx{}}, true},
		{"sharding around sharding", &shardingPool{shardingPool{&sql.Conn{}}}, true},
		{"what cannot be looked into", opaquePool{}, true},
	} {
		if got := sqldb.HoldsConnection(tt.pool); got != tt.want {
			t.Errorf("%s: %t", tt.name, got)
		}
	}
}

func insertOne(ctx context.Context, tx *sqldb.DB) error {
	_, err := tx.Exec(ctx, `INSERT INTO "T" VALUES (1)`)
	return err
}

func rowsOfT(t *testing.T, d *sqldb.DB) (n int) {
	t.Helper()
	must(t, d.Query(t.Context(), func(rows *sql.Rows) error { return rows.Scan(&n) }, `SELECT COUNT(*) FROM "T"`))
	return n
}

// A transaction of several slow statements must end in time, with an error that says that there was no answer. Formerly
// each statement had a timeout of its own, and then failed with "transaction has already been committed or rolled
// back", which callers took for a lasting error.
func TestDBTransact_IsLimitedAsAWhole(t *testing.T) {
	t.Parallel()

	synctest.Test(t, func(t *testing.T) {
		d, wire := wired(t, time.Second)
		wire.Set(func(c *testkit.Crossing) error { return errors.Join(c.Sleep(400*time.Millisecond), c.Run()) })
		begin := time.Now()
		err := d.Transact(t.Context(), func(ctx context.Context, tx *sqldb.DB) error {
			for range 5 {
				if err := insertOne(ctx, tx); err != nil {
					return err
				}
			}
			return nil
		})
		if !errors.Is(err, context.DeadlineExceeded) || time.Since(begin) > 1400*time.Millisecond { // BEGIN has a limit of its own
			t.Fatalf("after %v: %v", time.Since(begin), err)
		}
		saysAll(t, err.Error(), "no answer within 200ms") // what was left for the statement; its own limit is 1 s
		wire.Set(nil)
		if n := rowsOfT(t, d); n != 0 {
			t.Errorf("%d rows", n)
		}
	})
}

// COMMIT has no context in database/sql, and MySQL's driver waits for its answer until the network gives up. The
// lease manager sends nothing else meanwhile, so its process would run out of ids.
func TestDBTransact_DoesNotWaitForACommitThatHangs(t *testing.T) {
	t.Parallel()

	synctest.Test(t, func(t *testing.T) {
		d, wire := wired(t, time.Second)
		whole := d.Limited(100*time.Millisecond, 500*time.Millisecond, nil)
		wire.Set(func(c *testkit.Crossing) error {
			if c.SQL == "COMMIT" {
				time.Sleep(15 * time.Minute)
			}
			return c.Run()
		})
		for limit, d := range map[time.Duration]*sqldb.DB{time.Second: d, 500 * time.Millisecond: whole} {
			begin := time.Now()
			err := d.Transact(t.Context(), insertOne)
			if !errors.Is(err, context.DeadlineExceeded) || time.Since(begin) > limit+time.Millisecond {
				t.Fatalf("after %v: %v", time.Since(begin), err)
			}
			saysAll(t, err.Error(), "COMMIT", "no answer within "+limit.String()+" ")
			time.Sleep(time.Hour)
		}
		if n := rowsOfT(t, d); n != 2 { // the outcome was unknown, and here each COMMIT was executed
			t.Errorf("%d rows", n)
		}
	})
}

// After an error nothing may follow on the same connection, and nothing is kept.
func TestDBTransact_ClosesTheConnectionAfterAnError(t *testing.T) {
	t.Parallel()

	for _, fault := range []string{"INSERT", "COMMIT"} {
		t.Run(fault, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				d, wire := wired(t, time.Second)
				first, last := 0, 0
				odd := errors.New("odd")
				wire.Set(func(c *testkit.Crossing) error {
					if last = c.Conn; c.Is(fault) && first == 0 {
						first = c.Conn
						return odd
					}
					return c.Run()
				})
				testkit.IsError(t, d.Transact(t.Context(), insertOne), odd)
				if n := rowsOfT(t, d); n != 0 {
					t.Errorf("%d rows", n)
				}
				if must(t, d.Transact(t.Context(), insertOne)); last == first {
					t.Errorf("the connection %d is used again", first)
				}
			})
		})
	}
}

// Connections that the server has closed while they were idle are replaced, as database/sql does for single
// statements. Otherwise the first create after a restart of the server fails.
func TestDBTransact_ReplacesConnectionsThatWereClosed(t *testing.T) {
	t.Parallel()

	d, wire := wired(t, time.Minute)
	faults := 0
	wire.Set(func(c *testkit.Crossing) error {
		if c.SQL == "BEGIN" && faults < 2 {
			faults++
			return driver.ErrBadConn
		}
		return c.Run()
	})
	must(t, d.Transact(t.Context(), insertOne))
	if n := rowsOfT(t, d); n != 1 {
		t.Errorf("%d rows", n)
	}
}

// database/sql closes a connection only after the statement that uses it, and COMMIT may hang for many minutes.
func TestDBTogether_DoesNotWaitForAStatementThatHangs(t *testing.T) {
	t.Parallel()

	d, wire := wired(t, time.Minute)
	hangs, answer := make(chan struct{}), make(chan struct{})
	wire.Set(func(c *testkit.Crossing) error {
		close(hangs)
		<-answer
		return c.Run()
	})
	odd := errors.New("odd")
	ended := make(chan error, 1)
	go func() {
		ended <- d.Together(t.Context(), func(ctx context.Context, conn *sqldb.DB) error {
			go func() { _, _ = conn.Pool().ExecContext(ctx, "SELECT 1") }()
			<-hangs
			return odd
		})
	}()
	select {
	case err := <-ended:
		testkit.IsError(t, err, odd)
	case <-time.After(time.Minute):
		t.Error("it waits for the statement")
	}
	close(answer)
}

// A handle with one connection would wait for it for ever.
func TestDBTogether_ClosesItsConnectionAfterAPanic(t *testing.T) {
	t.Parallel()

	db, _ := wiredHandle(t)
	pool, err := db.DB()
	must(t, err)
	pool.SetMaxOpenConns(1)
	d := open(t, db)
	for _, end := range []func(){func() { panic("oh") }, runtime.Goexit} {
		ended := make(chan bool)
		go func() {
			defer close(ended)
			defer func() { _ = recover() }()
			_ = d.Together(t.Context(), func(ctx context.Context, conn *sqldb.DB) error {
				must(t, conn.ExecRaw(ctx, "BEGIN"))
				end()
				return nil
			})
		}()
		<-ended
		must(t, d.ExecRaw(t.Context(), "BEGIN IMMEDIATE"))
		must(t, d.ExecRaw(t.Context(), "ROLLBACK"))
	}
}
