package lookup_test

import (
	"errors"
	"path/filepath"
	"testing"

	"github.com/uidplugin/uidplugin"
	"github.com/uidplugin/uidplugin/internal/plugintest"
	"github.com/uidplugin/uidplugin/internal/testkit"
	"gorm.io/gorm"
)

// A bolt is the model of parts after their table was renamed.
type bolt struct {
	ID   int64 `gorm:"primaryKey;uid"`
	Name string
}

// isRenamed checks that an error names the command, and that no handler answers it with a 404.
func isRenamed(t *testing.T, err error) {
	t.Helper()
	if testkit.IsError(t, err, nil, `"uid tables rename parts bolts"`); errors.Is(err, uidplugin.ErrNoSuchID) {
		t.Errorf("%v", err)
	}
}

// Formerly every id from before a rename was ErrNoModel, which handlers answer with a 404, with advice that could not
// be followed, because the model of the old table is gone.
func TestPluginFind_NamesTheCommandForARenamedTable(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "test.db")
	db := plugintest.File(t, path, nil)
	plugintest.Use(t, db)
	plugintest.Migrate(t, db, &plugintest.Part{})
	rows := []plugintest.Part{{Name: "nail"}, {Name: "screw"}, {Name: "gone"}}
	must(t, db.Create(&rows).Error)
	must(t, db.Delete(&rows[2]).Error)
	must(t, db.Exec("ALTER TABLE parts RENAME TO bolts").Error)
	renamed := plugintest.File(t, path, nil)
	p := plugintest.Use(t, renamed, uidplugin.WithModels(&bolt{}, &product{})) // products does not exist
	id := uidplugin.ID(rows[0].ID)

	_, err := p.Find(t.Context(), id)
	isRenamed(t, err)
	_, err = p.Find(t.Context(), id, uidplugin.OnlyModels(&bolt{}))
	isRenamed(t, err)
	found, err := p.FindAll(t.Context(), uidplugin.IDs(rows[0].ID, rows[1].ID))
	if isRenamed(t, err); len(found) != 0 {
		t.Errorf("found %v", found)
	}
	must(t, renamed.Transaction(func(tx *gorm.DB) error {
		_, err := uidplugin.From(tx).Find(t.Context(), id)
		isRenamed(t, err)
		return nil
	}))

	// An id without a row, and a row that the caller may not see, are no such ids, as before.
	plugintest.Only(t, plugintest.Second(p.Find(t.Context(), uidplugin.ID(rows[2].ID))), uidplugin.ErrNoModel, "parts")
	_, err = p.Find(t.Context(), id, uidplugin.OnlyModels(&product{}))
	plugintest.Only(t, err, uidplugin.ErrNoModel, "parts")
	_, err = uidplugin.From(renamed.Where("name = ?", "other")).Find(t.Context(), id)
	plugintest.Only(t, err, uidplugin.ErrNoModel, "parts")
	_, err = p.Find(t.Context(), id, uidplugin.Scoped(func(db *gorm.DB, _ any) *gorm.DB { return db.Where("name = ?", "other") }))
	plugintest.Only(t, err, uidplugin.ErrNoModel, "parts")

	must(t, renamed.Exec("UPDATE WORKER_NODE SET TABLE_NAME = 'bolts' WHERE TABLE_NAME = 'parts'").Error)
	finds(t, p, rows[0].ID, bolt(rows[0]))
}
