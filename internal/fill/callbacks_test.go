package fill_test

import (
	"database/sql"
	"reflect"
	"testing"

	"github.com/uidplugin/uidplugin"
	"github.com/uidplugin/uidplugin/internal/plugintest"
	"github.com/uidplugin/uidplugin/internal/testkit"
	"gorm.io/gorm"
	"gorm.io/gorm/clause"
)

// callbacksOf counts the callbacks of an operation. GORM does not export them.
func callbacksOf(operation any) int {
	return reflect.ValueOf(operation).Elem().FieldByName("fns").Len()
}

// A plugin that fills keys must not slow reads down, and cannot make them fail.
func TestCallbacks_NothingIsRegisteredOnReads(t *testing.T) {
	t.Parallel()

	without, with := plugintest.Bare(t), plugintest.Open(t, uidplugin.WithWorkerID(1))
	for name, read := range map[string]func(db *gorm.DB) any{
		"Query": func(db *gorm.DB) any { return db.Callback().Query() },
		"Row":   func(db *gorm.DB) any { return db.Callback().Row() },
	} {
		if n, want := callbacksOf(read(with)), callbacksOf(read(without)); n != want || want == 0 {
			t.Errorf("%s has %d callbacks, want GORM's %d", name, n, want)
		}
	}
	if n := callbacksOf(with.Callback().Create()); n <= callbacksOf(without.Callback().Create()) {
		t.Errorf("Create has %d callbacks: this test does not see those of the plugin", n)
	}
}

// A Select that names no column of the row leaves only the id to insert, also in an upsert of all columns, where GORM
// knows no column to update.
func TestCallbacks_ASelectWithoutColumnsInsertsTheID(t *testing.T) {
	t.Parallel()

	for name, create := range map[string]func(db *gorm.DB, a *address) error{
		"create": func(db *gorm.DB, a *address) error { return db.Select("Lines").Create(a).Error },
		"upsert": func(db *gorm.DB, a *address) error {
			return db.Select("Lines").Clauses(clause.OnConflict{UpdateAll: true}).Create(a).Error
		},
		"map": func(db *gorm.DB, a *address) error {
			row := map[string]any{"name": "unselected"}
			err := db.Model(a).Select("n").Create(row).Error
			a.ID, _ = row["id"].(int64)
			a.Ref, _ = row["ref"].(int64)
			return err
		},
		"maps": func(db *gorm.DB, a *address) error {
			rows := []map[string]any{{"name": "unselected"}, {"n": 3, "name": "unselected"}}
			err := db.Model(a).Select("n").Create(rows).Error
			a.ID, _ = rows[0]["id"].(int64)
			a.Ref, _ = rows[0]["ref"].(int64)
			return err
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()

			db := copying(t, 0, true)
			a := address{Name: "unselected", N: 7}
			must(t, create(db, &a))
			var row struct {
				Name sql.NullString
				Ref  int64
			}
			must(t, db.Table("addresses").Select("name", "ref").Where("id = ?", a.ID).Take(&row).Error)
			if row.Name.Valid || row.Ref != a.Ref || a.Ref == 0 {
				t.Errorf("stored %+v of %+v", row, a)
			}
		})
	}
}

// A callback of another plugin, directly before the INSERT, may send a SELECT on a copy of the statement. It reads the
// columns that the application has selected.
func TestCallbacks_ASelectOnACopyReadsWhatTheApplicationSelected(t *testing.T) {
	t.Parallel()

	db := testkit.SQLite{}.Open(t)
	plugintest.Use(t, db, uidplugin.WithWorkerID(1))
	plugintest.Migrate(t, db, &plugintest.Part{})
	var sent []string
	must(t, db.Callback().Create().Before("gorm:create").Register("other", func(tx *gorm.DB) {
		recorder := &plugintest.Statements{}
		must(t, tx.Session(&gorm.Session{SkipHooks: true, Logger: recorder}).Find(&[]plugintest.Part{}).Error)
		sent = recorder.Take()
	}))
	must(t, db.Select("Name").Create(&plugintest.Part{Name: "a"}).Error)
	if len(sent) != 1 || sent[0] != "SELECT `name` FROM `parts`" {
		t.Errorf("sent %q", sent)
	}
}
