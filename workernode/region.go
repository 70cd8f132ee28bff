package workernode

import (
	"context"
	"database/sql"
	"fmt"
	"math"
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

// share returns the end of an error about used up worker ids.
func (r Region) share() string {
	if r == Whole {
		return ""
	}
	return fmt.Sprintf(", and this registry, %s, gives out only one in %d of them", r, r.Of)
}

// Valid reports whether N is from 0 to Of-1, and Of is so small that numbers of the region do not overflow.
func (r Region) Valid() bool { return 0 <= r.N && r.N < r.Of && r.Of <= math.MaxInt32 }

func (r Region) check() error {
	if r.Valid() {
		return nil
	}
	return fmt.Errorf("%w: STRIDE in %s is %d and REMAINDER is %d, which must be from 0 to STRIDE-1, and STRIDE at most 2^31-1", ErrTable, RegistryTable, r.Of, r.N)
}

// From returns the first number of the region at or above low, which must be positive.
func (r Region) From(low int64) int64 { return low + (r.N-low%r.Of+r.Of)%r.Of }

// DividedFrom reports whether a registry of the earlier region may have r now: divisions keep N and multiply Of.
func (r Region) DividedFrom(earlier Region) bool { return r.N == earlier.N && r.Of%earlier.Of == 0 }

// refuseRegion returns an error if r is one of several regions and UidGenerator shares WORKER_NODE, because
// UidGenerator would take worker ids of all regions.
func refuseRegion(r Region, shared bool) error {
	if r == Whole || !shared {
		return nil
	}
	return fmt.Errorf("%w: %s.ID is AUTO_INCREMENT, so UidGenerator may insert worker ids of other regions:"+
		" stop UidGenerator, and remove AUTO_INCREMENT from the column", ErrRegion, NodeTable)
}

// Other returns the registry with which region n begins. It gives out only numbers above all that r has given out.
func (r Registry) Other(n int64) Registry {
	r.Region.N, r.Space = n, newSpace()
	r.NextID, r.NextSlot = r.Region.From(r.NextID), r.Region.From(r.NextSlot)
	return r
}

// Regions returns the region of each worker id, except those without a slot.
func (d *DB) Regions(ctx context.Context, workers ...int64) (map[int64]int64, error) {
	regions := make(map[int64]int64, len(workers))
	err := inChunks(workers, func(marks string, args []any) error {
		return d.sql.Query(ctx, func(rows *sql.Rows) error {
			var worker, region int64
			err := rows.Scan(&worker, &region)
			regions[worker] = region
			return err
		}, `SELECT "N"."ID", "S"."REGION" FROM "WORKER_NODE" "N" JOIN "WORKER_SLOT" "S" ON "S"."ID" = "N"."SLOT"`+
			` WHERE "N"."ID" IN (`+marks+`)`, args...)
	})
	if err != nil {
		return nil, fmt.Errorf("workernode: look up the regions of worker ids: %w", err)
	}
	return regions, nil
}
