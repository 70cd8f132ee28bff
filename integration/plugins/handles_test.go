package plugins_test

import (
	"context"
	"slices"
	"testing"
	"time"

	"github.com/uidplugin/uidplugin"
	"github.com/uidplugin/uidplugin/generator"
	"github.com/uidplugin/uidplugin/internal/testkit"
	"github.com/uidplugin/uidplugin/workernode"
	"gorm.io/gorm"
	"gorm.io/gorm/logger"
)

func TestUse_Twice(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, e testkit.Engine) {
		d := migrated(t, e, shop...)
		db := d.Open(t, nil)
		p := plugin(t)
		must(t, db.Use(p))
		for _, again := range []gorm.Plugin{p, plugin(t)} {
			testkit.IsError(t, db.Use(again), gorm.ErrRegistered)
		}
		c := created(t, db, Customer{Orders: make([]Order, 1)})
		located(t, db, c.ID, "customers")
		oneWorkerEach(t, d, "customers", "orders")
	})
}

func TestUse_OnePluginOnTwoDatabases(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, e testkit.Engine) {
		first, second := migrated(t, e, shop...), migrated(t, e, shop...)
		db, other := first.Open(t, nil), second.Open(t, nil)
		p := plugin(t)
		must(t, db.Use(p))
		testkit.IsError(t, other.Use(p), uidplugin.ErrOption)
		untouched(t, second)
		must(t, db.Create(&Customer{}).Error)
		// The refused handle is as it was, and takes a plugin of its own.
		c := created(t, other, Customer{Name: "without"})
		if c.ID > 1 {
			t.Errorf("the refused plugin gave the id %d", c.ID)
		}
		must(t, other.Use(plugin(t)))
		c = Customer{Name: "with"}
		must(t, other.Create(&c).Error)
		located(t, other, c.ID, "customers")
		oneWorkerEach(t, first, "customers", "orders") // a create can reach both
		oneWorkerEach(t, second, "customers", "orders")
	})
}

func TestUse_TwoPluginsOnOneDatabase(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, e testkit.Engine) {
		d := migrated(t, e, shop...)
		handles := []*gorm.DB{d.Open(t, nil), d.Open(t, &gorm.Config{PrepareStmt: true})}
		must(t, handles[0].Use(plugin(t, uidplugin.WithModels(shop...), uidplugin.WithHost(workernode.Host{Name: "one"}))))
		must(t, handles[1].Use(plugin(t, uidplugin.WithDefaultGenerator("snowflake"),
			uidplugin.WithHost(workernode.Host{Name: "two"}), uidplugin.WithoutMigration())))

		ledger := testkit.NewLedger(t)
		for i, db := range handles {
			customers := make([]Customer, 50)
			for i := range customers {
				customers[i].Orders = make([]Order, 1)
			}
			must(t, db.Create(&customers).Error)
			for _, c := range customers {
				ledger.Add("rows", c.ID, int64(c.Orders[0].ID))
			}
			for _, reader := range handles {
				where, err := uidplugin.From(reader).Locate(context.Background(), uidplugin.ID(customers[0].ID))
				if err != nil || where.Session.Host != []string{"one", "two"}[i] {
					t.Errorf("Locate = %+v, %v", where, err)
				}
			}
		}
		if n := ledger.Len(); n != 200 {
			t.Errorf("%d different ids of 200", n)
		}
		var all []int64
		for table, ids := range workers(t, d) {
			if len(ids) != 2 {
				t.Errorf("%s has the worker ids %v", table, ids)
			}
			all = append(all, ids...)
		}
		slices.Sort(all)
		if len(slices.Compact(all)) != 4 {
			t.Errorf("worker ids %v", all)
		}

		// One more, with ids of another layout, is refused.
		layout := generator.DefaultLayout()
		layout.Epoch = layout.Epoch.Add(24 * time.Hour)
		third := d.Open(t, nil)
		testkit.IsError(t, third.Use(plugin(t, uidplugin.WithLayout(layout))), workernode.ErrLayoutMismatch)
		c := created(t, third, Customer{})
		if c.ID > 1 {
			t.Errorf("the refused plugin gave the id %d", c.ID)
		}
	})
}

// A handle that is opened with the plugins of another handle has their callbacks, and uses the worker ids of the
// other handle.
func TestUse_ConfigurationsOpenedAgain(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, e testkit.Engine) {
		opened := map[string]func(db *gorm.DB, other *testkit.Database) (*gorm.DB, error){
			"plugins": func(db *gorm.DB, other *testkit.Database) (*gorm.DB, error) {
				return gorm.Open(dialector(other), &gorm.Config{Plugins: db.Plugins, Logger: logger.Discard})
			},
			"copy": func(db *gorm.DB, other *testkit.Database) (*gorm.DB, error) {
				config := *db.Config
				return gorm.Open(dialector(other), &config)
			},
			"prepared copy": func(db *gorm.DB, other *testkit.Database) (*gorm.DB, error) {
				config := *db.Config
				config.PrepareStmt, config.SkipDefaultTransaction = true, true
				return gorm.Open(dialector(other), &config)
			},
		}
		for name, open := range opened {
			t.Run(name, func(t *testing.T) {
				first, second := migrated(t, e, shop...), migrated(t, e, shop...)
				db := first.Open(t, nil)
				must(t, db.Use(plugin(t)))
				other, err := open(db, second)
				must(t, err)
				t.Cleanup(func() { _ = testkit.Close(other) })

				ledger := testkit.NewLedger(t)
				ledger.Add("none", 0)
				for _, handle := range []*gorm.DB{other, db, other} {
					c := created(t, handle, Customer{Name: "here", Orders: make([]Order, 2)})
					ledger.Add("rows", c.ID, int64(c.Orders[0].ID), int64(c.Orders[1].ID))
					located(t, handle, c.ID, "customers")
					must(t, uidplugin.From(handle).Register(t.Context(), &Customer{}))
					finds(t, handle, c.ID, "here")
				}
				if a, b := count(t, first, &Customer{}), count(t, second, &Customer{}); a != 1 || b != 2 {
					t.Errorf("%d and %d customers", a, b)
				}
				oneWorkerEach(t, first, "customers", "orders")
				untouched(t, second)

				testkit.MustClose(t, uidplugin.From(db))
				for _, handle := range []*gorm.DB{db, other} {
					testkit.IsError(t, handle.Create(&Customer{}).Error, uidplugin.ErrClosed)
				}
			})
		}
	})
}
