package admin

import (
	"context"
	"fmt"

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

	// CopySQL removes the registry that a copy of this database has. Run it there before SQL. It must never run in this
	// database, so it is apart: somebody may pipe SQL into the wrong one.
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

// workerIDs counts the worker ids of a region at or above least.
func (d *DB) workerIDs(r workernode.Region, least int64) int64 {
	first, last := r.From(max(least, 1)), d.Layout.MaxWorkerID()
	if first > last {
		return 0
	}
	return (last-first)/r.Of + 1
}

// Given returns how many worker ids of the region are used up, because they are below NEXT_ID, and how many the region
// has. Those below FIRST_ID, which are given by hand, count as neither. Worker ids that the registry gave out before it was divided count if they leave the region's remainder.
func (d *DB) Given() (given, all int64) {
	r := d.Registry
	all = d.workerIDs(r.Region, r.FirstID)
	return all - d.workerIDs(r.Region, max(r.NextID, r.FirstID)), all
}

// Split divides the registry, so that there are of regions. It returns the region of this registry and the new ones,
// with the statements that create their registries. If there are of regions already, Split changes nothing, and returns
// the regions of the last division. For this it needs from, the number of regions before that division: this registry
// does not know which numbers the regions of earlier divisions have given out. Otherwise from may be 0.
func (d *DB) Split(ctx context.Context, of, from int64) (own Region, others []Region, err error) {
	before := d.Registry.Region
	if before.Of == of && from != 0 {
		before.Of = from
		if !before.Valid() || from >= of || !d.Registry.Region.DividedFrom(before) {
			return own, nil, fmt.Errorf("the registry is %s, which was not divided from one of %d", d.Registry.Region, from)
		}
	}
	switch {
	case from != 0 && before.Of != from:
		return own, nil, fmt.Errorf("the registry is %s, not one of %d", before, from)
	case before.Of == of:
		return own, nil, fmt.Errorf("the registry is already %s; to print the statements for the others again, pass the "+
			"number of regions before, such as --from 1", before)
	}
	r, err := d.Nodes.Divide(ctx, d.Registry.Region, of)
	if err != nil {
		return own, nil, err
	}
	d.Registry = r
	for n := before.N + before.Of; n < of; n += before.Of {
		other := r.Other(n)
		o := d.regionOf(other)
		o.SQL = []string{other.Insert()}
		o.CopySQL = []string{`DELETE FROM "WORKER_REGISTRY" WHERE "NAME" = 'default' AND "ID_SPACE" = ` + d.literal(r.Space)}
		others = append(others, o)
	}
	return d.Region(), others, nil
}
