package fill_test

import (
	"testing"

	"github.com/uidplugin/uidplugin"
	"github.com/uidplugin/uidplugin/internal/plugintest"
	"github.com/uidplugin/uidplugin/internal/testkit"
	"gorm.io/gorm"
)

// Base has the key of an embedding.
type Base struct {
	ID int64 `gorm:"primaryKey;autoIncrement:false;uid"`
}

type embedding struct {
	Base
	Name string
}

// Setting keys allocates nothing: a db.Create with the plugin allocates as much as one without it, of rows that have
// keys.
func TestAllocations_ThePluginAllocatesNothing(t *testing.T) { // not parallel: allocations are counted for the whole process
	testkit.SkipWithRace(t) // with it, pools forget what they hold
	for _, tt := range []struct {
		name string
		run  func(db *gorm.DB, id int64) func() error
	}{
		{"struct", func(db *gorm.DB, id int64) func() error {
			row := plugintest.Parcel{City: "Ely"}
			return func() error { row.ID = id; return db.Create(&row).Error }
		}},
		{"slice", func(db *gorm.DB, id int64) func() error {
			rows := make([]plugintest.Parcel, 600)
			return func() error {
				for i := range rows {
					rows[i].ID = id
				}
				return db.Create(&rows).Error
			}
		}},
		{"slice of pointers", func(db *gorm.DB, id int64) func() error {
			rows := make([]*plugintest.Parcel, 600)
			for i := range rows {
				rows[i] = &plugintest.Parcel{City: "Ely"}
			}
			return func() error {
				for _, r := range rows {
					r.ID = id
				}
				return db.Create(&rows).Error
			}
		}},
		{"embedded key", func(db *gorm.DB, id int64) func() error {
			row := embedding{Name: "a"}
			return func() error { row.ID = id; return db.Create(&row).Error }
		}},
		{"uidplugin.ID", func(db *gorm.DB, id int64) func() error {
			row := plugintest.Article{Name: "a"}
			return func() error { row.ID = uidplugin.ID(id); return db.Create(&row).Error }
		}},
		{"no tag", func(db *gorm.DB, _ int64) func() error {
			row := plugintest.Ledger{ID: 1, Text: "a"}
			return func() error { return db.Create(&row).Error }
		}},
		{"update without tag", func(db *gorm.DB, _ int64) func() error {
			row := plugintest.Ledger{ID: 1, Text: "a"}
			return func() error { return db.Save(&row).Error }
		}},
		{"update", func(db *gorm.DB, _ int64) func() error {
			row := plugintest.Parcel{ID: 1, City: "Ely"}
			return func() error { return db.Save(&row).Error }
		}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			measure := func(db *gorm.DB, id int64) float64 {
				run := tt.run(db, id)
				return testing.AllocsPerRun(100, func() { must(t, run()) })
			}
			without, with := measure(plugintest.Nowhere(t), 1), measure(plugintest.Nowhere(t, uidplugin.WithWorkerID(1)), 0)
			for try := 0; with > without && try < 10; try++ { // goroutines of other tests allocate, and a pool forgets during a collection
				with = measure(plugintest.Nowhere(t, uidplugin.WithWorkerID(1)), 0)
			}
			if with > without {
				t.Errorf("%v allocations with the plugin, %v without", with, without)
			}
		})
	}
}

// A letter has associations with tables that get no worker ids until one of their rows is created.
type (
	letter struct {
		ID        int64 `gorm:"primaryKey;autoIncrement:false;uid"`
		SenderID  *int64
		Sender    *sender // belongs to
		Seal      seal    // has one
		Pages     []page
		Stamps    []*stamp
		Addressed *addressed   `gorm:"embedded"`
		Readers   []correspond `gorm:"many2many:readings"`
	}
	sender struct {
		ID      int64 `gorm:"primaryKey;autoIncrement:false;uid"`
		Letters []letter
	}
	seal struct {
		ID       int64 `gorm:"primaryKey;autoIncrement:false;uid"`
		LetterID int64
		Colours  []string `gorm:"serializer:json"` // so that seals cannot be compared
	}
	page struct {
		ID       int64 `gorm:"primaryKey;autoIncrement:false;uid"`
		LetterID int64
		Letter   *letter
	}
	stamp struct {
		ID       int64 `gorm:"primaryKey;autoIncrement:false;uid"`
		LetterID int64
	}
	addressed struct {
		TownID *int64
		Town   *town
	}
	town struct {
		ID int64 `gorm:"primaryKey;autoIncrement:false;uid"`
	}
	correspond struct {
		ID int64 `gorm:"primaryKey;autoIncrement:false;uid"`
	}
)

// If some tables that rows are associated with have no worker ids yet, each row is searched for associations. That
// allocates no more than when all tables have worker ids.
func TestAllocations_AssociationsWithoutWorkerIDsAllocateNothing(t *testing.T) { // not parallel: allocations are counted for the whole process
	testkit.SkipWithRace(t) // with it, pools forget what they hold
	for _, tt := range []struct {
		name string
		set  func(*letter)
	}{
		{"nil", func(*letter) {}},
		{"empty", func(l *letter) {
			l.Pages, l.Stamps, l.Readers, l.Addressed = []page{}, []*stamp{}, []correspond{}, &addressed{}
		}},
		{"set, of a table that has worker ids", func(l *letter) { l.Stamps = []*stamp{{}, {}} }},
	} {
		t.Run(tt.name, func(t *testing.T) {
			measure := func(options ...uidplugin.Option) float64 {
				db := plugintest.Open(t, append(options, uidplugin.WithLayout(plugintest.Plenty()))...)
				rows := make([]letter, 100)
				for i := range rows {
					tt.set(&rows[i])
				}
				tx, fill := statement(t, db, &rows), filler(db)
				fill(statement(t, db, &stamp{}))
				n := testing.AllocsPerRun(100, func() {
					for i := range rows {
						rows[i].ID = 0
					}
					fill(tx)
				})
				must(t, tx.Error)
				if rows[99].ID == 0 {
					t.Error("no ids")
				}
				return n
			}
			if some, all := measure(), measure(uidplugin.WithModels(&letter{})); some > all {
				t.Errorf("%v allocations if some tables have worker ids, %v if all have", some, all)
			}
		})
	}
}
