package workernode

import (
	"context"
	"database/sql"
	"fmt"
	"math"
	"slices"
	"strings"
)

// A Region is the share of an id space that one registry gives out: the worker ids and slots that leave the remainder N
// when divided by Of. The regions 0 to Of-1 have no number in common, so their registries need not communicate. Of is
// stored in STRIDE, and N in REMAINDER and in REGION of each slot.
//
// A registry that was divided keeps all numbers that it had given out before. The other regions begin above them.
type Region struct{ N, Of int64 }

// Whole is the region of a registry that was not divided.
var Whole = Region{0, 1}

// String returns a text such as "region 0 of 2".
func (r Region) String() string { return fmt.Sprintf("region %d of %d", r.N, r.Of) }

// share returns the part of an error about used up worker ids that names the region, or "" for Whole.
func (r Region) share() string {
	if r == Whole {
		return ""
	}
	return fmt.Sprintf(", and this registry, %s, gives out one of %d", r, r.Of)
}

// Valid reports whether N is from 0 to Of-1, and Of is so small that numbers of the region do not overflow.
func (r Region) Valid() bool { return 0 <= r.N && r.N < r.Of && r.Of <= math.MaxInt32 }

// Check returns an error that wraps [ErrTable] unless the region is valid.
func (r Region) Check() error {
	if r.Valid() {
		return nil
	}
	return fmt.Errorf("%w: STRIDE in %s is %d and REMAINDER is %d, which must be from 0 to STRIDE-1, and STRIDE at most 2^31-1", ErrTable, RegistryTable, r.Of, r.N)
}

// From returns the first number of the region at or above least, which must be positive.
func (r Region) From(least int64) int64 { return least + (r.N-least%r.Of+r.Of)%r.Of }

// DividedFrom reports whether r is what a registry of an earlier region keeps after a division, or the same region.
func (r Region) DividedFrom(earlier Region) bool { return r.N == earlier.N && r.Of%earlier.Of == 0 }

// nextNumber returns SQL for the first number of the region at or above both a counter and a number that is passed as
// its two arguments. That number must be of the region.
func (d *DB) nextNumber(r Region, counter string) string {
	aligned := `"` + counter + `"`
	if r != Whole {
		above := d.sql.Mod(`"`+counter+`"`, r.Of)
		aligned += ` + ` + d.sql.Mod(fmt.Sprintf(`(%d - %s)`, r.N+r.Of, above), r.Of)
	}
	return `CASE WHEN "` + counter + `" > ? THEN ` + aligned + ` ELSE ? END`
}

// refuseRegion returns an error if r is one of several regions and UidGenerator shares WORKER_NODE, because UidGenerator
// would take worker ids of all regions.
func refuseRegion(r Region, shared bool) error {
	if r == Whole || !shared {
		return nil
	}
	return fmt.Errorf("%w: %s.ID is AUTO_INCREMENT, so UidGenerator may insert worker ids of other regions:"+
		" stop UidGenerator, and remove AUTO_INCREMENT from the column", ErrRegion, NodeTable)
}

// reread reads the registry again before a process takes a number. The registry may have been divided since the process
// read it as region. Otherwise the error wraps [errSpace] if it belongs to another id space, and [ErrRegion] if it is of
// another region.
func (d *DB) reread(ctx context.Context, space string, region Region) (r Registry, err error) {
	r, ok, err := d.registry(ctx)
	switch {
	case err != nil:
	case !ok:
		err = fmt.Errorf("%w: the row %q of %s is missing: restore it, or, if all four tables were emptied, restart this process",
			ErrTable, registryName, RegistryTable)
	case r.Space != space:
		err = sameSpace(r.Space, space)
	case !r.Region.Valid() || !r.Region.DividedFrom(region):
		err = fmt.Errorf("%w: %s is %s, but was %s when this process read it, so another registry may give out the same numbers:"+
			" if a backup was restored, run uid region split again", ErrRegion, RegistryTable, r.Region, region)
	default:
		err = d.refuseOverlap(ctx, r.Region)
	}
	return r, err
}

// refuseOverlap returns an error if the tables have a slot of another region that gives out numbers of r. Then r is from
// a backup of before a division, or the other region began with another number of regions.
func (d *DB) refuseOverlap(ctx context.Context, r Region) error {
	var other sql.NullInt64
	err := d.sql.Query(ctx, func(rows *sql.Rows) error { return rows.Scan(&other) },
		fmt.Sprintf(`SELECT MIN("REGION") FROM "WORKER_SLOT" WHERE "REGION" <> %d AND %s = %d`, r.N, d.sql.Mod(`"REGION"`, r.Of), r.N))
	switch {
	case err != nil:
		return fmt.Errorf("workernode: look for slots of other regions: %w", err)
	case other.Valid:
		return fmt.Errorf("%w: %s is %s, but %s has rows of region %d, whose registry gives out the same numbers:"+
			" if a backup was restored, run uid region split again", ErrRegion, RegistryTable, r, SlotTable, other.Int64)
	}
	return nil
}

// mayBegin returns an error if a registry of a region cannot begin in this database: it was there and has given out
// numbers that are now unknown, or another registry has given out numbers of the region.
func (d *DB) mayBegin(ctx context.Context, r Region) error {
	if err := d.refuseDeletedRow(ctx, r); err != nil || r == Whole {
		return err
	}
	return d.refuseDividedElsewhere(ctx, r)
}

// refuseDeletedRow returns an error if a process of the region had a slot, and the registry's row is missing. Processes
// may still stamp, and the worker ids that were given out are unknown.
func (d *DB) refuseDeletedRow(ctx context.Context, r Region) error {
	// Rows of other regions may be there, because they are replicated. Sessions and worker ids without the row of their
	// slot may be of any region.
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
		return fmt.Errorf("%w: the row %q of %s was deleted, and the other tables have rows of its id space: a new row could give out their worker ids again;"+
			" restore it, with ID_SPACE as before and with NEXT_ID and NEXT_SLOT above all that were given out, or stop all processes and rename the four tables to begin a new id space;"+
			" if the rows were replicated from another region, set WithRegion",
			ErrTable, registryName, RegistryTable)
	case lost:
		return fmt.Errorf("%w: the row %q of %s was deleted, and the other tables have rows of %s: a new row could give out their worker ids again;"+
			" restore it, with ID_SPACE, STRIDE and REMAINDER as before and with NEXT_ID and NEXT_SLOT above all that were given out",
			ErrTable, registryName, RegistryTable, r)
	}
	return nil
}

// refuseDividedElsewhere returns an error if another registry has given out numbers that do not leave its remainder, so
// before it was divided. They may be of any region, and not all of them may be replicated yet.
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

// nextSlot takes a slot that was never given out, none below least, and notes the region that the registry has now.
func (s *statements) nextSlot(ctx context.Context, least int64) (slot int64, err error) {
	slot, s.region, err = s.db.nextSlot(ctx, s.space, s.region, least)
	return slot, err
}

// reserve takes n worker ids that were never given out, none below atLeast, and notes the region that the registry has now.
func (s *statements) reserve(ctx context.Context, n, atLeast int64) (b block, err error) {
	b, s.region, err = s.db.reserve(ctx, s.layout, s.space, s.region, n, atLeast)
	return b, err
}

// Regions returns the region of each worker id, except those without a slot.
func (d *DB) Regions(ctx context.Context, workers ...int64) (map[int64]int64, error) {
	regions := make(map[int64]int64, len(workers))
	for chunk := range slices.Chunk(workers, lookupChunk) {
		args := make([]any, len(chunk))
		for i, w := range chunk {
			args[i] = w
		}
		err := d.sql.Query(ctx, func(rows *sql.Rows) error {
			var worker, region int64
			err := rows.Scan(&worker, &region)
			regions[worker] = region
			return err
		}, `SELECT "N"."ID", "S"."REGION" FROM "WORKER_NODE" "N" JOIN "WORKER_SLOT" "S" ON "S"."ID" = "N"."SLOT"`+
			` WHERE "N"."ID" IN (?`+strings.Repeat(", ?", len(args)-1)+`)`, args...)
		if err != nil {
			return nil, fmt.Errorf("workernode: look up the regions of worker ids: %w", err)
		}
	}
	return regions, nil
}

// Other returns the registry with which region n of the same division begins, above all numbers that r has given out.
func (r Registry) Other(n int64) Registry {
	r.Region.N, r.Space = n, newSpace()
	r.NextID, r.NextSlot = r.Region.From(r.NextID), r.Region.From(r.NextSlot)
	return r
}
