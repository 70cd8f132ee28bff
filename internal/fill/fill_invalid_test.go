package fill_test

import (
	"fmt"
	"testing"

	"github.com/uidplugin/uidplugin"
	"github.com/uidplugin/uidplugin/internal/plugintest"
	"github.com/uidplugin/uidplugin/internal/testkit"
	"gorm.io/gorm"
)

// A value that cannot be created is an error and never a panic, which would leave GORM's transaction open. The pool
// has one connection, so the next create would then wait forever.
func TestCreate_OfWhatCannotBeCreatedIsAnError(t *testing.T) {
	t.Parallel()

	var none *plugintest.Part
	for _, tt := range []struct {
		name string
		dest any
		is   error // nil is any
	}{
		{"by value", plugintest.Part{Name: "a"}, gorm.ErrInvalidValue},
		{"array by value", [2]plugintest.Part{}, gorm.ErrInvalidValue},
		{"nil pointer", none, nil},
		{"nil element", []*plugintest.Part{{Name: "a"}, nil}, gorm.ErrInvalidData},
		{"only nil elements", []*plugintest.Part{nil, nil}, gorm.ErrInvalidData},
		{"empty slice", &[]plugintest.Part{}, gorm.ErrEmptySlice},
		{"nil slice", []plugintest.Part(nil), gorm.ErrEmptySlice},
		{"number", 5, nil},
		{"text", "text", nil},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()

			db := plugintest.Open(t, uidplugin.WithModels(&plugintest.Part{}))
			plugintest.Migrate(t, db, &plugintest.Part{})
			plugintest.Single(t, db)
			testkit.IsError(t, db.Create(tt.dest).Error, tt.is)
			must(t, db.Create(&plugintest.Part{Name: "b"}).Error)
			plugintest.Rows(t, 1, db, "parts")
		})
	}
}

// Where GORM alone panics, the plugin changes nothing, because such misuse is not its concern.
func TestCreate_OfWhatGORMPanicsAtIsAsWithoutThePlugin(t *testing.T) {
	t.Parallel()

	outcome := func(db *gorm.DB, model, dest any) (s string) {
		plugintest.Migrate(t, db, &plugintest.Part{})
		defer func() {
			if r := recover(); r != nil {
				s = fmt.Sprint(r)
			}
		}()
		return fmt.Sprint(db.Session(&gorm.Session{SkipDefaultTransaction: true}).Model(model).Create(dest).Error)
	}
	var boxed any = plugintest.Part{}
	for _, tt := range []struct {
		name        string
		model, dest any
	}{
		{"nil", nil, nil},
		{"nil with a model", &plugintest.Part{}, nil},
		{"slice of numbers", &plugintest.Part{}, &[]int{1}},
		{"pointer to interface", nil, &boxed},
		{"map of another type", &plugintest.Part{}, map[string]string{"name": "a"}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()

			with, without := outcome(plugintest.Open(t), tt.model, tt.dest), outcome(plugintest.Bare(t), tt.model, tt.dest)
			if with != without {
				t.Errorf("with the plugin %q, without %q", with, without)
			}
		})
	}
}

// Rows that the plugin cannot set an id in are refused. Otherwise the database would number the row, and could use
// the plugin's next id.
func TestCreate_RowsThatCannotBeGivenAnIDAreRefused(t *testing.T) {
	t.Parallel()

	type stranger struct{ Name string }
	for name, dest := range map[string]any{
		"another model":          &stranger{Name: "a"},
		"slice of another model": &[]stranger{{Name: "a"}},
		"nil map":                map[string]any(nil),
		"nil map in a slice":     []map[string]any{nil, nil},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()

			db := plugintest.Open(t)
			plugintest.Migrate(t, db, &plugintest.Part{})
			plugintest.Only(t, db.Model(&plugintest.Part{}).Create(dest).Error, gorm.ErrInvalidValue, "cannot be given an id in")
			plugintest.Rows(t, 0, db, "parts")
		})
	}
}
