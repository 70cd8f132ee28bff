package admin

import (
	"context"
	"database/sql"
	"fmt"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/uidplugin/uidplugin/workernode"
)

// A Renaming gives the worker ids of a table to the name that the table has now.
type Renaming struct {
	Database  string   `json:"database,omitempty"` // as in WORKER_NODE; empty for the registry's
	From      string   `json:"from"`
	To        string   `json:"to"`
	WorkerIDs int64    `json:"worker_ids"`
	Notes     []string `json:"notes"` // what else has the old name
}

// Renaming plans a renaming. It returns an error unless the database has a table of the new name and no table of
// the old name, because otherwise ids would resolve to a table that does not have their rows.
func (d *DB) Renaming(ctx context.Context, from, to string) (r Renaming, err error) {
	entry, home, err := d.renamedTable(ctx, from)
	if err != nil {
		return r, err
	}
	if entry.Database != "" {
		to = strings.TrimPrefix(to, entry.Database+".")
	}
	r = Renaming{Database: entry.Database, From: entry.Name, To: to, Notes: []string{}}
	old, err := home.table(ctx, entry.Name)
	if err != nil {
		return r, err
	}
	now, err := home.table(ctx, to)
	if err != nil {
		return r, err
	}
	view, err := home.isView(ctx, old)
	switch {
	case err != nil:
		return r, err
	case len(old.columns) > 0 && !view:
		return r, fmt.Errorf("the table %q still exists, so its ids must resolve to it; rename the table first", from)
	case len(now.columns) == 0:
		return r, fmt.Errorf("the table %q does not exist in this database, or this user may not see it; rename the table "+
			"first; for a table of another database pass --database", to)
	}
	err = d.SQL.Query(ctx, func(rows *sql.Rows) error { return rows.Scan(&r.WorkerIDs) },
		`SELECT COUNT(*) FROM "WORKER_NODE" WHERE `+ofRenamed, r.Database, r.From)
	if err != nil {
		return r, fmt.Errorf("count the worker ids of %s: %w", entry, err)
	}
	if r.Notes, err = d.renameNotes(ctx, r, home); err != nil {
		return r, err
	}
	if r.WorkerIDs == 0 && len(r.Notes) == 0 {
		return r, fmt.Errorf("WORKER_NODE has no worker ids of the table %q; \"uid tables\" lists the names", from)
	}
	return r, nil
}

const ofRenamed = `"DATABASE_NAME" = ? AND "TABLE_NAME" = ? AND "SLOT" IS NOT NULL`

// Rename executes a renaming, also in the cursors of consumers. Rename may be repeated, and processes may run
// meanwhile: each slot keeps its worker ids, so no two processes share one. A process with the old model goes on,
// and within ten minutes gets other worker ids, which have the old name. Rename again after the last such process
// has ended.
//
// Both names must be of the same table: ids of two tables cannot be told apart afterwards.
func (d *DB) Rename(ctx context.Context, r Renaming) (_ Renaming, err error) {
	for _, name := range []string{r.From, r.To} {
		if name == "" || name == workernode.AllTables || utf8.RuneCountInString(name) > workernode.MaxTableName {
			return r, fmt.Errorf("the table %q cannot be renamed to %q: a name has 1 to %d characters, and is not %q",
				r.From, r.To, workernode.MaxTableName, workernode.AllTables)
		}
	}
	r.WorkerIDs, err = d.SQL.Exec(ctx, `UPDATE "WORKER_NODE" SET "TABLE_NAME" = ?, "MODIFIED" = CURRENT_TIMESTAMP WHERE `+
		ofRenamed, r.To, r.Database, r.From)
	if err != nil {
		return r, fmt.Errorf("rename the table %s of worker ids: %w", r.From, err)
	}
	err = d.renameConsumers(ctx, &r) // wing: follow
	return r, err
}

// renamedTable returns the table that has a name in the form of "uid tables", and its database.
func (d *DB) renamedTable(ctx context.Context, name string) (entry workernode.Table, home *DB, err error) {
	known, err := d.TableNames(ctx)
	if err != nil {
		return entry, nil, err
	}
	entry.Database, home, entry.Name = d.named(ctx, name)
	if entry.Database != "" || slices.Contains(known, entry) {
		return entry, home, nil
	}
	for _, other := range known {
		if other.Database != "" && other.String() == name {
			return entry, nil, fmt.Errorf("%s is in the database %q; pass --database %[2]s=DSN", name, other.Database)
		}
	}
	return entry, home, nil
}

// isView reports whether t is a view. People create views for programs that use the old name of a table.
func (d *DB) isView(ctx context.Context, t table) (view bool, err error) {
	query, args := `SELECT COUNT(*) > 0 FROM information_schema.views
		WHERE table_schema = COALESCE(NULLIF(?, ''), DATABASE()) AND table_name = ?`, []any{t.schema, t.bare}
	switch d.SQL.Dialect() {
	case postgres:
		query, args = `SELECT COUNT(*) > 0 FROM pg_class WHERE oid = to_regclass(?) AND relkind IN ('v', 'm')`, []any{t.quoted}
	case sqlite:
		query, args = `SELECT COUNT(*) > 0 FROM sqlite_schema WHERE type = 'view' AND name = ?`, []any{t.name}
	}
	err = d.SQL.Query(ctx, func(rows *sql.Rows) error { return rows.Scan(&view) }, query, args...)
	if err != nil {
		err = fmt.Errorf("look for the view %s: %w", t.name, err)
	}
	return view, err
}

// isGone reports whether a table does not exist any more. A view may have its name now.
func (d *DB) isGone(ctx context.Context, t table) bool {
	if slices.ContainsFunc(t.columns, func(c column) bool { return c.Key }) {
		return false
	}
	view, err := d.isView(ctx, t)
	return len(t.columns) == 0 || err == nil && view
}

func (d *DB) renameNotes(ctx context.Context, r Renaming, home *DB) (notes []string, err error) {
	notes = []string{}
	notes, err = d.followNotes(ctx, r, notes) // wing: follow
	if err != nil {
		return nil, err
	}
	notes, err = d.segmentNotes(ctx, r, notes) // wing: segment
	return notes, err
}
