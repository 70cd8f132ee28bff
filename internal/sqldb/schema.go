package sqldb

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
)

// The plugin's tables are found once, when a process starts. From then on each statement names their schema,
// because the application may leave another search_path or database on the connections of the pool.

// A Name is the name of a table, in a schema of PostgreSQL or a database of MySQL.
type Name struct{ Schema, Table string }

// String returns the name for errors.
func (n Name) String() string { return fmt.Sprintf("%s in the schema %q", n.Table, n.Schema) }

// Quoted returns a name for statements of d's dialect. The result has no schema if n has none.
func (d *DB) Quoted(n Name) string {
	if n.Schema == "" {
		return d.quote(n.Table)
	}
	return d.quote(n.Schema) + "." + d.quote(n.Table)
}

func (d *DB) quote(part string) string { return QuotePart(d.Dialect(), part) }

// QuotePart quotes one part of a name, which may contain any character, in a dialect.
func QuotePart(dialect, part string) string {
	q := `"`
	if dialect == "mysql" || dialect == "sqlite" {
		q = "`"
	}
	return q + strings.ReplaceAll(part, q, q+q) + q
}

// own are the tables in the schema that [DB.Locate] finds. [DB.Translate] writes the schema before their names.
var own = []string{registry, "WORKER_NODE", "WORKER_SLOT", "WORKER_SESSION"}

const registry = "WORKER_REGISTRY"

func isOwn(table string) bool { return slices.Contains(own, table) }

// In returns a DB whose statements name the schema of the plugin's tables, or no schema if it is empty.
func (d *DB) In(schema string) *DB {
	other := *d
	other.schema, other.alone, other.second = schema, false, ""
	return &other
}

// like returns a DB with the schema that other has found.
func (d *DB) like(other *DB) *DB {
	located := *d
	located.schema, located.alone, located.second = other.schema, other.alone, other.second
	return &located
}

// Schema returns the schema of the plugin's tables. It is empty if statements do not name it.
func (d *DB) Schema() string { return d.schema }

// SecondRegistry returns another schema of the database in which [DB.Locate] saw a WORKER_REGISTRY, or "".
func (d *DB) SecondRegistry() string { return d.second }

// Home returns a DB that remembers, for [DB.SchemaOf], the schemas in which a connection now looks for names
// without a schema. Later the application may leave another search_path or database on connections.
func (d *DB) Home(ctx context.Context) (*DB, error) {
	query := map[string]string{
		"mysql":    `SELECT CASE WHEN VERSION() LIKE '%Vitess%' OR DATABASE() IS NULL THEN '[]' ELSE JSON_ARRAY(DATABASE()) END`,
		"postgres": `SELECT array_to_json(current_schemas(false))::text`,
	}[d.Dialect()]
	if query == "" {
		return d, nil
	}
	path, other := "", *d
	err := d.Query(ctx, func(rows *sql.Rows) error { return rows.Scan(&path) }, query)
	if err == nil {
		err = json.Unmarshal([]byte(path), &other.home)
	}
	if err != nil {
		return nil, fmt.Errorf("look for the schema of the connection: %w", err)
	}
	return &other, nil
}

// Current returns the first schema in which names without a schema are looked up, or "" if d does not know it.
func (d *DB) Current() string {
	if len(d.home) == 0 {
		return ""
	}
	return d.home[0]
}

// HomeOf returns a DB with the home of other.
func (d *DB) HomeOf(other *DB) *DB {
	at := *d
	at.home = other.home
	return &at
}

// A Place says where the plugin's tables are. The zero Place means that [DB.Locate] looks for them.
type Place struct {
	Schema string // as named by the user; empty means look for it
	Option string // the option by which the user names it, for errors

	// Located is a DB that has found the tables already, or nil. Before is called before a table is created or
	// extended.
	Located *DB
	Before  func(context.Context) error
}

// At returns a DB for the tables at a place.
func (d *DB) At(ctx context.Context, p Place) (*DB, error) {
	if p.Located != nil {
		return d.like(p.Located), nil
	}
	return d.Locate(ctx, p.Schema, p.Option)
}

// The errors of [DB.Locate].
var (
	// ErrElsewhere reports that it is unclear which tables are meant. The wrong ones could begin a second id space.
	ErrElsewhere = errors.New("the tables of an id space may be elsewhere")

	// ErrSchema reports a schema that was given and cannot be used.
	ErrSchema = errors.New("the schema cannot be used")
)

// Locate finds the schema of the plugin's tables, which need not exist, and returns a DB that names it. userSchema
// and option are the fields of a [Place]. If userSchema is empty, Locate takes the schema in which the search path
// finds WORKER_REGISTRY, or else the current schema.
//
// The error wraps ErrSchema if userSchema does not exist. It wraps ErrElsewhere if a table exists in another
// spelling. On PostgreSQL without userSchema it also does so if another schema has WORKER_REGISTRY, or if no schema
// is current.
func (d *DB) Locate(ctx context.Context, userSchema, option string) (*DB, error) {
	var schema string
	var err error
	d = d.In("")
	switch d.Dialect() {
	case "postgres":
		schema, err = d.locateOnPostgres(ctx, userSchema, option)
	case "mysql":
		schema, err = d.locateOnMySQL(ctx)
	case "sqlite":
		schema = "main"
	}
	if err != nil {
		return nil, err
	}
	d.alone, d.schema = userSchema == "", schema
	return d, nil
}

// locateOnPostgres reads pg_class, because it shows even schemas for which the user lacks the privilege USAGE.
func (d *DB) locateOnPostgres(ctx context.Context, userSchema, option string) (schema string, err error) {
	var visible, current string
	var exists bool // userSchema exists
	var all []Name
	err = d.Query(ctx, func(rows *sql.Rows) error {
		var found Name
		var isVisible bool
		var path string
		err := rows.Scan(&path, &current, &exists, &found.Schema, &found.Table, &isVisible)
		if err == nil {
			err = json.Unmarshal([]byte(path), &d.home)
		}
		if isVisible && found.Table == registry {
			visible = found.Schema
		}
		if found.Table != "" {
			all = append(all, found)
		}
		return err
	}, `SELECT array_to_json(current_schemas(false))::text, COALESCE(current_schema(), ''), EXISTS (SELECT FROM pg_catalog.pg_namespace WHERE nspname = ?), COALESCE(nspname, ''),`+
		` COALESCE(relname, ''), COALESCE(pg_catalog.pg_table_is_visible(t.oid), false) FROM (SELECT 1) AS one LEFT JOIN`+
		` (pg_catalog.pg_class t JOIN pg_catalog.pg_namespace n ON n.oid = relnamespace`+
		` JOIN pg_catalog.pg_attribute a ON attrelid = t.oid AND attnum > 0 AND NOT attisdropped)`+
		` ON (lower(relname), lower(attname)) IN (`+marks+`) AND relkind IN ('r', 'p', 'v', 'f') AND nspname !~ '^pg_'`+
		` ORDER BY nspname, relname`, userSchema)
	if err != nil {
		return "", fmt.Errorf("look for the schema of %s: %w", registry, err)
	}
	switch schema = userSchema; {
	case userSchema != "" && !exists:
		return "", fmt.Errorf("%w: %s: this database has no schema %q: create it first (CREATE SCHEMA), or name another", ErrSchema, option, userSchema)
	case userSchema == "" && visible != "":
		schema = visible
	case userSchema == "":
		schema = current
	}
	for _, t := range all {
		if t.Schema != schema && strings.EqualFold(t.Table, registry) {
			d.second = t.Schema
		}
		if t.Schema == schema && !isOwn(t.Table) {
			return "", otherSpelling(d.Quoted(t), d.quote(strings.ToUpper(t.Table)))
		}
		if userSchema == "" && t.Schema != schema && strings.EqualFold(t.Table, registry) {
			return "", otherSchema(schema, visible != "", t, option)
		}
	}
	if schema == "" {
		return "", fmt.Errorf("%w: the search_path of the connection names no schema that exists: create one of them, or name another by %s",
			ErrElsewhere, option)
	}
	return schema, nil
}

// createLock is the number of the advisory lock that the statement of [DB.CreateRegistry] takes.
const createLock int64 = 0x7569<<48 + 1

// CreateRegistry returns a statement that runs create, the CREATE TABLE of WORKER_REGISTRY. On PostgreSQL it fails
// if another process has created the table in another schema since [DB.Locate], unless the user named the schema.
func (d *DB) CreateRegistry(create string) string {
	if d.Dialect() != "postgres" || !d.alone {
		return create
	}
	return fmt.Sprintf(`DO %s`, DollarQuoted(fmt.Sprintf(`
DECLARE
  other text;
BEGIN
  PERFORM pg_catalog.pg_advisory_xact_lock(%d);
  SELECT nspname INTO other FROM pg_catalog.pg_class c JOIN pg_catalog.pg_namespace n ON n.oid = relnamespace
    WHERE relname = '%s' AND relkind IN ('r', 'p', 'v', 'f') AND nspname !~ '^pg_' AND nspname <> %s;
  IF FOUND THEN
    RAISE EXCEPTION 'another process has created %s in the schema %%', other;
  END IF;
  %s;
END `, createLock, registry, literal(d.schema), registry, create)))
}

func literal(text string) string { return "'" + strings.ReplaceAll(text, "'", "''") + "'" }

func otherSchema(schema string, used bool, other Name, option string) error {
	here := fmt.Sprintf("%s is in the schema %q", registry, schema)
	if !used {
		here = fmt.Sprintf("the schema %q of this connection has no %s", schema, registry)
	}
	return fmt.Errorf("%w: %s, and the schema %q has %s: processes with other search paths would make the same ids twice;"+
		" name the schema of the tables by %s in all processes (docs/several-databases.md)", ErrElsewhere, here, other.Schema, other.Table, option)
}

// otherSpelling returns the error for a table whose name is not in upper case. The names must be quoted.
func otherSpelling(old, renamed string) error {
	return fmt.Errorf("%w: table names must be in upper case, or ids are made twice:"+
		" stop all processes, then rename each such table: ALTER TABLE %s RENAME TO %s", ErrElsewhere, old, renamed)
}

// marks are two of the tables, each with a column that other programs' tables of this name lack, in lower case.
const marks = `('worker_registry', 'id_space'), ('worker_node', 'launch_date')`

// SchemaOf returns the schema of the first of the tables that exists, and whether that is tables[0], or else the
// current schema and false. It looks in the schemas of [DB.Home], or else in those of a connection. Except on
// PostgreSQL it returns the current schema and true. The schema is empty on Vitess and unknown databases.
func (d *DB) SchemaOf(ctx context.Context, tables ...string) (schema string, exists bool, err error) {
	query, args := "", []any{}
	switch {
	case d.Dialect() == "sqlite":
		return "main", true, nil
	case d.Dialect() == "mysql" && len(d.home) > 0:
		return d.home[0], true, nil
	case d.Dialect() == "mysql":
		query = `SELECT CASE WHEN VERSION() LIKE '%Vitess%' THEN '' ELSE COALESCE(DATABASE(), '') END, TRUE`
	case d.Dialect() == "postgres" && len(d.home) > 0:
		query = `SELECT COALESCE(nspname, ?), COALESCE(i = 1, false) FROM (SELECT 1) AS one LEFT JOIN` +
			` (unnest(ARRAY[?` + strings.Repeat(", ?", len(tables)-1) + `]::text[]) WITH ORDINALITY AS t(name, i)` +
			` JOIN pg_catalog.pg_class c ON relname = t.name AND relkind IN ('r', 'p', 'v', 'm', 'f')` +
			` JOIN pg_catalog.pg_namespace n ON n.oid = relnamespace` +
			` JOIN unnest(ARRAY[?` + strings.Repeat(", ?", len(d.home)-1) + `]::text[]) WITH ORDINALITY AS p(schema, j) ON p.schema = nspname) ON true` +
			` ORDER BY i, j LIMIT 1`
		args = append(args, d.home[0])
		for _, name := range slices.Concat(tables, d.home) {
			args = append(args, name)
		}
	case d.Dialect() == "postgres":
		query = `SELECT COALESCE(nspname, current_schema(), ''), COALESCE(i = 1, false) FROM (SELECT 1) AS one LEFT JOIN` +
			` (unnest(ARRAY[?` + strings.Repeat(", ?", len(tables)-1) + `]::text[]) WITH ORDINALITY AS t(name, i)` +
			` JOIN pg_catalog.pg_class c ON c.oid = to_regclass(t.name) JOIN pg_catalog.pg_namespace n ON n.oid = relnamespace) ON true` +
			` ORDER BY i LIMIT 1`
		for _, t := range tables {
			args = append(args, d.quote(t))
		}
	default:
		return "", true, nil
	}
	err = d.Query(ctx, func(rows *sql.Rows) error { return rows.Scan(&schema, &exists) }, query, args...)
	if err != nil {
		err = fmt.Errorf("look for the schema of %s: %w", tables[0], err)
	}
	return schema, exists, err
}

// locateOnMySQL returns the connection's database, but none on Vitess, where tables may be in several keyspaces.
func (d *DB) locateOnMySQL(ctx context.Context) (schema string, err error) {
	var version string
	var folds int
	err = d.Query(ctx, func(rows *sql.Rows) error { return rows.Scan(&schema, &version, &folds) },
		`SELECT COALESCE(DATABASE(), ''), VERSION(), @@lower_case_table_names`)
	if err != nil {
		return "", fmt.Errorf("look for the database of %s: %w", registry, err)
	}
	if strings.Contains(version, "Vitess") {
		return "", nil
	}
	if schema != "" {
		d.home = []string{schema}
	}
	if schema == "" || folds != 0 {
		return schema, nil
	}
	var found sql.NullString // even a COALESCE would return NULL in the mode EMPTY_STRING_IS_NULL
	err = d.Query(ctx, func(rows *sql.Rows) error { return rows.Scan(&found) },
		// The last condition compares bytes, because the columns of MariaDB's information_schema ignore case.
		`SELECT MIN(c.table_name) FROM information_schema.tables t JOIN information_schema.columns c`+
			` ON c.table_schema = t.table_schema AND c.table_name = t.table_name WHERE t.table_schema = ?`+
			` AND LOWER(t.table_name) IN ('worker_registry', 'worker_node') AND (LOWER(c.table_name), LOWER(c.column_name)) IN (`+marks+`)`+
			` AND CAST(c.table_name AS BINARY) NOT IN ('WORKER_REGISTRY', 'WORKER_NODE')`, schema)
	if err != nil {
		return "", fmt.Errorf("look for the tables in the database %q: %w", schema, err)
	}
	if t := (Name{schema, found.String}); found.String != "" {
		return "", otherSpelling(d.Quoted(t), d.Quoted(Name{schema, strings.ToUpper(found.String)}))
	}
	return schema, nil
}

// moved adds advice to an error about a table or a schema that does not exist.
func (d *DB) moved(query string, err error) error {
	if err == nil || d.schema == "" || d.Dialect() == "sqlite" || !noTable(err) || !strings.Contains(query, d.quote(d.schema)+".") {
		return err
	}
	return fmt.Errorf("%w (when this process started, it found its tables in %[2]q: if %[2]q was renamed, restart the process)", err, d.schema)
}

// noTable reports whether err is about a missing table or schema.
func noTable(err error) bool {
	var state interface{ SQLState() string }
	if errors.As(err, &state) {
		return state.SQLState() == "42P01" || state.SQLState() == "3F000"
	}
	return strings.Contains(err.Error(), "Error 1146 ") || strings.Contains(err.Error(), "Error 1049 ")
}
