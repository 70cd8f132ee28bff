package sqldb

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"strings"
)

// A Column is a column of one of the application's tables.
type Column struct {
	Table, Name string
	Type        string // as the database writes it
	Auto        bool   // the database numbers it: AUTO_INCREMENT, a sequence, or IDENTITY
	Identity    bool   // by IDENTITY, in PostgreSQL
}

// ColumnsOf returns the columns of those tables that exist. It knows MySQL and PostgreSQL, and returns nothing
// elsewhere.
func (d *DB) ColumnsOf(ctx context.Context, tables ...string) (columns []Column, err error) {
	query := ""
	switch d.Dialect() {
	case "mysql":
		query = `SELECT table_name, column_name, column_type, extra FROM information_schema.columns WHERE table_schema = DATABASE() AND table_name IN (`
	case "postgres":
		query = `SELECT table_name, column_name, data_type, CASE is_identity WHEN 'YES' THEN 'identity' ELSE COALESCE(column_default, '') END FROM information_schema.columns WHERE table_schema = ANY (current_schemas(false)) AND table_name IN (`
	}
	if query == "" || len(tables) == 0 {
		return nil, nil
	}
	args := make([]any, len(tables))
	for i, t := range tables {
		args[i] = t
	}
	err = d.Query(ctx, func(rows *sql.Rows) error {
		var c Column
		var extra string
		if err := rows.Scan(&c.Table, &c.Name, &c.Type, &extra); err != nil {
			return err
		}
		extra = strings.ToLower(extra)
		c.Auto = strings.Contains(extra, "auto_increment") || strings.HasPrefix(extra, "nextval(") || extra == "identity"
		c.Identity = extra == "identity"
		columns = append(columns, c)
		return nil
	}, query+`?`+strings.Repeat(", ?", len(args)-1)+`)`, args...)
	return columns, err
}

// LastOf returns the last number of the sequence of a column in PostgreSQL; 0 if it has none, or this user may not read
// it.
func (d *DB) LastOf(ctx context.Context, c Column) (last int64, err error) {
	err = d.Query(ctx, func(rows *sql.Rows) error { return rows.Scan(&last) }, `SELECT COALESCE(MAX(pg_sequence_last_value(s.oid)), 0)`+
		` FROM pg_attribute a JOIN pg_depend d ON d.refobjid = a.attrelid AND d.refobjsubid = a.attnum OR d.objid = (`+
		`SELECT oid FROM pg_attrdef WHERE adrelid = a.attrelid AND adnum = a.attnum)`+
		` JOIN pg_class s ON s.oid IN (d.objid, d.refobjid)`+
		` WHERE a.attrelid = to_regclass(quote_ident(?)) AND a.attname = ? AND`+
		` CASE s.relkind WHEN 'S' THEN has_sequence_privilege(s.oid, 'SELECT, USAGE') END`, c.Table, c.Name)
	return last, err
}

// Columns returns the names of the columns of a table as the table spells them.
// An error most often means that there is no such table; it is not logged.
func (d *DB) Columns(ctx context.Context, table string) (names []string, err error) {
	ctx, cancel := context.WithTimeout(ctx, d.timeout)
	defer cancel()
	if d.Dialect() == "sqlite" {
		// A connection of SQLite's driver returns the columns of a SELECT from what it remembers of the table.
		rows, err := d.pool.QueryContext(ctx, `SELECT name FROM pragma_table_info(?)`, table)
		if err != nil {
			return nil, err
		}
		defer func() { _ = rows.Close() }()
		for rows.Next() {
			var name string
			if err := rows.Scan(&name); err != nil {
				return nil, err
			}
			names = append(names, name)
		}
		if len(names) == 0 && rows.Err() == nil {
			return nil, fmt.Errorf("no such table: %s", table)
		}
		return names, rows.Err()
	}
	rows, err := d.pool.QueryContext(ctx, d.Translate(`SELECT * FROM "`+table+`" WHERE 1 = 0`))
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, rows.Close()) }()
	names, err = rows.Columns()
	for i, n := range names { // "table.column" with columnsWithAlias=true of the MySQL driver
		names[i] = n[strings.LastIndexByte(n, '.')+1:]
	}
	return names, err
}

// HasIndex reports whether an index that was created by a statement of its own is
// there. It knows PostgreSQL and SQLite; elsewhere it is true.
func (d *DB) HasIndex(ctx context.Context, index string) (has bool, err error) {
	query := ""
	switch d.Dialect() {
	case "postgres":
		query = `SELECT 1 FROM pg_indexes WHERE indexname = ? AND schemaname = ANY (current_schemas(false))`
	case "sqlite":
		query = `SELECT 1 FROM sqlite_master WHERE type = 'index' AND name = ?`
	default:
		return true, nil
	}
	err = d.Query(ctx, func(*sql.Rows) error {
		has = true
		return nil
	}, query, index)
	return has, err
}
