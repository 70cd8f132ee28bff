package workernode

import (
	"cmp"
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"fmt"
	"io"
	"net"
	"regexp"
	"strings"
	"time"

	"gorm.io/gorm"
)

// DB runs statements on the connection pool of a GORM handle, past GORM's
// callbacks: whatever plugins the application has, such as one that adds a tenant
// column or picks a replica, they are not for these statements. They do appear
// in GORM's log.
//
// Statements are written with "double quoted" names and ? for values, and are
// translated to the dialect of the handle. A DB may be used concurrently.
type DB struct {
	pool    gorm.ConnPool
	gorm    *gorm.DB
	timeout time.Duration // of a statement
	whole   time.Duration // of a transaction; 0 means timeout
	later   func(func())  // runs what calls GORM's logger; nil means at once
}

// Open returns a DB on the pool of db. Each statement gets at most timeout. It
// fails if db is a transaction.
func Open(db *gorm.DB, timeout time.Duration) (*DB, error) {
	// Config.ConnPool is the root pool even for a handle inside a transaction,
	// and with dbresolver the source that the handle was opened with.
	pool := db.Config.ConnPool
	if prepared, ok := pool.(*gorm.PreparedStmtDB); ok {
		pool = prepared.ConnPool // these statements are rare, and some are about tables that change
	}
	if pool == nil {
		return nil, errors.New("workernode: the GORM handle has no connection pool")
	}
	if _, ok := db.Statement.ConnPool.(gorm.TxCommitter); ok {
		return nil, errors.New("workernode: the GORM handle is a transaction, which ends before the worker ids do; use the one that gorm.Open returned")
	}
	return &DB{pool: pool, gorm: db, timeout: timeout}, nil
}

// On returns a DB that runs its statements on another pool of the same database,
// such as a transaction. It is for reading.
func (d *DB) On(pool gorm.ConnPool) *DB {
	other := *d
	other.pool = pool
	return &other
}

// Dialect returns the name of the dialect, such as "mysql".
func (d *DB) Dialect() string { return d.gorm.Dialector.Name() }

// Stats returns the state of the pool, and whether it tells any.
func (d *DB) Stats() (sql.DBStats, bool) {
	pool, err := d.gorm.DB()
	if err != nil || pool == nil {
		return sql.DBStats{}, false
	}
	return pool.Stats(), true
}

// Exec runs a statement and returns how many rows it changed.
func (d *DB) Exec(ctx context.Context, query string, args ...any) (changed int64, err error) {
	ctx, cancel := context.WithTimeout(ctx, d.timeout)
	defer cancel()
	query = d.translate(query)
	begin := time.Now()
	result, err := d.pool.ExecContext(ctx, query, args...)
	if err == nil {
		changed, err = result.RowsAffected()
	}
	err = d.late(interrupted(ctx, err))
	d.trace(ctx, begin, query, args, changed, err)
	return changed, err
}

// interrupted returns the error of a statement whose context has ended. SQLite's driver may
// return another one, or none.
func interrupted(ctx context.Context, err error) error {
	if ended := ctx.Err(); ended != nil && err == nil {
		return ended
	} else if ended != nil && !errors.Is(err, ended) {
		return fmt.Errorf("%w: %w", ended, err)
	}
	return err
}

// late explains the error of a statement that had no answer in time.
func (d *DB) late(err error) error {
	if errors.Is(err, context.DeadlineExceeded) {
		return fmt.Errorf("no answer within %v (the database is unreachable or busy, a lock is held, or the pool has no free connection): %w", d.timeout, err)
	}
	return err
}

// Query runs a statement and calls scan for each of its rows.
func (d *DB) Query(ctx context.Context, scan func(*sql.Rows) error, query string, args ...any) (err error) {
	ctx, cancel := context.WithTimeout(ctx, d.timeout)
	defer cancel()
	query = d.translate(query)
	begin, n := time.Now(), int64(0)
	defer func() { err = d.late(interrupted(ctx, err)); d.trace(ctx, begin, query, args, n, err) }()
	rows, err := d.pool.QueryContext(ctx, query, args...)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, rows.Close()) }()
	for ; rows.Next(); n++ {
		if err := scan(rows); err != nil {
			return err
		}
	}
	return rows.Err()
}

// errRefused is returned from a transaction that is rolled back because a statement did not
// change the row that it should have.
var errRefused = errors.New("workernode: the row was changed by somebody else")

// transact runs f in a transaction on one connection, and commits it unless f returns an
// error. After any error but errRefused the outcome is unknown, and the connection is
// closed: a statement may still be on its way. f must use only the DB and the context that
// it is given.
func (d *DB) transact(ctx context.Context, f func(ctx context.Context, tx *DB) error) error {
	tx, err := d.begin(ctx)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, cmp.Or(d.whole, d.timeout))
	defer cancel()
	inside := d.On(tx)
	failed := f(ctx, inside)
	// COMMIT and ROLLBACK have no context. Drivers may wait for the answer until the network
	// gives up, after many minutes.
	ended := make(chan error, 1)
	go func() { ended <- tx.end(failed) }()
	select {
	case err = <-ended:
	case <-ctx.Done():
		if err = failed; err == nil || err == errRefused {
			err = fmt.Errorf("COMMIT or ROLLBACK: %w", d.late(ctx.Err()))
		}
	}
	return err
}

// onConnection runs f with a DB on one connection of the pool, or on d if the pool hands out none.
// The pool has as long as for a transaction to give it: where many wait for a connection, who
// gives up early and asks again may never get it. It tries another connection if one turns out
// to be closed. The error wraps errNoConnection if f was not called.
func (d *DB) onConnection(ctx context.Context, f func(conn *DB) error) error {
	p, ok := d.pool.(connector)
	if !ok {
		return f(d)
	}
	for try := 0; ; try++ {
		conn, err := d.connection(ctx, p)
		if err != nil {
			return err
		}
		err = f(d.On(conn))
		_ = conn.Close()
		if try >= 2 || !errors.Is(err, driver.ErrBadConn) { // like database/sql
			return err
		}
	}
}

// together runs f with a DB whose statements share one connection: outside of a transaction if the
// pool hands out connections.
func (d *DB) together(ctx context.Context, f func(ctx context.Context, conn *DB) error) error {
	if _, ok := d.pool.(connector); !ok {
		return d.transact(ctx, f)
	}
	return d.onConnection(ctx, func(conn *DB) error { return f(ctx, conn) })
}

// errNoConnection reports that nothing was sent: the pool gave no connection.
var errNoConnection = errors.New("get a connection")

// connection waits for a connection of the pool.
func (d *DB) connection(ctx context.Context, p connector) (*sql.Conn, error) {
	ctx, cancel := context.WithTimeout(ctx, cmp.Or(d.whole, d.timeout))
	defer cancel()
	conn, err := p.Conn(ctx)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", errNoConnection, d.late(err))
	}
	return conn, nil
}

// A connector is a pool that hands out connections.
type connector interface {
	Conn(ctx context.Context) (*sql.Conn, error)
}

// A transaction is one on a connection of its own, if the pool has such.
type transaction struct {
	txPool
	conn   *sql.Conn // nil if the pool has none
	cancel context.CancelFunc
}

// end commits a transaction, or rolls it back if it has failed, and gives its connection back
// to the pool.
func (t *transaction) end(failed error) (err error) {
	defer t.cancel()
	if err = failed; err == nil {
		if err = t.Commit(); err != nil {
			err = fmt.Errorf("COMMIT: %w", err)
		}
	} else if rollback := t.Rollback(); rollback != nil && !errors.Is(rollback, sql.ErrTxDone) {
		err = errors.Join(err, fmt.Errorf("ROLLBACK: %w", rollback))
	}
	if t.conn == nil {
		return err
	}
	if err != nil && err != errRefused {
		_ = t.conn.Raw(func(any) error { return driver.ErrBadConn }) // closes it
	}
	_ = t.conn.Close()
	return err
}

// begin begins a transaction. Like database/sql, it tries another connection if one turns
// out to be closed.
func (d *DB) begin(ctx context.Context) (*transaction, error) {
	p, ok := d.pool.(connector)
	for try := 0; ; try++ {
		t := &transaction{}
		pool := d.pool
		if ok {
			conn, err := d.connection(ctx, p)
			if err != nil {
				return nil, err
			}
			t.conn, pool = conn, conn
		}
		err := t.begin(ctx, d.timeout, pool)
		if err == nil {
			return t, nil
		}
		if t.conn != nil {
			_ = t.conn.Close()
		}
		if !ok || try >= 2 || !errors.Is(err, driver.ErrBadConn) {
			return nil, fmt.Errorf("BEGIN: %w", d.late(err))
		}
	}
}

// begin sends BEGIN. The context and the timeout end that statement and no later one: database/sql would
// roll the transaction back at any time, while its connection is being closed here.
func (t *transaction) begin(ctx context.Context, timeout time.Duration, pool gorm.ConnPool) (err error) {
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	var own context.Context
	own, t.cancel = context.WithCancel(context.WithoutCancel(ctx))
	stop := context.AfterFunc(ctx, t.cancel)
	t.txPool, err = begin(own, pool)
	if !stop() && err == nil {
		_ = t.Rollback()
		err = ctx.Err()
	}
	if err != nil {
		t.cancel()
	}
	return err
}

// poolOpen returns the error of a sql.DB that was closed, without asking the database: with
// a context that has ended, it never comes so far.
func (d *DB) poolOpen() error {
	pool, err := d.gorm.DB()
	if err != nil || pool == nil {
		return nil
	}
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	conn, err := pool.Conn(ctx)
	if err == nil {
		return conn.Close()
	}
	if poolClosed(err) {
		return err
	}
	return nil
}

// A txPool is a transaction that statements can be run in.
type txPool interface {
	gorm.ConnPool
	gorm.TxCommitter
}

// begin begins a transaction on a pool.
func begin(ctx context.Context, pool gorm.ConnPool) (txPool, error) {
	switch pool := pool.(type) {
	case gorm.TxBeginner:
		return pool.BeginTx(ctx, nil)
	case gorm.ConnPoolBeginner:
		begun, err := pool.BeginTx(ctx, nil)
		if err != nil {
			return nil, err
		}
		if tx, ok := begun.(txPool); ok {
			return tx, nil
		}
	}
	return nil, fmt.Errorf("workernode: the connection pool, a %T, begins no transactions", pool)
}

// Columns returns the names of the columns of a table as the table spells them.
// An error most often means that there is no such table; it is not logged.
func (d *DB) Columns(ctx context.Context, table string) (names []string, err error) {
	ctx, cancel := context.WithTimeout(ctx, d.timeout)
	defer cancel()
	if d.Dialect() == "sqlite" {
		// A connection of SQLite's driver tells the columns of a SELECT from what it
		// remembers of the table.
		rows, err := d.pool.QueryContext(ctx, `SELECT name FROM pragma_table_info(?)`, table)
		if err != nil {
			return nil, err
		}
		defer func() { _ = rows.Close() }()
		for rows.Next() {
			var name string
			if err := rows.Scan(&name); err != nil {
				return nil, err
			}
			names = append(names, name)
		}
		if len(names) == 0 && rows.Err() == nil {
			return nil, fmt.Errorf("no such table: %s", table)
		}
		return names, rows.Err()
	}
	rows, err := d.pool.QueryContext(ctx, d.translate(`SELECT * FROM "`+table+`" WHERE 1 = 0`))
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, rows.Close()) }()
	names, err = rows.Columns()
	for i, n := range names { // "table.column" with columnsWithAlias=true of the MySQL driver
		names[i] = n[strings.LastIndexByte(n, '.')+1:]
	}
	return names, err
}

// HasIndex tells whether an index that was created by a statement of its own is
// there. It knows PostgreSQL and SQLite; elsewhere it is true.
func (d *DB) HasIndex(ctx context.Context, index string) (has bool, err error) {
	query := ""
	switch d.Dialect() {
	case "postgres":
		query = `SELECT 1 FROM pg_indexes WHERE indexname = ? AND schemaname = ANY (current_schemas(false))`
	case "sqlite":
		query = `SELECT 1 FROM sqlite_master WHERE type = 'index' AND name = ?`
	default:
		return true, nil
	}
	err = d.Query(ctx, func(*sql.Rows) error {
		has = true
		return nil
	}, query, index)
	return has, err
}

// ExecRaw runs a statement that is in the dialect already.
func (d *DB) ExecRaw(ctx context.Context, query string) error {
	ctx, cancel := context.WithTimeout(ctx, d.timeout)
	defer cancel()
	begin := time.Now()
	_, err := d.pool.ExecContext(ctx, query)
	d.trace(ctx, begin, query, nil, 0, err)
	return err
}

// duplicate tells whether err reports a key that is there already. A dialector
// that cannot tell makes it false.
func (d *DB) duplicate(err error) bool {
	if t, ok := d.gorm.Dialector.(gorm.ErrorTranslator); ok {
		err = t.Translate(err)
	}
	return errors.Is(err, gorm.ErrDuplicatedKey)
}

// Passing tells whether err reports a conflict with another process that a later
// attempt may not meet: a deadlock, a lock that was waited for too long, a
// serialization failure. The engines' codes are in their messages or behind
// methods, so no driver is needed to read them.
func Passing(err error) bool {
	if err == nil {
		return false
	}
	var state interface{ SQLState() string } // PostgreSQL
	if errors.As(err, &state) {
		switch state.SQLState() {
		case "40001", "40P01", "55P03":
			return true
		}
	}
	var code interface{ Code() int } // SQLite: the low byte is the primary code
	if errors.As(err, &code) && (code.Code()&0xff == sqliteBusy || code.Code()&0xff == sqliteLocked) {
		return true
	}
	return conflict.MatchString(err.Error())
}

// Unreachable reports whether err is about the connection to the database, and not about
// what is in it.
func Unreachable(err error) bool {
	var network net.Error
	return errors.As(err, &network) || errors.Is(err, driver.ErrBadConn) || errors.Is(err, sql.ErrConnDone) ||
		errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) || errors.Is(err, context.DeadlineExceeded) || errors.Is(err, context.Canceled)
}

// conflict matches MySQL's lock wait, deadlock and certification at COMMIT, a node of a
// cluster that has no quorum or is not the one to write to (any more), TiDB's
// write conflict, MariaDB's "record has changed since last read", and SQLite's lock.
var conflict = regexp.MustCompile(`Error (1020|1047|1180|1205|1213|1290|3100|3101|9007)\b|database (table )?is locked`)

const (
	sqliteBusy   = 5
	sqliteLocked = 6
)

var token = regexp.MustCompile(`"[A-Z_]+"|\?`)

// translate puts names into the quotes of the dialect and numbers the values
// where the dialect wants it.
func (d *DB) translate(query string) string {
	stmt := &gorm.Statement{DB: d.gorm}
	return token.ReplaceAllStringFunc(query, func(t string) string {
		var out strings.Builder
		if t == "?" {
			stmt.Vars = append(stmt.Vars, nil)
			d.gorm.Dialector.BindVarTo(&out, stmt, nil)
		} else {
			d.gorm.Dialector.QuoteTo(&out, strings.Trim(t, `"`))
		}
		return out.String()
	})
}

// trace shows a statement to GORM's logger.
func (d *DB) trace(ctx context.Context, begin time.Time, query string, args []any, n int64, err error) {
	l := d.gorm.Logger
	if l == nil {
		return
	}
	show := func() {
		l.Trace(ctx, begin, func() (string, int64) { return d.gorm.Dialector.Explain(query, args...), n }, err)
	}
	if d.later == nil {
		show()
	} else {
		d.later(show)
	}
}
