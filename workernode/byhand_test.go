package workernode_test

import (
	"errors"
	"sync"
	"testing"
	"time"

	"github.com/uidplugin/uidplugin/generator"
	"github.com/uidplugin/uidplugin/internal/testkit"
	"github.com/uidplugin/uidplugin/workernode"
)

// Numbers by hand are claimed once, for ever, and never after the registry has given one out.
func TestDBClaimFixed_TakesNumbersThatTheRegistryHasNotGivenOut(t *testing.T) {
	t.Parallel()

	db := tables(t)
	d := open(t, db)
	claim := func(worker, first, next int64, want error) {
		t.Helper()
		if err := d.ClaimFixed(t.Context(), layout, worker); !errors.Is(err, want) {
			t.Errorf("%d: %v", worker, err)
		}
		r, err := d.Registry(t.Context())
		if must(t, err); r.FirstID != first || r.NextID != next {
			t.Errorf("%d: FIRST_ID is %d and NEXT_ID is %d", worker, r.FirstID, r.NextID)
		}
	}
	claim(7, 1025, 1025, nil) // begins the registry
	claim(5000, 5001, 5001, nil)
	claim(5000, 5001, 5001, nil)
	claim(4000, 5001, 5001, nil)
	first, _, err := d.Reserve(t.Context(), layout, 2)
	if must(t, err); first != 5001 {
		t.Errorf("the registry gives out %d", first)
	}
	claim(5000, 5001, 5003, nil)
	claim(5001, 5001, 5003, workernode.ErrFixed)
	claim(6000, 5001, 5003, workernode.ErrFixed)
	testkit.IsError(t, d.ClaimFixed(t.Context(), layout, 6000), workernode.ErrFixed, "may give out 6000, because it begins at 5001", "docs/layouts.md")
	testkit.IsError(t, d.ClaimFixed(t.Context(), narrow(17), 7), workernode.ErrLayoutMismatch, "WithLayout")
}

// All numbers of the layout can be given by hand. A process without one then learns why it gets none.
func TestDBClaimFixed_OfAllNumbersLeavesTheRegistryNone(t *testing.T) {
	t.Parallel()

	small := narrow(5)
	d := open(t, tables(t))
	must(t, d.ClaimFixed(t.Context(), small, 31))
	_, _, err := d.Reserve(t.Context(), small, 1)
	testkit.IsError(t, err, workernode.ErrExhausted, "those below 32 are given by hand", "FIRST_ID", "docs/layouts.md")
}

// The registries of other regions do not learn of a claim.
func TestDBClaimFixed_IsRefusedInARegion(t *testing.T) {
	t.Parallel()

	d := open(t, tables(t))
	_, err := d.OpenRegistry(t.Context(), layout, time.Second, workernode.Region{N: 1, Of: 2})
	must(t, err)
	must(t, d.ClaimFixed(t.Context(), layout, 1024))
	testkit.IsError(t, d.ClaimFixed(t.Context(), layout, 1025), workernode.ErrFixed, "begins at 1025")
}

// A registry that began at 1, in an earlier build or next to UidGenerator's rows, also gives out the numbers of
// WithWorkerID.
func TestDBCheckFixed_ReadsRegistriesOfAllAges(t *testing.T) {
	t.Parallel()

	db := testkit.SQLite{}.Open(t)
	d := open(t, db)
	must(t, d.CheckFixed(t.Context(), layout, 7)) // no table
	run(t, db, `CREATE TABLE "WORKER_REGISTRY" ("EMPLOYEE" INT)`)
	must(t, d.CheckFixed(t.Context(), layout, 7)) // another program's
	run(t, db, `DROP TABLE "WORKER_REGISTRY"`)
	must(t, migrate(t, db))
	must(t, d.CheckFixed(t.Context(), layout, 7)) // nobody has begun the id space
	foreign(t, db, 1025)
	must(t, d.CheckFixed(t.Context(), layout, 7)) // above those that a registry leaves free
	foreign(t, db, 3)
	testkit.IsError(t, d.CheckFixed(t.Context(), layout, 7), workernode.ErrFixed, "WORKER_NODE", "UidGenerator", "7", "docs/layouts.md")
	must(t, d.CheckFixed(t.Context(), layout, 0))
	_, err := d.OpenRegistry(t.Context(), layout, time.Second, workernode.Region{})
	must(t, err)
	testkit.IsError(t, d.CheckFixed(t.Context(), layout, 7), workernode.ErrFixed, "may give out 7, because it begins at 1:")
	must(t, d.CheckFixed(t.Context(), layout, 0)) // which no registry gives out
	run(t, db, `UPDATE "WORKER_REGISTRY" SET "FIRST_ID" = 8, "NEXT_ID" = 8`)
	must(t, d.CheckFixed(t.Context(), layout, 7))
	testkit.IsError(t, d.CheckFixed(t.Context(), generator.SnowflakeLayout(), 7), workernode.ErrLayoutMismatch)
	run(t, db, `ALTER TABLE "WORKER_REGISTRY" DROP COLUMN "FIRST_ID"`)
	testkit.IsError(t, d.CheckFixed(t.Context(), layout, 7), workernode.ErrFixed, "may give out 7, because it begins at 1:")
}

// UidGenerator's table has no registry yet. Formerly a process with a low number started next to it, and the registry that
// began later gave out the same number: of 40,000 ids 2,209 were there twice.
func TestDBCheckFixed_ReadsUidGeneratorsTableBeforeARegistryBegins(t *testing.T) {
	t.Parallel()

	db := testkit.SQLite{}.Open(t)
	d := open(t, db)
	run(t, db, `CREATE TABLE "WORKER_NODE" ("EMPLOYEE" INT)`)
	must(t, d.CheckFixed(t.Context(), layout, 4)) // another program's
	run(t, db, `DROP TABLE "WORKER_NODE"`)
	run(t, db, `CREATE TABLE "WORKER_NODE" ("ID" INTEGER PRIMARY KEY, "HOST_NAME" TEXT, "PORT" TEXT, "TYPE" INT, "LAUNCH_DATE" DATE, "MODIFIED" TIMESTAMP, "CREATED" TIMESTAMP)`)
	must(t, d.CheckFixed(t.Context(), layout, 4))
	foreign(t, db, 3)
	testkit.IsError(t, d.CheckFixed(t.Context(), layout, 4), workernode.ErrFixed, "WORKER_NODE", "UidGenerator", "docs/layouts.md")
	must(t, migrate(t, db))
	_, err := d.OpenRegistry(t.Context(), layout, time.Second, workernode.Region{})
	must(t, err)
	first, _, err := d.Reserve(t.Context(), layout, 1)
	if must(t, err); first != 4 {
		t.Errorf("the registry gives out %d", first)
	}
}

// Processes with numbers by hand and those of the registry start at once. The first one to change the row decides, and
// no number is given to both.
func TestDBClaimFixed_AtOnceWithProcessesOfTheRegistry(t *testing.T) {
	t.Parallel()

	for range 8 {
		db := tables(t)
		var mu sync.Mutex
		var claimed, reserved []int64
		var group sync.WaitGroup
		for i := range int64(12) {
			d := open(t, db)
			group.Go(func() {
				if i%3 > 0 {
					worker := 1500 + 100*i
					switch err := d.ClaimFixed(t.Context(), layout, worker); {
					case err == nil:
						mu.Lock()
						claimed = append(claimed, worker)
						mu.Unlock()
					case !errors.Is(err, workernode.ErrFixed):
						t.Error(err)
					}
					return
				}
				_, err := d.OpenRegistry(t.Context(), layout, time.Second, workernode.Region{})
				first, _, err2 := d.Reserve(t.Context(), layout, 3)
				if err = errors.Join(err, err2); err != nil {
					t.Error(err)
				}
				mu.Lock()
				reserved = append(reserved, first)
				mu.Unlock()
			})
		}
		group.Wait()
		for _, first := range reserved {
			for _, worker := range claimed {
				if first <= worker {
					t.Errorf("%d is given by hand, and the registry gave out %d", worker, first)
				}
			}
		}
	}
}
