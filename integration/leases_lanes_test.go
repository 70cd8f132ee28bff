package integration_test

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/uidplugin/uidplugin"
	"github.com/uidplugin/uidplugin/generator"
	"github.com/uidplugin/uidplugin/workernode"
	"gorm.io/gorm"
)

// Parcel is what imports write.
type Parcel struct {
	ID     int64 `gorm:"primaryKey;autoIncrement:false;uid"`
	Weight int
}

// Letter is the same with a key of the database's.
type Letter struct {
	ID     int64 `gorm:"primaryKey;autoIncrement"`
	Weight int
}

// An import with the default options gets more worker ids, so that the ids are not
// what it waits for, and they ascend from the first to the last.
func TestImportGetsLanes(t *testing.T) {
	if testing.Short() {
		t.Skip("it inserts 300,000 rows")
	}
	t.Parallel()
	const n, batch = 300_000, 1000
	each(t, func(t *testing.T, d *database) {
		db := open(t, d)
		p := use(t, db, uidplugin.WithModels(&Parcel{}))
		must(t, db.AutoMigrate(&Parcel{}))
		var last int64
		var longest, ids time.Duration
		parcels := make([]Parcel, batch)
		begin := time.Now()
		for range n / batch {
			clear(parcels)
			// What the plugin needs is what an INSERT without a database takes.
			start := time.Now()
			must(t, db.Session(&gorm.Session{DryRun: true}).Create(&parcels).Error)
			took := time.Since(start)
			longest, ids = max(longest, took), ids+took
			must(t, db.Create(&parcels).Error) // the keys that are set stay
			for i := range parcels {
				if parcels[i].ID <= last {
					t.Fatalf("id %d after %d", parcels[i].ID, last)
				}
				last = parcels[i].ID
			}
		}
		took := time.Since(begin)
		s := p.Stats().Tables[0]
		t.Logf("%d rows in %v, of which %v to make statements, the longest %v; %d worker ids", n, took, ids, longest, len(s.WorkerIDs))
		if rate := float64(n) / took.Seconds(); rate > 12_000 && len(s.WorkerIDs) < 2 {
			t.Errorf("%.0f rows a second with the worker ids %v", rate, s.WorkerIDs)
		}
		if longest > 2*time.Second {
			t.Errorf("a create took %v, before it came to the database", longest)
		}
		var count int64
		must(t, db.Model(&Parcel{}).Count(&count).Error)
		if count != n {
			t.Errorf("%d rows", count)
		}
	}, "mariadb")
}

// Ten million ids as fast as they can be had, without rows: far more than one worker id
// makes. They ascend, so none comes twice.
func TestTenMillionIDs(t *testing.T) {
	if testing.Short() {
		t.Skip("it takes 20 s")
	}
	t.Parallel()
	const n, batch = 10_000_000, 1000
	each(t, func(t *testing.T, d *database) {
		use(t, open(t, d)) // makes the tables
		wdb, err := workernode.Open(open(t, d), 10*time.Second)
		must(t, err)
		layout := generator.DefaultLayout()
		k, err := workernode.NewLeased(wdb, layout, workernode.Host{Name: "import", Port: "1"}, workernode.LeasedConfig{})
		must(t, err)
		defer func() { must(t, k.Close(context.Background())) }()
		leases, err := k.Assign(t.Context(), "parcels")
		must(t, err)
		g, err := generator.NewCached(generator.CachedConfig{Layout: layout, Lease: leases[0], Low: k.Need})
		must(t, err)
		defer g.Close()
		k.Keep(leases[0], g)

		ids := make([]int64, batch)
		var last int64
		var longest time.Duration
		workers := map[int64]int{}
		begin := time.Now()
		for range n / batch {
			start := time.Now()
			must(t, g.Fill(t.Context(), ids))
			longest = max(longest, time.Since(start))
			for _, id := range ids {
				if id <= last {
					t.Fatalf("id %d after %d", id, last)
				}
				last = id
				parts, err := layout.Decompose(id)
				must(t, err)
				workers[parts.WorkerID]++
			}
		}
		t.Logf("%d ids in %v, the longest wait %v, of %d worker ids; %+v", n, time.Since(begin), longest, len(workers), k.Stats())
		if len(workers) < 2 {
			t.Errorf("worker ids %v", workers)
		}
	}, "mariadb")
}

// A generator that reads the clock for each id has one worker id, however much is wanted
// of it, and is renewed all the same.
func TestOneLaneIsEnoughForDefault(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, d *database) {
		c, j := newMovedClock(20), &journal{}
		p := use(t, open(t, d), uidplugin.WithClock(c.now), j.option(), uidplugin.WithLayout(small(5)),
			uidplugin.WithDefaultGenerator(uidplugin.Default), uidplugin.WithModels(&T1{}))
		before := p.Stats().Tables[0]
		for p.Layout().TickAt(c.now()) < p.Layout().TickAt(before.Until)+20 { // past its first lease
			_, err := nextID(p)
			must(t, err)
		}
		if s := p.Stats().Tables[0]; len(s.WorkerIDs) != 1 || s.WorkerIDs[0] != before.WorkerIDs[0] {
			t.Errorf("worker ids %v, before %v", s.WorkerIDs, before.WorkerIDs)
		}
		if l := j.String(); strings.Contains(l, "refuses") || strings.Contains(l, "more worker ids") {
			t.Error(l)
		}
	}, "mariadb")
}

// Worker ids come when a table needs more ids than one makes, and go when it does not
// any more. Ids ascend all the time.
func TestLanesComeAndGo(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, d *database) {
		db := open(t, d)
		c, j := newMovedClock(20), &journal{}
		// 32 ids a tick make 640 a second of this clock and worker id.
		p := use(t, db, uidplugin.WithClock(c.now), j.option(), uidplugin.WithLayout(small(5)), uidplugin.WithModels(&T1{}), uidplugin.WithMaxLanes(4))
		var last int64
		take := func() {
			id, err := nextID(p)
			must(t, err)
			if id <= last {
				t.Fatalf("id %d after %d, with the worker ids %v", id, last, p.Stats().Tables[0].WorkerIDs)
			}
			last = id
		}
		lanes := func() int { return len(p.Stats().Tables[0].WorkerIDs) }
		for begin := time.Now(); lanes() < 4 && time.Since(begin) < 8*time.Second; {
			take()
		}
		if lanes() < 4 {
			t.Errorf("under load: %d worker ids\n%s", lanes(), j)
		}
		for begin := time.Now(); lanes() > 1 && time.Since(begin) < 15*time.Second; time.Sleep(20 * time.Millisecond) {
			take()
		}
		if lanes() != 1 {
			t.Errorf("afterwards: %d worker ids\n%s", lanes(), j)
		}
		eventually(t, 2*time.Second, "worker ids that were given back", func() bool {
			held := 0
			for _, r := range rows(t, db) {
				if r.Table != "" && r.Holder != "" {
					held++
				}
			}
			return held == 1
		})
	}, "mariadb")
}

// Sale is a row of a usual width, SaleAuto the same with a key of the database's.
type Sale struct {
	ID int64 `gorm:"primaryKey;autoIncrement:false;uid"`
	SaleFields
}

type SaleAuto struct {
	ID int64 `gorm:"primaryKey;autoIncrement"`
	SaleFields
}

type SaleFields struct {
	CustomerID int64
	SKU        string `gorm:"size:32"`
	Quantity   int
	Cents      int64
	Note       string `gorm:"size:200"`
	CreatedAt  time.Time
}

// BenchmarkImport compares the rows a second of an import of b.N batches of 1000 with
// those of AUTO_INCREMENT, in turns of 250: rows of a usual width, and the narrowest
// that there are, a key and a number, of which the key is half.
//
//	go test -run '^$' -bench Import -benchtime 1000x ./integration
func BenchmarkImport(b *testing.B) {
	for _, e := range engines {
		b.Run(e.name+"/usual", func(b *testing.B) {
			fields := SaleFields{CustomerID: 4711, SKU: "AB-1234-XL", Quantity: 3, Cents: 1999, Note: "leave it with the neighbour, please", CreatedAt: time.Now()}
			sales, autos := make([]Sale, 1000), make([]SaleAuto, 1000)
			benchmarkImport(b, e, &Sale{}, &SaleAuto{}, func() any {
				for i := range sales {
					sales[i] = Sale{SaleFields: fields}
				}
				return &sales
			}, func() any {
				for i := range autos {
					autos[i] = SaleAuto{SaleFields: fields}
				}
				return &autos
			})
		})
		b.Run(e.name+"/narrow", func(b *testing.B) {
			parcels, letters := make([]Parcel, 1000), make([]Letter, 1000)
			benchmarkImport(b, e, &Parcel{}, &Letter{}, func() any { clear(parcels); return &parcels }, func() any { clear(letters); return &letters })
		})
	}
}

func benchmarkImport(b *testing.B, e engine, model, auto any, rows, autoRows func() any) {
	if !e.here() {
		b.Skipf("%s is not set: no %s", e.env, e.name)
	}
	must := func(err error) {
		if err != nil {
			b.Fatal(err)
		}
	}
	d := &database{engine: e}
	if e.name == "sqlite" {
		d.schema = filepath.Join(b.TempDir(), "test.db")
	}
	db, err := d.connect(nil)
	must(err)
	if d.isMySQL() || d.name == "postgres" {
		admin := db
		d.schema = fmt.Sprintf("b%d_%d", os.Getpid(), serial.Add(1))
		kind, end := "DATABASE ", ""
		if d.name == "postgres" {
			kind, end = "SCHEMA ", " CASCADE"
		}
		must(admin.Exec("CREATE " + kind + d.schema).Error)
		b.Cleanup(func() { must(admin.Exec("DROP " + kind + d.schema + end).Error) })
		db, err = d.connect(nil)
		must(err)
	}
	p := uidplugin.New(quiet, uidplugin.WithModels(model))
	must(db.Use(p))
	defer func() { _ = p.Close(context.Background()) }()
	must(db.AutoMigrate(model, auto))
	var ours, theirs, longest, longestAuto time.Duration
	lanes := 1
	b.ResetTimer()
	for left := b.N; left > 0; left -= 250 {
		turn := min(left, 250)
		ours += timed(func() {
			for range turn {
				longest = max(longest, timed(func() { must(db.Create(rows()).Error) }))
			}
		})
		lanes = max(lanes, len(p.Stats().Tables[0].WorkerIDs))
		theirs += timed(func() {
			for range turn {
				longestAuto = max(longestAuto, timed(func() { must(db.Create(autoRows()).Error) }))
			}
		})
	}
	n := float64(b.N) * 1000
	b.ReportMetric(n/ours.Seconds(), "rows/s")
	b.ReportMetric(n/theirs.Seconds(), "auto-rows/s")
	b.ReportMetric(theirs.Seconds()/ours.Seconds(), "of-auto")
	b.ReportMetric(float64(lanes), "worker-ids")
	b.ReportMetric(longest.Seconds()*1000, "ms-longest")
	b.ReportMetric(longestAuto.Seconds()*1000, "auto-ms-longest")
}

func timed(f func()) time.Duration {
	begin := time.Now()
	f()
	return time.Since(begin)
}
