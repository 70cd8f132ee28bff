package sqldb

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"strings"
)

// RefuseMode returns an error if the connections have an sql_mode in which the plugin cannot work.
func (d *DB) RefuseMode(ctx context.Context) error {
	if d.Dialect() != "mysql" {
		return nil
	}
	mode := ""
	err := d.Query(ctx, func(rows *sql.Rows) error { return rows.Scan(&mode) }, "SELECT @@sql_mode")
	switch {
	case err != nil:
		return fmt.Errorf("sqldb: read sql_mode: %w", err)
	case strings.Contains(mode, "EMPTY_STRING_IS_NULL"): // MariaDB
		return errors.New("sqldb: sql_mode has EMPTY_STRING_IS_NULL, so an empty text becomes NULL, but a free slot has an empty HOLDER:" +
			" remove the mode for these connections (in the DSN or the server's configuration)")
	}
	return nil
}

// Mode is the sql_mode that FixMode sets.
const Mode = "STRICT_TRANS_TABLES,NO_ENGINE_SUBSTITUTION"

// Assignments for SET statements of MySQL. RestoreMode undoes a FixMode on the same connection.
const (
	FixMode     = "@uid_mode = @@SESSION.sql_mode, SESSION sql_mode = '" + Mode + "'"
	RestoreMode = "SESSION sql_mode = @uid_mode"
)

// Define runs a statement of the dialect that creates a view or function. On MySQL it first sets sql_mode, because
// a function keeps the mode with which it was created, and because MariaDB has another syntax for functions and
// triggers with sql_mode=ORACLE.
func (d *DB) Define(ctx context.Context, query string) error {
	if d.Dialect() != "mysql" {
		return d.ExecRaw(ctx, query)
	}
	return d.Together(ctx, func(ctx context.Context, conn *DB) error {
		if err := conn.ExecRaw(ctx, "SET "+FixMode); err != nil {
			return err
		}
		err := conn.ExecRaw(ctx, query)
		return errors.Join(err, conn.ExecRaw(ctx, "SET "+RestoreMode))
	})
}
