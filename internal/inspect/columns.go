// Package inspect reads the columns of applications' tables: their types, and whether the database numbers them. It
// writes the statements that change the type or the numbering.
package inspect

import (
	"context"
	"database/sql"
	"maps"
	"regexp"
	"slices"
	"strings"

	"github.com/uidplugin/uidplugin/internal/catalog"
	"github.com/uidplugin/uidplugin/internal/sqldb"
	"gorm.io/gorm"
	"gorm.io/gorm/schema"
)

// A Column describes a column of an application's table.
type Column struct {
	Table, Name string // the table as passed to [Columns], without an alias
	Type        string // as the database writes it
	Key         bool   // in the primary key
	Auto        bool   // the database numbers it: AUTO_INCREMENT, a sequence, or IDENTITY
	Identity    bool   // the database numbers it by IDENTITY, in PostgreSQL
	Always      bool   // the IDENTITY is GENERATED ALWAYS, so the column refuses other numbers

	Lenient bool // the database changes values that do not fit, as MySQL without strict mode and SQLite do

	// For MySQL only, because ALTER TABLE ... MODIFY has to repeat them.
	Nullable, Invisible bool
	Default, Comment    string
}

// ColumnsOfModels reads the columns of the tables of models and of their associations, by one query.
func ColumnsOfModels(ctx context.Context, d *sqldb.DB, c *catalog.Catalog, db *gorm.DB, models []any) ([]Column, error) {
	names := map[string]string{} // the names of the tables, by quoted name
	c.Visit(db, models, func(table string, s *schema.Schema) {
		names[sqldb.Quoted(db.Dialector, table)] = table
		for _, r := range s.Relationships.Many2Many {
			if r.JoinTable == nil {
				continue
			}
			names[sqldb.Quoted(db.Dialector, r.JoinTable.Table)] = r.JoinTable.Table
		}
	})
	columns, err := Columns(ctx, d, slices.Sorted(maps.Keys(names))...)
	for i := range columns {
		columns[i].Table = names[columns[i].Table]
	}
	return columns, err
}

// Columns returns the columns of those tables that exist. Write their names as in a statement. It returns nothing
// for databases other than MySQL, PostgreSQL and SQLite. GORM does not log the query, because it fails
// if a mock in an application's tests does not expect it.
func Columns(ctx context.Context, d *sqldb.DB, tables ...string) (columns []Column, err error) {
	var names []tableName
	for _, t := range tables {
		if n, ok := parseName(d, t); ok {
			names = append(names, n)
		}
	}
	return columnsOf(ctx, d, names...)
}

// ColumnsOf returns the columns of one table, by its unquoted name. An empty schema means the current schema.
func ColumnsOf(ctx context.Context, d *sqldb.DB, schema, table string) ([]Column, error) {
	return columnsOf(ctx, d, tableName{table, schema, table})
}

func columnsOf(ctx context.Context, d *sqldb.DB, names ...tableName) ([]Column, error) {
	switch {
	case len(names) == 0:
		return nil, nil
	case d.Dialect() == "mysql":
		return ofMySQL(ctx, d, names)
	case d.Dialect() == "postgres":
		return ofPostgres(ctx, d, names)
	case d.Dialect() == "sqlite":
		return ofSQLite(ctx, d, names)
	}
	return nil, nil
}

type tableName struct{ given, schema, name string }

// quotedName matches the name of a table, quoted or not, at the beginning of a text, such as the text after INTO.
var quotedName = func() *regexp.Regexp {
	const part = "(?:`([^`]+)`|\"([^\"]+)\"|([^\\s`\".()]+))"
	return regexp.MustCompile(`^\s*(?:` + part + `\.)?` + part + `(?:\s|$)`)
}()

func parseName(d *sqldb.DB, text string) (t tableName, ok bool) {
	m := quotedName.FindStringSubmatch(text)
	if m == nil {
		return t, false
	}
	fold := func(s string) string {
		if d.Dialect() == "postgres" {
			return strings.ToLower(s)
		}
		return s
	}
	return tableName{strings.TrimSpace(m[0]), m[1] + m[2] + fold(m[3]), m[4] + m[5] + fold(m[6])}, true
}

func ofMySQL(ctx context.Context, d *sqldb.DB, names []tableName) (columns []Column, err error) {
	where := make([]string, len(names))
	var args []any
	for i, n := range names {
		if where[i] = "table_schema = DATABASE()"; n.schema != "" {
			where[i] = "table_schema = ?"
			args = append(args, n.schema)
		}
		where[i] += " AND table_name = ?"
		args = append(args, n.name)
	}
	err = d.Silent().Query(ctx, func(rows *sql.Rows) error {
		var c Column
		var schema, extra, mode string
		var current bool
		if err := rows.Scan(&schema, &current, &c.Table, &c.Name, &c.Type, &c.Key, &extra, &c.Nullable, &c.Default, &c.Comment, &mode); err != nil {
			return err
		}
		c.Auto = strings.Contains(strings.ToLower(extra), "auto_increment") || isNext(c.Default)
		c.Invisible = strings.Contains(strings.ToUpper(extra), "INVISIBLE")
		c.Lenient = isLenient(mode)
		for _, n := range names {
			if strings.EqualFold(n.name, c.Table) && (strings.EqualFold(n.schema, schema) || n.schema == "" && current) {
				c.Table = n.given
				break
			}
		}
		columns = append(columns, c)
		return nil
	}, "SELECT table_schema, table_schema = DATABASE(), table_name, column_name, column_type, column_key = 'PRI', extra, is_nullable = 'YES',"+
		" COALESCE(column_default, ''), column_comment, @@sql_mode FROM information_schema.columns WHERE "+
		strings.Join(where, " OR "), args...)
	return columns, err
}

func ofPostgres(ctx context.Context, d *sqldb.DB, names []tableName) (columns []Column, err error) {
	args := make([]any, len(names))
	for i, n := range names {
		args[i] = d.Quoted(sqldb.Name{Schema: n.schema, Table: n.name})
	}
	err = d.Silent().Query(ctx, func(rows *sql.Rows) error {
		var c Column
		var i int
		var extra string
		if err := rows.Scan(&i, &c.Name, &c.Type, &c.Key, &c.Identity, &c.Always, &extra); err != nil {
			return err
		}
		c.Table = names[i-1].given
		c.Auto = c.Identity || isNext(extra)
		columns = append(columns, c)
		return nil
	}, "SELECT n.i, a.attname, CASE y.typtype WHEN 'd' THEN format_type(y.typbasetype, y.typtypmod) ELSE format_type(a.atttypid, a.atttypmod) END,"+
		" i.indrelid IS NOT NULL, a.attidentity <> '', a.attidentity = 'a', COALESCE(pg_get_expr(f.adbin, f.adrelid), '') FROM unnest(ARRAY[?"+strings.Repeat(", ?", len(args)-1)+"]::text[])"+
		" WITH ORDINALITY AS n(name, i) JOIN pg_attribute a ON a.attrelid = to_regclass(n.name) AND a.attnum > 0 AND NOT a.attisdropped"+
		" JOIN pg_type y ON y.oid = a.atttypid LEFT JOIN pg_attrdef f ON f.adrelid = a.attrelid AND f.adnum = a.attnum"+
		" LEFT JOIN pg_index i ON i.indrelid = a.attrelid AND i.indisprimary AND a.attnum = ANY (i.indkey)", args...)
	return columns, err
}

func ofSQLite(ctx context.Context, d *sqldb.DB, names []tableName) (columns []Column, err error) {
	var args []any
	for _, n := range names {
		args = append(args, n.name, sql.NullString{String: n.schema, Valid: n.schema != ""}, n.given)
	}
	err = d.Silent().Query(ctx, func(rows *sql.Rows) error {
		c := Column{Lenient: true}
		err := rows.Scan(&c.Table, &c.Name, &c.Type, &c.Key)
		columns = append(columns, c)
		return err
	}, "WITH n(name, s, given) AS (VALUES (?, ?, ?)"+strings.Repeat(", (?, ?, ?)", len(names)-1)+
		") SELECT n.given, p.name, p.type, p.pk > 0 FROM n JOIN pragma_table_info(n.name, n.s) AS p", args...)
	return columns, err
}

// LastNumber returns the last number of a column's sequence in PostgreSQL. It returns 0 if the column has no
// sequence, or this user may not read it. Write the table as in a statement.
func LastNumber(ctx context.Context, d *sqldb.DB, table, column string) (last int64, err error) {
	err = d.Query(ctx, func(rows *sql.Rows) error { return rows.Scan(&last) }, `SELECT COALESCE(MAX(pg_sequence_last_value(s.oid)), 0)`+
		` FROM pg_attribute a JOIN pg_depend d ON d.refobjid = a.attrelid AND d.refobjsubid = a.attnum OR d.objid = (`+
		`SELECT oid FROM pg_attrdef WHERE adrelid = a.attrelid AND adnum = a.attnum)`+
		` JOIN pg_class s ON s.oid IN (d.objid, d.refobjid)`+
		` WHERE a.attrelid = to_regclass(?) AND a.attname = ? AND`+
		` CASE s.relkind WHEN 'S' THEN has_sequence_privilege(s.oid, 'SELECT, USAGE') END`, table, column)
	return last, err
}

// ColumnsFor returns the columns of the table, or tables, that a statement uses. names has the columns of interest
// as its keys; the value true asks for a BIGINT. Use ColumnsFor inside transactions: on MySQL it avoids the catalog
// if these columns are wide enough integers, because reading the catalog begins the transaction's snapshot. Columns
// that are not from the catalog, such as those of TEMPORARY tables, have little more than their types.
func ColumnsFor(ctx context.Context, d *sqldb.DB, table string, names map[string]bool) ([]Column, error) {
	if d.Dialect() != "mysql" {
		return Columns(ctx, d, table)
	}
	seen, _ := visible(ctx, d, table)
	wide := 0
	for _, c := range seen {
		kind, _, _ := strings.Cut(c.Type, " ")
		for name, big := range names {
			if strings.EqualFold(name, c.Name) && (kind == "bigint" || !big && strings.HasSuffix(kind, "int")) {
				wide++
			}
		}
	}
	if wide > 0 && wide == len(names) {
		return seen, nil
	}
	columns, err := Columns(ctx, d, table)
	if err == nil && len(columns) == 0 {
		columns = seen
	}
	return columns, err
}

// visible returns the columns of a SELECT on this connection of MySQL. The SELECT is FOR UPDATE, so that it waits
// for the same lock as the caller's next statement. With a weaker lock, that statement and an ALTER TABLE that
// copies the table would wait for each other. Like that statement, the SELECT has no time limit of its own.
func visible(ctx context.Context, d *sqldb.DB, table string) (columns []Column, err error) {
	mode := ""
	if err := d.Silent().Query(ctx, func(rows *sql.Rows) error { return rows.Scan(&mode) }, "SELECT @@sql_mode"); err != nil {
		return nil, err
	}
	types, err := d.Types(ctx, table, " FOR UPDATE")
	for _, t := range types {
		c := Column{Table: table, Name: t.Name, Type: t.Type, Lenient: isLenient(mode), Nullable: true}
		if kind, unsigned := strings.CutPrefix(c.Type, "unsigned "); unsigned {
			c.Type = kind + " unsigned"
		}
		columns = append(columns, c)
	}
	return columns, err
}

// isLenient reports whether MySQL, in this sql_mode, changes values that do not fit.
func isLenient(mode string) bool { return !strings.Contains(mode, "STRICT_") }

// isNext reports whether a default takes numbers from a sequence, in PostgreSQL or MariaDB.
func isNext(standard string) bool { return strings.HasPrefix(standard, "nextval(") }

// PlainStatement returns a statement that stops the database from numbering a column, or "" on SQLite, which cannot
// do this. table is quoted.
func (c Column) PlainStatement(dialect, table string) string {
	switch {
	case dialect == "sqlite":
		return ""
	case dialect == "postgres" && c.Identity:
		return c.alter(dialect, table, "DROP IDENTITY")
	case dialect == "postgres":
		return c.alter(dialect, table, "DROP DEFAULT")
	}
	c.Auto, c.Default = false, ""
	return c.modify(table, c.bigint())
}

// NumberedStatement returns a statement that makes MySQL number a column.
func (c Column) NumberedStatement(table string) string {
	c.Auto, c.Default = true, ""
	return c.modify(table, c.Type)
}

// WideStatement returns a statement that makes a column hold all ids, as texts or as numbers. On SQLite it returns
// a description of what to do. A column that the database numbers stays numbered. table is quoted.
func (c Column) WideStatement(dialect, table string, text bool) string {
	kind := c.bigint()
	if text {
		kind = "VARCHAR(20)"
	}
	switch dialect {
	case "sqlite":
		return "creating the table again with " + sqldb.QuotePart(dialect, c.Name) + " " + kind
	case "postgres":
		return c.alter(dialect, table, "TYPE "+kind)
	}
	return c.modify(table, kind)
}

func (c Column) bigint() string {
	if strings.Contains(strings.ToLower(c.Type), "unsigned") {
		return "BIGINT UNSIGNED"
	}
	return "BIGINT"
}

func (c Column) alter(dialect, table, action string) string {
	return "ALTER TABLE " + table + " ALTER COLUMN " + sqldb.QuotePart(dialect, c.Name) + " " + action
}

// modify repeats what MODIFY of MySQL would otherwise drop.
func (c Column) modify(table, kind string) string {
	rest := " NOT NULL"
	if c.Nullable {
		rest = ""
	}
	switch d := c.Default; {
	case d == "" || d == "NULL":
	case strings.ContainsAny(d, "'("): // MariaDB quotes texts and writes expressions as they are
		rest += " DEFAULT " + d
	default:
		rest += " DEFAULT '" + d + "'"
	}
	if c.Auto && !isNext(c.Default) {
		rest += " AUTO_INCREMENT"
	}
	if c.Invisible {
		rest += " INVISIBLE"
	}
	if c.Comment != "" {
		rest += " COMMENT '" + strings.NewReplacer(`\`, `\\`, "'", "''").Replace(c.Comment) + "'"
	}
	return "ALTER TABLE " + table + " MODIFY " + sqldb.QuotePart("mysql", c.Name) + " " + kind + rest
}
