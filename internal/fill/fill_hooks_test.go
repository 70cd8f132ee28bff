package fill_test

import (
	"testing"

	"github.com/uidplugin/uidplugin"
	"github.com/uidplugin/uidplugin/internal/plugintest"
	"github.com/uidplugin/uidplugin/internal/testkit"
	"gorm.io/gorm"
)

// hooked has hooks that do what the row's Do says, and keeps what they saw.
type hooked struct {
	ID     int64 `gorm:"primaryKey;autoIncrement:false;uid"`
	Do     string
	Before int64 `gorm:"-"` // the key in BeforeSave, and so on
	Create int64 `gorm:"-"`
	After  int64 `gorm:"-"`
}

func (h *hooked) BeforeSave(*gorm.DB) error {
	h.Before = h.ID
	if h.Do == "zero early" {
		h.ID = 0
	}
	return nil
}

func (h *hooked) BeforeCreate(*gorm.DB) error {
	h.Create = h.ID
	switch h.Do {
	case "set":
		h.ID = 99
	case "zero":
		h.ID = 0
	}
	return nil
}

func (h *hooked) AfterCreate(*gorm.DB) error { h.After = h.ID; return nil }

func TestHooks_OfABatchAndOfAMap(t *testing.T) {
	t.Parallel()

	db := plugintest.Open(t)
	plugintest.Migrate(t, db, &hooked{})
	rows := []*hooked{{Do: "nothing"}, {Do: "zero"}, {Do: "set"}, {Do: "zero early"}}
	must(t, db.Create(&rows).Error)
	for i, h := range rows {
		if h.Before == 0 || h.Before != h.Create && h.Do != "zero early" || h.After != h.ID || plugintest.Count(t, db, "hookeds", "id = ?", h.ID) != 1 {
			t.Errorf("row %d is %+v", i, h)
		}
		if i != 2 {
			plugintest.IsOurs(t, db, "hookeds", h.ID)
		}
	}
	if rows[2].ID != 99 || rows[1].ID == rows[3].ID {
		t.Errorf("the keys are %d, %d and %d", rows[1].ID, rows[2].ID, rows[3].ID)
	}
	m := map[string]any{"do": "zero"}
	must(t, db.Model(&hooked{}).Create(m).Error)
	plugintest.IsOurs(t, db, "hookeds", plugintest.IDIn(t, m))
}

func TestHooks_NextIDIsTheKeyOfARowToCome(t *testing.T) {
	t.Parallel()

	type traced struct {
		Trace int64 `gorm:"uid"`
		ID    int64 `gorm:"primaryKey;autoIncrement:false;uid:snowflake"`
	}
	db := plugintest.Open(t)
	plugintest.Migrate(t, db, &plugintest.Part{}, &traced{})
	p := uidplugin.From(db)
	id, err := p.NextID(t.Context(), &plugintest.Part{})
	must(t, err)
	r := plugintest.Part{ID: int64(id)}
	must(t, db.Create(&r).Error)
	plugintest.IsOurs(t, db, "parts", int64(id))
	if r.ID != int64(id) {
		t.Errorf("the key is %d, not %d", r.ID, id)
	}
	next, err := p.NextID(t.Context(), plugintest.Part{})
	if err != nil || next <= id {
		t.Errorf("NextID: %d, %v after %d", next, err, id)
	}

	// Of two fields, the key counts.
	id, err = p.NextID(t.Context(), &traced{})
	must(t, err)
	l, err := p.Locate(t.Context(), id)
	must(t, err)
	for _, s := range p.Stats().Tables {
		if s.WorkerIDs[0] == l.WorkerID && s.Generator != "snowflake" {
			t.Errorf("the id is of %+v", s)
		}
	}
	for _, model := range []any{5, nil, &[]string{}} {
		testkit.IsError(t, plugintest.Second(p.NextID(t.Context(), model)), nil)
	}
	testkit.IsError(t, plugintest.Second(p.NextID(t.Context(), &gorm.Model{})), uidplugin.ErrNoField)
}

// forgetful has no hook but BeforeSave, which zeroes the key.
type forgetful struct {
	ID int64 `gorm:"primaryKey;autoIncrement:false;uid"`
}

func (f *forgetful) BeforeSave(*gorm.DB) error { f.ID = 0; return nil }

func TestHooks_AModelWithBeforeSaveAloneGetsItsKeyBack(t *testing.T) {
	t.Parallel()

	db := plugintest.Open(t)
	plugintest.Migrate(t, db, &forgetful{})
	var row forgetful
	must(t, db.Create(&row).Error)
	plugintest.IsOurs(t, db, "forgetfuls", row.ID)
}
