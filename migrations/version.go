package migrations

import (
	"context"
	"database/sql"
	"fmt"

	"github.com/uidplugin/uidplugin/internal/sqldb"
	"github.com/uidplugin/uidplugin/workernode"
)

const selectVersion = `SELECT "SCHEMA_VERSION" FROM "WORKER_REGISTRY" WHERE "NAME" = 'default'`

// raiseVersion is the last statement of an upgrade.
var raiseVersion = fmt.Sprintf(`UPDATE "WORKER_REGISTRY" SET "SCHEMA_VERSION" = %[1]d WHERE "NAME" = 'default' AND "SCHEMA_VERSION" < %[1]d`,
	workernode.SchemaVersion)

// A version of the tables is known once a process has inserted the row of WORKER_REGISTRY.
type version struct {
	known  bool
	number int64
}

// old reports whether an earlier release has made the tables.
func (v version) old() bool { return v.known && v.number < workernode.SchemaVersion }

// versionOf reads the version of the tables. The error wraps uidplugin.ErrTable if this program is too old for them.
func versionOf(ctx context.Context, db *sqldb.DB) (v version, err error) {
	columns, err := db.Columns(ctx, workernode.RegistryTable)
	switch {
	case err != nil && sqldb.IsUnreachable(err):
		return v, fmt.Errorf("migrations: %s: the database cannot be reached: %w", workernode.RegistryTable, err)
	case err != nil || len(missing([]string{"SCHEMA_VERSION"}, namesOf(columns))) > 0:
		return v, nil // the table or the column is missing, and the caller adds or reports it
	}
	err = db.Query(ctx, func(rows *sql.Rows) error {
		v.known = true
		return rows.Scan(&v.number)
	}, selectVersion)
	if err != nil {
		return v, fmt.Errorf("migrations: read SCHEMA_VERSION in %s: %w", workernode.RegistryTable, err)
	}
	if major := v.number / 1000; major > workernode.SchemaVersion/1000 {
		return v, fmt.Errorf("migrations: %w: uidplugin %s has upgraded the tables (SCHEMA_VERSION in %s is %d), and this program "+
			"is too old, because it knows only the tables of %s: build it with uidplugin %d.0 or later",
			workernode.ErrTable, release(v.number), workernode.RegistryTable, v.number, release(workernode.SchemaVersion), major)
	}
	return v, nil
}

// raise records this program's version. The parameter old is the version before the upgrade.
func raise(ctx context.Context, db *sqldb.DB, old version) (err error) {
	if !old.known { // the column may be new
		old, err = versionOf(ctx, db)
	}
	if err == nil && old.old() {
		if _, err = db.Exec(ctx, raiseVersion); err != nil {
			err = fmt.Errorf("migrations: set SCHEMA_VERSION in %s to %d: %w", workernode.RegistryTable, workernode.SchemaVersion, err)
		}
	}
	return err
}

// release returns the release that has introduced a version of the tables.
func release(version int64) string { return fmt.Sprintf("%d.%d", version/1000, version%1000) }
