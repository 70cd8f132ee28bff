package model_test

import (
	"database/sql/driver"
	"testing"

	"github.com/uidplugin/uidplugin"
	"github.com/uidplugin/uidplugin/internal/model"
)

// otherKey is a type of keys that another package declares.
type otherKey int64

func (otherKey) UIDKey() model.KeyKind          { return model.KeyKind{} }
func (k otherKey) Value() (driver.Value, error) { return int64(k), nil }

// wrappedKey has the methods of a key, but it is a struct.
type wrappedKey struct{ otherKey }

// The type of a key tells that it is one, in whichever package it is. A field with the methods of a key, but of another
// kind, is none.
func TestTagged_KeysNeedNoTag(t *testing.T) {
	t.Parallel()

	type ofRoot struct{ ID uidplugin.ID }
	type ofOther struct{ ID otherKey }
	type pointer struct{ ID *otherKey }
	type wrapped struct {
		ID wrappedKey `gorm:"type:bigint"`
	}
	type derived uidplugin.ID // has none of the methods
	type ofDerived struct{ ID derived }
	type plain struct{ ID int64 }
	for _, tt := range []struct {
		model         any
		tagged, isKey bool
	}{
		{&ofRoot{}, true, true}, {&ofOther{}, true, true}, {&pointer{}, false, true},
		{&wrapped{}, false, false}, {&ofDerived{}, false, false}, {&plain{}, false, false},
	} {
		f := parse(t, tt.model).LookUpField("ID")
		if _, ok := model.Tagged(f); f == nil || ok != tt.tagged || model.IsKeyType(f) != tt.isKey {
			t.Errorf("%T: tagged %v, a key %v", tt.model, ok, model.IsKeyType(f))
		}
	}
}
