package plugins_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"

	"github.com/uidplugin/uidplugin"
	"github.com/uidplugin/uidplugin/internal/testkit"
	"gorm.io/gorm"
	"gorm.io/gorm/logger"
	"gorm.io/plugin/dbresolver"
)

// configs are ways to open a handle. They decide which kind of pool dbresolver puts into a statement, and when.
var configs = []gorm.Config{
	{},
	{PrepareStmt: true},
	{SkipDefaultTransaction: true},
	{PrepareStmt: true, SkipDefaultTransaction: true},
}

func configured(t *testing.T, test func(t *testing.T, config *gorm.Config)) {
	for _, c := range configs {
		t.Run(fmt.Sprintf("prepare=%v,skip=%v", c.PrepareStmt, c.SkipDefaultTransaction), func(t *testing.T) {
			c.Logger = logger.Discard
			test(t, &c)
		})
	}
}

// resolver returns dbresolver's plugin, whose pools are closed when the test ends.
func resolver(t *testing.T, sources, replicas []*testkit.Database, datas ...any) *dbresolver.DBResolver {
	config := dbresolver.Config{}
	for _, d := range sources {
		config.Sources = append(config.Sources, dialector(d))
	}
	for _, d := range replicas {
		config.Replicas = append(config.Replicas, dialector(d))
	}
	r := dbresolver.Register(config, datas...)
	t.Cleanup(func() {
		_ = r.Call(func(pool gorm.ConnPool) error {
			_ = pool.(interface{ Close() error }).Close()
			return nil
		})
	})
	return r
}

// createAtOnce creates customers with two orders each from many goroutines, while
// no table has a worker id yet.
func createAtOnce(t *testing.T, db *gorm.DB) []Customer {
	t.Helper()
	customers := make([]Customer, 16)
	var all sync.WaitGroup
	for i := range customers {
		all.Go(func() {
			customers[i] = Customer{Name: "source", Orders: make([]Order, 2)}
			if err := db.Create(&customers[i]).Error; err != nil {
				t.Error(err)
			}
		})
	}
	all.Wait()
	ledger := testkit.NewLedger(t)
	for _, c := range customers {
		ledger.Add("rows", c.ID, int64(c.Orders[0].ID), int64(c.Orders[1].ID))
	}
	if ledger.Tables()[0] != "" {
		t.Error("an id is zero")
	}
	must(t, uidplugin.From(db).Register(t.Context(), &Customer{}, &Order{})) // for Find
	return customers
}

// Replicas that lag lack rows, and WORKER_NODE.
func TestResolver_WithReplicas(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, e testkit.Engine) {
		ordered(t, func(t *testing.T, use func(*gorm.DB, gorm.Plugin, gorm.Plugin)) {
			configured(t, func(t *testing.T, config *gorm.Config) {
				ctx := context.Background()
				source, replicas := migrated(t, e, shop...), []*testkit.Database{migrated(t, e, shop...), migrated(t, e, shop...)}
				db := source.Open(t, config)
				use(db, plugin(t), resolver(t, nil, replicas))

				customers := createAtOnce(t, db)
				oneWorkerEach(t, source, "customers", "orders")
				untouched(t, replicas...)
				if c, o := count(t, source, &Customer{}), count(t, source, &Order{}); c != 16 || o != 32 {
					t.Errorf("%d customers, %d orders", c, o)
				}

				c := customers[3]
				located(t, db, c.ID, "customers")
				located(t, db, int64(c.Orders[1].ID), "orders")
				located(t, db.Clauses(dbresolver.Read), c.ID, "customers")
				if _, err := foundName(t, db, c.ID); !errors.Is(err, gorm.ErrRecordNotFound) {
					t.Errorf("Find on a replica without the row: %v", err)
				}
				for _, d := range replicas {
					must(t, d.Open(t, nil).Create(&Customer{ID: c.ID, Name: "replica"}).Error)
				}
				for want, handle := range map[string]*gorm.DB{
					"replica": db,
					"source":  db.Clauses(dbresolver.Write),
				} {
					finds(t, handle, c.ID, want)
				}

				// A transaction is on the source, and sees its own rows.
				must(t, db.Transaction(func(tx *gorm.DB) error {
					inside := Customer{Name: "inside"}
					if err := tx.Create(&inside).Error; err != nil {
						return err
					}
					located(t, tx, inside.ID, "customers")
					finds(t, tx, inside.ID, "inside")
					return nil
				}))

				// Another process, to which all worker ids are new.
				again := source.Open(t, &gorm.Config{PrepareStmt: config.PrepareStmt})
				use(again, plugin(t, uidplugin.WithModels(shop...)), resolver(t, nil, replicas))
				located(t, again, c.ID, "customers")
				rows, err := uidplugin.From(again.Clauses(dbresolver.Write)).FindAll(ctx, []uidplugin.ID{uidplugin.ID(c.ID), c.Orders[0].ID, uidplugin.ID(customers[5].ID)})
				if err != nil || len(rows) != 3 {
					t.Errorf("FindAll = %v, %v", rows, err)
				}
				for table, ids := range workers(t, source) {
					if len(ids) != 2 {
						t.Errorf("%s has the worker ids %v, want one for each process", table, ids)
					}
				}
			})
		})
	})
}

// With several sources each row is written to one of them, and all worker ids are in the database that the handle was
// opened with.
func TestResolver_WithSources(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, e testkit.Engine) {
		ordered(t, func(t *testing.T, use func(*gorm.DB, gorm.Plugin, gorm.Plugin)) {
			configured(t, func(t *testing.T, config *gorm.Config) {
				root, replica := migrated(t, e, shop...), migrated(t, e, shop...)
				sources := []*testkit.Database{migrated(t, e, shop...), migrated(t, e, shop...)}
				db := root.Open(t, config)
				use(db, plugin(t), resolver(t, sources, []*testkit.Database{replica}))

				customers := createAtOnce(t, db)
				oneWorkerEach(t, root, "customers", "orders")
				untouched(t, append(sources, replica)...)
				var c, o int64
				for _, d := range sources {
					c, o = c+count(t, d, &Customer{}), o+count(t, d, &Order{})
				}
				if c != 16 || o != 32 || count(t, root, &Customer{}) != 0 {
					t.Errorf("the sources have %d customers, %d orders; the root %d customers", c, o, count(t, root, &Customer{}))
				}
				for _, c := range customers {
					located(t, db, c.ID, "customers")
				}
				// dbresolver leaves db.Transaction on the pool of the handle.
				inside := Customer{Name: "inside"}
				must(t, db.Transaction(func(tx *gorm.DB) error { return tx.Create(&inside).Error }))
				if n := count(t, root, &Customer{}); n != 1 {
					t.Errorf("%d customers in the root", n)
				}
				oneWorkerEach(t, root, "customers", "orders")
			})
		})
	})
}

// A source for one model, and a handle with dbresolver.Use.
func TestResolver_WithASourceOfItsOwn(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, e testkit.Engine) {
		ordered(t, func(t *testing.T, use func(*gorm.DB, gorm.Plugin, gorm.Plugin)) {
			root, second := migrated(t, e, shop...), migrated(t, e, shop...)
			db := root.Open(t, nil)
			use(db, plugin(t, uidplugin.WithModels(shop...)), resolver(t, []*testkit.Database{second}, nil, &Order{}, "second"))

			o := created(t, db, Order{Note: "second"})
			if n := count(t, second, &Order{}); n != 1 {
				t.Errorf("%d orders in the second database", n)
			}
			there := created(t, db.Clauses(dbresolver.Use("second")), Customer{Name: "there"})
			if _, err := foundName(t, db, there.ID); !errors.Is(err, gorm.ErrRecordNotFound) {
				t.Errorf("Find in the root: %v", err)
			}
			finds(t, db.Clauses(dbresolver.Use("second")), there.ID, "there")
			row, err := uidplugin.From(db).Find(context.Background(), o.ID)
			if got, ok := row.(*Order); !ok || got.Note != "second" {
				t.Errorf("Find = %#v, %v", row, err)
			}
			oneWorkerEach(t, root, "customers", "orders")
			untouched(t, second)
		})
	})
}

// Two handles with sources of their own, and a registry elsewhere: no database of rows has tables of the plugin, no two
// rows have one id, and each handle finds its own rows.
func TestResolver_WithRegistry(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, e testkit.Engine) {
		ordered(t, func(t *testing.T, use func(*gorm.DB, gorm.Plugin, gorm.Plugin)) {
			registry := e.New(t)
			shared := registry.Open(t, nil)
			ledger, spaces := testkit.NewLedger(t), map[string]bool{}
			var handles []*gorm.DB
			var made [][]Customer
			var rows []*testkit.Database
			var singles []uidplugin.ID
			for i := range 2 {
				root, second := migrated(t, e, shop...), migrated(t, e, shop...)
				rows = append(rows, root, second)
				db := root.Open(t, nil)
				use(db, plugin(t, uidplugin.WithRegistry(shared), uidplugin.WithDatabaseName(fmt.Sprint("shop", i))), resolver(t, []*testkit.Database{second}, nil, &Order{}))
				handles, made = append(handles, db), append(made, createAtOnce(t, db))
				elsewhere := Order{Note: "in the source"} // those of createAtOnce are in the transactions of their customers
				must(t, db.Create(&elsewhere).Error)
				singles = append(singles, elsewhere.ID)
				if c, o := count(t, root, &Customer{}), count(t, second, &Order{}); c != 16 || o != 1 {
					t.Errorf("%d customers in the root, %d orders in the source", c, o)
				}
				spaces[uidplugin.From(db).Stats().Space] = true
			}
			for i, customers := range made {
				for _, c := range customers {
					ledger.Add(fmt.Sprint("shop", i), c.ID, int64(c.Orders[0].ID), int64(c.Orders[1].ID))
				}
				c := customers[3]
				for _, id := range []uidplugin.ID{uidplugin.ID(c.ID), singles[i]} {
					l, err := uidplugin.From(handles[1-i]).Locate(t.Context(), id)
					if err != nil || l.Database != fmt.Sprint("shop", i) {
						t.Errorf("located through the other handle: %v, %v", l, err)
					}
					if _, err := uidplugin.From(handles[i]).Find(t.Context(), id); err != nil {
						t.Errorf("found through its handle: %v", err)
					}
					if _, err := uidplugin.From(handles[1-i]).Find(t.Context(), id); !errors.Is(err, uidplugin.ErrOtherDatabase) {
						t.Errorf("found through the other handle: %v", err)
					}
				}
			}
			untouched(t, rows...)
			if len(spaces) != 1 || len(workers(t, registry)) == 0 {
				t.Errorf("id spaces: %v", spaces)
			}
		})
	})
}
