package admin

import (
	"context"
	"database/sql"
	"fmt"
	"slices"

	"github.com/uidplugin/uidplugin/internal/supply"
	"github.com/uidplugin/uidplugin/workernode"
)

// TableNamed returns the table of a name, which is written as in an SQL statement or as "uid tables" lists it.
func (d *DB) TableNamed(ctx context.Context, name string) (t workernode.Table, err error) {
	known, err := d.TableNames(ctx)
	if err != nil {
		return t, err
	}
	if t.Name, err = supply.TableName(ctx, d.gorm, d.timeout, name); err != nil || slices.Contains(known, t) {
		return t, err
	}
	for _, other := range known {
		if other.Database != "" && other.String() == name {
			return other, nil
		}
	}
	return t, nil
}

// CheckNext returns an error if people should not make ids for a table: it does not exist, its keys are not ids, or
// only another database has its ids. A table of another database that CheckNext cannot see must be in WORKER_NODE.
func (d *DB) CheckNext(ctx context.Context, entry workernode.Table) (warning string, err error) {
	known, err := d.databasesOf(ctx, entry.Name)
	if err != nil {
		return "", err
	}
	hasIDs := slices.Contains(known, entry.Database)
	if !hasIDs && entry.Database == "" && len(known) > 0 {
		return "", fmt.Errorf("processes make ids for the table %q in the database %q, not in this one; pass --database, "+
			"or --force to make ids for the table here", entry.Name, known[0])
	}
	home, t, err := d.tableOf(ctx, entry)
	switch seen := entry.Database == "" || d.Others[entry.Database] != nil; {
	case err != nil:
		return "", err
	case len(t.columns) == 0 && seen:
		return "", fmt.Errorf("the table %q does not exist in this database, or this user may not see it; pass --force to "+
			"make ids for it anyway", entry)
	case len(t.columns) == 0 && !hasIDs:
		return "", fmt.Errorf("no process has made ids for the table %q of the database %q; \"uid tables --json\" lists the "+
			"names; pass --force to make ids for it anyway", entry.Name, entry.Database)
	}
	key, ok := keyOf(t.columns)
	if !ok {
		return "", nil
	}
	if err := d.checkSmall(ctx, home, entry, t, key, hasIDs); err != nil {
		return "", err
	}
	if key.Auto && home.SQL.Dialect() == mysql {
		warning = fmt.Sprintf("the database numbers %s.%s, so a row that is inserted without an id gets the number after "+
			"the largest id", entry, key.Name)
	}
	return warning, nil
}

// checkSmall returns an error if a table has a segment, and is empty or has only keys that are too small for an id.
// If no process has made ids for the table, small keys alone are an error, because a segment may have any name.
func (d *DB) checkSmall(ctx context.Context, home *DB, entry workernode.Table, t table, key column, hasIDs bool) error {
	const advice = "ids from uid next would be far above the present keys; pass --force to make ids anyway"
	if !key.isInteger() {
		return nil
	}
	largest, err := home.largest(ctx, t, key)
	if err != nil || largest.Int64>>(d.Layout.WorkerBits+d.Layout.SequenceBits) > 0 { // an id
		return err
	}
	err = d.refuseSegment(ctx, entry, key, advice) // wing: segment
	if err != nil {
		return err
	}
	if !hasIDs && largest.Int64 > 0 {
		return fmt.Errorf("no process has made ids for %s, and its largest key is %d, so its keys seem to come from a "+
			"segment or from the database; %s", entry, largest.Int64, advice)
	}
	return nil
}

// databasesOf returns the databases that have this table in WORKER_NODE; "" is the database of the registry.
func (d *DB) databasesOf(ctx context.Context, table string) (names []string, err error) {
	err = d.SQL.Query(ctx, func(rows *sql.Rows) error {
		var name string
		err := rows.Scan(&name)
		names = append(names, name)
		return err
	}, `SELECT DISTINCT "DATABASE_NAME" FROM "WORKER_NODE" WHERE "TABLE_NAME" = ? ORDER BY "DATABASE_NAME"`, table)
	return names, err
}
