// Package sqldb runs the plugin's own statements: past GORM's callbacks, each within a time, in the words of the
// dialect.
package sqldb

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"fmt"
	"regexp"
	"strings"
	"time"

	"gorm.io/gorm"
)

// DB runs statements on the connection pool of a GORM handle, past GORM's callbacks. The application's plugins, such as
// one that adds a tenant column or picks a replica, do not see these statements. They do appear in GORM's log.
//
// Statements are written with "double quoted" names and ? for values, and are translated to the dialect of the handle.
// A DB may be used concurrently.
type DB struct {
	pool    gorm.ConnPool
	gorm    *gorm.DB
	timeout time.Duration // of a statement
	whole   time.Duration // of a transaction; 0 means timeout
	later   func(func())  // runs what calls GORM's logger; nil means at once
	quiet   bool          // GORM's logger does not see errors
	held    *held         // nil unless it is of [DB.Hold]
}

// Limited returns a DB whose statements get at most the given times, or what d gives them if that is less: a statement,
// and a transaction or the wait for a connection. later runs what calls GORM's logger.
func (d *DB) Limited(statement, transaction time.Duration, later func(func())) *DB {
	other := *d
	other.timeout, other.whole, other.later = min(d.timeout, statement), min(d.timeout, transaction), later
	return &other
}

// Quiet returns a DB whose statements may fail because another process did the same first: GORM's logger sees the
// statements, and not their errors. The caller must return any error that matters.
func (d *DB) Quiet() *DB {
	other := *d
	other.quiet = true
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
	other.pool, other.held = pool, nil
	return &other
}

// Dialect returns the name of the dialect, such as "mysql".
func (d *DB) Dialect() string { return d.gorm.Dialector.Name() }

// Stats returns the state of the pool, and whether the pool reports any.
func (d *DB) Stats() (sql.DBStats, bool) {
	pool, err := d.gorm.DB()
	if err != nil || pool == nil {
		return sql.DBStats{}, false
	}
	return pool.Stats(), true
}

// Exec runs a statement and returns how many rows it changed.
func (d *DB) Exec(ctx context.Context, query string, args ...any) (changed int64, err error) {
	return d.send(ctx, d.Translate(query), args, func(ctx context.Context, pool gorm.ConnPool, query string) (int64, error) {
		result, err := pool.ExecContext(ctx, query, args...)
		if err != nil {
			return 0, err
		}
		return result.RowsAffected()
	})
}

// ExecRaw runs a statement that is in the dialect already.
func (d *DB) ExecRaw(ctx context.Context, query string) error {
	_, err := d.send(ctx, query, nil, func(ctx context.Context, pool gorm.ConnPool, query string) (int64, error) {
		_, err := pool.ExecContext(ctx, query)
		return 0, err
	})
	return err
}

// Query runs a statement and calls scan for each of its rows.
func (d *DB) Query(ctx context.Context, scan func(*sql.Rows) error, query string, args ...any) error {
	_, err := d.send(ctx, d.Translate(query), args, func(ctx context.Context, pool gorm.ConnPool, query string) (n int64, err error) {
		rows, err := pool.QueryContext(ctx, query, args...)
		if err != nil {
			return 0, err
		}
		defer func() { err = errors.Join(err, rows.Close()) }()
		for ; rows.Next(); n++ {
			if err := scan(rows); err != nil {
				return n, err
			}
		}
		return n, rows.Err()
	})
	return err
}

// Scan reads a row of a table. The error names the table, the row by the first columns, as many as keys says, and the
// column: on SQLite other programs may have written anything.
func Scan(rows *sql.Rows, table string, keys int, into ...any) error {
	err := rows.Scan(into...)
	if err == nil {
		return nil
	}
	values, pointers := make([]any, len(into)), make([]any, len(into))
	for i := range values {
		pointers[i] = &values[i]
	}
	names, failed := rows.Columns()
	if failed != nil || rows.Scan(pointers...) != nil {
		return err
	}
	key := make([]string, keys)
	for i := range key {
		format := "%s = %v"
		switch values[i].(type) {
		case string, []byte:
			format = "%s = %q"
		}
		key[i] = fmt.Sprintf(format, names[i], values[i])
	}
	return fmt.Errorf("a row of %s, with %s, cannot be read: %w", table, strings.Join(key, " and "), err)
}

// send sends a statement by f, and shows it to GORM's logger. Like database/sql, it tries another
// connection if one turns out to be closed.
func (d *DB) send(ctx context.Context, query string, args []any, f func(ctx context.Context, pool gorm.ConnPool, query string) (int64, error)) (int64, error) {
	for try := 0; ; try++ {
		if err := d.Ready(ctx); err != nil {
			return 0, err
		}
		n, err := d.attempt(ctx, query, args, f)
		if d.held == nil || n > 0 || try >= 2 || !errors.Is(err, driver.ErrBadConn) {
			return n, err
		}
		d.held.discard()
	}
}

func (d *DB) attempt(ctx context.Context, query string, args []any, f func(ctx context.Context, pool gorm.ConnPool, query string) (int64, error)) (int64, error) {
	ctx, cancel := context.WithTimeout(ctx, d.timeout)
	defer cancel()
	pool := d.pool
	if d.held != nil {
		pool = d.held.conn
	}
	begin := time.Now()
	n, err := f(ctx, pool, query)
	err = late(interrupted(ctx, err), d.timeout)
	d.trace(ctx, time.Since(begin), query, args, n, err)
	return n, err
}

// interrupted returns the error of a statement whose context has ended. SQLite's driver may return another error, or
// nil.
func interrupted(ctx context.Context, err error) error {
	if ended := ctx.Err(); ended != nil && err == nil {
		return ended
	} else if ended != nil && !errors.Is(err, ended) {
		return fmt.Errorf("%w: %w", ended, err)
	}
	return err
}

// late explains the error of a statement without an answer within limit.
func late(err error, limit time.Duration) error {
	if errors.Is(err, context.DeadlineExceeded) {
		return fmt.Errorf("no answer within %v (the database is unreachable or busy, a lock is held, or the pool has no free connection): %w", limit, err)
	}
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

// trace shows a statement to GORM's logger, which takes the time since its beginning.
func (d *DB) trace(ctx context.Context, took time.Duration, query string, args []any, n int64, err error) {
	l := d.gorm.Logger
	if l == nil {
		return
	}
	if d.quiet {
		err = nil
	}
	ctx = context.WithoutCancel(ctx)
	show := func() {
		l.Trace(ctx, time.Now().Add(-took), func() (string, int64) { return d.gorm.Dialector.Explain(query, args...), n }, err)
	}
	if d.later == nil {
		show()
	} else {
		d.later(show)
	}
}
