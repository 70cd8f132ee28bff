package core_test

import (
	"context"
	"errors"
	"testing"

	"github.com/uidplugin/uidplugin"
	"github.com/uidplugin/uidplugin/internal/core"
	"github.com/uidplugin/uidplugin/internal/testkit"
	"gorm.io/gorm"
)

type order struct {
	ID uidplugin.ID `gorm:"primaryKey;uid"`
}

// All handles that are made from one have its Core, and so what packages keep in it. Another handle has its own.
func TestOf_HandlesOfOnePluginShareACore(t *testing.T) {
	t.Parallel()

	open := func() *gorm.DB {
		db := testkit.SQLite{}.Open(t)
		testkit.Must(t, db.Use(uidplugin.New(uidplugin.WithWorkerID(1), uidplugin.WithLogger(nil))))
		return db
	}
	db, other := open(), open()
	c, err := core.Of(db)
	testkit.Must(t, err)
	type kept struct{ n int }
	core.Value[kept](c).n = 7
	for _, from := range []*gorm.DB{db.Session(&gorm.Session{NewDB: true}), db.WithContext(context.Background()), db.Where("1 = 1")} {
		again, err := core.Of(from)
		testkit.Must(t, err)
		if again != c || core.Value[kept](again).n != 7 {
			t.Errorf("another Core, %+v", core.Value[kept](again))
		}
	}
	c, err = core.Of(other)
	if err != nil || core.Value[kept](c).n != 0 {
		t.Errorf("%+v, %v", core.Value[kept](c), err)
	}
}

func TestOf_AHandleWithoutThePlugin(t *testing.T) {
	t.Parallel()

	refused := testkit.SQLite{}.Open(t)
	testkit.IsError(t, refused.Use(uidplugin.New(uidplugin.WithWorkerID(-1))), uidplugin.ErrOption)
	for name, db := range map[string]*gorm.DB{"nil": nil, "not connected": {}, "plain": testkit.SQLite{}.Open(t), "refused": refused} {
		_, err := core.Of(db)
		if !errors.Is(err, uidplugin.ErrNotRegistered) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// Conditions of the handle count, and a condition on the key cannot be widened by them.
func TestModelWhere_KeepsTheConditionsOfTheHandle(t *testing.T) {
	t.Parallel()

	db := testkit.SQLite{}.Open(t)
	testkit.Must(t, db.Use(uidplugin.New(uidplugin.WithWorkerID(1), uidplugin.WithLogger(nil))))
	testkit.Must(t, db.AutoMigrate(&order{}))
	rows := make([]order, 3)
	testkit.Must(t, db.Create(&rows).Error)
	c, err := core.Of(db)
	testkit.Must(t, err)
	m, err := c.Model(db, &order{})
	testkit.Must(t, err)
	if m.Table != "orders" || m.ID(&rows[1]) != int64(rows[1].ID) {
		t.Errorf("%s, %d", m.Table, m.ID(&rows[1]))
	}
	var found []order
	key := gorm.Expr("id > ?", rows[0].ID)
	testkit.Must(t, m.Where(t.Context(), db.Where("id < ?", rows[2].ID).Or("1 = 0"), key).Find(&found).Error)
	if len(found) != 1 || found[0].ID != rows[1].ID {
		t.Errorf("%v", found)
	}
	err = m.Where(t.Context(), db.Order("id DESC"), key).Find(&found).Error
	testkit.IsError(t, err, uidplugin.ErrClause, "Order")
}
