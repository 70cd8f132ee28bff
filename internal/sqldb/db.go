// Package sqldb runs the plugin's own statements within time limits, in the dialect of the database.
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

// DB runs statements on the connection pool of a GORM handle. They bypass GORM's callbacks, so other plugins, such
// as one that adds a tenant column or picks a replica, do not see them. GORM's log shows them, but see [DB.Silent].
//
// Write statements with "double quoted" names and ? for values; the DB translates them to the dialect of the
// handle. A DB may be used concurrently, unless it comes from [DB.Hold].
type DB struct {
	pool    gorm.ConnPool
	gorm    *gorm.DB
	timeout time.Duration // of a statement
	whole   time.Duration // of a transaction; 0 means timeout
	later   func(func())  // runs the calls of GORM's logger; nil means at once
	quiet   bool          // hides errors from GORM's logger
	silent  bool          // hides statements from GORM's logger
	held    *held         // nil unless the DB comes from [DB.Hold]
	schema  string        // of the plugin's tables; empty leaves their names as they are
	alone   bool          // the user named no schema, so no other schema may have a WORKER_REGISTRY
	second  string        // another schema of the database with a WORKER_REGISTRY
	home    []string      // the schemas in which names without a schema are looked up; nil means the connection's
}

// Limited returns a DB with limits for a statement, and for a transaction or the wait for a connection. If a limit
// of d is shorter, it stays. The function later runs the calls of GORM's logger.
func (d *DB) Limited(statement, transaction time.Duration, later func(func())) *DB {
	other := *d
	other.timeout, other.whole, other.later = min(d.timeout, statement), min(d.limit(), transaction), later
	return &other
}

// Quiet returns a DB that hides errors, but not statements, from GORM's logger. It is for statements that may fail
// because another process was faster.
func (d *DB) Quiet() *DB {
	other := *d
	other.quiet = true
	return &other
}

// Silent returns a DB whose statements GORM's logger does not see, even if they fail or are slow. It is for
// statements that are sent all the time, that wait, or that are interrupted.
func (d *DB) Silent() *DB {
	other := *d
	other.silent = true
	return &other
}

// Open returns a DB on the pool of db. timeout limits each statement. Open fails if db is a transaction.
func Open(db *gorm.DB, timeout time.Duration) (*DB, error) {
	// Config.ConnPool is the root pool even in a transaction. With dbresolver it is the source with which the
	// handle was opened.
	pool := db.Config.ConnPool
	if prepared, ok := pool.(*gorm.PreparedStmtDB); ok {
		pool = prepared.ConnPool // do not prepare our statements: they are rare, and some read tables that change
	}
	if pool == nil {
		return nil, errors.New("the GORM handle has no connection pool")
	}
	if _, ok := db.Statement.ConnPool.(gorm.TxCommitter); ok {
		return nil, errors.New("the GORM handle is a transaction; use the handle that gorm.Open returned")
	}
	return &DB{pool: pool, gorm: db, timeout: timeout}, nil
}

// On returns a DB that sends its statements to another pool of the same database, such as a transaction.
func (d *DB) On(pool gorm.ConnPool) *DB {
	other := *d
	other.pool, other.held = pool, nil
	return &other
}

// Pool returns the pool to which the statements are sent.
func (d *DB) Pool() gorm.ConnPool { return d.pool }

// HandsOut reports whether the pool hands out connections.
func (d *DB) HandsOut() bool {
	_, ok := d.pool.(connector)
	return ok
}

// Dialect returns the name of the dialect, such as "mysql".
func (d *DB) Dialect() string { return d.gorm.Dialector.Name() }

// Stats returns the pool's statistics. It reports false if the pool has none.
func (d *DB) Stats() (sql.DBStats, bool) {
	pool, err := d.gorm.DB()
	if err != nil || pool == nil {
		return sql.DBStats{}, false
	}
	return pool.Stats(), true
}

// Exec runs a statement and returns the number of changed rows.
func (d *DB) Exec(ctx context.Context, query string, args ...any) (changed int64, err error) {
	return d.send(ctx, d.Translate(query), args, func(ctx context.Context, pool gorm.ConnPool, query string) (int64, error) {
		result, err := pool.ExecContext(ctx, query, args...)
		if err != nil {
			return 0, err
		}
		return result.RowsAffected()
	})
}

// ExecRaw runs a statement that is written in the dialect.
func (d *DB) ExecRaw(ctx context.Context, query string) error {
	_, err := d.send(ctx, query, nil, func(ctx context.Context, pool gorm.ConnPool, query string) (int64, error) {
		_, err := pool.ExecContext(ctx, query)
		return 0, err
	})
	return err
}

// Query runs a statement and calls scan for each row.
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

// Scan reads a row of a table. The parameter keys says how many of the first columns are the key. The error names
// the table, the column and the key, because on SQLite other programs may have written any value.
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

// send runs f. It repeats f if a plan was outdated, or, like database/sql, if the held connection was closed.
func (d *DB) send(ctx context.Context, query string, args []any, f func(ctx context.Context, pool gorm.ConnPool, query string) (int64, error)) (int64, error) {
	for try := 0; ; try++ {
		if err := d.Ready(ctx); err != nil {
			return 0, err
		}
		n, err := d.attempt(ctx, query, args, f)
		if n == 0 && try < 5 && isOutdatedPlan(err) {
			continue
		}
		if d.held == nil || n > 0 || try >= 2 || !errors.Is(err, driver.ErrBadConn) {
			return n, err
		}
		d.held.discard()
	}
}

func (d *DB) attempt(ctx context.Context, query string, args []any, f func(ctx context.Context, pool gorm.ConnPool, query string) (int64, error)) (int64, error) {
	limit := d.timeout
	if at, ok := ctx.Deadline(); ok { // the caller's deadline may be earlier
		limit = min(limit, time.Until(at).Round(time.Second/10))
	}
	ctx, cancel := context.WithTimeout(ctx, d.timeout)
	defer cancel()
	pool := d.pool
	if d.held != nil {
		pool = d.held.conn
	}
	begin := time.Now()
	n, err := f(ctx, pool, query)
	err = d.moved(query, late(interrupted(ctx, err), limit))
	d.trace(ctx, time.Since(begin), query, args, n, err)
	return n, err
}

// isOutdatedPlan reports whether a connection of PostgreSQL had prepared the statement before a column was added.
// The driver then forgets the prepared statement, so that a retry may succeed.
func isOutdatedPlan(err error) bool {
	return err != nil && strings.Contains(err.Error(), "cached plan must not change result type")
}

// interrupted adds the error of a context that has ended, because SQLite's driver may return another error or nil.
func interrupted(ctx context.Context, err error) error {
	if ended := ctx.Err(); ended != nil && err == nil {
		return ended
	} else if ended != nil && !errors.Is(err, ended) {
		return fmt.Errorf("%w: %w", ended, err)
	}
	return err
}

// late adds limit and possible causes to the error of a timeout.
func late(err error, limit time.Duration) error {
	if errors.Is(err, context.DeadlineExceeded) {
		return fmt.Errorf("no answer within %v (the database is unreachable or busy, a lock is held, or the pool has no free connection): %w", limit, err)
	}
	return err
}

// token matches the parts that [DB.Translate] replaces or skips: comments, quoted texts and names, placeholders.
var token = regexp.MustCompile(`--[^\n]*|'[^']*'|"[^"]*"|` + "`[^`]*`" + `|\?`)

// ours matches the names in double quotes that are translated.
var ours = regexp.MustCompile(`^"[A-Z_]+"$`)

// Translate quotes names and numbers placeholders as the dialect requires. It writes the schema of the DB before
// the names of the plugin's tables.
func (d *DB) Translate(query string) string {
	stmt := &gorm.Statement{DB: d.gorm}
	return token.ReplaceAllStringFunc(query, func(t string) string {
		var out strings.Builder
		switch name := strings.Trim(t, `"`); {
		case t == "?":
			stmt.Vars = append(stmt.Vars, nil)
			d.gorm.Dialector.BindVarTo(&out, stmt, nil)
		case !ours.MatchString(t):
			return t
		case d.schema != "" && isOwn(name):
			return d.Quoted(Name{d.schema, name})
		case d.Dialect() == "postgres":
			return t // GORM with WithoutQuotingCheck writes no quotes, and PostgreSQL then looks for lower case
		default:
			d.gorm.Dialector.QuoteTo(&out, name)
		}
		return out.String()
	})
}

func (d *DB) trace(ctx context.Context, elapsed time.Duration, query string, args []any, n int64, err error) {
	l := d.gorm.Logger
	if l == nil || d.silent {
		return
	}
	if d.quiet || errors.Is(err, context.Canceled) { // the caller, such as Close, no longer needs the answer
		err = nil
	}
	ctx = context.WithoutCancel(ctx)
	show := func() {
		l.Trace(ctx, time.Now().Add(-elapsed), func() (string, int64) { return d.gorm.Dialector.Explain(query, args...), n }, err)
	}
	if d.later == nil {
		show()
	} else {
		d.later(show)
	}
}
