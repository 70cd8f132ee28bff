package admin

import (
	"context"
	"database/sql"
	"fmt"
	"regexp"
	"strings"

	"github.com/uidplugin/uidplugin/internal/inspect"
	"github.com/uidplugin/uidplugin/internal/sqldb"
	"github.com/uidplugin/uidplugin/workernode"
)

type column struct{ inspect.Column }

var (
	integerType = regexp.MustCompile(`(?i)^(tiny|small|medium|big)?(int|integer|serial)\d?\b`)
	textType    = regexp.MustCompile(`(?i)char|text|clob`)
	wideType    = regexp.MustCompile(`(?i)^(bigint|int8|bigserial)\b`)
)

func (c column) isInteger() bool { return integerType.MatchString(c.Type) }
func (c column) isText() bool    { return textType.MatchString(c.Type) }

// isNarrow reports whether an integer column cannot hold all ids. SQLite's integers always have 64 bits.
func (c column) isNarrow(dialect string) bool {
	return dialect != sqlite && c.isInteger() && !wideType.MatchString(c.Type)
}

type table struct {
	name    string // unquoted, as in WORKER_NODE
	quoted  string // for statements
	columns []column

	schema, bare string // the parts of name; schema is empty for the current schema
}

// table returns a table, without columns if it does not exist or this user may not see it. WORKER_NODE does not say
// whether a dot in a name follows a schema or database, or is a part of the table's name.
func (d *DB) table(ctx context.Context, name string) (t table, err error) {
	t = table{name: name, quoted: d.identifier(name), bare: name}
	if t.columns, err = d.columns(ctx, "", name); err != nil || len(t.columns) > 0 {
		return t, err
	}
	for i := range name {
		if name[i] != '.' || i == 0 {
			continue
		}
		schema, rest := name[:i], name[i+1:]
		columns, err := d.columns(ctx, schema, rest)
		if err != nil || len(columns) > 0 {
			return table{name, d.identifier(schema) + "." + d.identifier(rest), columns, schema, rest}, err
		}
	}
	return t, nil
}

func (d *DB) identifier(name string) string { return sqldb.QuotePart(d.SQL.Dialect(), name) }

// columns returns the columns of a table. An empty schema means the current schema.
func (d *DB) columns(ctx context.Context, schema, table string) (list []column, err error) {
	if schema != "" && d.SQL.Dialect() == sqlite { // a schema of SQLite is a file that only the application attaches
		return nil, nil
	}
	columns, err := inspect.ColumnsOf(ctx, d.SQL, schema, table)
	if err != nil {
		return nil, fmt.Errorf("read the columns of %s: %w", table, err)
	}
	for _, c := range columns {
		list = append(list, column{c})
	}
	return list, nil
}

// keyOf returns the primary key if it is a single column that can hold ids: an integer or a text.
func keyOf(columns []column) (key column, ok bool) {
	n := 0
	for _, c := range columns {
		if c.Key {
			key = c
			n++
		}
	}
	return key, n == 1 && (key.isInteger() || key.isText())
}

// TableNames returns the tables that WORKER_NODE names, sorted by database and name.
func (d *DB) TableNames(ctx context.Context) (list []workernode.Table, err error) {
	err = d.SQL.Query(ctx, func(rows *sql.Rows) error {
		var t workernode.Table
		err := rows.Scan(&t.Database, &t.Name)
		if t.Name != "" && t.Name != workernode.AllTables {
			list = append(list, t)
		}
		return err
	}, `SELECT DISTINCT "DATABASE_NAME", "TABLE_NAME" FROM "WORKER_NODE" WHERE "SLOT" IS NOT NULL
		ORDER BY "DATABASE_NAME", "TABLE_NAME"`)
	if err != nil {
		return nil, fmt.Errorf("list tables: %w", err)
	}
	return list, nil
}

// tableOf returns the table of an entry of WORKER_NODE, and the DB to read it with: one of --database, or else d,
// because d's server may also have the entry's database.
func (d *DB) tableOf(ctx context.Context, entry workernode.Table) (home *DB, t table, err error) {
	if other := d.Others[entry.Database]; other != nil {
		t, err = other.table(ctx, entry.Name)
		return other, t, err
	}
	if entry.Database == "" {
		t, err = d.table(ctx, entry.Name)
		return d, t, err
	}
	schema := entry.Database
	if d.SQL.Dialect() == postgres {
		if schema, err = d.schemaOf(ctx, entry.Database); err != nil || schema == "" {
			return d, t, err
		}
	}
	t = table{name: entry.Name, quoted: d.identifier(schema) + "." + d.identifier(entry.Name), schema: schema, bare: entry.Name}
	t.columns, err = d.columns(ctx, schema, entry.Name)
	return d, t, err
}

// schemaOf returns the schema that a DATABASE_NAME means, or "" if the name means another database of PostgreSQL.
func (d *DB) schemaOf(ctx context.Context, name string) (schema string, err error) {
	catalog := ""
	err = d.SQL.Query(ctx, func(rows *sql.Rows) error { return rows.Scan(&catalog) }, `SELECT current_database()`)
	if rest, ok := strings.CutPrefix(name, catalog+"."); ok {
		schema = rest
	} else if name == catalog {
		schema = "public"
	}
	return schema, err
}
