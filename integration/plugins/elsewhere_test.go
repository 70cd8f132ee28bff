package plugins_test

import (
	"testing"

	"github.com/uidplugin/uidplugin"
	"gorm.io/gorm"
	"gorm.io/plugin/dbresolver"
)

// dbresolver can begin a transaction on another database than the one that has the worker ids.
func TestLocate_InATransactionElsewhere(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, e engine) {
		ordered(t, func(t *testing.T, use func(*gorm.DB, gorm.Plugin, gorm.Plugin)) {
			root, second, replica := migrated(t, e, shop...), migrated(t, e, shop...), migrated(t, e, shop...)
			open := func() *gorm.DB {
				db := root.open(t, nil)
				r := resolver(t, nil, []*database{replica})
				r.Register(dbresolver.Config{Sources: []gorm.Dialector{second.dialector()}}, "second")
				use(db, plugin(t, uidplugin.WithModels(shop...)), r)
				return db
			}
			c := Customer{Name: "root"}
			must(t, open().Create(&c).Error)

			for name, begin := range map[string]func(db *gorm.DB) *gorm.DB{
				"source":  func(db *gorm.DB) *gorm.DB { return db.Clauses(dbresolver.Use("second"), dbresolver.Write).Begin() },
				"replica": func(db *gorm.DB) *gorm.DB { return db.Clauses(dbresolver.Read).Begin() },
			} {
				t.Run(name, func(t *testing.T) {
					tx := begin(open())
					defer tx.Rollback()
					located(t, tx, c.ID, "customers")
					inside := Customer{Name: "inside"}
					must(t, tx.Create(&inside).Error)
					located(t, tx, inside.ID, "customers")
					if name, err := foundName(t, tx, inside.ID); err != nil || name != "inside" {
						t.Errorf("Find = %q, %v", name, err)
					}
				})
			}
		})
	})
}

// A transaction can be older than a worker id.
func TestLocate_InAnOldTransaction(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, e engine) {
		if e.name == "sqlite" {
			t.Skip("SQLite takes no worker id while a transaction writes")
		}
		d := migrated(t, e, shop...)
		db := d.open(t, nil)
		must(t, db.Use(plugin(t)))
		tx := db.Begin()
		defer tx.Rollback()
		var n int64
		must(t, tx.Model(&Customer{}).Count(&n).Error) // from here on it sees the rows that exist now
		c := Customer{Name: "inside"}
		must(t, tx.Create(&c).Error)
		located(t, tx, c.ID, "customers")
		must(t, uidplugin.From(db).Register(t.Context(), &Customer{})) // for Find
		if name, err := foundName(t, tx, c.ID); err != nil || name != "inside" {
			t.Errorf("Find = %q, %v", name, err)
		}
	})
}
