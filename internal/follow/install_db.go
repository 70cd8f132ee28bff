package follow

import (
	"context"
	"database/sql"
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
		err = refuse(ctx, db, f, t)
	}
	if err != nil {
		return fmt.Errorf("uidplugin: follow %s: %w", t.Name, err)
	}
	if f == Postgres {
		err := db.Query(ctx, func(r *sql.Rows) error { return r.Scan(&t.Schema) }, "SELECT current_schema()")
		if err != nil {
			return fmt.Errorf("uidplugin: follow %s: %w", t.Name, err)
		}
	}
	for _, statement := range f.Install(t) {
		if err := retry(ctx, func() error { return db.ExecRaw(ctx, statement) }); err != nil && !isThere(err) {
			return fmt.Errorf("uidplugin: follow %s: %w", t.Name, explain(err))
		}
	}
	return nil
}

// Disable removes what Enable has installed.
func Disable(ctx context.Context, db *sqldb.DB, t Table) error {
	f, err := FlavorOf(ctx, db)
	if err != nil {
		return fmt.Errorf("uidplugin: follow %s: %w", t.Name, err)
	}
	for _, statement := range f.Uninstall(t) {
		if err := retry(ctx, func() error { return db.ExecRaw(ctx, statement) }); err != nil {
			return fmt.Errorf("uidplugin: follow %s: %w", t.Name, err)
		}
	}
	return nil
}

// isThere reports whether a statement failed because the trigger is there already.
func isThere(err error) bool {
	text := err.Error()
	return strings.Contains(text, "Error 1359") || strings.Contains(text, "already exists") && strings.Contains(text, "trigger")
}

// retry runs f again after conflicts with other processes.
func retry(ctx context.Context, f func() error) error {
	for try := 0; ; try++ {
		err := f()
		if err == nil || try == 10 || ctx.Err() != nil || !sqldb.IsTransient(err) && !strings.Contains(err.Error(), "tuple concurrently updated") {
			return err
		}
		time.Sleep(time.Duration(try+1) * 20 * time.Millisecond)
	}
}
