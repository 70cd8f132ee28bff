package uidtest_test

import (
	"errors"
	"fmt"
	"maps"
	"math"
	"slices"
	"sync"
	"testing"

	"github.com/uidplugin/uidplugin"
	"github.com/uidplugin/uidplugin/generator"
	"github.com/uidplugin/uidplugin/internal/testkit"
	"github.com/uidplugin/uidplugin/uidtest"
	"gorm.io/gorm"
	"gorm.io/gorm/clause"
)

// Formerly all tables shared one count, as they share the worker id with WithWorkerID.
func TestSequential_EachTableCountsFromOne(t *testing.T) {
	t.Parallel()

	testkit.Each(t, func(t *testing.T, d *testkit.Database) {
		db := openOn(t, d.Open(t, nil), uidtest.Sequential(), &author{}, &book{}, &label{})
		one := author{Books: []book{{Title: "a"}, {Title: "b"}}, Tags: []label{{}, {}}}
		testkit.Must(t, db.Create(&one).Error)
		batch := []author{{}, {Books: []book{{Title: "c"}}}, {}}
		testkit.Must(t, db.CreateInBatches(&batch, 2).Error)
		fields := map[string]any{"name": "of a map"}
		testkit.Must(t, db.Model(&author{}).Create(&fields).Error)
		saved := author{Name: "saved"}
		testkit.Must(t, db.Save(&saved).Error)
		again := saved
		again.Name = "saved again"
		testkit.Must(t, db.Save(&again).Error)
		first := author{Name: "first or create"}
		testkit.Must(t, db.Where(author{Name: first.Name}).FirstOrCreate(&first).Error)

		got := fmt.Sprintln(one.ID, one.Books[0].ID, one.Books[1].ID, one.Books[1].AuthorID, one.Tags[0].ID, one.Tags[1].ID,
			"/", batch[0].ID, batch[1].ID, batch[1].Books[0].ID, batch[2].ID, "/", fields["id"], saved.ID, again.ID, first.ID)
		if want := "1 1 2 1 1 2 / 2 3 3 4 / 5 6 6 7\n"; got != want {
			t.Errorf("ids\n\t%s, want\n\t%s", got, want)
		}
		var ids []uint
		testkit.Must(t, db.Model(&author{}).Order("id").Pluck("id", &ids).Error)
		if !slices.Equal(ids, []uint{1, 2, 3, 4, 5, 6, 7}) {
			t.Errorf("the table has the ids %v", ids)
		}
	})
}

// Fixtures with keys of their own, and rows that the test creates after them: gotify's tests have both.
func TestSequential_ContinuesAboveKeysOfTheApplication(t *testing.T) {
	t.Parallel()

	testkit.Each(t, func(t *testing.T, d *testkit.Database) {
		mine := uidplugin.WithSource("mine", nothing)
		db := openOn(t, d.Open(t, nil), uidtest.Sequential(mine), &author{}, &book{}, &label{}, &numbers{})
		mixed := []author{{ID: 1}, {}, {ID: 5}, {}}
		testkit.Must(t, db.Create(&mixed).Error)
		with := author{
			Books: []book{{Model: gorm.Model{ID: 7}, Title: "a"}, {Title: "b"}},
			Tags:  []label{{ID: "3"}, {}, {ID: "none"}},
		}
		testkit.Must(t, db.Create(&with).Error)
		fields := map[string]any{"id": 20}
		testkit.Must(t, db.Model(&author{}).Create(&fields).Error)
		last := author{ID: 12}
		testkit.Must(t, db.Save(&last).Error)
		last.ID = 0
		testkit.Must(t, db.Create(&last).Error)
		got := fmt.Sprintln(mixed[1].ID > 5, mixed[3].ID > mixed[1].ID, with.Books[1].ID, with.Tags[1].ID, last.ID)
		if want := "true true 8 4 21\n"; got != want {
			t.Errorf("ids\n\t%s, want\n\t%s", got, want)
		}

		testkit.Must(t, db.Create(&numbers{ID: 10, Small: 20}).Error)
		row := numbers{}
		testkit.Must(t, db.Create(&row).Error)
		if row.ID <= 10 || row.Small != 21 || row.Large != 2 {
			t.Errorf("the row is %+v", row)
		}
	})
}

// Above the largest key creates fail, as with AUTO_INCREMENT. Formerly the next ids were negative.
func TestSequential_NoIDAboveTheLargestKey(t *testing.T) {
	t.Parallel()

	type row struct {
		ID int64 `gorm:"primaryKey;uid"`
	}
	db := open(t, uidtest.Sequential(), &row{})
	testkit.Must(t, db.Create(&row{ID: math.MaxInt64 - 1}).Error)
	last := row{}
	testkit.Must(t, db.Create(&last).Error)
	if last.ID != math.MaxInt64 {
		t.Errorf("the last id is %d", last.ID)
	}
	ownKey := open(t, uidtest.Sequential(), &row{})
	testkit.Must(t, ownKey.Create(&row{ID: math.MaxInt64}).Error)
	for _, db := range []*gorm.DB{db, db, ownKey} {
		testkit.IsError(t, db.Create(&row{}).Error, generator.ErrTimeExhausted, "rows has the largest key, 9223372036854775807")
	}
}

// dbresolver opens its replicas with a copy of the configuration, for which GORM initializes the plugins in any order.
// So formerly a key of the application was seen only after the other rows of its create had their ids.
func TestSequential_ACopyOfTheConfiguration(t *testing.T) {
	t.Parallel()

	for range 10 {
		p := uidtest.Sequential()
		db := open(t, p, &author{})
		testkit.Must(t, db.Create(&author{}).Error)
		testkit.IsError(t, db.Use(p), gorm.ErrRegistered)
		config := *db.Config
		config.ConnPool, config.Dialector = nil, nil
		copied := testkit.SQLite{Config: &config}.Open(t)
		testkit.Must(t, copied.AutoMigrate(&author{}))
		rows := []author{{ID: 7}, {}}
		testkit.Must(t, copied.Create(&rows).Error)
		if rows[1].ID <= 7 {
			t.Fatalf("the row after the one with the id 7 has the id %d", rows[1].ID)
		}
		testkit.IsError(t, testkit.SQLite{}.Open(t).Use(p), uidplugin.ErrOption, "already in use")
	}
}

// After a conflict the struct has the id of its row, and the next row does not get the id of another row.
func TestSequential_Upserts(t *testing.T) {
	t.Parallel()

	testkit.Each(t, func(t *testing.T, d *testkit.Database) {
		db := openOn(t, d.Open(t, nil), uidtest.Sequential(), &book{})
		upsert := db.Clauses(clause.OnConflict{
			Columns:   []clause.Column{{Name: "title"}},
			DoUpdates: clause.AssignmentColumns([]string{"author_id"}),
		})
		for _, tt := range []struct {
			title string
			want  uint
		}{{"a", 1}, {"b", 2}, {"a", 1}, {"b", 2}, {"c", 5}} {
			b := book{Title: tt.title}
			testkit.Must(t, upsert.Session(&gorm.Session{}).Create(&b).Error)
			if b.ID != tt.want {
				t.Errorf("book %s has the id %d, want %d", tt.title, b.ID, tt.want)
			}
		}
	})
}

// Creates of several goroutines, of one row and of many, get each number once.
func TestSequential_ConcurrentCreates(t *testing.T) {
	t.Parallel()

	const callers, rounds = 8, 15
	db := open(t, uidtest.Sequential(), &author{}, &book{})
	ledger := testkit.NewLedger(t)
	var wg sync.WaitGroup
	for range callers {
		wg.Go(func() {
			for range rounds {
				one, two := author{}, []author{{}, {}}
				if err := errors.Join(db.Create(&one).Error, db.Create(&two).Error); err != nil {
					t.Error(err)
					return
				}
				ledger.Add("authors", int64(one.ID), int64(two[0].ID), int64(two[1].ID))
			}
		})
	}
	wg.Wait()
	all := slices.Sorted(maps.Keys(ledger.Tables()))
	if n := callers * rounds * 3; len(all) != n || all[0] != 1 || all[n-1] != int64(n) {
		t.Errorf("%d numbers, from %d to %d", len(all), all[0], all[len(all)-1])
	}
}

// With WithWorkerID, a tag that names another generator is refused, and uid:segment needs a table.
func TestSequential_TagsMayNameGenerators(t *testing.T) {
	t.Parallel()

	own := uidplugin.WithGenerator("mine", func(generator.Config) (generator.Renewable, error) {
		return nil, errors.New("must not be called")
	})
	db := open(t, uidtest.Sequential(own, uidplugin.WithModels(&numbers{})), &numbers{})
	for _, want := range []numbers{{1, 1, 1, 1, 2}, {3, 2, 2, 2, 4}} {
		var got numbers
		testkit.Must(t, db.Create(&got).Error)
		if got != want {
			t.Errorf("the row is %+v, want %+v", got, want)
		}
	}
	var tables []string
	testkit.Must(t, db.Raw("SELECT name FROM sqlite_master WHERE type = 'table'").Scan(&tables).Error)
	if !slices.Equal(tables, []string{"numbers"}) {
		t.Errorf("the database has the tables %v", tables)
	}
}
