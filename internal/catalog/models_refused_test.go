package catalog_test

import (
	"database/sql/driver"
	"errors"
	"fmt"
	"reflect"
	"testing"

	"github.com/uidplugin/uidplugin"
	"github.com/uidplugin/uidplugin/generator"
	"github.com/uidplugin/uidplugin/internal/plugintest"
	"github.com/uidplugin/uidplugin/internal/testkit"
)

// labelled is an int64 whose database value is not the number.
type labelled int64

func (l labelled) Value() (driver.Value, error) { return fmt.Sprintf("ord_%d", int64(l)), nil }

func (l *labelled) Scan(v any) error {
	_, err := fmt.Sscanf(fmt.Sprint(v), "ord_%d", (*int64)(l))
	return err
}

// explosive panics when it is set.
type explosive struct{ N int64 }

func (e explosive) Value() (driver.Value, error) { return e.N, nil }
func (e *explosive) Scan(any) error              { panic("boom") }

// Models whose tag asks for too little.
type (
	size32 struct {
		ID int64 `gorm:"primaryKey;uid;size:32"`
	}
	serialized struct {
		ID int64 `gorm:"primaryKey;uid;serializer:json"`
	}
)

func TestField_KeysThatCannotHoldAnIDAreRefusedByName(t *testing.T) {
	t.Parallel()

	for _, tt := range []struct {
		model any
		name  string // of the model, as GORM calls it
		says  string
	}{
		{&keyed[int32]{}, "keyed[int32]", "32 bits"},
		{&size32{}, "size32", "32 bits"},
		{&keyed[float64]{}, "keyed[float64]", "float"},
		{&keyed[bool]{}, "keyed[bool]", "bool"},
		{&keyed[explosive]{}, "keyed", "boom"},
		{&keyed[labelled]{}, "keyed", "ord_"},
		{&keyed[**int64]{}, "keyed[**int64]", "**int64"},
		{&serialized{}, "serialized", "serializer"},
	} {
		t.Run(fmt.Sprintf("%T", tt.model), func(t *testing.T) {
			t.Parallel()

			refused := func(err error) {
				t.Helper()
				testkit.IsError(t, err, uidplugin.ErrField, tt.name, ".ID", tt.says, "int64")
			}
			db := plugintest.Bare(t)
			refused(db.Use(uidplugin.New(uidplugin.WithWorkerID(7), uidplugin.WithModels(tt.model))))
			plugintest.Unregistered(t, db)

			// Unknown to db.Use, it is refused at each create.
			plugintest.Use(t, db, uidplugin.WithWorkerID(7))
			row := reflect.New(reflect.TypeOf(tt.model).Elem())
			for range 2 {
				refused(db.Create(row.Interface()).Error)
			}
			if !row.Elem().IsZero() {
				t.Errorf("the key was set: %+v", row)
			}
			_, err := uidplugin.From(db).NextID(t.Context(), tt.model)
			refused(err)
			refused(uidplugin.From(db).Register(t.Context(), tt.model))
			refused(uidplugin.From(db).AutoMigrate(tt.model))
		})
	}
}

// A string needs room for the digits of the layout only: ids of 53 bits have 16.
func TestField_AStringNeedsOnlyTheDigitsOfTheLayout(t *testing.T) {
	t.Parallel()

	type size16 struct {
		ID string `gorm:"primaryKey;uid;size:16"`
	}
	type size15 struct {
		ID string `gorm:"primaryKey;uid;size:15"`
	}
	layout := uidplugin.WithLayout(generator.JSSafeLayout())
	plugintest.Use(t, plugintest.Bare(t), uidplugin.WithWorkerID(7), layout, uidplugin.WithModels(&size16{}))
	err := plugintest.Bare(t).Use(uidplugin.New(uidplugin.WithWorkerID(7), layout, uidplugin.WithModels(&size15{})))
	testkit.IsError(t, err, uidplugin.ErrField, "size15.ID", "15 characters", "16")
}

// A column with fewer than 64 bits is refused. On SQLite every integer column has 64.
func TestField_AnIntegerColumnIsRefusedUnlessItHas64Bits(t *testing.T) {
	t.Parallel()

	type counted struct {
		ID int64 `gorm:"primaryKey;uid;type:integer"`
	}
	options := []uidplugin.Option{uidplugin.WithWorkerID(7), uidplugin.WithModels(&counted{}), uidplugin.WithLogger(nil)}
	plugintest.Use(t, plugintest.Bare(t), options...)
	for _, d := range plugintest.Dialects {
		db, _ := testkit.Mock(t, d.Dial)
		if err := db.Use(uidplugin.New(options...)); !errors.Is(err, uidplugin.ErrField) {
			t.Errorf("%s: %v", d.Name, err)
		} else {
			saysAll(t, err.Error(), "counted.ID", "integer")
		}
	}
}

// GORM leaves such a field out of the INSERT. Then the database would number the key, and the struct would keep an id
// that no row has.
func TestTag_RefusesFieldsThatGORMDoesNotCreate(t *testing.T) {
	t.Parallel()

	type (
		readOnly struct {
			ID   int64 `gorm:"primaryKey;uid;->"`
			Name string
		}
		notWritten struct {
			ID   uidplugin.ID `gorm:"primaryKey;uid:snowflake;<-:false"`
			Name string
		}
		updated struct {
			ID   string `gorm:"primaryKey;size:20;uid;<-:update"`
			Name string
		}
		hidden struct {
			ID   int64 `gorm:"primaryKey;uid;->:false"`
			Name string
		}
		second struct {
			ID    int64 `gorm:"primaryKey;autoIncrement:false;uid"`
			Trace int64 `gorm:"uid;->"`
		}
	)
	for field, m := range map[string]any{
		"readOnly.ID": &readOnly{Name: "a"}, "notWritten.ID": &notWritten{Name: "a"}, "updated.ID": &updated{Name: "a"},
		"hidden.ID": &hidden{Name: "a"}, "second.Trace": &second{},
	} {
		refused := func(err error) {
			t.Helper()
			testkit.IsError(t, err, uidplugin.ErrField, field, "create", "uid:-")
		}
		refused(plugintest.Bare(t).Use(uidplugin.New(uidplugin.WithLogger(nil), uidplugin.WithModels(m))))
		db := plugintest.Open(t)
		refused(uidplugin.From(db).AutoMigrate(m))
		plugintest.Migrate(t, db, m)
		refused(db.Create(m).Error)
		_, err := uidplugin.From(db).NextID(t.Context(), m)
		refused(err)
	}
}

// A model that only reads a column has no tag, even if its type would not need one.
func TestTag_AKeyWithoutTheTagMayBeReadOnly(t *testing.T) {
	t.Parallel()

	type view struct {
		ID   uidplugin.ID `gorm:"primaryKey;->"`
		Name string
	}
	type off struct {
		ID   int64 `gorm:"primaryKey;->;uid:-"`
		Name string
	}
	db := plugintest.Open(t, uidplugin.WithModels(&view{}, &off{}))
	plugintest.Migrate(t, db, &view{}, &off{})
	must(t, db.Create(&off{Name: "a"}).Error)
	must(t, db.Find(&[]view{}).Error)
}
