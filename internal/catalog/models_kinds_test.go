package catalog_test

import (
	"database/sql"
	"database/sql/driver"
	"fmt"
	"reflect"
	"slices"
	"strconv"
	"testing"

	"github.com/uidplugin/uidplugin"
	"github.com/uidplugin/uidplugin/internal/plugintest"
	"gorm.io/gorm"
)

// keyed is a model with a key of any type.
type keyed[T any] struct {
	ID   T `gorm:"primaryKey;uid"`
	Name string
}

func (keyed[T]) TableName() string { return "things" }

// Types of keys.
type (
	number int64
	index  uint64
	word   string
)

// plainNumber is its own driver.Valuer, of the number itself.
type plainNumber int64

func (n plainNumber) Value() (driver.Value, error) { return int64(n), nil }

// plainIndex is the same without a sign.
type plainIndex uint64

func (n plainIndex) Value() (driver.Value, error) { return int64(n), nil }

// wrapped is a struct that reads and writes itself.
type wrapped struct{ N int64 }

func (w wrapped) Value() (driver.Value, error) { return w.N, nil }

func (w *wrapped) Scan(v any) error {
	n, ok := v.(int64)
	if !ok {
		return fmt.Errorf("wrapped: a %T", v)
	}
	w.N = n
	return nil
}

// spelled is a struct that reads and writes itself as digits, and accepts no number.
type spelled struct{ Digits string }

func (s spelled) Value() (driver.Value, error) { return s.Digits, nil }

func (s *spelled) Scan(v any) error {
	switch v := v.(type) {
	case string:
		s.Digits = v
	case []byte:
		s.Digits = string(v)
	default:
		return fmt.Errorf("spelled: a %T", v)
	}
	return nil
}

// Models whose key has more than its type.
type (
	sizedString struct {
		ID   string `gorm:"primaryKey;uid;size:20"`
		Name string
	}
	bigintType struct {
		ID   int64 `gorm:"primaryKey;uid;type:bigint"`
		Name string
	}
	intType struct { // GORM's word for an integer of the field's size
		ID   int64 `gorm:"primaryKey;uid;type:int"`
		Name string
	}
)

func (sizedString) TableName() string { return "things" }
func (bigintType) TableName() string  { return "things" }
func (intType) TableName() string     { return "things" }

// kinds are models of the table things, as pointers, that the plugin serves.
var kinds = []any{
	&keyed[int64]{}, &keyed[uint64]{}, &keyed[int]{}, &keyed[uint]{}, &keyed[string]{},
	&keyed[number]{}, &keyed[index]{}, &keyed[word]{}, &keyed[plainNumber]{}, &keyed[plainIndex]{}, &keyed[uidplugin.ID]{},
	&keyed[*int64]{}, &keyed[*uint64]{}, &keyed[*string]{}, &keyed[*number]{}, &keyed[*uidplugin.ID]{},
	&keyed[sql.NullInt64]{}, &keyed[sql.NullString]{}, &keyed[sql.Null[int64]]{}, &keyed[*sql.NullInt64]{},
	&keyed[wrapped]{}, &keyed[*wrapped]{}, &keyed[spelled]{},
	&sizedString{}, &bigintType{}, &intType{},
}

// idOf returns the id that the database has for the row of things with a name.
func idOf(t *testing.T, db *gorm.DB, name string) int64 {
	t.Helper()
	var digits string
	must(t, db.Raw("SELECT CAST(id AS TEXT) FROM things WHERE name = ?", name).Scan(&digits).Error)
	id, err := strconv.ParseInt(digits, 10, 64)
	must(t, err)
	return id
}

func TestField_KeysOfAllKindsAreSetStoredAndFound(t *testing.T) {
	t.Parallel()

	for _, model := range kinds {
		t.Run(fmt.Sprintf("%T", model), func(t *testing.T) {
			t.Parallel()

			db := plugintest.Open(t)
			p := uidplugin.From(db)
			must(t, p.AutoMigrate(model))

			one := reflect.New(reflect.TypeOf(model).Elem())
			one.Elem().FieldByName("Name").SetString("one")
			must(t, db.Create(one.Interface()).Error)
			three := reflect.New(reflect.SliceOf(one.Type().Elem()))
			three.Elem().Set(reflect.MakeSlice(three.Type().Elem(), 3, 3))
			for i, name := range []string{"two", "three", "four"} {
				three.Elem().Index(i).FieldByName("Name").SetString(name)
			}
			must(t, db.Create(three.Interface()).Error)

			var ids []int64
			for i, name := range []string{"one", "two", "three", "four"} {
				created := one.Elem()
				if i > 0 {
					created = three.Elem().Index(i - 1)
				}
				id := idOf(t, db, name)
				ids = append(ids, id)
				plugintest.IsOurs(t, db, "things", id)
				found, err := p.Find(t.Context(), uidplugin.ID(id))
				if err != nil {
					t.Errorf("Find: %v", err)
				} else if got := reflect.ValueOf(found).Elem().Interface(); !reflect.DeepEqual(got, created.Interface()) {
					t.Errorf("created %+v, found %+v", created, got)
				}
			}
			if !slices.IsSorted(ids) {
				t.Errorf("the ids do not ascend: %v", ids)
			}

			if err := db.Create(one.Interface()).Error; err == nil {
				t.Error("a row that has a key got another one")
			}
		})
	}
}
