package uidplugin_test

import (
	"testing"

	"github.com/uidplugin/uidplugin"
	"github.com/uidplugin/uidplugin/internal/plugintest"
	"gorm.io/gorm"
)

// The cost of the plugin is the difference between the variants of one run:
//
//	go test -run '^$' -bench Create -count 10 .

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
