package follow

import (
	"context"
	"database/sql"
	"fmt"
	"regexp"
	"slices"
	"strings"

	"github.com/uidplugin/uidplugin/generator"
	"github.com/uidplugin/uidplugin/internal/sqldb"
)

// dropFunction drops a function on PostgreSQL, whose name is quoted, and its trigger, even if the table was
// renamed.
func dropFunction(name string) string {
	return fmt.Sprintf("DO $uid$ BEGIN\n  PERFORM set_config('lock_timeout', '%dms', true);\n"+
		"  DROP FUNCTION IF EXISTS %s() CASCADE; -- and its trigger\nEND $uid$", lockPatience.Milliseconds(), name)
}

// ours matches the names of triggers, functions and marks, as [namesOf] makes them.
var ours = regexp.MustCompile(`^uid_follow_[a-z0-9_]*_[0-9a-f]{6}(_mark)?$`)

// objectsOf are queries for the triggers (on PostgreSQL their functions), and for the sequences of a schema.
var objectsOf = map[Flavor][]string{
	MySQL: {"SELECT TRIGGER_NAME FROM information_schema.TRIGGERS WHERE TRIGGER_SCHEMA = ", ""},
	MariaDB: {"SELECT TRIGGER_NAME FROM information_schema.TRIGGERS WHERE TRIGGER_SCHEMA = ",
		"SELECT TABLE_NAME FROM information_schema.TABLES WHERE TABLE_TYPE = 'SEQUENCE' AND TABLE_SCHEMA = "},
	Postgres: {"SELECT proname FROM pg_proc JOIN pg_namespace n ON n.oid = pronamespace WHERE nspname = ",
		"SELECT relname FROM pg_class JOIN pg_namespace n ON n.oid = relnamespace WHERE relkind = 'S' AND nspname = "},
	SQLite: {"SELECT name FROM sqlite_schema WHERE type = 'trigger'", ""},
}

// Removal returns the statements that undo [Enable] for all tables of the default schema, even if UID_FOLLOW was
// dropped or a table was renamed. They also drop the tables UID_*. In the schemas of the tables in known they undo
// [Enable] only for tables in UID_FOLLOW, because other triggers there may be of other programs.
func Removal(ctx context.Context, db *sqldb.DB, known ...string) (statements []string, err error) {
	f, err := FlavorOf(ctx, db)
	if err != nil {
		return nil, err
	}
	place, _, err := f.located(ctx, db, Table{Name: markTable}) // the default schema
	if err != nil {
		return nil, err
	}
	triggers, sequences, err := f.objects(ctx, db, place)
	if err != nil {
		return nil, fmt.Errorf("uidplugin: list what following has installed: %w", err)
	}
	for _, name := range triggers {
		if f == Postgres {
			statements = append(statements, dropFunction(f.in(place, name)))
		} else {
			statements = append(statements, "DROP TRIGGER IF EXISTS "+f.in(place, name))
		}
	}
	for _, name := range sequences {
		statements = append(statements, "DROP SEQUENCE IF EXISTS "+f.in(place, name))
	}
	list, err := List(ctx, db, generator.Layout{}, known...)
	if err != nil {
		return nil, err
	}
	for _, s := range list {
		if bare(s.Table) != s.Table {
			statements = append(statements, f.Uninstall(Table{Name: s.Table})...)
		}
	}
	for _, name := range []string{markTable, gateTable, CursorTable} {
		ok, err := f.has(ctx, db, f.in(place, name))
		if err != nil {
			return nil, err
		}
		if ok {
			statements = append(statements, "DROP TABLE IF EXISTS "+f.in(place, name))
		}
	}
	return statements, nil
}

// objects returns the triggers and sequences in the schema of a table. It adds the triggers of the tables in
// UID_FOLLOW, because a user without the privilege TRIGGER does not see triggers.
func (f Flavor) objects(ctx context.Context, db *sqldb.DB, t Table) (triggers, sequences []string, err error) {
	for i, into := range []*[]string{&triggers, &sequences} {
		query := objectsOf[f][i]
		if query == "" {
			continue
		}
		if f != SQLite {
			query += f.schema(t)
		}
		err := db.Query(ctx, func(r *sql.Rows) error {
			var name string
			err := r.Scan(&name)
			if ours.MatchString(name) && strings.HasSuffix(name, "_mark") == (i == 1) {
				*into = append(*into, name)
			}
			return err
		}, query)
		if err != nil {
			return nil, nil, err
		}
	}
	tables, err := f.tablesIn(ctx, db.Quiet(), t)
	if err != nil && !noTable.MatchString(err.Error()) {
		return nil, nil, err
	}
	for _, table := range tables {
		triggers = append(triggers, namesOf(table).trigger)
	}
	slices.Sort(triggers)
	return slices.Compact(triggers), sequences, nil
}

// has reports whether a table with this quoted name exists.
func (f Flavor) has(ctx context.Context, db *sqldb.DB, table string) (bool, error) {
	err := db.Quiet().Query(ctx, func(*sql.Rows) error { return nil }, "SELECT 1 FROM "+table+" WHERE 1 = 0")
	if err != nil && noTable.MatchString(err.Error()) {
		return false, nil
	}
	return err == nil, err
}

// isTable reports whether t is a table, and not a view, for example. It reads the catalog, because a query fails for
// other reasons, too, as to_regclass of PostgreSQL does without the privilege USAGE. It returns an error if MySQL or
// MariaDB hides the table from this user.
func (f Flavor) isTable(ctx context.Context, db *sqldb.DB, t Table) (found bool, err error) {
	name := f.text(bare(t.Name))
	query := "SELECT COUNT(*) > 0 FROM information_schema.TABLES WHERE TABLE_SCHEMA = " + f.schema(t) + " AND TABLE_NAME = " + name +
		" AND TABLE_TYPE IN ('BASE TABLE', 'SYSTEM VERSIONED')"
	switch f {
	case Postgres:
		// The casts cut long names, as PostgreSQL does.
		query = "SELECT COUNT(*) > 0 FROM pg_class JOIN pg_namespace n ON n.oid = relnamespace WHERE relkind IN ('r', 'p')" +
			" AND nspname = " + f.schema(t) + "::name AND relname = " + name + "::name"
	case SQLite:
		query = "SELECT COUNT(*) > 0 FROM " + f.in(t, "sqlite_master") + " WHERE type = 'table' AND lower(name) = lower(" + name + ")"
	}
	err = db.Query(ctx, func(r *sql.Rows) error { return r.Scan(&found) }, query)
	if err == nil && !found && (f == MySQL || f == MariaDB) {
		if _, failed := f.has(ctx, db, f.in(t, bare(t.Name))); failed != nil && notAllowed.MatchString(failed.Error()) {
			err = fmt.Errorf("this user is not allowed to see the table, so nobody can tell whether it was renamed; GRANT SELECT ON it: %w", failed)
		}
	}
	return found, err
}

// Exec runs a statement of [Removal]. It waits like [Disable] for transactions that use the table.
func Exec(ctx context.Context, db *sqldb.DB, statement string) error {
	f, err := FlavorOf(ctx, db)
	if err != nil {
		return err
	}
	run := func(ctx context.Context, db *sqldb.DB) error {
		return retry(ctx, func() error { return db.ExecRaw(ctx, statement) })
	}
	if f == MySQL || f == MariaDB {
		err = db.Together(ctx, func(ctx context.Context, conn *sqldb.DB) error { return impatiently(ctx, conn, run) })
	} else {
		err = run(ctx, db)
	}
	if err != nil && isMissing(err) {
		return nil
	}
	return err
}
