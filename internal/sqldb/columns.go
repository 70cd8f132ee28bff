package sqldb

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"regexp"
	"strings"
)

// A Column is a column of a table, and the driver's name of its type in lower case.
type Column struct{ Name, Type string }

// IsNarrow reports whether driverType, a type of MySQL or PostgreSQL, is too narrow for 64-bit integers.
func (d *DB) IsNarrow(driverType string) bool {
	return (d.Dialect() == "mysql" || d.Dialect() == "postgres") && narrowType.MatchString(driverType)
}

var narrowType = regexp.MustCompile(`(?i)^((unsigned )?(tiny|small|medium)?int|int[24]|float[48]?|double)$`)

// Columns returns the columns of a table and, except on SQLite, the driver's names of their types. GORM's logger
// does not see an error, because it usually means that the table does not exist.
func (d *DB) Columns(ctx context.Context, table string) (columns []Column, err error) {
	if d.Dialect() != "sqlite" {
		ctx, cancel := context.WithTimeout(ctx, d.timeout)
		defer cancel()
		return d.Types(ctx, d.Translate(`"`+table+`"`), "")
	}
	// We avoid SELECT * here, because SQLite's driver may return columns from an outdated schema in its cache.
	query, args := `SELECT name FROM pragma_table_info(?)`, []any{table}
	if d.schema != "" && isOwn(table) {
		query, args = `SELECT name FROM pragma_table_info(?, ?)`, append(args, d.schema)
	}
	err = d.Silent().Query(ctx, func(rows *sql.Rows) error {
		var c Column
		err := rows.Scan(&c.Name)
		columns = append(columns, c)
		return err
	}, query, args...)
	if err == nil && len(columns) == 0 {
		err = fmt.Errorf("no such table: %s", table)
	}
	return columns, err
}

// Types returns the columns of a quoted table. It appends the clause locking to its query, and sets no time limit.
func (d *DB) Types(ctx context.Context, table, locking string) (columns []Column, err error) {
	rows, err := d.pool.QueryContext(ctx, `SELECT * FROM `+table+` WHERE 1 = 0`+locking)
	for try := 0; try < 20 && isOutdatedPlan(err); try++ { // the next connection may have an outdated plan, too
		rows, err = d.pool.QueryContext(ctx, `SELECT * FROM `+table+` WHERE 1 = 0`+locking)
	}
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, rows.Close()) }()
	types, err := rows.ColumnTypes()
	for _, t := range types { // "table.column" with columnsWithAlias=true in the DSN of MySQL's driver
		name := t.Name()[strings.LastIndexByte(t.Name(), '.')+1:]
		columns = append(columns, Column{name, strings.ToLower(t.DatabaseTypeName())})
	}
	return columns, err
}

// HasIndex reports whether an index exists. On MySQL and MariaDB it always returns true, because CREATE TABLE
// creates the index there.
func (d *DB) HasIndex(ctx context.Context, index string) (ok bool, err error) {
	query, args := "", []any{index}
	switch {
	case d.Dialect() == "postgres" && d.schema != "":
		query, args = `SELECT 1 FROM pg_indexes WHERE indexname = ? AND schemaname = ?`, append(args, d.schema)
	case d.Dialect() == "postgres":
		query = `SELECT 1 FROM pg_indexes WHERE indexname = ? AND schemaname = ANY (current_schemas(false))`
	case d.Dialect() == "sqlite":
		query = `SELECT 1 FROM sqlite_master WHERE type = 'index' AND name = ?`
	default:
		return true, nil
	}
	err = d.Query(ctx, func(*sql.Rows) error {
		ok = true
		return nil
	}, query, args...)
	return ok, err
}
