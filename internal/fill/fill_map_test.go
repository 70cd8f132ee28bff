package fill_test

import (
	"testing"

	"github.com/uidplugin/uidplugin"
	"github.com/uidplugin/uidplugin/internal/plugintest"
)

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
