package admin

import (
	"cmp"
	"context"
	"database/sql"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/uidplugin/uidplugin/internal/sqldb"
	"github.com/uidplugin/uidplugin/workernode"
)

// A TableUse describes the worker ids of a table.
type TableUse struct {
	Database  string    `json:"database,omitempty"` // empty for the registry's
	Table     string    `json:"table"`              // "*" for all tables; empty if rows name no table
	WorkerIDs int64     `json:"worker_ids"`
	Slots     int64     `json:"slots"`
	Held      int64     `json:"held"`             // slots that a process holds, or has not released
	Since     time.Time `json:"since,omitzero"`   // no id of the table is older
	Until     time.Time `json:"until,omitzero"`   // no id of the table is newer; zero without a slot
	Foreign   bool      `json:"foreign,omitzero"` // rows of another program, such as UidGenerator
}

// Tables returns up to limit tables that may have ids in the filter's time, sorted by database and name. The list
// begins after the table *last, unless last is nil. Tables reads all worker ids and counts them itself, because
// MariaDB takes a minute, and temporary files, to count the distinct slots of a million worker ids.
func (d *DB) Tables(ctx context.Context, f Filter, last *workernode.Table, limit int) ([]TableUse, error) {
	type key struct {
		of   *TableUse
		slot int64
	}
	uses, known := map[workernode.Table]*TableUse{}, map[key]bool{}
	where, args := f.ofTable()
	err := d.SQL.Query(ctx, func(rows *sql.Rows) error {
		var entry workernode.Table
		var slot, start int64
		var held bool
		var fence sql.NullInt64
		if err := sqldb.Scan(rows, workernode.NodeTable+" or "+workernode.SlotTable, 2, &entry.Database, &entry.Name, &slot, &start,
			&held, &fence); err != nil {
			return err
		}
		t := uses[entry]
		if t == nil {
			t = &TableUse{Database: entry.Database, Table: entry.Name, Since: d.timeOf(start + 1)}
			uses[entry] = t
		}
		t.WorkerIDs++
		if since := d.timeOf(start + 1); since.Before(t.Since) {
			t.Since = since
		}
		if until := d.timeOf(fence.Int64); fence.Valid && until.After(t.Until) {
			t.Until = until
		}
		if k := (key{t, slot}); !known[k] {
			known[k] = true
			t.Slots++
			if held {
				t.Held++
			}
		}
		return nil
	}, `SELECT "DATABASE_NAME", "TABLE_NAME", "SLOT", "START_TICK",
		"S"."HOLDER" <> '' AND "S"."HOLDER" IS NOT NULL, "S"."FENCE"
		FROM "WORKER_NODE" LEFT JOIN "WORKER_SLOT" "S" ON "S"."ID" = "SLOT" WHERE "SLOT" IS NOT NULL AND `+where, args...)
	if err != nil {
		return nil, fmt.Errorf("list tables: %w", err)
	}
	var list []TableUse
	for entry, t := range uses {
		ended := !f.From.IsZero() && t.Until.Before(f.From)
		begun := f.To.IsZero() || t.Since.Before(f.To)
		if (last == nil || compareTables(entry, *last) > 0) && !ended && begun {
			list = append(list, *t)
		}
	}
	slices.SortFunc(list, func(a, b TableUse) int { return compareTables(a.of(), b.of()) })
	return list[:min(len(list), limit)], nil
}

func compareTables(a, b workernode.Table) int {
	return cmp.Or(strings.Compare(a.Database, b.Database), strings.Compare(a.Name, b.Name))
}

// ForeignNodes counts the rows of other programs in one TableUse. It returns nil if there are none.
func (d *DB) ForeignNodes(ctx context.Context) ([]TableUse, error) {
	t := TableUse{Foreign: true}
	err := d.SQL.Query(ctx, func(rows *sql.Rows) error { return rows.Scan(&t.WorkerIDs) },
		`SELECT COUNT(*) FROM "WORKER_NODE" WHERE "SLOT" IS NULL`)
	if err != nil || t.WorkerIDs == 0 {
		return nil, err
	}
	return []TableUse{t}, nil
}

// Name returns the name of the table for people.
func (t TableUse) Name() string {
	switch {
	case t.Foreign:
		return "(another program)"
	case t.Table == "":
		return "(no table)"
	case t.Table == workernode.AllTables:
		return "(all tables)"
	}
	return t.of().String()
}

func (t TableUse) of() workernode.Table { return workernode.Table{Database: t.Database, Name: t.Table} }

// named returns the database of a table. People name the table as in the model, or as DATABASE.TABLE. Without
// DATABASE it is in d, unless d lacks the table and exactly one other database has it.
func (d *DB) named(ctx context.Context, name string) (database string, home *DB, table string) {
	for database, home := range d.Others {
		if table, ok := strings.CutPrefix(name, database+"."); ok {
			return database, home, table
		}
	}
	var found []string
	if len(d.Others) > 0 && !d.has(ctx, name) {
		for database, on := range d.Others {
			if on.has(ctx, name) {
				found = append(found, database)
			}
		}
	}
	if len(found) == 1 {
		return found[0], d.Others[found[0]], name
	}
	return "", d, name
}

// has reports whether this user sees a table in the database.
func (d *DB) has(ctx context.Context, name string) bool {
	t, err := d.table(ctx, name)
	return err == nil && len(t.columns) > 0
}
