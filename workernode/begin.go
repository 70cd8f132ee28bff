package workernode

import (
	"cmp"
	"context"
	"crypto/rand"
	"database/sql"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/uidplugin/uidplugin/generator"
	"github.com/uidplugin/uidplugin/internal/sqldb"
)

// openRegistry reads the registry, or inserts it with the layout, lead and region of this process. begun reports
// whether this process has inserted it. The zero Region accepts any region, and begins an undivided registry.
func (d *DB) openRegistry(ctx context.Context, layout generator.Layout, lead time.Duration, region Region) (r Registry, begun bool, err error) {
	if err := d.commits(ctx); err != nil {
		return r, false, err
	}
	for try := 0; ; try++ {
		r, ok, err := d.registry(ctx)
		if err != nil {
			return r, false, fmt.Errorf("workernode: read %s: %w", RegistryTable, err)
		}
		if ok {
			return r, begun, r.check(layout, region)
		}
		begins := cmp.Or(region, Whole)
		if err := d.refuseShared(ctx, begins); err != nil {
			return r, false, err
		}
		if err := d.mayBegin(ctx, begins); err != nil {
			return r, false, err
		}
		first, next, err := d.firstIDs(ctx, layout, begins)
		if err == nil {
			_, err = d.sql.Quiet().Exec(ctx, insertRegistry, registryName, newSpace(), layout.String(), ticks(layout, lead),
				next, begins.From(1), SchemaVersion, begins.Of, begins.N, first)
			begun = err == nil
		}
		if (err == nil || d.sql.IsDuplicate(err)) && try < maxTries {
			continue // read what this process, or another one, has inserted
		}
		if !sqldb.IsTransient(err) || try >= maxTries {
			return r, false, fmt.Errorf("workernode: insert the row of %s: %w", RegistryTable, err)
		}
		if err := pause(ctx, try); err != nil {
			return r, false, fmt.Errorf("workernode: insert the row of %s: %w", RegistryTable, err)
		}
	}
}

// MayChange returns an error if [NewManager] would refuse the registry, whose tables may be missing or of an earlier
// version. Call it before the tables are created or extended, so that a process that cannot start changes nothing.
func (d *DB) MayChange(ctx context.Context, layout generator.Layout, region Region) error {
	if err := d.commits(ctx); err != nil {
		return err
	}
	if err := d.refuseShared(ctx, cmp.Or(region, Whole)); err != nil {
		return err
	}
	columns, err := d.sql.Columns(ctx, RegistryTable)
	has := func(names ...string) bool { // another process may be adding columns, on SQLite one at a time
		return !slices.ContainsFunc(names, func(name string) bool {
			return !slices.ContainsFunc(columns, func(c sqldb.Column) bool { return strings.EqualFold(c.Name, name) })
		})
	}
	r, ok := Registry{LeadTicks: minLeadTicks, NextID: 1, NextSlot: 1, FirstID: 1, Region: Whole}, false
	switch {
	case err != nil || !has("LAYOUT"):
		return nil // migrations create the table, or refuse it with the reason
	case has(registryFields...):
		r, ok, err = d.registry(ctx)
	default:
		err = d.sql.Query(ctx, func(rows *sql.Rows) error { ok = true; return rows.Scan(&r.Layout) },
			`SELECT "LAYOUT" FROM "WORKER_REGISTRY" WHERE "NAME" = ?`, registryName)
	}
	if err != nil || !ok {
		return err
	}
	return r.check(layout, region)
}

const (
	registryColumns = `"NAME", "ID_SPACE", "LAYOUT", "LEAD_TICKS", "NEXT_ID", "NEXT_SLOT", "FLOOR_TICK", "SCHEMA_VERSION", "STRIDE", "REMAINDER", "FIRST_ID"`
	insertRegistry  = `INSERT INTO "WORKER_REGISTRY" (` + registryColumns + `) VALUES (?, ?, ?, ?, ?, ?, 0, ?, ?, ?, ?)`
)

// couldBeUidGenerators reports whether UidGenerator may make ids of the layout: UidGenerator has ticks of a second,
// and the widths of its parts always add up to 63 bits.
func couldBeUidGenerators(l generator.Layout) bool {
	return l.Tick == time.Second && l.TimeBits+l.WorkerBits+l.SequenceBits == 63
}

func newSpace() string { return strings.ToLower(rand.Text()[:13]) }

// refuseShared is [refuseRegion] for a registry that was not read.
func (d *DB) refuseShared(ctx context.Context, region Region) error {
	if region == Whole || d.sql.Dialect() != "mysql" {
		return nil
	}
	shared := false
	condition, args := d.sharedNodes()
	err := d.sql.Query(ctx, func(rows *sql.Rows) error { return rows.Scan(&shared) }, `SELECT `+condition, args...)
	if err != nil {
		return fmt.Errorf("workernode: look for UidGenerator: %w", err)
	}
	return refuseRegion(region, shared)
}

// mayBegin returns an error if a deleted registry, or one of another region, may have given out numbers of r.
func (d *DB) mayBegin(ctx context.Context, r Region) error {
	if err := d.refuseDeletedRow(ctx, r); err != nil || r == Whole {
		return err
	}
	return d.refuseDividedElsewhere(ctx, r)
}

// refuseDeletedRow returns an error if a process of the region had a slot, but the registry's row is missing. Then
// ids may still be stamped, and nobody knows which worker ids were given out.
func (d *DB) refuseDeletedRow(ctx context.Context, r Region) error {
	// Rows of other regions may be replicated into this database. Sessions and worker ids whose slot has no row may
	// be of any region, so they count, too.
	slots, lone := `EXISTS (SELECT 1 FROM "WORKER_SLOT")`, ``
	if r != Whole {
		slots = fmt.Sprintf(`EXISTS (SELECT 1 FROM "WORKER_SLOT" WHERE "REGION" = %d)`, r.N)
		lone = ` WHERE NOT EXISTS (SELECT 1 FROM "WORKER_SLOT" "S" WHERE "S"."ID" = "X"."SLOT")`
	}
	lost := false
	err := d.sql.Query(ctx, func(rows *sql.Rows) error { return rows.Scan(&lost) },
		`SELECT (`+slots+` OR EXISTS (SELECT 1 FROM "WORKER_SESSION" "X"`+lone+`)`+
			` OR EXISTS (SELECT 1 FROM (SELECT "SLOT" FROM "WORKER_NODE" WHERE "SLOT" IS NOT NULL) "X"`+lone+`))`+
			` AND NOT EXISTS (SELECT 1 FROM "WORKER_REGISTRY" WHERE "NAME" = ?)`, registryName)
	switch {
	case err != nil:
		return fmt.Errorf("workernode: look for slots of a registry: %w", err)
	case lost && r == Whole:
		return fmt.Errorf("%w: the row %q of %s was deleted, and a new one would reuse worker ids:"+
			" restore it, or begin a new id space (docs/failures.md); if regions replicate, set WithRegion",
			ErrTable, registryName, RegistryTable)
	case lost:
		return fmt.Errorf("%w: the row %q of %s was deleted, and a new one could give out the worker ids of %s again:"+
			" restore it, with its STRIDE and REMAINDER (docs/failures.md)",
			ErrTable, registryName, RegistryTable, r)
	}
	return nil
}

// refuseDividedElsewhere returns an error if another registry gave out numbers before it was divided. These numbers
// may be of any region, and perhaps not all of them are replicated yet.
func (d *DB) refuseDividedElsewhere(ctx context.Context, r Region) error {
	divided, region := false, d.sql.Mod(`"S"."REGION"`, r.Of)
	err := d.sql.Query(ctx, func(rows *sql.Rows) error { return rows.Scan(&divided) },
		`SELECT EXISTS (SELECT 1 FROM "WORKER_SLOT" "S" LEFT JOIN "WORKER_NODE" "N" ON "N"."SLOT" = "S"."ID"`+
			` WHERE `+d.sql.Mod(`"S"."ID"`, r.Of)+` <> `+region+` OR `+d.sql.Mod(`"N"."ID"`, r.Of)+` <> `+region+`)`)
	switch {
	case err != nil:
		return fmt.Errorf("workernode: look for slots of other regions: %w", err)
	case divided:
		return fmt.Errorf("%w: another registry had given out worker ids before it was divided, so %s must begin above them:"+
			" run in this database the statements that uid region split prints for it", ErrRegion, r)
	}
	return nil
}

// commits returns an error if statements outside of transactions are not committed at once. Otherwise renewals would
// wait for a COMMIT that never comes, and be undone when the connection closes.
func (d *DB) commits(ctx context.Context) error {
	if d.sql.Dialect() != "mysql" {
		return nil
	}
	ok := false
	err := d.sql.Query(ctx, func(rows *sql.Rows) error { return rows.Scan(&ok) }, `SELECT @@autocommit = 1 AND @@completion_type <> 'CHAIN'`)
	if err == nil && !ok {
		err = errors.New("workernode: autocommit is off on the connections of this pool, or completion_type is CHAIN, so no lease would be kept: set autocommit=1 and completion_type=NO_CHAIN, in the DSN or the server")
	}
	return err
}

func (d *DB) defaultLead() time.Duration {
	if d.sql.Dialect() == "sqlite" {
		return defaultLeadSQLite
	}
	return DefaultLead
}
