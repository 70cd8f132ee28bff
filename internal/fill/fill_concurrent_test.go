package fill_test

import (
	"fmt"
	"sync"
	"testing"

	"github.com/uidplugin/uidplugin"
	"github.com/uidplugin/uidplugin/internal/plugintest"
	"gorm.io/gorm"
)

// sharing are the ways in which goroutines use one handle.
var sharing = []struct {
	name    string
	session func(*gorm.DB) *gorm.DB
}{
	{"one handle", func(db *gorm.DB) *gorm.DB { return db }},
	{"a session each", func(db *gorm.DB) *gorm.DB { return db.Session(&gorm.Session{NewDB: true, PrepareStmt: true}) }},
}

// Many goroutines create rows of new models at once, in different orders, and with associations. Each table gets one
// worker id, and each row gets an id.
func TestCreate_ManyGoroutinesSeeModelsForTheFirstTime(t *testing.T) {
	t.Parallel()

	for _, s := range sharing {
		t.Run(s.name, func(t *testing.T) {
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
					db := s.session(db)
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
			ids := map[int64]string{}
			for table, n := range want {
				var stored []int64
				must(t, db.Table(table).Pluck("id", &stored).Error)
				if int64(len(stored)) != n {
					t.Errorf("%d rows in %s, want %d", len(stored), table, n)
				}
				for _, id := range stored {
					if other, taken := ids[id]; taken {
						t.Errorf("%d is in %s and in %s", id, table, other)
					}
					ids[id] = table
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
	for _, s := range sharing[:1] { // PrepareStmt would need a real pool
		db := plugintest.Nowhere(t, uidplugin.WithWorkerID(1))
		made := make([][]int64, goroutines)
		var group sync.WaitGroup
		for g := range goroutines {
			group.Go(func() {
				db := s.session(db)
				for r := range rounds {
					one, list := plugintest.Parcel{}, make([]*plugintest.Parcel, 1+(g*r)%300)
					for i := range list {
						list[i] = &plugintest.Parcel{}
					}
					m := map[string]any{}
					for _, err := range []error{db.Create(&one).Error, db.Create(&list).Error, db.Model(&plugintest.Parcel{}).Create(m).Error} {
						if err != nil {
							t.Error(err)
							return
						}
					}
					made[g] = append(made[g], one.ID)
					for _, p := range list {
						made[g] = append(made[g], p.ID)
					}
					made[g] = append(made[g], plugintest.IDIn(t, m))
				}
			})
		}
		group.Wait()
		seen := map[int64]bool{}
		for g, ids := range made {
			for i, id := range ids {
				if seen[id] {
					t.Fatalf("%d was given out twice", id)
				}
				seen[id] = true
				if i > 0 && id <= ids[i-1] {
					t.Fatalf("goroutine %d got %d after %d", g, id, ids[i-1])
				}
			}
		}
	}
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
	workers := map[int64]bool{}
	for _, db := range handles {
		for _, s := range uidplugin.From(db).Stats().Tables {
			if workers[s.WorkerIDs[0]] {
				t.Errorf("the worker id %d was given out twice", s.WorkerIDs[0])
			}
			workers[s.WorkerIDs[0]] = true
		}
	}
	if got := fmt.Sprint(len(workers), plugintest.Count(t, first, "WORKER_NODE"), plugintest.Count(t, first, "WORKER_SLOT"), plugintest.Count(t, first, "WORKER_REGISTRY")); got != "16 16 8 1" {
		t.Errorf("worker ids, rows of WORKER_NODE, WORKER_SLOT and WORKER_REGISTRY: %s", got)
	}
}
