// wing: segment

package segments_test

import (
	"testing"
	"time"

	"github.com/uidplugin/uidplugin"
	"github.com/uidplugin/uidplugin/generator"
	"github.com/uidplugin/uidplugin/internal/plugintest"
	"github.com/uidplugin/uidplugin/internal/testkit"
	"github.com/uidplugin/uidplugin/segment"
	"gorm.io/gorm"
)

type deposit struct {
	ID    int64 `gorm:"primaryKey;uid:segment"`
	Total int
}

// A transaction that has the only connection, or writes on SQLite, keeps the next range from being fetched. A create in
// it that needs more ids than are in memory fails without a wait, and the error has remedies. With them the same
// transaction succeeds, although the row of the tag exists.
func TestSegment_InATransactionThatNoRangeCanJoin(t *testing.T) {
	t.Parallel()

	for name, connections := range map[string]int{"one connection": 1, "several connections": 4} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()

			database := testkit.SQLite{Path: testkit.SQLitePath(t)}
			batches := func(options segment.Config) error {
				db := database.Open(t)
				pool, err := db.DB()
				must(t, err)
				pool.SetMaxOpenConns(connections)
				options.MaxStep = 1 // so that ranges do not grow
				p := plugintest.Use(t, db, uidplugin.WithModels(&deposit{}), uidplugin.WithSegments(options), uidplugin.WithTimeout(time.Minute))
				must(t, p.AutoMigrate(&deposit{}))
				return db.CreateInBatches(make([]deposit, 100), 10).Error
			}
			err := batches(segment.Config{Step: 20})
			testkit.IsError(t, err, generator.ErrSource, "deposits", "transaction", "segment.Config.Step")
			must(t, batches(segment.Config{Step: 200}))
		})
	}
}

// A slice that GORM creates in its own transaction gets its ids before, over any number of ranges.
func TestSegment_ASliceGetsItsIDsBeforeItsTransaction(t *testing.T) {
	t.Parallel()

	db := testkit.SQLite{}.Open(t)
	plugintest.Single(t, db)
	p := plugintest.Use(t, db, uidplugin.WithModels(&deposit{}), uidplugin.WithSegments(segment.Config{Step: 20, MaxStep: 1}))
	must(t, p.AutoMigrate(&deposit{}))
	must(t, db.Create(make([]deposit, 90)).Error)
	must(t, db.Transaction(func(tx *gorm.DB) error { return tx.Create(&deposit{}).Error }))
}
