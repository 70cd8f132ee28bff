package uidplugin_test

import (
	"context"
	"errors"
	"fmt"
	"testing"

	"github.com/uidplugin/uidplugin"
	"gorm.io/gorm"
)

// A value that cannot be created is an error and never a panic, which would leave GORM's transaction open. The pool
// has one connection, so the next create would then wait forever.
func TestCreate_OfWhatCannotBeCreatedIsAnError(t *testing.T) {
	t.Parallel()

	var none *part
	for _, tt := range []struct {
		name string
		dest any
		is   error // nil is any
	}{
		{"by value", part{Name: "a"}, gorm.ErrInvalidValue},
		{"array by value", [2]part{}, gorm.ErrInvalidValue},
		{"nil pointer", none, nil},
		{"nil element", []*part{{Name: "a"}, nil}, gorm.ErrInvalidData},
		{"only nil elements", []*part{nil, nil}, gorm.ErrInvalidData},
		{"empty slice", &[]part{}, gorm.ErrEmptySlice},
		{"nil slice", []part(nil), gorm.ErrEmptySlice},
		{"number", 5, nil},
		{"text", "text", nil},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()

			db := open(t, uidplugin.WithModels(&part{}))
			migrate(t, db, &part{})
			pool, err := db.DB()
			must(t, err)
			pool.SetMaxOpenConns(1)
			err = db.Create(tt.dest).Error
			if err == nil || tt.is != nil && !errors.Is(err, tt.is) {
				t.Errorf("the error is %v", err)
			}
			must(t, db.Create(&part{Name: "b"}).Error)
			if n := count(t, db, "parts"); n != 1 {
				t.Errorf("%d rows", n)
			}
		})
	}
}

// Where GORM alone panics, the plugin changes nothing, because such misuse is not its concern.
func TestCreate_OfWhatGORMPanicsAtIsAsWithoutThePlugin(t *testing.T) {
	t.Parallel()

	outcome := func(db *gorm.DB, model, dest any) (s string) {
		migrate(t, db, &part{})
		defer func() {
			if r := recover(); r != nil {
				s = fmt.Sprint(r)
			}
		}()
		return fmt.Sprint(db.Session(&gorm.Session{SkipDefaultTransaction: true}).Model(model).Create(dest).Error)
	}
	var boxed any = part{}
	for _, tt := range []struct {
		name        string
		model, dest any
	}{
		{"nil", nil, nil},
		{"nil with a model", &part{}, nil},
		{"slice of numbers", &part{}, &[]int{1}},
		{"pointer to interface", nil, &boxed},
		{"map of another type", &part{}, map[string]string{"name": "a"}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()

			with, without := outcome(open(t), tt.model, tt.dest), outcome(bare(t), tt.model, tt.dest)
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

			db := open(t)
			migrate(t, db, &part{})
			err := db.Model(&part{}).Create(dest).Error
			only(t, err, gorm.ErrInvalidValue)
			saysAll(t, err.Error(), "cannot be given an id in")
			var n int64
			must(t, db.Model(&part{}).Count(&n).Error)
			if n != 0 {
				t.Errorf("%d rows", n)
			}
		})
	}
}

func TestCreate_ACancelledCreateInsertsNothingAndTheNextWorks(t *testing.T) {
	t.Parallel()

	db := open(t)
	migrate(t, db, &part{})
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	for range 3 {
		if err := db.WithContext(ctx).Create(&part{}).Error; !errors.Is(err, context.Canceled) {
			t.Errorf("the error is %v", err)
		}
	}
	if n := count(t, db, "parts"); n != 0 {
		t.Errorf("%d rows", n)
	}
	must(t, db.Create(&part{}).Error)
	if err := db.WithContext(ctx).Create(&part{}).Error; !errors.Is(err, context.Canceled) {
		t.Errorf("the error is %v", err)
	}
}
