package fill_test

import (
	"database/sql/driver"
	"testing"
	"testing/synctest"
	"time"

	"github.com/uidplugin/uidplugin"
	"github.com/uidplugin/uidplugin/internal/plugintest"
	"github.com/uidplugin/uidplugin/internal/testkit"
	"gorm.io/gorm"
)

func TestTransaction_APreparedTransactionIsATransaction(t *testing.T) {
	t.Parallel()

	db := plugintest.Open(t)
	plugintest.Migrate(t, db, &plugintest.Part{})
	plugintest.Single(t, db)
	err := db.Session(&gorm.Session{PrepareStmt: true}).Transaction(func(tx *gorm.DB) error {
		return tx.Transaction(func(tx *gorm.DB) error { return tx.Create(&plugintest.Part{}).Error })
	})
	testkit.IsError(t, err, uidplugin.ErrInTransaction)
}

// TestTransaction_WithModelsATransactionNeedsNoOtherConnection is the advice of that error.
func TestTransaction_WithModelsATransactionNeedsNoOtherConnection(t *testing.T) {
	t.Parallel()

	db := plugintest.Open(t, uidplugin.WithModels(&plugintest.Customer{}))
	plugintest.Migrate(t, db, &plugintest.Customer{}, &plugintest.Purchase{}, &plugintest.Item{}, &plugintest.Profile{}, &plugintest.Club{}, &plugintest.Label{})
	plugintest.Single(t, db)
	must(t, db.Transaction(func(tx *gorm.DB) error {
		return tx.Create(&plugintest.Customer{Purchases: []plugintest.Purchase{{Items: []*plugintest.Item{{}}}}}).Error
	}))
	plugintest.Links(t, db, "items", "purchase_id", "purchases", 1)
}

// Statements that create no id take no worker id. Otherwise a process that only updates, or whose rows have keys,
// would wait for worker ids of all its tables, and use them up at each start.
func TestTransaction_WhatCreatesNoIDTakesNoWorkerID(t *testing.T) {
	t.Parallel()

	for _, tt := range []struct {
		name string
		run  func(db *gorm.DB) error
	}{
		{"Update", func(db *gorm.DB) error { return db.Model(&plugintest.Part{ID: 5}).Update("name", "a").Error }},
		{"Updates", func(db *gorm.DB) error { return db.Updates(&plugintest.Part{ID: 5, Name: "a"}).Error }},
		{"Save of a row that is there", func(db *gorm.DB) error { return db.Save(&plugintest.Part{ID: 5, Name: "a"}).Error }},
		{"Update of a model with associations", func(db *gorm.DB) error { return db.Model(&plugintest.Customer{ID: 5}).Update("name", "a").Error }},
		{"Updates of a model with associations", func(db *gorm.DB) error { return db.Updates(&plugintest.Customer{ID: 5, Name: "a"}).Error }},
		{"Update from a map", func(db *gorm.DB) error {
			return db.Model(&plugintest.Customer{}).Where("id = 5").Updates(map[string]any{"name": "a"}).Error
		}},
		{"create with a key", func(db *gorm.DB) error { return db.Create(&plugintest.Part{ID: 6}).Error }},
		{"create of a slice with keys", func(db *gorm.DB) error { return db.Create([]*plugintest.Customer{{ID: 6}, {ID: 7}}).Error }},
		{"create of a map with a key", func(db *gorm.DB) error { return db.Model(&plugintest.Part{}).Create(map[string]any{"id": 6}).Error }},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()

			db := plugintest.Bare(t)
			p := plugintest.Use(t, db)
			plugintest.Migrate(t, db, &plugintest.Part{}, &plugintest.Customer{}, &plugintest.Purchase{}, &plugintest.Item{}, &plugintest.Profile{}, &plugintest.Club{}, &plugintest.Label{})
			must(t, db.Exec("INSERT INTO parts (id) VALUES (5)").Error)
			must(t, db.Exec("INSERT INTO customers (id) VALUES (5)").Error)
			must(t, tt.run(db))
			testkit.MustClose(t, p) // which writes the tables of all worker ids that are in use
			plugintest.Rows(t, 0, db, "WORKER_NODE", "TABLE_NAME <> ''")
		})
	}
}

// An update in a transaction needs no other connection, so it waits for none.
func TestTransaction_AnUpdateInATransactionWaitsForNothing(t *testing.T) {
	t.Parallel()

	synctest.Test(t, func(t *testing.T) {
		db, mock := plugintest.MockedUse(t)
		pool, err := db.DB()
		must(t, err)
		pool.SetMaxOpenConns(2)
		plugintest.Expect(mock, plugintest.Begin, plugintest.Begin)
		other, tx := db.Begin(), db.Begin()
		plugintest.Expect(mock, plugintest.Step{Do: "exec", SQL: "UPDATE `invoices` SET `total`=? WHERE `id` = ?", Args: []driver.Value{2, 5}, N: 1})
		started := time.Now()
		must(t, tx.Model(&plugintest.Invoice{ID: 5}).Update("total", 2).Error)
		if waited := time.Since(started); waited != 0 {
			t.Errorf("the update has waited %v", waited)
		}
		plugintest.Expect(mock, plugintest.Rollback, plugintest.Rollback)
		must(t, other.Rollback().Error)
		must(t, tx.Rollback().Error)
	})
}
