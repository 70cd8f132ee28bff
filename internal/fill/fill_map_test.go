package fill_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/DATA-DOG/go-sqlmock"
	"github.com/uidplugin/uidplugin"
	"github.com/uidplugin/uidplugin/internal/plugintest"
	"github.com/uidplugin/uidplugin/internal/testkit"
	"gorm.io/gorm"
)

// mapForms are the four forms of maps that GORM creates rows from, and batches. Each form creates all maps that it
// gets.
var mapForms = []struct {
	name   string
	rows   int
	create func(db *gorm.DB, maps []map[string]any) error
}{
	{"map", 1, func(db *gorm.DB, m []map[string]any) error { return db.Create(m[0]).Error }},
	{"pointer to map", 1, func(db *gorm.DB, m []map[string]any) error { return db.Create(&m[0]).Error }},
	{"slice of maps", 3, func(db *gorm.DB, m []map[string]any) error { return db.Create(m).Error }},
	{"pointer to slice of maps", 3, func(db *gorm.DB, m []map[string]any) error {
		err := db.Create(&m).Error
		if len(m) != 3 {
			return fmt.Errorf("the slice has %d maps now: %v; %w", len(m), m, err)
		}
		return err
	}},
	{"CreateInBatches", 3, func(db *gorm.DB, m []map[string]any) error { return db.CreateInBatches(m, 2).Error }},
}

// mapModels are a model with a plain key and one with an AUTO_INCREMENT key. For the second, GORM assumes that the
// database has set the keys.
var mapModels = []struct {
	table string
	model any
}{{"parts", &plugintest.Part{}}, {"counters", &plugintest.Counter{}}}

// eachMapForm runs a test for all forms and both models, with so many maps.
func eachMapForm(t *testing.T, test func(t *testing.T, table string, create func(*gorm.DB, []map[string]any) error, rows []map[string]any)) {
	t.Helper()
	for _, m := range mapModels {
		for _, f := range mapForms {
			t.Run(m.table+"/"+f.name, func(t *testing.T) {
				t.Parallel()

				var rows []map[string]any
				for i := range f.rows {
					rows = append(rows, map[string]any{"name": fmt.Sprint("row ", i)})
				}
				test(t, m.table, func(db *gorm.DB, rows []map[string]any) error { return f.create(db.Model(m.model), rows) }, rows)
			})
		}
	}
}

// On MySQL maps keep their keys, although MySQL reports an insert id for a row whose key was set.
func TestCreateMaps_OnMySQLKeepTheirKeys(t *testing.T) {
	t.Parallel()

	eachMapForm(t, func(t *testing.T, table string, create func(*gorm.DB, []map[string]any) error, rows []map[string]any) {
		db, mock := testkit.Mock(t, plugintest.Dialects[0].Dial)
		plugintest.Use(t, db, uidplugin.WithWorkerID(7), uidplugin.WithClock(plugintest.AtNoon))
		sizes := []int{len(rows)}
		if strings.HasSuffix(t.Name(), "CreateInBatches") {
			sizes = []int{2, 1}
		}
		mock.ExpectBegin()
		for _, n := range sizes {
			mock.ExpectExec("INSERT INTO `" + table + "` (`id`,`name`) VALUES " + strings.Repeat("(?,?),", n-1) + "(?,?)").
				WillReturnResult(sqlmock.NewResult(777, int64(n)))
		}
		mock.ExpectCommit()
		must(t, create(db, rows))
		for i, m := range rows {
			if m["id"] != plugintest.At(t, 7, int64(i)) || len(m) != 2 {
				t.Errorf("the map is %v", m)
			}
		}
	})
}

// If the database sets other columns by default, they are read back, as without the plugin.
func TestCreateMaps_OfAModelWithOtherDefaults(t *testing.T) {
	t.Parallel()

	type ranked struct {
		ID   int64 `gorm:"primaryKey;uid"`
		Name string
		Rank int `gorm:"default:(3+4)"`
	}
	for _, registered := range []bool{false, true} {
		db := plugintest.Open(t)
		if registered {
			must(t, uidplugin.From(db).Register(t.Context(), &ranked{}))
		}
		plugintest.Migrate(t, db, &ranked{})
		m := map[string]any{"name": "a"}
		must(t, db.Model(&ranked{}).Create(m).Error)
		id := plugintest.IDIn(t, m, "id")
		plugintest.IsOurs(t, db, "rankeds", id)
		r := ranked{Name: "b"}
		must(t, db.Create(&r).Error)
		plugintest.IsOurs(t, db, "rankeds", r.ID)
		if n := plugintest.Count(t, db, "rankeds", "id IN ? AND rank = 7", []int64{id, r.ID}); n != 2 || r.Rank != 7 {
			t.Errorf("%d rows, %+v", n, r)
		}
	}
}
