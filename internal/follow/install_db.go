package follow

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/uidplugin/uidplugin/internal/sqldb"
)

// FlavorOf returns the flavor of a database.
func FlavorOf(ctx context.Context, db *sqldb.DB) (Flavor, error) {
	switch dialect := db.Dialect(); dialect {
	case "postgres", "sqlite":
		return Flavor(dialect), nil
	case "mysql":
		var version string
		err := db.Query(ctx, func(r *sql.Rows) error { return r.Scan(&version) }, "SELECT VERSION()")
		if strings.Contains(version, "MariaDB") {
			return MariaDB, err
		}
		return MySQL, err
	default:
		return "", fmt.Errorf("tables cannot be followed on the dialect %q; MySQL, MariaDB, PostgreSQL and SQLite can", dialect)
	}
}

// Enable installs what makes a table followed. It waits for transactions that have inserted rows into the table. The
// error wraps ErrRefused if rows could be missed.
func Enable(ctx context.Context, db *sqldb.DB, t Table) error {
	f, err := FlavorOf(ctx, db)
	if err == nil {
		t, _, err = f.located(ctx, db, t)
	}
	if err == nil {
		err = refuse(ctx, db, f, t)
	}
	if err != nil {
		return fmt.Errorf("uidplugin: follow %s: %w", t.Name, err)
	}
	if ok, err := isEnabled(ctx, db, f, t); ok || err != nil {
		return err // the statements below would lock the table
	}
	for _, statement := range f.Install(t) {
		if err := install(ctx, db, f, statement); err != nil && !isThere(err) {
			return fmt.Errorf("uidplugin: follow %s: %w", t.Name, explain(err))
		}
	}
	return nil
}

// isEnabled reports whether a table is followed by the trigger that was installed, and then sets the slack.
func isEnabled(ctx context.Context, db *sqldb.DB, f Flavor, t Table) (bool, error) {
	s := newStatements(f, t)
	state, err := s.state(ctx, db.Quiet())
	if err != nil || state.check() != nil {
		return false, ctx.Err() // no table UID_FOLLOW, or no row in it
	}
	if err := s.complete(ctx, db.Quiet()); err != nil {
		return true, fmt.Errorf("uidplugin: follow %s: %w", t.Name, err)
	}
	_, err = db.Exec(ctx, "UPDATE "+s.marks()+" SET "+f.quote("SLACK")+" = ?"+s.row(), t.Slack.Milliseconds())
	if err != nil {
		err = fmt.Errorf("uidplugin: follow %s: %w", t.Name, err)
	}
	return true, err
}

// complete returns an error if the mark or a gate is missing, because the table then refuses all rows. What this user may
// not read may be there.
func (s *statements) complete(ctx context.Context, db *sqldb.DB) error {
	sequence := s.flavor.in(s.table, s.names.mark)
	parts := []string{"FROM " + s.gates() + s.gate(idleGate), "FROM " + s.gates() + s.gate(usedGate)}
	switch s.flavor {
	case Postgres:
		parts = []string{"WHERE to_regclass(" + s.flavor.text(sequence) + ") IS NOT NULL"}
	case MariaDB:
		parts = append(parts, "FROM "+sequence)
	case SQLite:
		parts = []string{"FROM " + s.gates() + s.row()}
	}
	for _, part := range parts {
		err := s.one(ctx, db, "SELECT 1 "+part)
		if err != nil && isMissing(err) {
			err = fmt.Errorf("%w: %w", errIncomplete, err)
		}
		if errors.Is(err, ErrNotEnabled) {
			return err
		}
	}
	return ctx.Err()
}

// Disable removes what Enable has installed.
func Disable(ctx context.Context, db *sqldb.DB, t Table) error {
	f, err := FlavorOf(ctx, db)
	if err == nil {
		t, _, err = f.located(ctx, db, t)
	}
	if err != nil {
		return fmt.Errorf("uidplugin: follow %s: %w", t.Name, err)
	}
	for _, statement := range f.Uninstall(t) {
		if err := install(ctx, db, f, statement); err != nil && !isMissing(err) {
			return fmt.Errorf("uidplugin: follow %s: %w", t.Name, err)
		}
	}
	return nil
}

// install runs a statement, which waits for a moment at a time. A trigger can only be created or dropped when no
// transaction uses the table, and while the statement waits for that, new transactions wait for it.
func install(ctx context.Context, db *sqldb.DB, f Flavor, statement string) error {
	return retry(ctx, func() error { return execSoon(ctx, db, f, statement) })
}

// execSoon runs a statement. On MySQL it waits for locks for a second, which is the least; on PostgreSQL and SQLite the
// statements have a limit of their own.
func execSoon(ctx context.Context, db *sqldb.DB, f Flavor, statement string) error {
	if f != MySQL && f != MariaDB {
		return db.ExecRaw(ctx, statement)
	}
	return db.Together(ctx, func(ctx context.Context, conn *sqldb.DB) error {
		if err := conn.ExecRaw(ctx, "SET @uid_wait = @@SESSION.lock_wait_timeout, SESSION lock_wait_timeout = 1"); err != nil {
			return err
		}
		err := conn.ExecRaw(ctx, statement)
		return errors.Join(err, conn.ExecRaw(ctx, "SET SESSION lock_wait_timeout = @uid_wait"))
	})
}

// isThere reports whether a statement failed because the trigger is there already.
func isThere(err error) bool {
	text := err.Error()
	return strings.Contains(text, "Error 1359") || strings.Contains(text, "already exists") && strings.Contains(text, "trigger")
}

// isMissing reports whether a statement failed because a table or a sequence does not exist.
func isMissing(err error) bool {
	var state interface{ SQLState() string }
	if errors.As(err, &state) {
		return state.SQLState() == "42P01"
	}
	return strings.Contains(err.Error(), "Error 1146 ") || strings.Contains(err.Error(), "no such table")
}

// retry runs f again after conflicts with other processes, and until the context ends if f has waited for a lock.
func retry(ctx context.Context, f func() error) error {
	for try := 0; ; try++ {
		err := f()
		switch {
		case err == nil || ctx.Err() != nil:
			return err
		case isLockTimeout(err) || strings.Contains(err.Error(), "Error 1684 "): // MariaDB skips a table that another session changes
			if !sleep(ctx, lockPause) {
				return fmt.Errorf("a transaction that uses the table has not ended: %w: %w", context.Cause(ctx), err)
			}
		case try >= 10 || !isConflict(err):
			return err
		default:
			time.Sleep(time.Duration(try+1) * 20 * time.Millisecond)
		}
	}
}

// isConflict reports whether a statement may succeed if it is tried again. PostgreSQL's IF NOT EXISTS fails if another
// session creates the same at the same time.
func isConflict(err error) bool {
	var state interface{ SQLState() string }
	if errors.As(err, &state) && (state.SQLState() == "42P07" || state.SQLState() == "23505" && strings.Contains(err.Error(), "pg_")) {
		return true
	}
	return sqldb.IsTransient(err) || strings.Contains(err.Error(), "tuple concurrently")
}

const lockPause = 300 * time.Millisecond // lets waiting transactions pass
