package fill_test

import (
	"testing"

	"github.com/uidplugin/uidplugin"
	"github.com/uidplugin/uidplugin/internal/plugintest"
	"github.com/uidplugin/uidplugin/internal/testkit"
	"gorm.io/gorm"
)

var must = testkit.Must

// The ways to create rows are in integration/paths; these are not.
func TestCreate_APointerToANilPointerIsMadeByGORM(t *testing.T) {
	t.Parallel()

	db := plugintest.Open(t)
	plugintest.Migrate(t, db, &plugintest.Part{})
	var made *plugintest.Part
	must(t, db.Create(&made).Error)
	plugintest.IsOurs(t, db, "parts", made.ID)
}

func TestCreate_KeysThatAreSetStay(t *testing.T) {
	t.Parallel()

	db := plugintest.Open(t)
	plugintest.Migrate(t, db, &plugintest.Part{}, &plugintest.Counter{})
	c := plugintest.Counter{ID: -6}
	must(t, db.Create(&c).Error)
	must(t, db.Create(plugintest.Part{ID: 4}).Error) // by value: nothing has to be set
	plugintest.Rows(t, 1, db, "parts", "id = 4")
	if plugintest.Rows(t, 1, db, "counters", "id = -6"); c.ID != -6 {
		t.Errorf("%v", c)
	}
}

func TestCreate_OmitOfTheKeyLeavesItAlone(t *testing.T) {
	t.Parallel()

	db := plugintest.Nowhere(t, uidplugin.WithWorkerID(1))
	row := plugintest.Parcel{City: "Ely"}
	sql := db.Session(&gorm.Session{DryRun: true}).Omit("ID", "OrderID", "Status", "Weight", "Street").Create(&row).Statement.SQL.String()
	if row.ID != 0 || sql != "INSERT INTO `parcels` (`city`) VALUES (?)" {
		t.Errorf("%s with the key %d", sql, row.ID)
	}
	m := map[string]any{"city": "Ely"}
	sql = db.Session(&gorm.Session{DryRun: true}).Model(&plugintest.Parcel{}).Omit("ID").Create(m).Statement.SQL.String()
	if len(m) != 1 || sql != "INSERT INTO `parcels` (`city`) VALUES (?)" {
		t.Errorf("%s of %v", sql, m)
	}
}

// The plugin selects the key for this create only, not for later statements of the caller's handle.
func TestCreate_SelectDoesNotLeakIntoTheCallersStatement(t *testing.T) {
	t.Parallel()

	db := plugintest.Nowhere(t, uidplugin.WithWorkerID(1)).Session(&gorm.Session{DryRun: true})
	base := db.Select("City").Session(&gorm.Session{})
	for range 2 {
		row := plugintest.Parcel{City: "Ely"}
		stmt := base.Create(&row).Statement
		if sql := stmt.SQL.String(); sql != "INSERT INTO `parcels` (`city`,`id`) VALUES (?,?)" || row.ID == 0 {
			t.Errorf("%s with the key %d", sql, row.ID)
		}
	}
	if s := base.Statement.Selects; len(s) != 1 {
		t.Errorf("the selection became %v", s)
	}
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
		id := plugintest.IDIn(t, m)
		plugintest.IsOurs(t, db, "rankeds", id)
		r := ranked{Name: "b"}
		must(t, db.Create(&r).Error)
		plugintest.IsOurs(t, db, "rankeds", r.ID)
		if plugintest.Rows(t, 2, db, "rankeds", "id IN ? AND rank = 7", []int64{id, r.ID}); r.Rank != 7 {
			t.Errorf("%+v", r)
		}
	}
}
