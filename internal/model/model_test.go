package model_test

import (
	"slices"
	"sync"
	"testing"

	"github.com/uidplugin/uidplugin/internal/model"
	"github.com/uidplugin/uidplugin/internal/testkit"
	"gorm.io/gorm"
	"gorm.io/gorm/clause"
	"gorm.io/gorm/schema"
)

// parse returns the schema of a model as GORM makes it.
func parse(tb testing.TB, m any) *schema.Schema {
	tb.Helper()
	s, err := schema.Parse(m, &sync.Map{}, schema.NamingStrategy{})
	testkit.Must(tb, err)
	return s
}

// fieldOf returns a uid field of a model.
func fieldOf(tb testing.TB, m any, name string) *model.Field {
	tb.Helper()
	f, err := model.NewField(parse(tb, m).FieldsByName[name], target)
	testkit.Must(tb, err)
	return f
}

// newModel returns the model of m, on a handle that is connected to nothing.
func newModel(tb testing.TB, m any) (*model.Model, error) {
	tb.Helper()
	return model.New(&gorm.DB{Config: &gorm.Config{NamingStrategy: schema.NamingStrategy{}}}, parse(tb, m), target)
}

type (
	KeyFirst struct {
		ID    int64 `gorm:"primaryKey;uid"`
		Trace int64 `gorm:"uid"`
	}
	keyLast struct {
		Trace int64 `gorm:"uid"`
		Other int64 `gorm:"uid"`
		ID    int64 `gorm:"primaryKey;uid"`
	}
	keyElsewhere struct {
		ID    int64
		Trace int64 `gorm:"uid"`
		Other int64 `gorm:"uid"`
	}
	untagged struct{ ID int64 }
)

func TestModelKey_IsThePrimaryKeyElseTheFirstUIDField(t *testing.T) {
	t.Parallel()

	for _, tt := range []struct {
		model  any
		fields []string
		key    string // "": none
	}{
		{&KeyFirst{}, []string{"ID", "Trace"}, "ID"},
		{&keyLast{}, []string{"Trace", "Other", "ID"}, "ID"},
		{&keyElsewhere{}, []string{"Trace", "Other"}, "Trace"},
		{&untagged{}, nil, ""},
	} {
		m, err := newModel(t, tt.model)
		testkit.Must(t, err)
		var names []string
		for _, f := range m.Fields {
			names = append(names, f.Name)
		}
		name := ""
		if key := m.Key(); key != nil {
			name = key.Name
		}
		if !slices.Equal(names, tt.fields) || name != tt.key {
			t.Errorf("%T: the fields %v with the key %q", tt.model, names, name)
		}
	}
}

// The rows of a model without a name would be in a table that no id resolves to.
func TestNew_RefusesAModelWithoutAName(t *testing.T) {
	t.Parallel()

	m, err := newModel(t, &struct {
		ID int64 `gorm:"primaryKey;uid"`
	}{})
	testkit.IsError(t, err, model.ErrField, "struct.ID", "has no name",
		"give the struct type a name or a method TableName")
	if m == nil {
		t.Error("there is no model, and callers need its schema")
	}
	_, err = newModel(t, &struct{ ID int64 }{})
	testkit.Must(t, err)
}

// onConflict is a type that brings its own ON CONFLICT.
type onConflict int64

func (onConflict) GormDataType() string { return "bigint" }
func (onConflict) CreateClauses(*schema.Field) []clause.Interface {
	return []clause.Interface{clause.OnConflict{DoNothing: true}}
}

type (
	withHook struct{ KeyFirst }
	withType struct {
		KeyFirst
		Unique onConflict
	}
)

func (*withHook) BeforeSave(*gorm.DB) error { return nil }

// Only a model that may add an ON CONFLICT is tracked when a statement itself has none. GORM overwrites the keys of maps if
// it takes the key for AUTO_INCREMENT; other models need no copy of the schema.
func TestNew_NotesWhoMayAddAnOnConflictAndWhoseMapsNeedASchema(t *testing.T) {
	t.Parallel()

	type plain struct {
		ID int64 `gorm:"primaryKey;autoIncrement:false;uid"`
	}
	for _, tt := range []struct {
		model               any
		may, conflict, maps bool
	}{
		{&KeyFirst{}, false, false, true}, {&withHook{}, true, false, true}, {&withType{}, true, true, true},
		{&plain{}, false, false, false}, {&keyElsewhere{}, false, false, false}, {&untagged{}, false, false, false},
		{&Key[string]{}, false, false, false},
	} {
		m, err := newModel(t, tt.model)
		testkit.Must(t, err)
		if m.MayConflict != tt.may || (m.Conflict != nil) != tt.conflict {
			t.Errorf("%T: %t, %v", tt.model, m.MayConflict, m.Conflict)
		}
		if (m.MapSchema != nil) != tt.maps || m.AutoIncrement != tt.maps {
			t.Errorf("%T: %t, %v", tt.model, m.AutoIncrement, m.MapSchema)
		}
	}
}
