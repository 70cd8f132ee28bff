package fill_test

import (
	"errors"
	"slices"
	"sync"
	"testing"

	"github.com/uidplugin/uidplugin"
	"github.com/uidplugin/uidplugin/internal/plugintest"
	"github.com/uidplugin/uidplugin/internal/testkit"
	"gorm.io/gorm"
)

// Many goroutines create rows of new models at once, in different orders, and with associations. Each table gets one
// worker id, and each row gets an id.
func TestCreate_ManyGoroutinesSeeModelsForTheFirstTime(t *testing.T) {
	t.Parallel()

	for name, session := range map[string]func(*gorm.DB) *gorm.DB{
		"one handle":     func(db *gorm.DB) *gorm.DB { return db },
		"a session each": func(db *gorm.DB) *gorm.DB { return db.Session(&gorm.Session{NewDB: true, PrepareStmt: true}) },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()

			db := plugintest.Open(t)
			plugintest.Migrate(t, db, &plugintest.Customer{}, &plugintest.Purchase{}, &plugintest.Item{}, &plugintest.Profile{}, &plugintest.Club{}, &plugintest.Label{}, &plugintest.Part{}, &plugintest.Counter{})
			db = plugintest.File(t, plugintest.FileOf(t, db), &gorm.Config{}) // that has seen no model yet
			plugintest.Use(t, db)
			pool, err := db.DB()
			must(t, err)
			pool.SetMaxOpenConns(4)

			creates := []func(db *gorm.DB) error{
				func(db *gorm.DB) error { return db.Create(&[]plugintest.Part{{}, {}}).Error },
				func(db *gorm.DB) error { return db.Create(&plugintest.Counter{}).Error },
				func(db *gorm.DB) error {
					return db.Model(&plugintest.Counter{}).Create(map[string]any{"name": "a"}).Error
				},
				func(db *gorm.DB) error {
					return db.Create(&plugintest.Customer{Purchases: []plugintest.Purchase{{Items: []*plugintest.Item{{}, {}}}}, Clubs: []plugintest.Club{{}}}).Error
				},
				func(db *gorm.DB) error {
					return db.Create(&plugintest.Purchase{Customer: &plugintest.Customer{}}).Error
				},
				func(db *gorm.DB) error { return db.Create(&plugintest.Profile{}).Error },
				func(db *gorm.DB) error {
					_, err := uidplugin.From(db).NextID(t.Context(), &plugintest.Item{})
					return err
				},
				func(db *gorm.DB) error { uidplugin.From(db).Stats(); return nil },
			}
			var group sync.WaitGroup
			start := make(chan struct{})
			for g := range 64 {
				group.Go(func() {
					<-start
					db := session(db)
					for i := range creates {
						if err := creates[(g+i)%len(creates)](db); err != nil {
							t.Error(err)
						}
					}
				})
			}
			close(start)
			group.Wait()

			workers := map[int64]string{}
			for _, s := range uidplugin.From(db).Stats().Tables {
				if other, taken := workers[s.WorkerIDs[0]]; taken {
					t.Errorf("%s and %s share the worker id %d", s.Table, other, s.WorkerIDs[0])
				}
				workers[s.WorkerIDs[0]] = s.Table
			}
			want := map[string]int64{"parts": 128, "counters": 128, "customers": 128, "purchases": 128, "items": 128, "profiles": 64, "clubs": 64, "labels": 0}
			if len(workers) != len(want) {
				t.Errorf("worker ids: %v", workers)
			}
			ledger := testkit.NewLedger(t)
			for table, n := range want {
				var stored []int64
				must(t, db.Table(table).Pluck("id", &stored).Error)
				if int64(len(stored)) != n {
					t.Errorf("%d rows in %s, want %d", len(stored), table, n)
				}
				ledger.Add(table, stored...)
				for _, id := range stored {
					parts, err := uidplugin.From(db).Decode(uidplugin.ID(id))
					if err != nil || workers[parts.WorkerID] != table {
						t.Fatalf("%d in %s is of %q, %v", id, table, workers[parts.WorkerID], err)
					}
				}
			}
		})
	}
}

// Many goroutines create rows without a database, which would slow them down. No id comes twice.
func TestCreate_ManyGoroutinesCreateWithoutDuplicates(t *testing.T) {
	t.Parallel()

	const goroutines, rounds = 64, 20
	db, ledger := plugintest.Nowhere(t, uidplugin.WithWorkerID(1)), testkit.NewLedger(t)
	var group sync.WaitGroup
	for g := range goroutines {
		group.Go(func() {
			var made []int64
			for r := range rounds {
				one, list := plugintest.Parcel{}, make([]*plugintest.Parcel, 1+(g*r)%300)
				for i := range list {
					list[i] = &plugintest.Parcel{}
				}
				m := map[string]any{}
				err := errors.Join(db.Create(&one).Error, db.Create(&list).Error, db.Model(&plugintest.Parcel{}).Create(m).Error)
				if err != nil {
					t.Error(err)
					return
				}
				made = append(made, one.ID)
				for _, p := range list {
					made = append(made, p.ID)
				}
				made = append(made, plugintest.IDIn(t, m))
			}
			if !slices.IsSorted(made) {
				t.Errorf("goroutine %d got ids that do not ascend", g)
			}
			ledger.Add("parcels", made...)
		})
	}
	group.Wait()
}

func TestCreate_ManyHandlesStartOnAnEmptyDatabaseAtOnce(t *testing.T) {
	t.Parallel()

	first := plugintest.Bare(t)
	name := plugintest.FileOf(t, first)
	var group sync.WaitGroup
	start := make(chan struct{})
	handles := make([]*gorm.DB, 8)
	for i := range handles {
		handles[i] = plugintest.File(t, name, &gorm.Config{})
		group.Go(func() {
			<-start
			if err := handles[i].Use(uidplugin.New(uidplugin.WithLogger(nil), uidplugin.WithModels(&plugintest.Part{}, &plugintest.Article{}))); err != nil {
				t.Error(err)
			}
		})
	}
	close(start)
	group.Wait()
	workers := testkit.NewLedger(t)
	for _, db := range handles {
		for _, s := range uidplugin.From(db).Stats().Tables {
			workers.Add(s.Table, s.WorkerIDs[0])
		}
	}
	if workers.Len() != 16 {
		t.Errorf("%d worker ids", workers.Len())
	}
	for table, n := range map[string]int64{"WORKER_NODE": 16, "WORKER_SLOT": 8, "WORKER_REGISTRY": 1} {
		plugintest.Rows(t, n, first, table)
	}
}
