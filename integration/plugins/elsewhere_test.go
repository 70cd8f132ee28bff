package plugins_test

import (
	"testing"

	"github.com/uidplugin/uidplugin"
	"github.com/uidplugin/uidplugin/internal/testkit"
	"gorm.io/gorm"
	"gorm.io/plugin/dbresolver"
)

// dbresolver can begin a transaction on another database than the one that has the worker ids.
func TestLocate_InATransactionElsewhere(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, e testkit.Engine) {
		ordered(t, func(t *testing.T, use func(*gorm.DB, gorm.Plugin, gorm.Plugin)) {
			root, second, replica := migrated(t, e, shop...), migrated(t, e, shop...), migrated(t, e, shop...)
			open := func() *gorm.DB {
				db := root.Open(t, nil)
				r := resolver(t, nil, []*testkit.Database{replica})
				r.Register(dbresolver.Config{Sources: []gorm.Dialector{dialector(second)}}, "second")
				use(db, plugin(t, uidplugin.WithModels(shop...)), r)
				return db
			}
			c := created(t, open(), Customer{Name: "root"})

			for name, begin := range map[string]func(db *gorm.DB) *gorm.DB{
				"source":  func(db *gorm.DB) *gorm.DB { return db.Clauses(dbresolver.Use("second"), dbresolver.Write).Begin() },
				"replica": func(db *gorm.DB) *gorm.DB { return db.Clauses(dbresolver.Read).Begin() },
			} {
				t.Run(name, func(t *testing.T) {
					tx := begin(open())
					defer tx.Rollback()
					located(t, tx, c.ID, "customers")
					inside := created(t, tx, Customer{Name: "inside"})
					located(t, tx, inside.ID, "customers")
					finds(t, tx, inside.ID, "inside")
				})
			}
		})
	})
}

// A transaction can be older than a worker id.
func TestLocate_InAnOldTransaction(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, e testkit.Engine) {
		if e.Name == "sqlite" {
			t.Skip("SQLite takes no worker id while a transaction writes")
		}
		d := migrated(t, e, shop...)
		db := d.Open(t, nil)
		must(t, db.Use(plugin(t)))
		tx := db.Begin()
		defer tx.Rollback()
		var n int64
		must(t, tx.Model(&Customer{}).Count(&n).Error) // from here on it sees the rows that exist now
		c := created(t, tx, Customer{Name: "inside"})
		located(t, tx, c.ID, "customers")
		must(t, uidplugin.From(db).Register(t.Context(), &Customer{})) // for Find
		finds(t, tx, c.ID, "inside")
	})
}
