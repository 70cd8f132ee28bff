package workernode

import (
	"context"
	"database/sql"
	"strings"
)

// A Column is a column of one of the application's tables.
type Column struct {
	Table, Name string
	Type        string // as the database writes it
	Auto        bool   // the database numbers it: AUTO_INCREMENT, or a sequence
}

// ColumnsOf returns the columns of tables, of those that there are. It knows
// MySQL and PostgreSQL, and returns nothing elsewhere.
func (d *DB) ColumnsOf(ctx context.Context, tables ...string) (columns []Column, err error) {
	query := ""
	switch d.Dialect() {
	case "mysql":
		query = `SELECT table_name, column_name, column_type, extra FROM information_schema.columns WHERE table_schema = DATABASE() AND table_name IN (`
	case "postgres":
		query = `SELECT table_name, column_name, data_type, COALESCE(column_default, '') FROM information_schema.columns WHERE table_schema = ANY (current_schemas(false)) AND table_name IN (`
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
		c.Auto = strings.Contains(extra, "auto_increment") || strings.HasPrefix(extra, "nextval(")
		columns = append(columns, c)
		return nil
	}, query+`?`+strings.Repeat(", ?", len(args)-1)+`)`, args...)
	return columns, err
}
