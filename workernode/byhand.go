package workernode

import (
	"cmp"
	"context"
	"database/sql"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"

	"github.com/uidplugin/uidplugin/generator"
	"github.com/uidplugin/uidplugin/internal/sqldb"
)

// The package comment describes worker ids that are given by hand. A registry usually begins above
// [generator.Layout.MaxFixedWorkerID], so a process has to claim only numbers above that.

// ErrFixed reports a worker id that was given by hand, and that the registry may give out as well. [DB.CheckFixed] and
// [DB.ClaimFixed] return it.
var ErrFixed = errors.New("a worker id given by hand is not free")

// CheckFixed returns an error that wraps [ErrFixed] if the registry of this database may give out the worker id, and
// [ErrLayoutMismatch] if it has another layout. Without a registry it refuses a worker id only if WORKER_NODE is
// UidGenerator's. CheckFixed changes nothing.
func (d *DB) CheckFixed(ctx context.Context, layout generator.Layout, worker int64) error {
	columns, err := d.sql.Columns(ctx, RegistryTable)
	switch {
	case err != nil && noTable(err):
		return d.checkUnbegun(ctx, layout, worker)
	case err != nil:
		return fmt.Errorf("workernode: read the columns of %s: %w", RegistryTable, err)
	case !hasColumn(columns, "FIRST_ID"):
		if !hasColumn(columns, "NEXT_ID") {
			return nil // a table of another program
		}
		return Registry{FirstID: 1, NextID: 2, Region: Whole}.refuseFixed(worker) // 1 is the default of the missing column
	}
	r, ok, err := d.registry(ctx)
	switch {
	case err != nil:
		return fmt.Errorf("workernode: read %s: %w", RegistryTable, err)
	case !ok:
		return d.checkUnbegun(ctx, layout, worker)
	}
	return r.checkFixed(layout, worker)
}

// checkUnbegun is CheckFixed in a database without a registry. If WORKER_NODE is UidGenerator's, only 0 is free,
// because UidGenerator or a later registry may give out any other number.
func (d *DB) checkUnbegun(ctx context.Context, layout generator.Layout, worker int64) error {
	columns, err := d.sql.Columns(ctx, NodeTable)
	switch {
	case err != nil && noTable(err):
		return nil
	case err != nil:
		return fmt.Errorf("workernode: read the columns of %s: %w", NodeTable, err)
	case !hasColumn(columns, "ID") || !hasColumn(columns, "LAUNCH_DATE"):
		return nil // a table of another program
	}
	taken, shared, err := d.lowest(ctx, layout)
	switch {
	case err != nil:
		return fmt.Errorf("workernode: look for UidGenerator's rows in %s: %w", NodeTable, err)
	case worker == 0 || !taken && !shared:
		return nil
	case shared:
		return Registry{Shared: true}.refuseFixed(worker)
	}
	return fmt.Errorf("%w: %s has rows of UidGenerator, so another process may get the worker id %d:"+
		" leave the option WithWorkerID out, or use another database (docs/layouts.md)",
		ErrFixed, NodeTable, worker)
}

func hasColumn(columns []sqldb.Column, name string) bool {
	return slices.ContainsFunc(columns, func(c sqldb.Column) bool { return strings.EqualFold(c.Name, name) })
}

// noTable reports whether a SELECT failed because its table does not exist.
func noTable(err error) bool { return missingTable.MatchString(err.Error()) }

var missingTable = regexp.MustCompile(`Error 1146\b|SQLSTATE 42P01|no such table`)

// ClaimFixed raises FIRST_ID above a worker id, so that the registry gives out neither this worker id nor a lower
// one. It begins the registry if there is none; the tables must exist. The error wraps [ErrFixed] if FIRST_ID can
// no longer be raised, for example because the registry has given out worker ids, and [ErrLayoutMismatch] if it has
// another layout. Any number of processes may call it at once, while others take worker ids.
func (d *DB) ClaimFixed(ctx context.Context, layout generator.Layout, worker int64) error {
	lead := max(d.defaultLead(), minLeadTicks*layout.Tick)
	for try := 0; ; try++ {
		r, _, err := d.openRegistry(ctx, layout, lead, Region{})
		if err != nil {
			return err
		}
		if !r.claimable(worker) {
			return r.checkFixed(layout, worker)
		}
		// Processes take worker ids by an UPDATE of the same row, so one of the two statements comes first.
		n, err := d.sql.Exec(ctx, `UPDATE "WORKER_REGISTRY" SET "FIRST_ID" = ?, "NEXT_ID" = ? WHERE "NAME" = ? AND "ID_SPACE" = ?`+
			` AND "STRIDE" = ? AND "REMAINDER" = ? AND "FIRST_ID" = ? AND "NEXT_ID" = ?`,
			worker+1, worker+1, registryName, r.Space, r.Region.Of, r.Region.N, r.FirstID, r.NextID)
		switch {
		case err == nil && n == 1:
			return d.CheckFixed(ctx, layout, worker) // because a trigger may change FIRST_ID
		case err != nil && !sqldb.IsTransient(err), try >= maxTries:
			return fmt.Errorf("workernode: raise FIRST_ID in %s to %d: %w", RegistryTable, worker+1,
				cmp.Or(err, errors.New("the database changed no row, and reports no error")))
		}
		if err := pause(ctx, try); err != nil {
			return fmt.Errorf("workernode: raise FIRST_ID in %s to %d: %w", RegistryTable, worker+1, err)
		}
	}
}

// claimable reports whether FIRST_ID must and may be raised above a worker id. It may never be raised in a region,
// because other regions would keep their FIRST_ID, or next to UidGenerator, which ignores it.
func (r Registry) claimable(worker int64) bool {
	return worker >= r.FirstID && r.NextID == r.FirstID && r.Region == Whole && !r.Shared
}

func (r Registry) checkFixed(layout generator.Layout, worker int64) error {
	if err := r.check(layout, Region{}); err != nil {
		return err
	}
	return r.refuseFixed(worker)
}

func (r Registry) refuseFixed(worker int64) error {
	switch {
	case worker == 0: // never given out
	case r.Shared:
		return fmt.Errorf("%w: UidGenerator takes worker ids from 1 on (%s.ID is AUTO_INCREMENT), so it may take %d as well:"+
			" leave the option WithWorkerID out, or use another database; see docs/layouts.md", ErrFixed, NodeTable, worker)
	case worker >= r.FirstID:
		return fmt.Errorf("%w: the registry may give out %d, because it begins at %d:"+
			" use a lower number, or leave the option out (docs/layouts.md)", ErrFixed, worker, r.FirstID)
	}
	return nil
}

// byHand returns the end of the error about used up worker ids, which names those given by hand.
func (r Registry) byHand(layout generator.Layout) string {
	if r.FirstID <= layout.MaxFixedWorkerID()+1 {
		return ""
	}
	return fmt.Sprintf(", of which those below %d are given by hand (FIRST_ID in %s; see docs/layouts.md)", r.FirstID, RegistryTable)
}

// given returns the largest worker id that may have been given out, 0 if none.
func (r Registry) given() int64 {
	if r.NextID <= r.Region.From(r.FirstID) {
		return 0
	}
	return r.NextID - 1
}

// firstIDs returns FIRST_ID and NEXT_ID of a new registry. Numbers below FIRST_ID are for worker ids given by hand.
func (d *DB) firstIDs(ctx context.Context, layout generator.Layout, region Region) (first, next int64, err error) {
	largest, err := d.largest(ctx, layout, region)
	if err != nil {
		return 0, 0, err
	}
	taken, shared, err := d.lowest(ctx, layout)
	if err != nil || taken || shared {
		return 1, region.From(largest + 1), err
	}
	first = layout.MaxFixedWorkerID() + 1
	return first, region.From(max(largest+1, first)), nil
}

// lowest reports whether WORKER_NODE has worker ids as low as those by hand, and whether UidGenerator may add some.
func (d *DB) lowest(ctx context.Context, layout generator.Layout) (taken, shared bool, err error) {
	columns, args := `EXISTS (SELECT 1 FROM "WORKER_NODE" WHERE "ID" BETWEEN 1 AND ?)`, []any{layout.MaxFixedWorkerID()}
	into := []any{&taken}
	if d.sql.Dialect() == "mysql" {
		condition, schema := d.sharedNodes()
		columns, args, into = columns+`, `+condition, append(args, schema...), append(into, &shared)
	}
	err = d.sql.Query(ctx, func(rows *sql.Rows) error { return rows.Scan(into...) }, `SELECT `+columns, args...)
	return taken, shared, err
}
