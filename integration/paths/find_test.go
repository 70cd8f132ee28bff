package paths_test

import (
	"testing"

	"github.com/uidplugin/uidplugin"
	"github.com/uidplugin/uidplugin/integration/internal/harness"
	"github.com/uidplugin/uidplugin/internal/testkit"
	"gorm.io/gorm"
)

// A note belongs to a tenant. Its key is a text, which MySQL compares with numbers loosely.
type note struct {
	ID     string `gorm:"primaryKey;uid;size:20"`
	Tenant int
	Parent string `gorm:"size:20"`
}

// A memo has a number as its key.
type memo struct {
	ID     uidplugin.ID
	Tenant int
}

// Rows of ids that users send: in the order of the ids, of the models that are listed, and of the tenant, on every engine
// and with every kind of key.
func TestFind_IDsThatUsersSend(t *testing.T) {
	t.Parallel()
	testkit.Each(t, func(t *testing.T, d *testkit.Database) {
		db := d.Open(t, &gorm.Config{PrepareStmt: true})
		p := harness.Use(t, db, uidplugin.WithModels(&note{}, &memo{}))
		testkit.Must(t, db.AutoMigrate(&note{}, &memo{}))
		notes, memos := []note{{Tenant: 1}, {Tenant: 2}}, []memo{{Tenant: 1}, {Tenant: 2}}
		testkit.Must(t, db.Create(&notes).Error)
		testkit.Must(t, db.Create(&memos).Error)
		var ids []uidplugin.ID
		for i := range notes {
			id, err := uidplugin.ParseID(notes[i].ID)
			testkit.Must(t, err)
			ids = append(ids, id, memos[i].ID)
		}

		rows, err := uidplugin.FindAs[note](t.Context(), db.Where("tenant = 7").Or("tenant < 3"), ids[2], ids[1], 0, ids[0], -1)
		testkit.IsError(t, err, uidplugin.ErrNoSuchID)
		testkit.IsError(t, err, gorm.ErrRecordNotFound)
		if len(rows) != 5 || rows[0] == nil || rows[0].Tenant != 2 || rows[1] != nil || rows[2] != nil || rows[3] == nil || rows[3].Tenant != 1 || rows[4] != nil {
			t.Errorf("%+v", rows)
		}

		ofTenant := uidplugin.Scoped(func(db *gorm.DB, _ any) *gorm.DB { return db.Where("tenant = ?", 1) })
		found, err := uidplugin.From(db.Where("tenant = 1").Or("tenant = 2")).FindAll(t.Context(), ids, ofTenant)
		testkit.Must(t, err)
		if len(found) != 2 || found[ids[0]] == nil || found[ids[1]] == nil {
			t.Errorf("of a tenant: %v", found)
		}
		found, err = p.FindAll(t.Context(), append(ids, 17, -1), uidplugin.OnlyModels(&memo{}), ofTenant)
		testkit.IsError(t, err, uidplugin.ErrNoModel)
		testkit.IsError(t, err, uidplugin.ErrNotDecodable, "17 is too small")
		if len(found) != 1 || found[ids[1]] == nil {
			t.Errorf("of a listed model: %v", found)
		}
	})
}
