package leases_test

import (
	"context"
	"testing"
	"time"

	"github.com/uidplugin/uidplugin"
	"github.com/uidplugin/uidplugin/generator"
	"github.com/uidplugin/uidplugin/integration/internal/harness"
	"github.com/uidplugin/uidplugin/internal/testkit"
	"github.com/uidplugin/uidplugin/workernode"
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

// An import wants more ids than one worker id makes. The table gets further worker ids, the ids ascend from the first
// to the last, and all of them resolve.
func TestLanes_ComeUnderLoad(t *testing.T) {
	testkit.SkipIfShort(t, "it takes some seconds")
	t.Parallel()
	const n, batch = 1_000_000, 1000
	testkit.Each(t, func(t *testing.T, d *testkit.Database) {
		db := d.Open(t, nil)
		p := harness.Use(t, db) // makes the tables
		wdb, err := workernode.Open(db, time.Minute)
		testkit.Must(t, err)
		layout := generator.DefaultLayout()
		m, err := workernode.NewManager(t.Context(), wdb, layout, workernode.Host{Name: "import", Port: "1",
			Application: "import"}, workernode.Config{})
		testkit.Must(t, err)
		defer harness.Close(t, m)
		leases, err := m.Assign(t.Context(), []workernode.Table{{Name: "parcels"}}, nil)
		testkit.Must(t, err)
		g, err := generator.NewCached(generator.CachedConfig{Layout: layout, Lease: leases[0].Leases()[0],
			OnLow: m.RequestRenewal,
			Clock: generator.NewClock(m.Now)})
		testkit.Must(t, err)
		defer g.Close()
		leases[0].Attach(g)
		ids, last := make([]int64, batch), int64(0)
		workers := map[int64]int64{} // and an id of each
		for range n / batch {
			testkit.Must(t, g.Fill(t.Context(), ids))
			for _, id := range ids {
				if id <= last {
					t.Fatalf("id %d after %d", id, last)
				}
				last = id
			}
			parts, err := layout.Decompose(last)
			testkit.Must(t, err)
			workers[parts.WorkerID] = last
		}
		if len(workers) < 2 && d.Name != "sqlite" { // there the lead lasts for all of them, so the loop may end before lanes come
			t.Errorf("worker ids %v", workers)
		}
		for _, id := range workers {
			harness.Resolves(t, p, "parcels", "1", id)
		}
	}, "sqlite", "mariadb", "postgres")
}

// An import gets lanes long before it has used up half of its lease: that would take 80,000 rows. Rows that are created
// one by one, and a batch of some hundreds, get none.
func TestLanes_ComeWithAnImport(t *testing.T) {
	t.Parallel()
	testkit.Each(t, func(t *testing.T, d *testkit.Database) {
		db := d.Open(t, nil)
		testkit.Must(t, db.AutoMigrate(&Parcel{}))
		slow := testkit.NewRunningClock(time.Now(), 0.1) // so that the ids of a batch are ahead of it on a slow machine, too
		p := harness.Use(t, db, uidplugin.WithModels(&Parcel{}), uidplugin.WithClock(slow.Now))
		lanes := func() int { return len(p.Stats().Tables[0].WorkerIDs) }
		testkit.Must(t, db.Create(make([]Parcel, 600)).Error)
		for range 50 {
			testkit.Must(t, db.Create(&Parcel{}).Error)
		}
		if n := lanes(); n != 1 {
			t.Errorf("%d worker ids before the import", n)
		}
		testkit.Must(t, db.CreateInBatches(make([]Parcel, 20_000), 1000).Error)
		testkit.Eventually(t, "16 worker ids", time.Minute, func() bool { return lanes() == generator.MaxLanes })
	})
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

// BenchmarkImport compares the rows a second of an import of b.N batches of 1000 with those of AUTO_INCREMENT, in
// turns of 250. It has rows of a usual width, and rows of a key and a number only, of which the key is half.
//
//	go test -run '^$' -bench Import -benchtime 1000x ./integration/leases/
func BenchmarkImport(b *testing.B) {
	for _, e := range testkit.Engines() {
		b.Run(e.Name+"/usual", func(b *testing.B) {
			fields := SaleFields{CustomerID: 4711, SKU: "AB-1234-XL", Quantity: 3, Cents: 1999,
				Note: "leave it with the neighbour, please", CreatedAt: time.Now()}
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
		b.Run(e.Name+"/narrow", func(b *testing.B) {
			parcels, letters := make([]Parcel, 1000), make([]Letter, 1000)
			benchmarkImport(b, e, &Parcel{}, &Letter{}, func() any { clear(parcels); return &parcels },
				func() any { clear(letters); return &letters })
		})
	}
}

func benchmarkImport(b *testing.B, e testkit.Engine, model, auto any, rows, autoRows func() any) {
	e.Need(b)
	db := e.New(b).Open(b, nil)
	p := uidplugin.New(harness.Quiet, uidplugin.WithModels(model))
	testkit.Must(b, db.Use(p))
	defer func() { _ = p.Close(context.Background()) }()
	testkit.Must(b, db.AutoMigrate(model, auto))
	var ours, theirs, longest, longestAuto time.Duration
	lanes := 1
	b.ResetTimer()
	for left := b.N; left > 0; left -= 250 {
		turn := min(left, 250)
		ours += timed(func() {
			for range turn {
				longest = max(longest, timed(func() { testkit.Must(b, db.Create(rows()).Error) }))
			}
		})
		lanes = max(lanes, len(p.Stats().Tables[0].WorkerIDs))
		theirs += timed(func() {
			for range turn {
				longestAuto = max(longestAuto, timed(func() { testkit.Must(b, db.Create(autoRows()).Error) }))
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
