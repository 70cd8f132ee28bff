// Package functions writes the view and the SQL functions that package migrations documents.
package functions

import (
	"cmp"
	"context"
	"database/sql"
	"errors"
	"fmt"
	"regexp"
	"strings"

	"github.com/uidplugin/uidplugin/generator"
	"github.com/uidplugin/uidplugin/internal/sqldb"
	"github.com/uidplugin/uidplugin/workernode"
)

// An object is a view or a function.
type object struct {
	name       string
	statements []string // in the dialect
}

// Create creates the objects for the layout of the registry on d.
func Create(ctx context.Context, d *sqldb.DB) error {
	list, err := read(ctx, d)
	if err != nil {
		return err
	}
	for _, o := range list {
		for _, statement := range o.statements {
			if err := d.Define(ctx, statement); err != nil {
				return fmt.Errorf("migrations: %s cannot be created: %w; %s;"+
					" otherwise let somebody with these rights run the statements of FunctionStatements", o.name, err, rights[d.Dialect()])
			}
		}
	}
	return nil
}

// Statements returns the statements of [Create] as a script.
func Statements(ctx context.Context, d *sqldb.DB) (string, error) {
	list, err := read(ctx, d)
	return textOf(list), err
}

// StatementsFor returns the script of [Statements] for a layout, without a database. schema is only for PostgreSQL;
// empty means public.
func StatementsFor(dialect, schema string, l generator.Layout) (string, error) {
	if err := l.Validate(); err != nil {
		return "", fmt.Errorf("migrations: %w", err)
	}
	prefix := ""
	if dialect == "postgres" {
		prefix = sqldb.QuotePart(dialect, cmp.Or(schema, "public")) + "."
	}
	list, err := objects(dialect, prefix, l)
	return textOf(list), err
}

func textOf(list []object) string {
	var text strings.Builder
	for _, o := range list {
		for _, statement := range o.statements {
			text.WriteString(statement + ";\n\n")
		}
	}
	return text.String()
}

var rights = map[string]string{
	"mysql": "the user needs the rights CREATE VIEW, CREATE ROUTINE, ALTER ROUTINE and DROP;" +
		" if the server writes a binary log, it also requires SUPER for functions, or log_bin_trust_function_creators = 1",
	"postgres": "the user needs the right CREATE on the schema, and must own the functions that it replaces",
	"sqlite":   "the user needs the right to write to the file",
}

// read returns the objects to create for the layout of the registry.
func read(ctx context.Context, d *sqldb.DB) ([]object, error) {
	if rights[d.Dialect()] == "" {
		return nil, errNoFunctions(d.Dialect())
	}
	text, err := readLayout(ctx, d)
	if err != nil {
		return nil, err
	}
	l, err := generator.ParseLayout(text)
	if err != nil {
		return nil, fmt.Errorf("migrations: %w: LAYOUT in %s is %.80q: %w",
			workernode.ErrTable, workernode.RegistryTable, text, err)
	}
	prefix := ""
	if d.Schema() != "" {
		prefix = sqldb.QuotePart(d.Dialect(), d.Schema()) + "."
	}
	return objects(d.Dialect(), prefix, l)
}

func errNoFunctions(dialect string) error {
	return fmt.Errorf("migrations: functions are not available for the dialect %q: %w", dialect, errors.ErrUnsupported)
}

// objects returns the objects to create. prefix is the quoted schema with a dot, or empty; SQLite ignores it. With
// a prefix, the objects do not depend on the schema of the connection that creates or uses them.
func objects(dialect, prefix string, l generator.Layout) ([]object, error) {
	switch f := (&formulas{l, dialect}); dialect {
	case "mysql":
		return f.mysql(prefix), nil
	case "postgres":
		return f.postgres(prefix), nil
	case "sqlite":
		return f.sqlite(), nil
	}
	return nil, errNoFunctions(dialect)
}

var quotedName = regexp.MustCompile(`"([A-Z_]+)"`)

// translate quotes names for the dialect.
func (f *formulas) translate(statement string) string {
	if f.dialect == "mysql" {
		return quotedName.ReplaceAllString(statement, "`$1`")
	}
	return statement
}

func readLayout(ctx context.Context, d *sqldb.DB) (text string, err error) {
	found := false
	err = d.Query(ctx, func(rows *sql.Rows) error { found = true; return rows.Scan(&text) },
		`SELECT "LAYOUT" FROM "WORKER_REGISTRY" WHERE "NAME" = 'default'`)
	switch {
	case err != nil && sqldb.IsUnreachable(err):
		return "", fmt.Errorf("migrations: the database cannot be reached: %w", err)
	case err != nil:
		return "", fmt.Errorf("migrations: %w: %s cannot be read: %w; call db.Use first; with WithRegistry, pass the handle of the registry",
			workernode.ErrTable, workernode.RegistryTable, err)
	case !found:
		return "", fmt.Errorf("migrations: %w: %s has no row, so the layout is unknown; start a process that calls db.Use first",
			workernode.ErrTable, workernode.RegistryTable)
	}
	return text, nil
}

// mysql returns the objects for MySQL. Functions do not name the database of the tables, because MySQL finds tables
// in the function's own database. So the functions still work after a dump was restored into another database.
func (f *formulas) mysql(prefix string) []object {
	function := func(name, returns, kind, value string) object {
		return object{name, []string{
			"DROP FUNCTION IF EXISTS " + prefix + name,
			f.translate("CREATE FUNCTION " + prefix + name + "(uid BIGINT) RETURNS " + returns + " " + kind +
				" SQL SECURITY INVOKER\nRETURN " + value),
		}}
	}
	return []object{
		{"uid_origin", []string{f.translate("CREATE OR REPLACE SQL SECURITY INVOKER VIEW " + prefix + "uid_origin AS\n" + f.origin(prefix))}},
		function("uid_time", fmt.Sprintf("DATETIME(%d)", f.digits()), "DETERMINISTIC NO SQL", f.timeOfID("uid")),
		function("uid_worker", "BIGINT", "DETERMINISTIC NO SQL", f.workerOfID("uid")),
		function("uid_table", "VARCHAR(257) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin", "READS SQL DATA",
			"("+f.tableOfID("")+")"),
	}
}

func (f *formulas) postgres(prefix string) []object {
	function := func(name, returns, kind, value string) object {
		return object{name, []string{
			"CREATE OR REPLACE FUNCTION " + prefix + name + "(uid bigint) RETURNS " + returns + " LANGUAGE sql " + kind +
				" PARALLEL SAFE AS " + sqldb.DollarQuoted("\nSELECT "+value+"\n"),
		}}
	}
	return []object{
		{"uid_origin", []string{f.translate("CREATE OR REPLACE VIEW " + prefix + "uid_origin AS\n" + f.origin(prefix))}},
		function("uid_time", "timestamptz", "IMMUTABLE", f.timeOfID("uid")),
		function("uid_worker", "bigint", "IMMUTABLE", f.workerOfID("uid")),
		function("uid_table", "text", "STABLE", "("+f.tableOfID(prefix)+")"),
	}
}

// sqlite returns only the view, because SQLite has no stored functions. The view has the formulas as a comment.
func (f *formulas) sqlite() []object {
	create := "CREATE VIEW uid_origin AS\n" +
		"/* The time of an id is\n   " + f.timeOfID("id") + "\n   and its worker id\n   " + f.workerOfID("id") + " */\n" +
		f.origin("")
	return []object{{"uid_origin", []string{"DROP VIEW IF EXISTS uid_origin", f.translate(create)}}}
}
