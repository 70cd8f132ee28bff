package workernode

import (
	"cmp"
	"context"
	"database/sql"
	"fmt"
	"strings"
	"time"

	"github.com/uidplugin/uidplugin/generator"
	"github.com/uidplugin/uidplugin/internal/sqldb"
)

// registryName is the key of the only row of WORKER_REGISTRY.
const registryName = "default"

// SchemaVersion is SCHEMA_VERSION of the tables that this program creates: the release that last changed them, as
// major * 1000 + minor. Within a major version, changes only add columns with defaults, so older programs continue.
const SchemaVersion = 1

// A Registry is the row of WORKER_REGISTRY: one id space.
type Registry struct {
	Space     string // ID_SPACE: the random name of the id space
	Layout    string // LAYOUT, as [generator.Layout.String]
	LeadTicks int64  // LEAD_TICKS: how far ahead of the clock a fence is set
	NextID    int64  // NEXT_ID: this worker id, and those above, were never given out
	NextSlot  int64  // NEXT_SLOT: the same for slots
	Floor     int64  // FLOOR_TICK: set by an operator after a restore; no tick up to it is stamped
	Region    Region // STRIDE and REMAINDER: which worker ids and slots the registry gives out
	FirstID   int64  // FIRST_ID: worker ids below it are given by hand, and never by the registry

	// Shared reports whether WORKER_NODE.ID is AUTO_INCREMENT. Then UidGenerator has made the table, and may insert.
	Shared bool
}

// Registry reads the registry and changes nothing. The error wraps [ErrTable] if the table or its region is
// unusable, but not if the database is unreachable. It is [ErrNotBegun] if the table is empty.
func (d *DB) Registry(ctx context.Context) (Registry, error) {
	r, ok, err := d.registry(ctx)
	switch {
	case err != nil && sqldb.IsUnreachable(err):
		return r, fmt.Errorf("workernode: read %s: the database cannot be reached: %w", RegistryTable, err)
	case err != nil:
		return r, fmt.Errorf("%w: %s cannot be read: %w", ErrTable, RegistryTable, err)
	case !ok:
		return r, ErrNotBegun
	}
	return r, r.Region.check()
}

// ErrNotBegun reports an empty registry. It wraps [ErrTable].
var ErrNotBegun = fmt.Errorf("%w: %s has no row: no process has begun the id space yet; start one that makes ids, or let a"+
	" migration job leave WithLookupOnly out", ErrTable, RegistryTable)

// registryFields are the columns of a [Registry].
var registryFields = []string{"ID_SPACE", "LAYOUT", "LEAD_TICKS", "NEXT_ID", "NEXT_SLOT", "FLOOR_TICK", "STRIDE", "REMAINDER", "FIRST_ID"}

func (d *DB) registry(ctx context.Context) (r Registry, ok bool, err error) {
	columns := `"` + strings.Join(registryFields, `", "`) + `"`
	into := []any{&r.Space, &r.Layout, &r.LeadTicks, &r.NextID, &r.NextSlot, &r.Floor, &r.Region.Of, &r.Region.N, &r.FirstID}
	var args []any
	if d.sql.Dialect() == "mysql" {
		shared, schema := d.sharedNodes()
		columns, args, into = columns+", "+shared, schema, append(into, &r.Shared)
	}
	err = d.sql.Query(ctx, func(rows *sql.Rows) error {
		ok = true
		return rows.Scan(into...)
	}, `SELECT `+columns+` FROM "WORKER_REGISTRY" WHERE "NAME" = ?`, append(args, registryName)...)
	return r, ok, err
}

// sharedNodes returns a condition of MySQL for [Registry.Shared], with its values.
func (d *DB) sharedNodes() (condition string, args []any) {
	schema := "DATABASE()"
	if s := d.sql.Schema(); s != "" {
		schema, args = "?", []any{s}
	}
	return `EXISTS (SELECT * FROM information_schema.columns WHERE table_schema = ` + schema +
		` AND table_name = '` + NodeTable + `' AND column_name = 'ID' AND extra LIKE '%auto_increment%')`, args
}

// check compares the registry with the options of this process. The zero Region stands for any.
func (r Registry) check(layout generator.Layout, region Region) error {
	switch {
	case r.Layout != layout.String() && r.Shared:
		return fmt.Errorf("%w: this process uses %s, and the registry %s: set UidGenerator's layout in all processes"+
			" (WithLayout; see docs/from-uidgenerator.md)", ErrLayoutMismatch, layout, r.Layout)
	case r.Layout != layout.String():
		return fmt.Errorf("%w: this process uses %s, but the database was begun with %s;"+
			" with both, two rows could get the same id: give this process the database's layout (WithLayout), or a database of its own",
			ErrLayoutMismatch, layout, r.Layout)
	case r.LeadTicks < minLeadTicks || r.LeadTicks > max(ticks(layout, 24*time.Hour), minLeadTicks):
		return fmt.Errorf("%w: LEAD_TICKS in %s is %d; it must be at least %d ticks of %v, and at most a day", ErrTable, RegistryTable, r.LeadTicks, minLeadTicks, layout.Tick)
	case r.NextID < 1 || r.NextSlot < 1 || r.FirstID < 1:
		return fmt.Errorf("%w: in %s NEXT_ID is %d, NEXT_SLOT is %d and FIRST_ID is %d; each must be at least 1", ErrTable, RegistryTable, r.NextID, r.NextSlot, r.FirstID)
	}
	return cmp.Or(r.Region.check(), r.CheckRegion(region), refuseRegion(r.Region, r.Shared))
}

// CheckRegion returns an error that wraps [ErrRegion] unless the registry has the region, or a part of it. After a
// further division it has a part, and processes may restart before their options have the new number of regions.
// The zero Region stands for any.
func (r Registry) CheckRegion(region Region) error {
	if region == (Region{}) || r.Region.DividedFrom(region) {
		return nil
	}
	return fmt.Errorf("%w: this process uses WithRegion(%d, %d), but the registry of this database is %s; docs/regions.md describes how to divide a registry",
		ErrRegion, region.N, region.Of, r.Region)
}

// floor reads FLOOR_TICK, and compares ID_SPACE.
func (d *DB) floor(ctx context.Context, space string) (floor int64, err error) {
	err = d.sql.Query(ctx, func(rows *sql.Rows) error {
		var there string
		if err := rows.Scan(&floor, &there); err != nil {
			return err
		}
		return sameSpace(there, space)
	}, `SELECT "FLOOR_TICK", "ID_SPACE" FROM "WORKER_REGISTRY" WHERE "NAME" = ?`, registryName)
	return floor, err
}

// errSpace reports that another registry was begun, or restored, while this process ran.
var errSpace = fmt.Errorf("%w: %s belongs to another id space than this process", ErrTable, RegistryTable)

func sameSpace(stored, space string) error {
	if stored == space {
		return nil
	}
	return fmt.Errorf("%w: ID_SPACE is %s, but was %s when the process started, so it can make no more ids: restart this process",
		errSpace, printable(stored), space)
}
