package workernode

import (
	"errors"
	"maps"
	"math"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/uidplugin/uidplugin/generator"
	"github.com/uidplugin/uidplugin/internal/testkit"
	"github.com/uidplugin/uidplugin/workernode/internal/lease"
)

func TestRegionFrom_IsTheNextNumberOfTheRegion(t *testing.T) {
	t.Parallel()
	for of := int64(1); of < 9; of++ {
		for n := range of {
			for least := int64(1); least < 40; least++ {
				got := Region{n, of}.From(least)
				if got < least || got >= least+of || got%of != n {
					t.Errorf("region %d of %d, from %d: %d", n, of, least, got)
				}
			}
		}
	}
}

func TestRegionDividedFrom(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		now, earlier Region
		want         bool
	}{
		{Whole, Whole, true},
		{Region{0, 3}, Whole, true},
		{Region{1, 3}, Whole, false}, // slots would keep the number 0
		{Region{1, 4}, Region{1, 2}, true},
		{Region{3, 4}, Region{1, 2}, false},
		{Region{0, 3}, Region{0, 2}, false},
		{Whole, Region{0, 2}, false}, // a restored backup
	} {
		if got := tt.now.DividedFrom(tt.earlier); got != tt.want {
			t.Errorf("%s from %s: %v", tt.now, tt.earlier, got)
		}
	}
}

// Processes of several regions take numbers at random while the registries are divided. No number is taken twice.
func TestRegistryOther_RegionsNeverTakeANumberTwice(t *testing.T) {
	t.Parallel()
	type database struct {
		db      *DB
		process *statements
	}
	first, r := begunAs(t, Region{})
	all := []*database{{first, taker(first, layout, r)}}
	workers, slots := testkit.NewLedger(t), testkit.NewLedger(t)
	take := func(d *database) {
		n := rand.Int64N(5) + 1
		b, err := d.process.reserve(t.Context(), n, rand.Int64N(3))
		testkit.Must(t, err)
		for i := range int(n) {
			workers.Add(d.process.region.String(), b.worker(i))
		}
		s, err := d.process.nextSlot(t.Context(), 0)
		testkit.Must(t, err)
		slots.Add(d.process.region.String(), s)
	}
	for range 10 {
		take(all[0])
	}
	for _, of := range []int64{2, 4, 12} {
		for _, d := range all[:len(all):len(all)] {
			before, err := d.db.Registry(t.Context())
			testkit.Must(t, err)
			r := divide(t, d.db, of)
			for n := before.Region.N + before.Region.Of; n < of; n += before.Region.Of {
				other := r.Other(n)
				fresh := regionDB(t)
				o := &database{fresh, taker(fresh, layout, other)}
				_, err := o.db.sql.Exec(t.Context(), insertRegistry, registryName, other.Space, other.Layout, other.LeadTicks, other.NextID,
					other.NextSlot, SchemaVersion, other.Region.Of, other.Region.N, other.FirstID)
				testkit.Must(t, err)
				if r, err := o.db.OpenRegistry(t.Context(), layout, time.Second, other.Region); err != nil || r.Region != other.Region {
					t.Fatal(r, err)
				}
				all = append(all, o)
				take(d)
			}
		}
		for range 100 {
			take(all[rand.N(len(all))])
		}
	}
	if least := slices.Min(slices.Collect(maps.Keys(workers.Tables()))); least < 1 || len(all) != 12 {
		t.Errorf("%d regions, and the first worker id is %d", len(all), least)
	}
}

// divide divides a registry, as "uid region split" does.
func divide(t *testing.T, d *DB, of int64) Registry {
	t.Helper()
	setStride(t, d, of)
	r, err := d.Registry(t.Context())
	testkit.Must(t, err)
	return r
}

var layout = generator.DefaultLayout()

// regionDB returns a database with the tables and without a registry.
func regionDB(t *testing.T) *DB {
	t.Helper()
	db := testkit.SQLite{}.Open(t)
	createTables(t, db)
	return statementsOn(t, db).db
}

// begunAs returns a database whose registry began as a region.
func begunAs(t *testing.T, region Region) (*DB, Registry) {
	t.Helper()
	d := regionDB(t)
	r, err := d.OpenRegistry(t.Context(), layout, time.Second, region)
	testkit.Must(t, err)
	return d, r
}

func setStride(t *testing.T, d *DB, stride int64) {
	t.Helper()
	_, err := d.sql.Exec(t.Context(), `UPDATE "WORKER_REGISTRY" SET "STRIDE" = ?`, stride)
	testkit.Must(t, err)
}

func TestDBOpenRegistry_Regions(t *testing.T) {
	t.Parallel()
	d, r := begunAs(t, Region{1, 2})
	if r.Region != (Region{1, 2}) || r.NextID != 1025 || r.NextSlot != 1 {
		t.Fatal(r)
	}
	opens := func(want Region, regions ...Region) {
		t.Helper()
		for _, region := range regions {
			if r, err := d.OpenRegistry(t.Context(), layout, time.Second, region); err != nil || r.Region != want {
				t.Error(region, r, err)
			}
		}
	}
	refuses := func(says string, regions ...Region) {
		t.Helper()
		for _, region := range regions {
			_, err := d.OpenRegistry(t.Context(), layout, time.Second, region)
			testkit.IsError(t, err, ErrRegion, says)
		}
	}
	opens(Region{1, 2}, Region{}, Region{1, 2})
	refuses("region 1 of 2", Whole, Region{0, 2}, Region{1, 3})

	// The registry is divided again, while its processes have WithRegion(1, 2). Formerly none of them could start before
	// it got WithRegion(1, 4), and none that had that could start before the division.
	divide(t, d, 4)
	opens(Region{1, 4}, Region{}, Region{1, 2}, Region{1, 4})
	refuses("region 1 of 4", Whole, Region{0, 2}, Region{3, 4}, Region{1, 8}, Region{1, 3})
}

// A region begins although rows of other regions are there, but not without its own row.
func TestDBOpenRegistry_BeginsARegionNextToRowsOfOthers(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name              string
		slot, node, owner int64
		region            Region
		want              error
	}{
		{"another region's slot", 4, 6, 0, Region{1, 2}, nil},
		{"an own slot", 5, 7, 1, Region{1, 2}, ErrTable},
		{"no region is set", 4, 6, 0, Region{}, ErrTable},
		{"a slot from before the registry was divided", 3, 6, 0, Region{1, 2}, ErrRegion},
		{"a worker id from before the registry was divided", 4, 5, 0, Region{1, 2}, ErrRegion},
	} {
		d := regionDB(t)
		insertSlotOf(t, d, tt.slot, tt.owner, tt.node)
		_, err := d.OpenRegistry(t.Context(), layout, time.Second, tt.region)
		if tt.want == nil && err != nil || tt.want != nil && !errors.Is(err, tt.want) {
			t.Errorf("%s: %v", tt.name, err)
		}
	}
}

func insertSlotOf(t *testing.T, d *DB, slot, region, worker int64) {
	t.Helper()
	_, err := d.sql.Exec(t.Context(), `INSERT INTO "WORKER_SLOT" (`+slotColumns+`) VALUES (?, ?, 1, 5, 1, '', 5, 'app', 'host', '1', CURRENT_TIMESTAMP, ?)`,
		slot, layout.String(), region)
	testkit.Must(t, err)
	_, err = d.sql.Exec(t.Context(), `INSERT INTO "WORKER_NODE" (`+nodeColumns+`) VALUES (?, 'host', '1', 1, CURRENT_DATE, CURRENT_TIMESTAMP, CURRENT_TIMESTAMP, ?, '', 't', ?, 0)`,
		worker, slot, layout.String())
	testkit.Must(t, err)
}

// A process must not reclaim a replicated slot, whose FENCE may be old. The row is free and long past.
func TestCandidates_AreOfTheOwnRegion(t *testing.T) {
	t.Parallel()
	d := regionDB(t)
	for i := range int64(4) {
		insertSlotOf(t, d, 10+i, i%2, 20+i)
	}
	s := &statements{db: d, layout: layout, region: Region{1, 2}, host: Host{Application: "app"}}
	p := lease.Params{Last: layout.MaxTick(), Region: 1}
	for _, find := range []func() ([]lease.Row, error){
		func() ([]lease.Row, error) { return s.candidatesOfApplication(t.Context(), p, 100_000) },
		func() ([]lease.Row, error) {
			return s.candidatesWithTables(t.Context(), p, 100_000, []Table{{Name: "t"}})
		},
	} {
		rows, err := find()
		if err != nil || len(rows) != 2 || rows[0].ID != 11 || rows[1].ID != 13 {
			t.Error(rows, err)
		}
	}
	if p.Usable(lease.Row{ID: 10, Region: 0}, 100_000) || !p.Usable(lease.Row{ID: 11, Region: 1}, 100_000) {
		t.Error("usable ignores the region")
	}
}

// After a backup from before the division was restored, a process takes no number that other regions give out.
func TestReserve_RefusesARegistryFromBeforeTheDivision(t *testing.T) {
	t.Parallel()
	d, begun := begunAs(t, Region{})
	r := divide(t, d, 2)
	process := taker(d, layout, begun)
	if _, err := process.reserve(t.Context(), 1, 0); err != nil || process.region != r.Region {
		t.Fatal(process.region, err)
	}
	setStride(t, d, 1)
	if _, err := process.reserve(t.Context(), 1, 0); !errors.Is(err, ErrRegion) {
		t.Error(err)
	}
	if _, err := process.nextSlot(t.Context(), 0); !errors.Is(err, ErrRegion) {
		t.Error(err)
	}
}

// A backup from before a division is restored, and a slot of the other region comes by replication. A process that
// starts then does not know of the division, and formerly took its numbers.
func TestReserve_RefusesNumbersOfARegionWithSlots(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		registry Region
		slot     int64 // its region
		refused  bool
	}{
		{Whole, 0, false}, {Whole, 1, true}, {Region{0, 2}, 1, false}, {Region{0, 2}, 2, true}, {Region{1, 2}, 3, true}, {Region{1, 2}, 2, false}, {Region{3, 4}, 1, false},
	} {
		d, r := begunAs(t, tt.registry)
		insertSlotOf(t, d, 101, tt.slot, 201)
		_, err1 := taker(d, layout, r).reserve(t.Context(), 1, 0)
		_, err2 := taker(d, layout, r).nextSlot(t.Context(), 0)
		if errors.Is(err1, ErrRegion) != tt.refused || errors.Is(err2, ErrRegion) != tt.refused {
			t.Errorf("%s, a slot of region %d: %v, %v", tt.registry, tt.slot, err1, err2)
		}
	}
}

// With a huge STRIDE the numbers overflowed, and a process got 32 worker ids that were the same, or beyond the layout.
func TestReserve_RefusesAHugeStride(t *testing.T) {
	t.Parallel()
	for _, stride := range []int64{1 << 62, 1 << 60, math.MaxInt64} {
		d, r := begunAs(t, Region{})
		setStride(t, d, stride)
		if b, err := taker(d, layout, r).reserve(t.Context(), 32, 0); !errors.Is(err, ErrRegion) {
			t.Error(stride, b, err)
		}
		if _, err := d.OpenRegistry(t.Context(), layout, time.Second, Region{}); !errors.Is(err, ErrTable) {
			t.Error(stride, err)
		}
	}
}
