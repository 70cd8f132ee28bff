package upsert_test

import (
	"fmt"
	"testing"

	"github.com/uidplugin/uidplugin/integration/internal/harness"
	"github.com/uidplugin/uidplugin/internal/testkit"
	"gorm.io/gorm"
	"gorm.io/gorm/clause"
)

type (
	CopiedItem struct {
		ID   int64  `gorm:"primaryKey;autoIncrement:false;uid"`
		Name string `gorm:"size:50;uniqueIndex"`
		N    int
	}
	CopiedCounter struct {
		Name string `gorm:"primaryKey;size:50"`
		N    int
	}
)

// For the time of an INSERT the plugin changes RETURNING, ON CONFLICT, the columns and the result of a statement. A
// callback of another plugin may copy the statement then. Its own statement must not have the changes, and must not give
// the create its result.
func TestRewrite_LeavesStatementsThatOtherPluginsSendOnACopy(t *testing.T) {
	t.Parallel()
	testkit.Each(t, func(t *testing.T, d *testkit.Database) {
		count := func(tx *gorm.DB) error {
			return tx.Session(&gorm.Session{SkipHooks: true}).Table("copied_counters").Model(&CopiedCounter{}).
				Where("name = ?", "a").Update("n", gorm.Expr("n + 1")).Error
		}
		countByExec := func(tx *gorm.DB) error {
			return tx.Session(&gorm.Session{SkipHooks: true}).Exec("UPDATE copied_counters SET n = n + 1 WHERE name = 'a'").Error
		}
		for name, other := range map[string]struct {
			place   string
			send    func(tx *gorm.DB) error
			isEarly bool // it is registered before this plugin
		}{
			"before the INSERT":          {"gorm:create", count, false},
			"before the INSERT, by Exec": {"gorm:create", countByExec, false},
			"after the INSERT, by Exec":  {"gorm:save_after_associations", countByExec, true},
			"after everything, by Exec":  {"gorm:save_after_associations", countByExec, false},
			"before the hooks":           {"gorm:before_create", count, true},
		} {
			db := d.Open(t, nil)
			testkit.Must(t, db.Migrator().DropTable(&CopiedItem{}, &CopiedCounter{}))
			testkit.Must(t, db.AutoMigrate(&CopiedCounter{}))
			testkit.Must(t, db.Create(&CopiedCounter{Name: "a"}).Error)
			var failed error
			sent := 0
			register := func() {
				testkit.Must(t, db.Callback().Create().Before(other.place).Register("count", func(tx *gorm.DB) {
					if tx.Statement.Schema != nil && tx.Statement.Schema.Name == "CopiedItem" {
						sent++
						if err := other.send(tx); err != nil {
							failed = err
						}
					}
				}))
			}
			if other.isEarly {
				register()
			}
			harness.Use(t, db)
			testkit.Must(t, db.AutoMigrate(&CopiedItem{}))
			first := created(t, db, CopiedItem{Name: "first"})
			if !other.isEarly {
				register()
			}
			sentBefore := sent
			for i, conflict := range []clause.OnConflict{
				{DoNothing: true},
				{Columns: []clause.Column{{Name: "name"}}, UpdateAll: true},
				{Columns: []clause.Column{{Name: "name"}}, DoUpdates: clause.AssignmentColumns([]string{"n"})},
			} {
				again, fresh := CopiedItem{Name: "first", N: i}, CopiedItem{Name: fmt.Sprint("new ", i)}
				create(t, db.Clauses(conflict), &again, &fresh)
				conflictKnown := !conflict.DoNothing || d.IsMySQL() // else the row is not known, and 0 is right
				if again.ID != first.ID && (conflictKnown || again.ID != 0) {
					t.Errorf("%s, %+v: the struct has the key %d, and the row %d", name, conflict, again.ID, first.ID)
				}
				var n int64
				if db.Table("copied_items").Where("id = ?", fresh.ID).Count(&n); n != 1 {
					t.Errorf("%s, %+v: no row has the key %d", name, conflict, fresh.ID)
				}
			}
			var counter CopiedCounter
			testkit.Must(t, db.First(&counter).Error)
			isAfter := other.place == "gorm:save_after_associations" // GORM copies the values of the INSERT, too
			if sent-sentBefore != 6 || !isAfter && (failed != nil || counter.N != sent) {
				t.Errorf("%s: the counter is %d instead of %d: %v", name, counter.N, sent, failed)
			}
		}
	})
}
