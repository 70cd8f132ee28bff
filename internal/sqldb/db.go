// Package sqldb runs the plugin's own statements: past GORM's callbacks, each within a time, in the words of the dialect.
// It knows no table.
package sqldb

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
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

// Limited returns a DB whose statements get at most the given times, or what d gives them if that is less: a statement,
// and a transaction or the wait for a connection. later runs what calls GORM's logger.
func (d *DB) Limited(statement, transaction time.Duration, later func(func())) *DB {
	other := *d
	other.timeout, other.whole, other.later = min(d.timeout, statement), min(d.timeout, transaction), later
	return &other
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
		return nil, errors.New("the GORM handle has no connection pool")
	}
	if _, ok := db.Statement.ConnPool.(gorm.TxCommitter); ok {
		return nil, errors.New("the GORM handle is a transaction, which ends before the worker ids do; use the one that gorm.Open returned")
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
	query = d.Translate(query)
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
	query = d.Translate(query)
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

// ExecRaw runs a statement that is in the dialect already.
func (d *DB) ExecRaw(ctx context.Context, query string) error {
	ctx, cancel := context.WithTimeout(ctx, d.timeout)
	defer cancel()
	begin := time.Now()
	_, err := d.pool.ExecContext(ctx, query)
	d.trace(ctx, begin, query, nil, 0, err)
	return err
}

var token = regexp.MustCompile(`"[A-Z_]+"|\?`)

// Translate puts names into the quotes of the dialect and numbers the values
// where the dialect wants it.
func (d *DB) Translate(query string) string {
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
