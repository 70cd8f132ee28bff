package follow

import (
	"context"
	"database/sql"
	"fmt"
	"regexp"
	"strings"

	"github.com/uidplugin/uidplugin/internal/sqldb"
)

// A trigger of this package stays with its table when the table is renamed, so its name may come from a former
// name of the table. On MySQL, MariaDB and SQLite, a new table of that former name cannot get its trigger then.
type trigger struct {
	name, table string // the table as the database writes it
	here        bool   // the trigger is on the table of the statements
	guards      bool   // the trigger is as [Flavor.Install] makes it; known only if it has the name for this table
}

// ofThisPackage matches the beginning of our triggers' names. A tool that copies a trigger may append something.
var ofThisPackage = regexp.MustCompile(`^uid_follow_[a-z0-9_]+_[0-9a-f]{6}`)

// misplaced returns in own the triggers that have the trigger name of this table, but are elsewhere or do not guard
// it. stale are triggers on this table whose names come from a former name of the table, so no follower uses them.
func (s *statements) misplaced(ctx context.Context, db *sqldb.DB) (own, stale []trigger, err error) {
	all, err := s.triggers(ctx, db)
	if err != nil {
		return nil, nil, err
	}
	used := map[string]bool{s.names.trigger: true}
	names, err := s.flavor.tablesIn(ctx, db.Quiet(), s.table)
	if err != nil && !noTable.MatchString(err.Error()) {
		return nil, nil, err
	}
	for _, name := range names {
		if bare(name) == bare(s.table.Name) { // a table may be named with and without its schema
			used[namesOf(name).trigger] = true
		}
	}
	for _, t := range all {
		switch {
		case t.name == s.names.trigger && !(t.here && t.guards):
			own = append(own, t)
		case t.here && !used[t.name]:
			stale = append(stale, t)
		}
	}
	return own, stale, nil
}

// triggers returns all triggers that have the trigger name of this table, and the package's triggers on this table.
func (s *statements) triggers(ctx context.Context, db *sqldb.DB) (list []trigger, err error) {
	if s.flavor == Postgres {
		err = db.Query(ctx, func(r *sql.Rows) error {
			var t trigger
			err := r.Scan(&t.name, &t.table, &t.here, &t.guards)
			list = append(list, t)
			return err
		}, s.triggersOfPostgres())
		return list, err
	}
	query := "SELECT TRIGGER_NAME, EVENT_OBJECT_TABLE, ACTION_STATEMENT, @@lower_case_table_names," +
		" CAST(DEFINER AS BINARY) = CAST(CURRENT_USER() AS BINARY) FROM information_schema.TRIGGERS" +
		" WHERE EVENT_OBJECT_SCHEMA = " + s.flavor.schema(s.table) + " AND LEFT(TRIGGER_NAME, 11) = 'uid_follow_'"
	if s.flavor == SQLite {
		query = "SELECT name, tbl_name, sql, 1, 1 FROM sqlite_schema WHERE type = 'trigger' AND substr(name, 1, 11) = 'uid_follow_'"
	}
	create, here := spaceless(s.flavor.create(s.table)), bare(s.table.Name)
	err = db.Query(ctx, func(r *sql.Rows) error {
		var t trigger
		var body string // on SQLite the whole statement
		var folds int
		var mine bool // this account has defined the trigger; the account of another definer may not exist any more
		err := r.Scan(&t.name, &t.table, &body, &folds, &mine)
		t.here = t.table == here || folds != 0 && strings.EqualFold(t.table, here)
		t.guards = mine && strings.HasSuffix(create, spaceless(body))
		if t.name == s.names.trigger || t.here && ofThisPackage.MatchString(t.name) && strings.Contains(body, gateTable) {
			list = append(list, t)
		}
		return err
	}, query)
	return list, err
}

func spaceless(text string) string { return strings.Join(strings.Fields(text), "") }

// create returns the statement that creates the trigger on databases other than PostgreSQL.
func (f Flavor) create(t Table) string {
	for _, statement := range f.Install(t) {
		if strings.HasPrefix(statement, "CREATE TRIGGER ") {
			return statement
		}
	}
	return ""
}

// triggersOfPostgres finds triggers by their function, which can be dropped only after all its triggers.
func (s *statements) triggersOfPostgres() string {
	f := s.flavor
	prefix := strings.TrimSuffix(f.in(s.table, ""), f.quote("")) // the schema with a dot
	return "SELECT tgname, " + qualified + ", COALESCE(tgrelid = " + s.class() + ", false), COALESCE(" + s.intact() + ", false) FROM pg_trigger t" +
		" WHERE " + notCloned + " AND (tgfoid = " + s.function() + " OR tgrelid = " + s.class() + " AND left(tgname, 11) = 'uid_follow_'" +
		" AND tgfoid = to_regproc(" + f.text(prefix) + " || quote_ident(tgname)))"
}

// qualified is an expression for the table name of the trigger t, with the schema, so it suits every search path.
const qualified = "(SELECT format('%I.%I', nspname, relname) FROM pg_class c JOIN pg_namespace n ON n.oid = relnamespace WHERE c.oid = tgrelid)"

// notCloned leaves out the triggers that PostgreSQL makes for the partitions of a table with a trigger. Before
// version 13 they count as internal.
const notCloned = "NOT t.tgisinternal AND COALESCE((to_jsonb(t) ->> 'tgparentid')::bigint, 0) = 0"

func (s *statements) class() string {
	return "to_regclass(" + s.flavor.text(s.flavor.in(s.table, bare(s.table.Name))) + ")"
}

// intact is a condition on PostgreSQL: the trigger t is on the table and enabled. On a partition or a partitioned
// table t must also run for each row, because a trigger for each statement misses rows there.
func (s *statements) intact() string {
	return "t.tgrelid = " + s.class() + " AND t.tgenabled IN ('O', 'A') AND (t.tgtype & 1 = 1 OR NOT EXISTS" +
		" (SELECT FROM pg_class c WHERE c.oid = t.tgrelid AND (c.relkind = 'p' OR c.relispartition)))"
}

// dropCalling returns a statement for PostgreSQL that drops the triggers that call a function and meet a condition,
// and then runs the actions. As a single statement, it does everything or nothing.
func dropCalling(function, condition string, actions ...string) string {
	return fmt.Sprintf(`DO $uid$
DECLARE
  found record;
BEGIN
  PERFORM set_config('lock_timeout', '%dms', true); -- because writers queue up behind this; try again if it fails
  FOR found IN SELECT tgname, tgrelid::regclass AS owner FROM pg_trigger t
    WHERE tgfoid = to_regproc(%s) AND %s
      AND %s LOOP
    EXECUTE format('DROP TRIGGER IF EXISTS %%I ON %%s', found.tgname, found.owner); -- another session may have dropped it
  END LOOP;
%sEND $uid$`, lockPatience.Milliseconds(), Postgres.text(function), notCloned, condition, strings.Join(actions, ""))
}

func (s *statements) drop(t trigger) string {
	if s.flavor == Postgres {
		return fmt.Sprintf("DO $uid$ BEGIN\n  PERFORM set_config('lock_timeout', '%dms', true);\n"+
			"  DROP TRIGGER IF EXISTS %s ON %s;\nEND $uid$", lockPatience.Milliseconds(), s.flavor.quote(t.name), t.table)
	}
	return "DROP TRIGGER IF EXISTS " + s.flavor.in(s.table, t.name)
}
