package workernode

import (
	"context"
	"database/sql"
	"fmt"
	"unicode/utf8"
)

// CountTable returns the number of worker ids of a table.
func (d *DB) CountTable(ctx context.Context, t Table) (n int64, err error) {
	err = d.sql.Query(ctx, func(rows *sql.Rows) error { return rows.Scan(&n) },
		`SELECT COUNT(*) FROM "WORKER_NODE" WHERE "DATABASE_NAME" = ? AND "TABLE_NAME" = ? AND "SLOT" IS NOT NULL`, t.Database, t.Name)
	if err != nil {
		return 0, fmt.Errorf("workernode: count the worker ids of %s: %w", t, err)
	}
	return n, nil
}

// RenameTable gives the worker ids of a table to the name that the table has now, and returns their number. Ids that
// were made before then resolve to that name. It may be repeated, and processes may run meanwhile: a slot keeps its
// worker ids, so no two processes ever have one. A process that makes ids for the old name, because it has the old
// model, gets other worker ids for it within ten minutes; run it again after the last one has ended.
//
// The tables must be one and the same: ids of two tables cannot be told apart afterwards.
func (d *DB) RenameTable(ctx context.Context, from Table, to string) (int64, error) {
	if to == "" || to == AllTables || from.Name == "" || from.Name == AllTables || utf8.RuneCountInString(to) > MaxTableName {
		return 0, fmt.Errorf("workernode: the table %q cannot be renamed to %q: a name has 1 to %d characters, and is not %q",
			from.Name, to, MaxTableName, AllTables)
	}
	n, err := d.sql.Exec(ctx, `UPDATE "WORKER_NODE" SET "TABLE_NAME" = ?, "MODIFIED" = CURRENT_TIMESTAMP`+
		` WHERE "DATABASE_NAME" = ? AND "TABLE_NAME" = ? AND "SLOT" IS NOT NULL`, to, from.Database, from.Name)
	if err != nil {
		return 0, fmt.Errorf("workernode: rename the table %s of worker ids: %w", from, err)
	}
	return n, nil
}
