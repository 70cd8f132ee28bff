package admin

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/uidplugin/uidplugin/internal/workernode"
)

// A Renaming gives the worker ids of a table to the name that the table has now.
type Renaming struct {
	Database  string   `json:"database,omitempty"` // as in WORKER_NODE; empty for the registry's
	From      string   `json:"from"`
	To        string   `json:"to"`
	WorkerIDs int64    `json:"worker_ids"`
	Notes     []string `json:"notes"` // what else has the old name
}

// Renaming plans a renaming. Tables of other databases have names as "uid tables" writes them. It fails unless only the
// new name exists in the database, because otherwise ids would resolve to a table that does not have their rows.
func (d *DB) Renaming(ctx context.Context, from, to string) (r Renaming, err error) {
	of, on, err := d.renamedTable(ctx, from)
	if err != nil {
		return r, err
	}
	if of.Database != "" {
		to = strings.TrimPrefix(to, of.Database+".")
	}
	r = Renaming{Database: of.Database, From: of.Name, To: to, Notes: []string{}}
	old, err := on.table(ctx, of.Name)
	if err != nil {
		return r, err
	}
	now, err := on.table(ctx, to)
	if err != nil {
		return r, err
	}
	view, err := on.isView(ctx, old)
	switch {
	case err != nil:
		return r, err
	case len(old.columns) > 0 && !view:
		return r, fmt.Errorf("the table %q still exists, so its ids must resolve to it; rename the table first", from)
	case len(now.columns) == 0:
		return r, fmt.Errorf("the table %q does not exist in this database, or this user may not see it; rename the table "+
			"first; for a table of another database pass --database", to)
	}
	if r.WorkerIDs, err = d.Nodes.CountTable(ctx, of); err != nil {
		return r, err
	}
	if r.Notes, err = d.renameNotes(ctx, r, on); err != nil {
		return r, err
	}
	if r.WorkerIDs == 0 && len(r.Notes) == 0 {
		return r, fmt.Errorf("WORKER_NODE has no worker ids of the table %q; \"uid tables\" lists the names", from)
	}
	return r, nil
}

// Rename executes a renaming, and returns it with the number of changed worker ids.
func (d *DB) Rename(ctx context.Context, r Renaming) (_ Renaming, err error) {
	r.WorkerIDs, err = d.Nodes.RenameTable(ctx, workernode.Table{Database: r.Database, Name: r.From}, r.To)
	return r, err
}

// renamedTable returns the table that people name as "uid tables" does, and its database.
func (d *DB) renamedTable(ctx context.Context, name string) (of workernode.Table, on *DB, err error) {
	known, err := d.TableNames(ctx)
	if err != nil {
		return of, nil, err
	}
	of.Database, on, of.Name = d.named(ctx, name)
	if of.Database != "" || slices.Contains(known, of) {
		return of, on, nil
	}
	for _, other := range known {
		if other.Database != "" && other.String() == name {
			return of, nil, fmt.Errorf("%s is in the database %q; pass --database %[2]s=DSN", name, other.Database)
		}
	}
	return of, on, nil
}

// isView reports whether a name is a view, as people create it for programs that have the old name of a table.
func (d *DB) isView(ctx context.Context, t table) (view bool, err error) {
	query, args := `SELECT COUNT(*) > 0 FROM information_schema.views
		WHERE table_schema = COALESCE(NULLIF(?, ''), DATABASE()) AND table_name = ?`, []any{t.schema, t.bare}
	switch d.SQL.Dialect() {
	case postgres:
		query, args = `SELECT COUNT(*) > 0 FROM pg_class WHERE oid = to_regclass(?) AND relkind = 'v'`, []any{t.quoted}
	case sqlite:
		query, args = `SELECT COUNT(*) > 0 FROM sqlite_schema WHERE type = 'view' AND name = ?`, []any{t.name}
	}
	err = d.SQL.Query(ctx, func(rows *sql.Rows) error { return rows.Scan(&view) }, query, args...)
	if err != nil {
		err = fmt.Errorf("look for the view %s: %w", t.name, err)
	}
	return view, err
}

// isGone reports whether a table does not exist any more. Instead of it there may be a view.
func (d *DB) isGone(ctx context.Context, t table) bool {
	if slices.ContainsFunc(t.columns, func(c column) bool { return c.key }) {
		return false
	}
	view, err := d.isView(ctx, t)
	return len(t.columns) == 0 || err == nil && view
}

// renameNotes names what else has the old name.
func (d *DB) renameNotes(ctx context.Context, r Renaming, on *DB) (notes []string, err error) {
	name := func(table string) string { return workernode.Table{Database: r.Database, Name: table}.String() }
	notes = []string{}
	followed, err := d.Followed(ctx, name(r.From))
	if err != nil {
		return nil, err
	}
	if len(followed) > 0 {
		notes = append(notes, fmt.Sprintf(`%s was followed. Run "uid follow enable %s", and when a follower has begun, `+
			`"uid follow disable %s"`, name(r.From), name(r.To), name(r.From)))
	}
	tags, err := d.tags(ctx)
	for _, t := range tags {
		if t.database == r.Database && (t.name == r.From || strings.HasPrefix(t.name, r.From+".")) {
			notes = append(notes, fmt.Sprintf("%s has the tag %q. Keep it, and name it in the model: gorm:\"uid:segment:%s\"",
				t.table, t.name, t.name))
		}
	}
	return notes, err
}

// sample is how many of the oldest and of the newest keys of a table are compared with the worker ids of another.
const sample = 1000

// checkRenamed looks for tables that do not exist any more, and whose rows are in another table. A table that was
// dropped is no finding.
func (d *DB) checkRenamed(ctx context.Context, gone []workernode.Table) (list []Finding, err error) {
	for _, of := range gone {
		on := d
		if of.Database != "" {
			on = d.Others[of.Database]
		}
		workers, failed := d.workersOf(ctx, of)
		if failed != nil {
			return list, failed
		}
		candidates, failed := on.tablesBeside(ctx, of.Name)
		err = errors.Join(err, failed)
		for _, name := range candidates {
			has, failed := on.hasRowsOf(ctx, name, workers)
			err = errors.Join(err, failed)
			if has {
				now := workernode.Table{Database: of.Database, Name: name}
				list = append(list, Finding{Code: CodeTableRenamed,
					Text: fmt.Sprintf("WORKER_NODE has %s of the table %s, which does not exist, and %s has rows with their ids: "+
						"Find fails for them", Count(int64(len(workers)), "worker id", "worker ids"), of, now),
					Advice: fmt.Sprintf(`If the table was renamed, run "uid tables rename %s %s". docs/looking-up.md explains it.`, of, now)})
			}
		}
	}
	return list, err
}

// workersOf returns the worker ids of a table.
func (d *DB) workersOf(ctx context.Context, of workernode.Table) (workers map[int64]bool, err error) {
	workers = map[int64]bool{}
	err = d.SQL.Query(ctx, func(rows *sql.Rows) error {
		var id int64
		err := rows.Scan(&id)
		workers[id] = true
		return err
	}, `SELECT "ID" FROM "WORKER_NODE" WHERE "DATABASE_NAME" = ? AND "TABLE_NAME" = ? AND "SLOT" IS NOT NULL`, of.Database, of.Name)
	if err != nil {
		err = fmt.Errorf("list the worker ids of %s: %w", of, err)
	}
	return workers, err
}

// tablesBeside returns the tables in the schema of a name, as in WORKER_NODE.
func (d *DB) tablesBeside(ctx context.Context, name string) (names []string, err error) {
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

// hasRowsOf reports whether one of the oldest or newest keys of a table has one of the worker ids.
func (d *DB) hasRowsOf(ctx context.Context, name string, workers map[int64]bool) (found bool, err error) {
	t, err := d.table(ctx, name)
	key, ok := keyOf(t.columns)
	if err != nil || !ok || !key.isInteger() {
		return false, err
	}
	k, shift := d.identifier(key.name), d.Layout.WorkerBits+d.Layout.SequenceBits
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
