package uidplugin_test

import (
	"testing"

	"github.com/uidplugin/uidplugin"
	"gorm.io/gorm"
)

// ledger has no uid field.
type ledger struct {
	ID   int64 `gorm:"primaryKey;autoIncrement:false"`
	Text string
}

// TestThePluginAllocatesNothing compares db.Create with the plugin, which sets
// the keys, to db.Create without it, of rows that have keys.
func TestThePluginAllocatesNothing(t *testing.T) { // not parallel: allocations are counted for the whole process
	if racing {
		t.Skip("with the race detector pools forget what they hold")
	}
	for _, tt := range []struct {
		name string
		run  func(db *gorm.DB, id int64) func() error
	}{
		{"struct", func(db *gorm.DB, id int64) func() error {
			row := parcel{City: "Ely"}
			return func() error { row.ID = id; return db.Create(&row).Error }
		}},
		{"slice", func(db *gorm.DB, id int64) func() error {
			rows := make([]parcel, 600)
			return func() error {
				for i := range rows {
					rows[i].ID = id
				}
				return db.Create(&rows).Error
			}
		}},
		{"slice of pointers", func(db *gorm.DB, id int64) func() error {
			rows := make([]*parcel, 600)
			for i := range rows {
				rows[i] = &parcel{City: "Ely"}
			}
			return func() error {
				for _, r := range rows {
					r.ID = id
				}
				return db.Create(&rows).Error
			}
		}},
		{"embedded key", func(db *gorm.DB, id int64) func() error {
			row := byValue{Name: "a"}
			return func() error { row.ID = id; return db.Create(&row).Error }
		}},
		{"uidplugin.ID", func(db *gorm.DB, id int64) func() error {
			row := article{Name: "a"}
			return func() error { row.ID = uidplugin.ID(id); return db.Create(&row).Error }
		}},
		{"no tag", func(db *gorm.DB, _ int64) func() error {
			row := ledger{ID: 1, Text: "a"}
			return func() error { return db.Create(&row).Error }
		}},
		{"update without tag", func(db *gorm.DB, _ int64) func() error {
			row := ledger{ID: 1, Text: "a"}
			return func() error { return db.Save(&row).Error }
		}},
		{"update", func(db *gorm.DB, _ int64) func() error {
			row := parcel{ID: 1, City: "Ely"}
			return func() error { return db.Save(&row).Error }
		}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			measure := func(db *gorm.DB, id int64) float64 {
				run := tt.run(db, id)
				return testing.AllocsPerRun(100, func() { must(t, run()) })
			}
			without, with := measure(nowhere(t), 1), measure(nowhere(t, uidplugin.WithMaxBorrow(0)), 0)
			if with > without {
				t.Errorf("%v allocations with the plugin, %v without", with, without)
			}
		})
	}
}
