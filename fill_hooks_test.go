package uidplugin_test

import (
	"errors"
	"testing"

	"github.com/uidplugin/uidplugin"
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

var errRefused = errors.New("the hook refuses")

func (h *hooked) BeforeSave(*gorm.DB) error {
	h.Before = h.ID
	if h.Do == "zero early" {
		h.ID = 0
	}
	return nil
}

func (h *hooked) BeforeCreate(tx *gorm.DB) error {
	h.Create = h.ID
	switch h.Do {
	case "set":
		h.ID = 99
	case "set if zero":
		if h.ID == 0 {
			h.ID = 98
		}
	case "set the column":
		tx.Statement.SetColumn("ID", 97)
	case "zero":
		h.ID = 0
	case "refuse":
		return errRefused
	}
	return nil
}

func (h *hooked) AfterCreate(*gorm.DB) error { h.After = h.ID; return nil }

func TestHooks_SeeTheKeyAndHaveTheLastWord(t *testing.T) {
	t.Parallel()

	for _, tt := range []struct {
		do   string
		want int64 // 0 is ours
	}{
		{"nothing", 0},
		{"set", 99},
		{"set if zero", 0},
		{"set the column", 97},
		{"zero", 0},
		{"zero early", 0},
	} {
		t.Run(tt.do, func(t *testing.T) {
			t.Parallel()

			db := open(t)
			migrate(t, db, &hooked{})
			h := hooked{Do: tt.do}
			must(t, db.Create(&h).Error)
			if h.Before == 0 || h.Before != h.Create && tt.do != "zero early" {
				t.Errorf("the hooks saw %+v", h)
			}
			if h.After != h.ID || count(t, db, "hookeds", "id = ?", h.ID) != 1 {
				t.Errorf("the row is %+v", h)
			}
			if tt.want != 0 && h.ID != tt.want {
				t.Errorf("the key is %d, want %d", h.ID, tt.want)
			}
			if tt.want == 0 {
				isOurs(t, db, "hookeds", h.ID)
			}
		})
	}
}

func TestHooks_OfABatch(t *testing.T) {
	t.Parallel()

	db := open(t)
	migrate(t, db, &hooked{})
	rows := []*hooked{{Do: "nothing"}, {Do: "zero"}, {Do: "set"}, {Do: "zero"}}
	must(t, db.Create(&rows).Error)
	for i, h := range rows {
		if h.Create == 0 || h.After != h.ID || count(t, db, "hookeds", "id = ?", h.ID) != 1 {
			t.Errorf("row %d is %+v", i, h)
		}
		if i != 2 {
			isOurs(t, db, "hookeds", h.ID)
		}
	}
	if rows[2].ID != 99 || rows[1].ID == rows[3].ID {
		t.Errorf("the keys are %d, %d and %d", rows[1].ID, rows[2].ID, rows[3].ID)
	}
}

func TestHooks_AHookThatRefusesLeavesNoRow(t *testing.T) {
	t.Parallel()

	db := open(t)
	migrate(t, db, &hooked{})
	if err := db.Create(&hooked{Do: "refuse"}).Error; !errors.Is(err, errRefused) {
		t.Errorf("the error is %v", err)
	}
	if n := count(t, db, "hookeds"); n != 0 {
		t.Errorf("%d rows", n)
	}
}

// TestHooks_SkipHooksIsAboutTheModelsHooks and not about the plugin.
func TestHooks_SkipHooksIsAboutTheModelsHooks(t *testing.T) {
	t.Parallel()

	db := open(t)
	migrate(t, db, &hooked{})
	h := hooked{Do: "set"}
	must(t, db.Session(&gorm.Session{SkipHooks: true}).Create(&h).Error)
	isOurs(t, db, "hookeds", h.ID)
	if h.Create != 0 {
		t.Error("the hook was called")
	}
}

func TestHooks_MapsOfAModelWithHooksGetKeys(t *testing.T) {
	t.Parallel()

	db := open(t)
	migrate(t, db, &hooked{})
	m := map[string]any{"do": "zero"}
	must(t, db.Model(&hooked{}).Create(m).Error)
	isOurs(t, db, "hookeds", idIn(t, m, "id"))
}

// Save inserts once and then updates, with the same key.
func TestHooks_SaveInsertsOnceAndThenUpdates(t *testing.T) {
	t.Parallel()

	db := open(t)
	migrate(t, db, &hooked{}, &part{})
	h := hooked{Do: "nothing"}
	must(t, db.Save(&h).Error)
	first := h.ID
	h.Do = "again"
	must(t, db.Save(&h).Error)
	if h.ID != first || count(t, db, "hookeds") != 1 || count(t, db, "hookeds", "do = ?", "again") != 1 {
		t.Errorf("the row is %+v", h)
	}
	// A row with a key that is not there is inserted with it.
	absent := part{ID: 12, Name: "absent"}
	must(t, db.Save(&absent).Error)
	if absent.ID != 12 || count(t, db, "parts", "id = 12") != 1 {
		t.Errorf("the row is %+v", absent)
	}
	mixed := []part{{ID: 12, Name: "new name"}, {Name: "new"}}
	must(t, db.Save(&mixed).Error)
	if count(t, db, "parts") != 2 || count(t, db, "parts", "name = ?", "new name") != 1 {
		t.Errorf("the rows are %+v", mixed)
	}
	isOurs(t, db, "parts", mixed[1].ID)
}

func TestHooks_FirstOrCreateFindsWhatItCreated(t *testing.T) {
	t.Parallel()

	db := open(t)
	migrate(t, db, &part{})
	var first, second part
	must(t, db.Where(part{Name: "nail"}).FirstOrCreate(&first).Error)
	must(t, db.Where(part{Name: "nail"}).FirstOrCreate(&second).Error)
	if first != second || count(t, db, "parts") != 1 {
		t.Errorf("%+v, then %+v", first, second)
	}
	isOurs(t, db, "parts", first.ID)
	var third part
	must(t, db.Where("name = ?", "screw").Attrs(part{Name: "screw"}).FirstOrCreate(&third).Error)
	isOurs(t, db, "parts", third.ID)
}

func TestHooks_NextIDIsTheKeyOfARowToCome(t *testing.T) {
	t.Parallel()

	type traced struct {
		Trace int64 `gorm:"uid"`
		ID    int64 `gorm:"primaryKey;autoIncrement:false;uid:snowflake"`
	}
	db := open(t)
	migrate(t, db, &part{}, &traced{})
	p := uidplugin.From(db)
	id, err := p.NextID(t.Context(), &part{})
	must(t, err)
	r := part{ID: int64(id)}
	must(t, db.Create(&r).Error)
	isOurs(t, db, "parts", int64(id))
	if r.ID != int64(id) {
		t.Errorf("the key is %d, not %d", r.ID, id)
	}
	next, err := p.NextID(t.Context(), part{})
	if err != nil || next <= id {
		t.Errorf("NextID: %d, %v after %d", next, err, id)
	}

	// Of two fields, the key counts.
	id, err = p.NextID(t.Context(), &traced{})
	must(t, err)
	l, err := p.Locate(t.Context(), id)
	must(t, err)
	for _, s := range p.Stats().Tables {
		if s.WorkerIDs[0] == l.WorkerID && s.Generator != uidplugin.Snowflake {
			t.Errorf("the id is of %+v", s)
		}
	}
	for _, model := range []any{&gorm.Model{}, 5, nil, &[]string{}} {
		if _, err := p.NextID(t.Context(), model); err == nil {
			t.Errorf("NextID of %T: no error", model)
		}
	}
	if _, err := p.NextID(t.Context(), &gorm.Model{}); !errors.Is(err, uidplugin.ErrNoField) {
		t.Errorf("NextID: %v", err)
	}
}
