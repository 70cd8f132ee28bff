package workernode

import (
	"context"
	"database/sql"
	"fmt"
	"math"
	"slices"
	"strings"

	"github.com/uidplugin/uidplugin/generator"
)

// A Region is the part of an id space that one registry gives out: the worker ids and slots that leave the remainder N
// when they are divided by Of. So registries with different regions never give out the same number, even if they never
// exchange a message. STRIDE has Of, and REMAINDER and the REGION of a slot have N.
//
// A registry that was divided after it gave out numbers also owns all its earlier ones. The other regions begin above
// them.
type Region struct{ N, Of int64 }

// Whole is the region of a registry that was not divided.
var Whole = Region{0, 1}

// String returns a text such as "region 0 of 2".
func (r Region) String() string { return fmt.Sprintf("region %d of %d", r.N, r.Of) }

// share returns a hint for errors about numbers that are used up.
func (r Region) share() string {
	if r == Whole {
		return ""
	}
	return fmt.Sprintf(", and this registry, %s, gives out one of %d", r, r.Of)
}

// Valid reports whether N is from 0 to Of-1, and Of is so small that numbers of the region do not overflow.
func (r Region) Valid() bool { return 0 <= r.N && r.N < r.Of && r.Of <= math.MaxInt32 }

// From returns the smallest number of the region that is not below least, which must be positive.
func (r Region) From(least int64) int64 { return least + (r.N-least%r.Of+r.Of)%r.Of }

// DividedFrom reports whether r is what remains of an earlier region after it was divided, or is the same.
func (r Region) DividedFrom(earlier Region) bool { return r.N == earlier.N && r.Of%earlier.Of == 0 }

// nextNumber is SQL for the smallest number of the region that is neither below a counter nor below its two arguments.
// The arguments must be the same number of the region.
func (r Region) nextNumber(counter string) string {
	aligned := `"` + counter + `"`
	if r != Whole {
		aligned += fmt.Sprintf(` + (%d - "%s" %% %d) %% %d`, r.N+r.Of, counter, r.Of, r.Of)
	}
	return `CASE WHEN "` + counter + `" > ? THEN ` + aligned + ` ELSE ? END`
}

// refuseRegion returns an error if a registry cannot be, or become, a region: UidGenerator takes the next worker id
// whatever the region.
func refuseRegion(r Region, shared bool) error {
	if r == Whole || !shared {
		return nil
	}
	return fmt.Errorf("%w: %s.ID is AUTO_INCREMENT, so UidGenerator may insert into it, whose worker ids would be those of other regions:"+
		" stop UidGenerator, and remove AUTO_INCREMENT from the column", ErrRegion, NodeTable)
}

// numbers reads the registry before a process takes a number of it. The error wraps [errSpace] if it belongs to another
// id space, and [ErrRegion] if it is no longer of the region that the process has read before, or of a part of that.
func (d *DB) numbers(ctx context.Context, space string, region Region) (r Registry, err error) {
	r, ok, err := d.registry(ctx)
	switch {
	case err != nil:
	case !ok:
		err = fmt.Errorf("%w: the row %q of %s is missing: restore it, or, if all four tables were emptied, restart this process",
			ErrTable, registryName, RegistryTable)
	case r.Space != space:
		err = sameSpace(r.Space, space)
	case !r.Region.Valid() || !r.Region.DividedFrom(region):
		err = fmt.Errorf("%w: %s is %s, but was %s when this process read it, so other registries may give out its numbers:"+
			" if a backup was restored, run uid region split again", ErrRegion, RegistryTable, r.Region, region)
	default:
		err = d.alone(ctx, r.Region)
	}
	return r, err
}

// alone returns an error if the tables have a slot of a region that gives out numbers of r. Then r is from a backup of
// before it was divided, or the other region was begun with another number of regions.
func (d *DB) alone(ctx context.Context, r Region) error {
	var other sql.NullInt64
	err := d.sql.Query(ctx, func(rows *sql.Rows) error { return rows.Scan(&other) },
		fmt.Sprintf(`SELECT MIN("REGION") FROM "WORKER_SLOT" WHERE "REGION" <> %d AND "REGION" %% %d = %d`, r.N, r.Of, r.N))
	switch {
	case err != nil:
		return fmt.Errorf("workernode: look for slots of other regions: %w", err)
	case other.Valid:
		return fmt.Errorf("%w: %s is %s, but %s has rows of region %d, whose registry gives out the same numbers:"+
			" if a backup was restored, run uid region split again", ErrRegion, RegistryTable, r, SlotTable, other.Int64)
	}
	return nil
}

// mayBegin returns an error if the registry cannot begin in a region, because a process of the region had a slot.
// Processes may still stamp, and the worker ids that were given out are unknown.
func (d *DB) mayBegin(ctx context.Context, r Region) error {
	// Slots of other regions may be there, because they are replicated. Their sessions and worker ids then have a slot.
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
	case r == Whole:
		return nil
	}
	// Numbers that another registry gave out before it was divided may be of any region, and may not be replicated yet.
	divided := false
	err = d.sql.Query(ctx, func(rows *sql.Rows) error { return rows.Scan(&divided) },
		fmt.Sprintf(`SELECT EXISTS (SELECT 1 FROM "WORKER_SLOT" "S" LEFT JOIN "WORKER_NODE" "N" ON "N"."SLOT" = "S"."ID"`+
			` WHERE "S"."ID" %% %[1]d <> "S"."REGION" %% %[1]d OR "N"."ID" %% %[1]d <> "S"."REGION" %% %[1]d)`, r.Of))
	switch {
	case err != nil:
		return fmt.Errorf("workernode: look for slots of other regions: %w", err)
	case divided:
		return fmt.Errorf("%w: another registry was divided after it had given out worker ids, so %s does not begin with the first one:"+
			" run in this database the INSERT that uid region prints there", ErrRegion, r)
	}
	return nil
}

// nextSlot takes a slot that was never given out, none below least.
func (s *statements) nextSlot(ctx context.Context, least int64) (slot int64, err error) {
	slot, s.region, err = s.db.nextSlot(ctx, s.space, s.region, least)
	return slot, err
}

// reserve takes n worker ids that were never given out, none below atLeast.
func (s *statements) reserve(ctx context.Context, n, atLeast int64) (b block, err error) {
	b, s.region, err = s.db.reserve(ctx, s.layout, s.space, s.region, n, atLeast)
	return b, err
}

// Regions returns the regions of those worker ids that belong to a slot.
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

// Divide makes the registry, which is the region before, one of of, so that others can begin, and returns it. of must be a
// multiple of the number of regions before. The region keeps its number, and all worker ids and slots that it has given
// out. Others may begin with the numbers of [Registry.Other]. Processes may run meanwhile. The error wraps [ErrRegion] if
// the registry cannot be divided so, or is not the region before, because somebody else has divided it: the others would
// then give out the numbers of those that begin after that division.
func (d *DB) Divide(ctx context.Context, before Region, of int64) (Registry, error) {
	for try := 0; ; try++ {
		r, err := d.Registry(ctx)
		if err != nil {
			return r, err
		}
		if r.Region != before {
			return r, fmt.Errorf("%w: the registry is %s now, and was %s when it was read: who divided it meanwhile has the statements for the other regions;"+
				" if nobody has, uid region split --from prints them", ErrRegion, r.Region, before)
		}
		if before.Of == of && before.Valid() {
			return r, refuseRegion(r.Region, r.Shared)
		}
		divided := Region{r.Region.N, of}
		if err := refuseRegion(divided, r.Shared); err != nil {
			return r, err
		}
		if !r.Region.Valid() || !divided.Valid() || !divided.DividedFrom(r.Region) {
			return r, fmt.Errorf("%w: the registry is %s, so the new number of regions must be a multiple of %d, and is %d", ErrRegion, r.Region, r.Region.Of, of)
		}
		if layout, err := generator.ParseLayout(r.Layout); err != nil || r.NextID > layout.MaxWorkerID()-of+1 {
			return r, fmt.Errorf("%w: of the layout %s, the registry has given out the worker ids up to %d, so too few are left for %d regions", ErrRegion, r.Layout, r.NextID-1, of)
		}
		// Others begin above the counters that are read after this statement. No process takes a number later without
		// comparing STRIDE.
		n, err := d.sql.Exec(ctx, `UPDATE "WORKER_REGISTRY" SET "STRIDE" = ? WHERE "NAME" = ? AND "ID_SPACE" = ? AND "STRIDE" = ? AND "REMAINDER" = ?`,
			of, registryName, r.Space, r.Region.Of, r.Region.N)
		switch {
		case err != nil:
			return r, fmt.Errorf("workernode: divide %s: %w", RegistryTable, err)
		case n == 1:
			r, err = d.Registry(ctx)
			if err == nil && r.Region != divided {
				err = fmt.Errorf("%w: the registry is %s after it was made %s: something else changes %s", ErrRegion, r.Region, divided, RegistryTable)
			}
			return r, err
		case try >= maxTries:
			return r, fmt.Errorf("workernode: divide %s: the database changed no row, and reports no error", RegistryTable)
		}
	}
}

// Other returns the registry with which another region of the same number begins, above all numbers that r has given out.
func (r Registry) Other(n int64) Registry {
	r.Region.N, r.Space = n, newSpace()
	r.NextID, r.NextSlot = r.Region.From(r.NextID), r.Region.From(r.NextSlot)
	return r
}

// Insert returns the statement that creates the registry's row, with names in double quotes.
func (r Registry) Insert() string {
	return fmt.Sprintf(`INSERT INTO "WORKER_REGISTRY" ("NAME", "ID_SPACE", "LAYOUT", "LEAD_TICKS", "NEXT_ID", "NEXT_SLOT", "FLOOR_TICK", "SCHEMA_VERSION", "STRIDE", "REMAINDER")`+
		` VALUES ('%s', '%s', '%s', %d, %d, %d, %d, %d, %d, %d)`,
		registryName, r.Space, r.Layout, r.LeadTicks, r.NextID, r.NextSlot, r.Floor, SchemaVersion, r.Region.Of, r.Region.N)
}
