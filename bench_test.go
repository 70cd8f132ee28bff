package uidplugin_test

import (
	"database/sql/driver"
	"errors"
	"testing"

	"github.com/uidplugin/uidplugin"
	"github.com/uidplugin/uidplugin/internal/plugintest"
	"gorm.io/gorm"
)

// The cost of the plugin is the difference between the variants of one run:
//
//	go test -run '^$' -bench 'Create|Select' -count 10 .

func variants(b *testing.B, run func(b *testing.B, db *gorm.DB, id int64)) {
	b.Run("preset", func(b *testing.B) { run(b, plugintest.Nowhere(b), 1) })
	b.Run("uidplugin", func(b *testing.B) { run(b, plugintest.Nowhere(b, uidplugin.WithWorkerID(1)), 0) })
}

// BenchmarkCreateOneRow measures a db.Create of one row, once with a key that is set, and once with one that the
// plugin sets.
func BenchmarkCreateOneRow(b *testing.B) {
	variants(b, func(b *testing.B, db *gorm.DB, id int64) {
		row := plugintest.Parcel{OrderID: 1, Street: "Long Lane", City: "Ely"}
		b.ReportAllocs()
		for b.Loop() {
			row.ID = id
			if err := db.Create(&row).Error; err != nil {
				b.Fatal(err)
			}
		}
	})
}

// BenchmarkSelect measures a SELECT of the application, without and with the plugin. The pool answers no query, so this is
// what GORM and the plugin do before it.
func BenchmarkSelect(b *testing.B) {
	variants(b, func(b *testing.B, db *gorm.DB, _ int64) {
		b.ReportAllocs()
		for b.Loop() {
			var rows []plugintest.Parcel
			if err := db.Where("city = ?", "Ely").Limit(10).Find(&rows).Error; !errors.Is(err, driver.ErrSkip) {
				b.Fatal(err)
			}
		}
	})
}

// BenchmarkCreate1000Rows is the same for a slice of 1000.
func BenchmarkCreate1000Rows(b *testing.B) {
	variants(b, func(b *testing.B, db *gorm.DB, id int64) {
		rows := make([]plugintest.Parcel, 1000)
		b.ReportAllocs()
		for b.Loop() {
			for i := range rows {
				rows[i].ID = id
			}
			if err := db.Create(&rows).Error; err != nil {
				b.Fatal(err)
			}
		}
	})
}
