package workernode_test

import (
	"fmt"
	"maps"
	"math"
	"path/filepath"
	"slices"
	"sync"
	"testing"

	"github.com/uidplugin/uidplugin/migrations"
	"gorm.io/gorm"
)

// besideUidGenerator returns a handle on a table that UidGenerator's script would
// have made on SQLite, with so many rows of its, extended.
func besideUidGenerator(t *testing.T, rows int) *gorm.DB {
	t.Helper()
	db := handle(t, filepath.Join(t.TempDir(), "test.db"))
	run(t, db, `CREATE TABLE "WORKER_NODE" (
  "ID" INTEGER PRIMARY KEY AUTOINCREMENT,
  "HOST_NAME" VARCHAR(64) NOT NULL,
  "PORT" VARCHAR(64) NOT NULL,
  "TYPE" INT NOT NULL,
  "LAUNCH_DATE" DATE NOT NULL,
  "MODIFIED" TIMESTAMP NOT NULL,
  "CREATED" TIMESTAMP NOT NULL
)`)
	for range rows {
		java(t, db)
	}
	must(t, migrations.Up(t.Context(), open(t, db)))
	return db
}

// java inserts a row as UidGenerator does, and returns the worker id that it got.
func java(tb testing.TB, db *gorm.DB) (id int64) {
	tb.Helper()
	must(tb, db.Raw(`INSERT INTO "WORKER_NODE" ("HOST_NAME", "PORT", "TYPE", "LAUNCH_DATE", "MODIFIED", "CREATED")
		VALUES ('java-1', '8080', 1, '2024-02-29', CURRENT_TIMESTAMP, CURRENT_TIMESTAMP) RETURNING "ID"`).Scan(&id).Error)
	return id
}

func TestWorkerIDsBeginAboveThoseOfUidGenerator(t *testing.T) {
	t.Parallel()

	db := besideUidGenerator(t, 7)
	leases, err := assigner(t, db, layout).Assign(t.Context(), "orders", "items")
	must(t, err)
	if got := workers(leases); !slices.Equal(got, []int64{8, 9}) {
		t.Errorf("worker ids %d", got)
	}
	if id := java(t, db); id != 10 {
		t.Errorf("UidGenerator got %d", id)
	}
}

// TestUidGeneratorInBetween takes turns with UidGenerator, whose ids are next to
// ours: nobody gets one twice, and few are left out.
func TestUidGeneratorInBetween(t *testing.T) {
	t.Parallel()

	db := besideUidGenerator(t, 0)
	a := assigner(t, db, narrow(6))
	seen := map[int64]string{}
	take := func(who string, ids ...int64) {
		t.Helper()
		for _, id := range ids {
			if other, taken := seen[id]; taken {
				t.Errorf("%d: %s and %s", id, who, other)
			}
			seen[id] = who
		}
	}
	for i := range 10 {
		for range i % 3 {
			take("java", java(t, db))
		}
		leases, err := a.Assign(t.Context(), names(1+i%4)...)
		must(t, err)
		take("ours", workers(leases)...)
	}
	if largest := slices.Max(slices.Collect(maps.Keys(seen))); largest > int64(2*len(seen)) {
		t.Errorf("the largest of %d worker ids is %d", len(seen), largest)
	}
}

func TestUidGeneratorAtTheSameTime(t *testing.T) {
	t.Parallel()

	db := besideUidGenerator(t, 3)
	var mu sync.Mutex
	var all []int64
	var group sync.WaitGroup
	for i := range 8 {
		group.Go(func() {
			a := assigner(t, db, layout)
			for range 10 {
				var ids []int64
				if i%2 == 0 {
					ids = []int64{java(t, db)}
				} else {
					leases, err := a.Assign(t.Context(), "orders", "items")
					if err != nil {
						t.Error(err)
						return
					}
					ids = workers(leases)
				}
				mu.Lock()
				all = append(all, ids...)
				mu.Unlock()
			}
		})
	}
	group.Wait()
	slices.Sort(all)
	if n := len(all); n != 120 || len(slices.Compact(all)) != n {
		t.Errorf("%d worker ids, some of them twice", n)
	}
}

// TestRowsOfOthersAreSteppedOver: each case has the registry at 5 and rows that
// somebody else inserted since.
func TestRowsOfOthersAreSteppedOver(t *testing.T) {
	t.Parallel()

	for _, tt := range []struct {
		name  string
		taken []int64
		n     int
		want  int64 // first worker id
	}{
		{"none", nil, 2, 5},
		{"the next one", []int64{5}, 2, 7}, // 5 and 6 were taken for ours together
		{"the next hundred", series(5, 104), 2, 105},
		{"in the middle of those wanted", []int64{6}, 3, 8},
		{"the last of those wanted", []int64{7}, 3, 8},
		{"behind those wanted", []int64{8}, 3, 5},
		{"far above, but in the layout", []int64{5, 1000}, 2, 1001},
		{"too large for the layout", []int64{1 << 40}, 2, 5},
		{"too large for the layout, and the next one", []int64{5, 1 << 40}, 2, 7},
		{"the largest there is, and the next one", []int64{5, math.MaxInt64}, 2, 7},
		{"the last of the layout, and the next one", []int64{5, 1<<22 - 1}, 2, 7},
		{"negative", []int64{-5}, 2, 5},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()

			db := tables(t)
			a := assigner(t, db, layout)
			_, err := a.Assign(t.Context(), names(4)...)
			must(t, err)
			for _, id := range tt.taken {
				foreign(t, db, id)
			}
			leases, err := a.Assign(t.Context(), names(tt.n)...)
			must(t, err)
			if leases[0].WorkerID != tt.want {
				t.Errorf("from %d on, want %d", leases[0].WorkerID, tt.want)
			}
			// And then on, without a gap.
			more, err := a.Assign(t.Context(), "orders")
			must(t, err)
			if after := tt.want + int64(tt.n); more[0].WorkerID < after || len(tt.taken) == 0 && more[0].WorkerID != after {
				t.Errorf("then %d", more[0].WorkerID)
			}
		})
	}
}

func series(first, last int64) (list []int64) {
	for i := first; i <= last; i++ {
		list = append(list, i)
	}
	return list
}

// TestAStrayRowDoesNotUseUpTheLayout that was there before the registry: its
// worker id fits no layout, so nobody can have stamped with it.
func TestAStrayRowDoesNotUseUpTheLayout(t *testing.T) {
	t.Parallel()

	for _, stray := range []int64{1 << 22, 1 << 40, math.MaxInt64} {
		t.Run(fmt.Sprint(stray), func(t *testing.T) {
			t.Parallel()

			db := tables(t)
			foreign(t, db, 3)
			foreign(t, db, stray)
			leases, err := assigner(t, db, layout).Assign(t.Context(), "orders")
			if err != nil {
				t.Fatal(err)
			}
			if leases[0].WorkerID != 4 {
				t.Errorf("worker id %d", leases[0].WorkerID)
			}
		})
	}
}
