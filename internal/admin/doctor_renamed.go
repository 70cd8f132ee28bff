package admin

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"strings"

	"github.com/uidplugin/uidplugin/workernode"
)

// sample is how many of a table's oldest keys, and of its newest, are searched for worker ids of another table.
const sample = 1000

// checkRenamed reports which of the missing tables may have been renamed: another table has rows with their ids.
func (d *DB) checkRenamed(ctx context.Context, missing []workernode.Table) (list []Finding, err error) {
	for _, entry := range missing {
		home := d
		if entry.Database != "" {
			home = d.Others[entry.Database]
		}
		workers, failed := d.workersOf(ctx, entry)
		if failed != nil {
			return list, errors.Join(err, failed)
		}
		candidates, failed := home.tablesNextTo(ctx, entry.Name)
		err = errors.Join(err, failed)
		for _, name := range candidates {
			found, failed := home.hasRowsOf(ctx, name, workers)
			err = errors.Join(err, failed)
			if found {
				renamed := workernode.Table{Database: entry.Database, Name: name}
				list = append(list, Finding{Code: CodeTableRenamed,
					Text: fmt.Sprintf("rows of the table %s have ids of the table %s (%s in WORKER_NODE), which does not exist, "+
						"so Find cannot load these rows", renamed, entry, Count(int64(len(workers)), "worker id", "worker ids")),
					Advice: fmt.Sprintf(`If the table was renamed, run "uid tables rename %s %s". docs/looking-up.md explains it.`,
						entry, renamed)})
			}
		}
	}
	return list, err
}

func (d *DB) workersOf(ctx context.Context, entry workernode.Table) (workers map[int64]bool, err error) {
	workers = map[int64]bool{}
	err = d.SQL.Query(ctx, func(rows *sql.Rows) error {
		var id int64
		err := rows.Scan(&id)
		workers[id] = true
		return err
	}, `SELECT "ID" FROM "WORKER_NODE" WHERE "DATABASE_NAME" = ? AND "TABLE_NAME" = ? AND "SLOT" IS NOT NULL`, entry.Database, entry.Name)
	if err != nil {
		err = fmt.Errorf("list the worker ids of %s: %w", entry, err)
	}
	return workers, err
}

// tablesNextTo returns the tables, named as in WORKER_NODE, in the schema of a table that need not exist.
func (d *DB) tablesNextTo(ctx context.Context, name string) (names []string, err error) {
	prefix, schema := "", ""
	if i := strings.LastIndexByte(name, '.'); i >= 0 && d.SQL.Dialect() != sqlite {
		prefix, schema = name[:i+1], name[:i]
	}
	query, args := `SELECT table_name FROM information_schema.tables
		WHERE table_schema = COALESCE(NULLIF(?, ''), DATABASE()) AND table_type = 'BASE TABLE' ORDER BY table_name`, []any{schema}
	switch d.SQL.Dialect() {
	case postgres:
		query = `SELECT c.relname FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
			WHERE n.nspname = COALESCE(NULLIF(?, ''), current_schema()) AND c.relkind IN ('r', 'p') AND NOT c.relispartition
			ORDER BY c.relname`
	case sqlite:
		query, args = `SELECT name FROM sqlite_schema WHERE type = 'table' ORDER BY name`, nil
	}
	err = d.SQL.Query(ctx, func(rows *sql.Rows) error {
		var name string
		err := rows.Scan(&name)
		names = append(names, prefix+name)
		return err
	}, query, args...)
	if err != nil {
		err = fmt.Errorf("list the tables: %w", err)
	}
	return names, err
}

// hasRowsOf reports whether one of the oldest or newest keys of a table contains one of the worker ids.
func (d *DB) hasRowsOf(ctx context.Context, name string, workers map[int64]bool) (found bool, err error) {
	t, err := d.table(ctx, name)
	key, ok := keyOf(t.columns)
	if err != nil || !ok || !key.isInteger() {
		return false, err
	}
	k, shift := d.identifier(key.Name), d.Layout.WorkerBits+d.Layout.SequenceBits
	for _, order := range []string{"", " DESC"} {
		err := d.SQL.Query(ctx, func(rows *sql.Rows) error {
			var id int64
			err := rows.Scan(&id)
			found = found || workers[id>>d.Layout.SequenceBits&d.Layout.MaxWorkerID()]
			return err
		}, fmt.Sprintf("SELECT %[1]s FROM %[2]s WHERE %[1]s >= %[3]d ORDER BY %[1]s%[4]s LIMIT %[5]d",
			k, t.quoted, int64(1)<<shift, order, sample))
		if err != nil || found {
			return found, err
		}
	}
	return false, nil
}
