package admin

import (
	"context"
	"fmt"

	"github.com/uidplugin/uidplugin/generator"
	"github.com/uidplugin/uidplugin/workernode"
)

// A Region describes the registry of one region.
type Region struct {
	Region   int64    `json:"region"`
	Of       int64    `json:"of"` // 1: the registry is not divided
	Space    string   `json:"id_space"`
	NextID   int64    `json:"next_worker_id"` // the next worker id that the region gives out
	NextSlot int64    `json:"next_slot"`
	Left     int64    `json:"worker_ids_left"` // worker ids of the region from NextID on
	SQL      []string `json:"sql,omitempty"`   // creates the registry of a new region; fails where one exists

	// CopySQL removes the registry of a copy of this database. Run it in the copy, before SQL. It must never run in
	// this database, so it is not a part of SQL, which somebody may pipe into the wrong database.
	CopySQL []string `json:"copy_sql,omitempty"`

	of workernode.Region
}

// String returns a text such as "region 0 of 2".
func (r Region) String() string { return r.of.String() }

// Divided reports whether there are other regions.
func (r Region) Divided() bool { return r.of != workernode.Whole }

// Region returns the region of this database's registry.
func (d *DB) Region() Region { return d.regionOf(d.Registry) }

func (d *DB) regionOf(r workernode.Registry) Region {
	return Region{
		Region: r.Region.N, Of: r.Region.Of, Space: r.Space, of: r.Region,
		NextID: r.Region.From(max(r.NextID, r.FirstID)), NextSlot: r.Region.From(max(r.NextSlot, 1)),
		Left: d.workerIDs(r.Region, max(r.NextID, r.FirstID)),
	}
}

// workerIDs counts the worker ids of a region at or above low.
func (d *DB) workerIDs(r workernode.Region, low int64) int64 {
	first, last := r.From(max(low, 1)), d.Layout.MaxWorkerID()
	if first > last {
		return 0
	}
	return (last-first)/r.Of + 1
}

// given counts the worker ids of the region: those that are given out, and all. It leaves out those below FIRST_ID,
// which people give out by hand, and those that belong to other regions since a division.
func (d *DB) given() (used, total int64) {
	r := d.Registry
	total = d.workerIDs(r.Region, r.FirstID)
	return total - d.workerIDs(r.Region, max(r.NextID, r.FirstID)), total
}

// Split divides the registry, so that there are count regions in all. It returns the region of this registry, and
// the new regions with the statements that create their registries. A repeated call changes nothing and returns the
// same, if previous is the number of regions before the first call. The regions of earlier divisions are left out,
// because this registry does not know which numbers they have given out. In a first call previous may be 0.
func (d *DB) Split(ctx context.Context, count, previous int64) (own Region, created []Region, err error) {
	before := d.Registry.Region
	if before.Of == count && previous != 0 {
		before.Of = previous
		if !before.Valid() || previous >= count || !d.Registry.Region.DividedFrom(before) {
			return own, nil, fmt.Errorf("the registry is %s, and cannot have been one of %d before it was divided",
				d.Registry.Region, previous)
		}
	}
	switch {
	case previous != 0 && before.Of != previous:
		return own, nil, fmt.Errorf("the registry is %s, not one of %d", before, previous)
	case before.Of == count:
		return own, nil, fmt.Errorf("the registry is already %s; to print the statements for the other regions again, pass "+
			"the number of regions before the split, such as --from 1", before)
	}
	r, err := d.divide(ctx, d.Registry.Region, count)
	if err != nil {
		return own, nil, err
	}
	d.Registry = r
	for n := before.N + before.Of; n < count; n += before.Of {
		other := r.Other(n)
		o := d.regionOf(other)
		o.SQL = []string{insertOf(other)}
		o.CopySQL = []string{`DELETE FROM "WORKER_REGISTRY" WHERE "NAME" = 'default' AND "ID_SPACE" = ` + d.literal(r.Space)}
		created = append(created, o)
	}
	return d.Region(), created, nil
}

// divide divides the registry, which must still have the region old, and returns it. The registry keeps all worker
// ids and slots that it has given out. Processes may run meanwhile. If somebody else has divided the registry, the
// error wraps [workernode.ErrRegion], because the new regions of both divisions would have numbers in common.
func (d *DB) divide(ctx context.Context, old workernode.Region, count int64) (workernode.Registry, error) {
	for try := 0; ; try++ {
		r, err := d.Nodes.Registry(ctx)
		if err != nil {
			return r, err
		}
		divided := workernode.Region{N: r.Region.N, Of: count}
		if err := divisible(r, old, divided); err != nil || old.Of == count {
			return r, err
		}
		// The counters are read after this UPDATE, and the other regions begin above them. From now on no process
		// uses the old STRIDE, because each UPDATE of a counter compares STRIDE.
		n, err := d.SQL.Exec(ctx, `UPDATE "WORKER_REGISTRY" SET "STRIDE" = ?`+
			` WHERE "NAME" = 'default' AND "ID_SPACE" = ? AND "STRIDE" = ? AND "REMAINDER" = ?`, count, r.Space, r.Region.Of, r.Region.N)
		switch {
		case err != nil:
			return r, fmt.Errorf("divide %s: %w", workernode.RegistryTable, err)
		case n == 1:
			r, err = d.Nodes.Registry(ctx)
			if err == nil && r.Region != divided {
				err = fmt.Errorf("%w: the registry is %s after it was made %s: something else changes %s",
					workernode.ErrRegion, r.Region, divided, workernode.RegistryTable)
			}
			return r, err
		case try >= 20:
			return r, fmt.Errorf("divide %s: the database changed no row, and reports no error", workernode.RegistryTable)
		}
	}
}

// divisible returns an error unless the registry r still has the region old, and can get the region new.
func divisible(r workernode.Registry, old, new workernode.Region) error {
	layout, err := generator.ParseLayout(r.Layout)
	switch {
	case r.Region != old:
		return fmt.Errorf("%w: the registry is %s now, and was %s when it was read: somebody else has divided it,"+
			" and has the statements for the new regions; if nobody has, uid region split --from prints them",
			workernode.ErrRegion, r.Region, old)
	case r.Shared:
		return fmt.Errorf("%w: %s.ID is AUTO_INCREMENT, so UidGenerator may insert worker ids of other regions:"+
			" stop UidGenerator, and remove AUTO_INCREMENT from the column", workernode.ErrRegion, workernode.NodeTable)
	case r.Region == new && new.Valid():
		return nil
	case !r.Region.Valid() || !new.Valid() || !new.DividedFrom(r.Region):
		return fmt.Errorf("%w: the registry is %s, so the new number of regions must be a multiple of %d, and is %d",
			workernode.ErrRegion, r.Region, r.Region.Of, new.Of)
	case err != nil:
		return fmt.Errorf("%w: %w", workernode.ErrRegion, err)
	case r.NextID > layout.MaxWorkerID()-new.Of+1:
		return fmt.Errorf("%w: the registry has given out the worker ids of the layout %s up to %d, so too few are left for %d regions",
			workernode.ErrRegion, r.Layout, r.NextID-1, new.Of)
	}
	return nil
}

// insertOf returns the INSERT of a registry's row in WORKER_REGISTRY, with names in double quotes.
func insertOf(r workernode.Registry) string {
	return fmt.Sprintf(`INSERT INTO "WORKER_REGISTRY" ("NAME", "ID_SPACE", "LAYOUT", "LEAD_TICKS", "NEXT_ID", "NEXT_SLOT", "FLOOR_TICK",`+
		` "SCHEMA_VERSION", "STRIDE", "REMAINDER", "FIRST_ID") VALUES ('default', '%s', '%s', %d, %d, %d, %d, %d, %d, %d, %d)`,
		r.Space, r.Layout, r.LeadTicks, r.NextID, r.NextSlot, r.Floor, workernode.SchemaVersion, r.Region.Of, r.Region.N, r.FirstID)
}
