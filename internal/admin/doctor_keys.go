package admin

import (
	"cmp"
	"context"
	"database/sql"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/uidplugin/uidplugin"
	"github.com/uidplugin/uidplugin/generator"
	"github.com/uidplugin/uidplugin/internal/workernode"
)

// checkKeys checks the keys of the tables in WORKER_NODE. The error names the databases that it could not read.
func (d *DB) checkKeys(ctx context.Context) (list []Finding, err error) {
	tables, err := d.TableNames(ctx)
	if err != nil {
		return nil, err
	}
	failed := 0
	var first error
	unseen := map[string]int{}  // number of tables by database
	var gone []workernode.Table // that do not exist any more
	for _, of := range tables {
		on, t, err := d.tableOf(ctx, of)
		if err == nil && of.Database != "" && len(t.columns) == 0 && d.Others[of.Database] == nil {
			unseen[of.Database]++
			continue
		}
		if err == nil && on.isGone(ctx, t) {
			gone = append(gone, of)
			continue
		}
		var found []Finding
		if err == nil {
			found, err = on.checkKey(ctx, of, t)
		}
		list = append(list, found...)
		if err != nil {
			failed++
			first = cmp.Or(first, err)
		}
		if ctx.Err() != nil {
			break
		}
	}
	if failed > 1 {
		first = fmt.Errorf("%w (and %d more)", first, failed-1)
	}
	renamed, err := d.checkRenamed(ctx, gone)
	return append(list, renamed...), errors.Join(first, unseenError(unseen), err)
}

// unseenError names the databases that could not be read, and the remedy.
func unseenError(unseen map[string]int) error {
	if len(unseen) == 0 {
		return nil
	}
	var each []string
	for _, name := range slices.Sorted(maps.Keys(unseen)) {
		each = append(each, fmt.Sprintf("%q (%s)", name, Count(int64(unseen[name]), "table", "tables")))
	}
	if len(each) > 10 {
		each = append(each[:10], fmt.Sprintf("and %d more", len(each)-10))
	}
	return fmt.Errorf("databases of the registry are not on this connection: %s; pass --database NAME=DSN for each",
		strings.Join(each, ", "))
}

func (d *DB) checkKey(ctx context.Context, of workernode.Table, t table) (list []Finding, err error) {
	name := of.String()
	key, ok := keyOf(t.columns)
	if !ok || !key.isInteger() {
		return nil, nil
	}
	largest, err := d.largest(ctx, t, key)
	if elsewhere, failed := d.idsElsewhere(ctx, of, t, key, largest); elsewhere || failed != nil {
		return nil, failed
	}
	if key.isNarrow(d.SQL.Dialect()) { // first, because this statement keeps the numbering
		list = append(list, Finding{Code: CodeKeyNarrow, Fix: d.wideStatement(t, key),
			Text:   fmt.Sprintf("%s.%s is %s, which is too narrow for ids: creates fail", name, key.name, key.kind),
			Advice: "Foreign keys to it need the same; docs/from-auto-increment.md has the statements."})
	}
	references, failed := d.checkReferences(ctx, t, key)
	list, err = append(list, references...), errors.Join(err, failed)
	if key.auto {
		strays, failed := d.strays(ctx, of, t, key)
		err = errors.Join(err, failed)
		list = append(list, Finding{Code: CodeKeyNumbered, Fix: d.plainStatement(t, key),
			Text: fmt.Sprintf("the database numbers %s.%s, so a row that is inserted without the plugin gets a "+
				"number that cannot be located, or that the plugin may use for another row%s", name, key.name, strays),
			Advice: "First make all programs that insert rows use the plugin. docs/from-auto-increment.md has the " +
				"statements for a key that foreign keys refer to, and explains how to find such rows."})
	}
	return append(list, d.checkLargest(name, largest)...), err
}

// checkReferences checks columns with a foreign key to a key, on PostgreSQL, because MySQL requires the same type on
// both sides.
func (d *DB) checkReferences(ctx context.Context, t table, key column) (list []Finding, err error) {
	if d.SQL.Dialect() != postgres {
		return nil, nil
	}
	err = d.SQL.Query(ctx, func(rows *sql.Rows) error {
		var c column
		var of table
		if err := rows.Scan(&of.quoted, &c.name, &c.kind); err != nil || !c.isNarrow(d.SQL.Dialect()) {
			return err
		}
		list = append(list, Finding{Code: CodeKeyNarrow, Fix: d.wideStatement(of, c),
			Text: fmt.Sprintf("%s.%s is %s, which is too narrow for the ids of %s.%s that it refers to: creates fail",
				of.quoted, c.name, c.kind, t.name, key.name)})
		return nil
	}, `SELECT c.conrelid::regclass::text, a.attname, format_type(a.atttypid, a.atttypmod)
		FROM pg_constraint c CROSS JOIN LATERAL unnest(c.conkey, c.confkey) u (col, refers)
		JOIN pg_attribute a ON a.attrelid = c.conrelid AND a.attnum = u.col
		JOIN pg_attribute k ON k.attrelid = c.confrelid AND k.attnum = u.refers
		WHERE c.contype = 'f' AND c.conparentid = 0 AND c.confrelid = to_regclass(?) AND k.attname = ?`, t.quoted, key.name)
	if err != nil {
		return list, fmt.Errorf("read the foreign keys that refer to %s: %w", t.name, err)
	}
	return list, nil
}

// strays describes the newest rows whose number looks like an id but does not have a worker id of the table, because
// the database numbered them; "" without such rows.
func (d *DB) strays(ctx context.Context, of workernode.Table, t table, key column) (text string, err error) {
	const newest = 10_000
	k := d.identifier(key.name)
	var workers []int64 // of each row
	err = d.SQL.Query(ctx, func(rows *sql.Rows) error {
		var id int64
		err := rows.Scan(&id)
		workers = append(workers, id>>d.Layout.SequenceBits&d.Layout.MaxWorkerID())
		return err
	}, fmt.Sprintf("SELECT %[1]s FROM (SELECT %[1]s FROM %[2]s ORDER BY %[1]s DESC LIMIT %[3]d) k WHERE %[1]s >= %[4]d",
		k, t.quoted, newest, int64(1)<<(d.Layout.WorkerBits+d.Layout.SequenceBits)))
	if err != nil {
		return "", fmt.Errorf("read the newest rows of %s: %w", t.name, err)
	}
	nodes, err := d.Nodes.Lookup(ctx, slices.Compact(slices.Sorted(slices.Values(workers)))...)
	n := 0
	for _, w := range workers {
		if node := nodes[w]; node == nil || node.Table != of && node.Table.Name != workernode.AllTables {
			n++
		}
	}
	if err != nil || n == 0 {
		return "", err
	}
	return fmt.Sprintf("; among the newest %d rows it numbered %d, which locate to other tables or to nothing",
		newest, n), nil
}

// largest returns the largest key of a table; NULL without rows.
func (d *DB) largest(ctx context.Context, t table, key column) (largest sql.NullInt64, err error) {
	err = d.SQL.Query(ctx, func(rows *sql.Rows) error { return rows.Scan(&largest) },
		"SELECT MAX("+d.identifier(key.name)+") FROM "+t.quoted)
	if err != nil {
		return sql.NullInt64{}, fmt.Errorf("read the largest key of %s: %w", t.name, err)
	}
	return largest, nil
}

// idsElsewhere reports whether a table has its ids in another column than the key: the largest key is too small for an
// id, and another column of its row contains an id of the table.
func (d *DB) idsElsewhere(
	ctx context.Context,
	of workernode.Table,
	t table,
	key column,
	largest sql.NullInt64,
) (bool, error) {
	if !largest.Valid || largest.Int64>>(d.Layout.WorkerBits+d.Layout.SequenceBits) != 0 {
		return false, nil
	}
	found, err := d.rows(ctx, uidplugin.ID(largest.Int64), t, key)
	if err != nil || len(found) == 0 {
		return false, err
	}
	var workers []int64
	for _, c := range found[0].Cells {
		if id, err := strconv.ParseInt(c.Text, 10, 64); err == nil && id > 0 {
			if parts, err := d.Layout.Decompose(id); err == nil {
				workers = append(workers, parts.WorkerID)
			}
		}
	}
	nodes, err := d.Nodes.Lookup(ctx, workers...)
	for _, n := range nodes {
		if n.Table == of {
			return true, err
		}
	}
	return false, err
}

// checkLargest compares the largest key of a table with present ids.
func (d *DB) checkLargest(table string, largest sql.NullInt64) []Finding {
	// Ids may be up to Lead ahead of a clock that is itself a little ahead.
	now := d.Now().Add(d.lead() + time.Minute)
	above := d.Layout.Above(largest.Int64, now)
	if !largest.Valid || above == nil {
		return nil
	}
	return []Finding{
		{
			Code: CodeKeyAhead,
			Text: fmt.Sprintf("the largest key of %s is %d, above present ids: new rows sort below it, "+
				"and an id may equal an old key; %s",
				table, largest.Int64, strings.TrimPrefix(above.Error(), generator.ErrLayout.Error()+": ")),
			Advice: `Find the origin of the key with "uid where" and "uid decode --all". ` +
				"docs/migrating.md explains how to choose a layout above the keys of another system.",
		},
	}
}

// plainStatement returns the statement that stops the database from numbering a column.
func (d *DB) plainStatement(t table, key column) string {
	alter := "ALTER TABLE " + t.quoted
	switch {
	case d.SQL.Dialect() == postgres && key.identity:
		return alter + " ALTER COLUMN " + d.identifier(key.name) + " DROP IDENTITY"
	case d.SQL.Dialect() == postgres:
		return alter + " ALTER COLUMN " + d.identifier(key.name) + " DROP DEFAULT"
	}
	return alter + " MODIFY " + d.identifier(key.name) + " BIGINT" + unsigned(key) + " NOT NULL"
}

// wideStatement returns the statement that widens a column for ids. It keeps the numbering.
func (d *DB) wideStatement(t table, key column) string {
	alter := "ALTER TABLE " + t.quoted
	if d.SQL.Dialect() == postgres {
		return alter + " ALTER COLUMN " + d.identifier(key.name) + " TYPE BIGINT"
	}
	numbered := ""
	if key.auto {
		numbered = " AUTO_INCREMENT"
	}
	return alter + " MODIFY " + d.identifier(key.name) + " BIGINT" + unsigned(key) + " NOT NULL" + numbered
}

func unsigned(key column) string {
	if strings.Contains(strings.ToLower(key.kind), "unsigned") {
		return " UNSIGNED"
	}
	return ""
}
