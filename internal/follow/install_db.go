package follow

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/uidplugin/uidplugin/internal/sqldb"
)

// FlavorOf returns the flavor of a database.
func FlavorOf(ctx context.Context, db *sqldb.DB) (Flavor, error) {
	f, _, err := flavorOf(ctx, db)
	return f, err
}

// flavorOf also returns the version of MySQL, MariaDB and compatible servers.
func flavorOf(ctx context.Context, db *sqldb.DB) (f Flavor, version string, err error) {
	switch dialect := db.Dialect(); dialect {
	case "postgres", "sqlite":
		return Flavor(dialect), "", nil
	case "mysql":
		f = MySQL
		err = db.Query(ctx, func(r *sql.Rows) error { return r.Scan(&version) }, "SELECT VERSION()")
		if strings.Contains(version, "MariaDB") {
			f = MariaDB
		}
		return f, version, err
	default:
		return "", "", fmt.Errorf("tables cannot be followed on the dialect %q; MySQL, MariaDB, PostgreSQL and SQLite can", dialect)
	}
}

// Enable installs the trigger and all that it needs, and checks the installation. It waits for transactions that
// have inserted rows into the table. The error wraps ErrRefused if rows could be missed. GORM's logger does not see
// errors, because it would log the whole trigger with them.
func Enable(ctx context.Context, db *sqldb.DB, t Table) error {
	db = db.Quiet()
	f, version, err := flavorOf(ctx, db)
	if err == nil {
		err = refuseVersion(version)
	}
	if err == nil {
		t, _, err = f.located(ctx, db, t)
	}
	if err == nil {
		if exists, failed := f.has(ctx, db, f.in(t, bare(t.Name))); failed == nil && !exists {
			err = errors.New("the table does not exist; create it before it is followed, as with AutoMigrate")
		}
	}
	if err == nil {
		err = refuse(ctx, db, f, t)
	}
	if err == nil {
		err = newStatements(f, t).enable(ctx, db)
	}
	if err != nil {
		return fmt.Errorf("uidplugin: follow %s: %w", t.Name, explain(err))
	}
	return nil
}

// enable first checks whether the table is enabled, because the other statements would lock the table.
func (s *statements) enable(ctx context.Context, db *sqldb.DB) error {
	if ok, err := s.isEnabled(ctx, db); ok || err != nil {
		return err
	}
	return s.alone(ctx, db, func(ctx context.Context, db *sqldb.DB) error {
		if ok, err := s.isEnabled(ctx, db); ok || err != nil {
			return err // another process was faster
		}
		own, stale, err := s.misplaced(ctx, db)
		if err != nil {
			return err
		}
		var statements []string
		if s.flavor != Postgres { // on PostgreSQL a statement of Install drops these triggers
			for _, t := range own {
				statements = append(statements, s.drop(t))
			}
		}
		statements = append(statements, s.flavor.Install(s.table)...)
		for _, t := range stale {
			statements = append(statements, s.drop(t))
		}
		var there error
		for _, statement := range statements {
			err := s.install(ctx, db, statement)
			if err != nil && !isThere(err) {
				return err
			}
			there = errors.Join(there, err)
		}
		return s.verify(ctx, db, there)
	})
}

// verify returns an error unless the table is guarded now. createErr is not nil if the trigger was there already.
func (s *statements) verify(ctx context.Context, db *sqldb.DB, createErr error) error {
	state, err := s.state(ctx, db.Quiet())
	if err == nil && (state.Found != "" || createErr == nil) {
		err = state.check()
	} else if createErr != nil {
		return fmt.Errorf("%w: another table has the trigger %s, which this account is not allowed to see; drop that trigger: %w", ErrNotEnabled, s.names.trigger, createErr)
	}
	if err == nil {
		err = s.complete(ctx, db.Quiet())
	}
	return err
}

// isEnabled reports whether the table has the installed trigger. If so, it also sets the slack and adds UID_CURSOR.
func (s *statements) isEnabled(ctx context.Context, db *sqldb.DB) (bool, error) {
	state, err := s.state(ctx, db.Quiet())
	if err != nil || state.check() != nil {
		return false, ctx.Err() // for example without UID_FOLLOW, without a row in it, or without the trigger
	}
	if err := s.complete(ctx, db.Quiet()); errors.Is(err, errUnable) {
		return false, nil // installing the trigger again corrects it
	} else if err != nil {
		return true, err
	}
	var key string
	err = db.Query(ctx, func(r *sql.Rows) error { return r.Scan(&key) }, "SELECT "+s.flavor.quote("KEY_COLUMN")+" FROM "+s.marks()+s.row())
	if err != nil {
		return true, err
	}
	if key != s.table.Key && (s.flavor == Postgres || !strings.EqualFold(key, s.table.Key)) {
		return true, fmt.Errorf("its trigger compares the column %s, not %s; call follow.Disable first", key, s.table.Key)
	}
	_, err = db.Exec(ctx, "UPDATE "+s.marks()+" SET "+s.flavor.quote("SLACK")+" = ?"+s.row(), s.table.Slack.Milliseconds())
	if err == nil {
		err = s.addCursors(ctx, db)
	}
	return true, err
}

// addCursors creates UID_CURSOR if an earlier version has enabled the table. Followers do not need it, so a missing
// privilege is no error. CREATE TABLE IF NOT EXISTS needs the privilege even if the table exists.
func (s *statements) addCursors(ctx context.Context, db *sqldb.DB) error {
	ok, err := s.flavor.has(ctx, db, s.flavor.in(s.table, CursorTable))
	if err == nil && !ok {
		err = retry(ctx, func() error { return db.Quiet().ExecRaw(ctx, s.flavor.CreateCursors(s.table)) })
	}
	if err != nil && notAllowed.MatchString(err.Error()) {
		return nil
	}
	return err
}

// Disable removes what Enable has installed for a table, or for an earlier table of this name.
func Disable(ctx context.Context, db *sqldb.DB, t Table) error {
	f, err := FlavorOf(ctx, db)
	if err == nil {
		t, _, err = f.located(ctx, db, t)
	}
	if err == nil {
		s := newStatements(f, t)
		err = s.alone(ctx, db, s.disable)
	}
	if err != nil {
		return fmt.Errorf("uidplugin: follow %s: %w", t.Name, err)
	}
	return nil
}

func (s *statements) disable(ctx context.Context, db *sqldb.DB) error {
	_, stale, err := s.misplaced(ctx, db)
	if err != nil {
		return err
	}
	statements := s.flavor.Uninstall(s.table)
	for _, t := range stale {
		statements = append(statements, s.drop(t))
	}
	for _, statement := range statements {
		if err := s.install(ctx, db, statement); err != nil && !isMissing(err) {
			return err
		}
	}
	left, err := s.triggers(ctx, db)
	if i := slices.IndexFunc(left, func(t trigger) bool { return t.name == s.names.trigger }); err == nil && i >= 0 {
		err = fmt.Errorf("the trigger %s of the table %s is still there; drop it", left[i].name, left[i].table)
	}
	if err == nil && s.flavor == Postgres {
		err = refuseElsewhere(ctx, db, s.flavor, s.table)
	}
	return err
}

// IsInstalled reports whether a table, or an earlier table of this name, has an installed trigger.
func IsInstalled(ctx context.Context, db *sqldb.DB, t Table) (bool, error) {
	f, err := FlavorOf(ctx, db)
	if err == nil {
		t, _, err = f.located(ctx, db, t)
	}
	if err != nil {
		return false, err
	}
	list, err := newStatements(f, t).triggers(ctx, db)
	return len(list) > 0, err
}

// alone runs f while no other process installs or removes the trigger. On PostgreSQL the statements do the locking.
func (s *statements) alone(ctx context.Context, db *sqldb.DB, f func(ctx context.Context, db *sqldb.DB) error) error {
	switch s.flavor {
	case Postgres:
		return f(ctx, db)
	case SQLite:
		return retry(ctx, func() error { return db.Transact(ctx, f) })
	}
	name := "CONCAT(" + s.flavor.userLock(s.table) + ", '_install')"
	return db.Together(ctx, func(ctx context.Context, conn *sqldb.DB) error {
		for got := false; !got; {
			err := conn.Query(ctx, func(r *sql.Rows) error { return r.Scan(&got) }, "SELECT COALESCE(GET_LOCK("+name+", 1), 0)")
			if err != nil {
				return err
			}
		}
		if err := impatiently(ctx, conn, f); err != nil {
			return err // and the connection is closed
		}
		return s.one(ctx, conn, "SELECT RELEASE_LOCK("+name+")")
	})
}

// impatiently runs f on a connection of MySQL or MariaDB whose statements wait only a second for locks of tables,
// and have the sql_mode of [sqldb.DB.Define]. After an error the connection has to be closed.
func impatiently(ctx context.Context, conn *sqldb.DB, f func(ctx context.Context, db *sqldb.DB) error) error {
	err := conn.ExecRaw(ctx, setInstall)
	if err == nil {
		err = f(ctx, conn)
	}
	if err != nil {
		return err
	}
	return conn.ExecRaw(ctx, unsetInstall)
}

const (
	setInstall   = "SET @uid_wait = @@SESSION.lock_wait_timeout, SESSION lock_wait_timeout = 1, " + sqldb.FixMode
	unsetInstall = "SET SESSION lock_wait_timeout = @uid_wait, " + sqldb.RestoreMode
)

// install runs a statement, and tries again while transactions that use the table are in its way. Each try is
// short, because new transactions queue up behind it: a second on MySQL (its minimum) and MariaDB, and
// [lockPatience] on PostgreSQL. On SQLite the whole transaction is tried again; see alone.
func (s *statements) install(ctx context.Context, db *sqldb.DB, statement string) error {
	if s.flavor == SQLite {
		return db.ExecRaw(ctx, statement)
	}
	return retry(ctx, func() error { return db.ExecRaw(ctx, statement) })
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

// retry runs f again after conflicts with other processes, up to ten times. After a lock timeout it runs f again
// until the context ends.
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

// isConflict reports whether a statement may succeed if it is tried again. On PostgreSQL even IF NOT EXISTS fails
// if another session creates the same object at the same time.
func isConflict(err error) bool {
	var state interface{ SQLState() string }
	if errors.As(err, &state) {
		switch code := state.SQLState(); { // creating a table also creates a type, so the error may be about either
		case code == "42P07", code == "42710" && strings.Contains(err.Error(), "type "), code == "23505" && strings.Contains(err.Error(), "pg_"):
			return true
		}
	}
	return sqldb.IsTransient(err) || strings.Contains(err.Error(), "tuple concurrently")
}

const lockPause = 300 * time.Millisecond // lets waiting transactions pass
