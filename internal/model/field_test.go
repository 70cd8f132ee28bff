package model_test

import (
	"database/sql"
	"database/sql/driver"
	"fmt"
	"math"
	"reflect"
	"slices"
	"testing"
	"time"

	"github.com/uidplugin/uidplugin/internal/model"
	"github.com/uidplugin/uidplugin/internal/testkit"
	"gorm.io/gorm"
	"gorm.io/gorm/schema"
)

func TestTagged_TellsTheGeneratorAndWhetherThereIsOne(t *testing.T) {
	t.Parallel()

	type tags struct {
		gorm.Model `gorm:"uid:inherited"`
		Bare       int64 `gorm:"uid"`
		True       int64 `gorm:"uid:True"`
		Itself     int64 `gorm:"uid:uid"`
		Named      int64 `gorm:"UID : Cached "`
		False      int64 `gorm:"uid:FALSE"`
		Dash       int64 `gorm:"uid: - "`
		NoColumn   int64 `gorm:"uid;-"`
		ReadOnly   int64 `gorm:"uid;->"`
		UpdateOnly int64 `gorm:"uid;<-:update"`
		None       int64
		Segment    int64 `gorm:"uid: Segment : Order:Service "`
		NoTag      int64 `gorm:"uid:segment:"`
	}
	s := parse(t, &tags{})
	for name, want := range map[string]struct {
		generator string
		ok        bool
	}{
		"ID": {"inherited", true}, "CreatedAt": {}, "DeletedAt": {},
		"Bare": {"", true}, "True": {"", true}, "Itself": {"", true}, "Named": {"cached", true},
		"False": {}, "Dash": {}, "NoColumn": {}, "ReadOnly": {}, "UpdateOnly": {}, "None": {},
		"Segment": {"segment", true}, "NoTag": {"segment", true},
	} {
		f := s.FieldsByName[name]
		generator, ok := model.Tagged(f)
		if generator != want.generator || ok != want.ok || model.HasTag(f) != want.ok {
			t.Errorf("%s: %q, %t", name, generator, ok)
		}
		tag := map[string]string{"Segment": "Order:Service"}[name]
		if got := model.CounterTag(f); got != tag {
			t.Errorf("%s: the tag is %q, want %q", name, got, tag)
		}
	}
}

// A field that another one shadows is in Fields, and has no column. The key of a join table that GORM makes has a copy
// of the tag, and its value comes from the association.
func TestUIDFields_AreColumnsOfModelsOnly(t *testing.T) {
	t.Parallel()

	type Inner struct {
		ID    int64 `gorm:"primaryKey;uid"`
		Trace int64 `gorm:"uid"`
	}
	type shadowing struct {
		ID string `gorm:"primaryKey;uid"`
		Inner
		Friends []Inner `gorm:"many2many:friends"`
	}
	s := parse(t, &shadowing{})
	fields := model.UIDFields(s)
	if len(fields) != 2 || fields[0].FieldType.Kind() != reflect.String || fields[1].Name != "Trace" {
		t.Errorf("the fields are %v", fields)
	}
	join := s.Relationships.Many2Many[0].JoinTable
	if !slices.ContainsFunc(join.Fields, model.HasTag) {
		t.Error("the join table has no tag that could be taken for one")
	}
	if fields := model.UIDFields(join); len(fields) != 0 {
		t.Errorf("the join table has %v", fields)
	}
}

func TestTooNarrow_TellsWhetherAColumnTypeHoldsAnID(t *testing.T) {
	t.Parallel()

	for _, tt := range []struct {
		column, dialect string
		want            bool
	}{
		{"", "mysql", false}, {"bigint", "mysql", false},
		{"BIGINT(20) unsigned", "mysql", false}, {"bigserial", "postgres", false},
		{"int8", "postgres", false}, {"varchar(20)", "mysql", false}, {"text", "postgres", false},
		{"int", "mysql", false}, {"uint", "mysql", false}, // GORM's words
		{"INT", "mysql", true}, {"int(11)", "mysql", true}, {"int unsigned", "mysql", true}, {" integer", "postgres", true},
		{"integer", "sqlite", false}, {"int(11)", "sqlite", false},
		{"MEDIUMINT", "mysql", true}, {"smallint(5) unsigned", "mysql", true},
		{"tinyint", "mysql", true}, {"int4", "postgres", true},
		{"serial", "postgres", true}, {"smallserial", "postgres", true}, {"serial2", "postgres", true}, {"serial4", "postgres", true},
		{"float4", "postgres", true}, {"float8", "postgres", true}, {"int1", "mysql", true}, {"middleint", "mysql", true},
		{"int\tunsigned", "mysql", true},
		{"bit(64)", "mysql", true}, {"boolean", "postgres", true},
		{"real", "sqlite", true}, {"float", "mysql", true}, {"double precision", "postgres", true},
		{"decimal", "mysql", true}, {"decimal", "postgres", false}, {"numeric", "sqlite", false},
		{"decimal(18)", "postgres", true}, {"decimal(19)", "mysql", false},
		{"DEC( 19 )", "mysql", false}, {"fixed(18)", "mysql", true},
		{"numeric(20,1)", "postgres", false}, {"numeric(20, 2)", "postgres", true}, {"numeric(19,1)", "mysql", true},
	} {
		if got := model.TooNarrow(schema.DataType(tt.column), model.Target{Dialect: tt.dialect, Largest: math.MaxInt64}); got != tt.want {
			t.Errorf("%q of %s: %t", tt.column, tt.dialect, got)
		}
	}
	small := model.Target{Dialect: "mysql", Largest: 1<<53 - 1}
	if model.TooNarrow("decimal(16)", small) || !model.TooNarrow("decimal(15)", small) {
		t.Error("the length of the ids does not matter")
	}
}

// target is that of the largest ids, in MySQL.
var target = model.Target{Largest: math.MaxInt64, Dialect: "mysql"}

// Key is a model with a uid field of any type.
type Key[T any] struct {
	ID T `gorm:"primaryKey;uid"`
}

// digits takes a text and no number. The database gets another number than a doubled has.
type (
	digits  struct{ S string }
	doubled int64
)

func (d digits) Value() (driver.Value, error) { return d.S, nil }

func (d *digits) Scan(v any) error {
	s, ok := v.(string)
	if !ok {
		return fmt.Errorf("a %T", v)
	}
	d.S = s
	return nil
}

func (d doubled) Value() (driver.Value, error) { return int64(d) * 2, nil }

func TestNewField_FindsTheWayToSetAFieldOfEachType(t *testing.T) {
	t.Parallel()

	type embedded struct{ Key[int64] }
	type pointed struct{ *Key[int64] }
	for _, tt := range []struct {
		model        any
		direct, text bool
		value        any // what a condition has for the largest id
	}{
		{&Key[int64]{}, true, false, int64(math.MaxInt64)},
		{&Key[int]{}, true, false, int64(math.MaxInt64)},
		{&Key[uint64]{}, true, false, uint64(math.MaxInt64)},
		{&Key[uint]{}, true, false, uint64(math.MaxInt64)},
		{&embedded{}, true, false, int64(math.MaxInt64)},
		{&pointed{}, false, false, int64(math.MaxInt64)},
		{&Key[*int64]{}, false, false, int64(math.MaxInt64)},
		{&Key[sql.NullInt64]{}, false, false, int64(math.MaxInt64)},
		{&Key[string]{}, false, true, "9223372036854775807"},
		{&Key[*string]{}, false, true, "9223372036854775807"},
		{&Key[digits]{}, false, true, "9223372036854775807"},
	} {
		s := parse(t, tt.model)
		f, err := model.NewField(s.PrioritizedPrimaryField, target)
		testkit.Must(t, err)
		if got := f.Value(math.MaxInt64); f.Direct != tt.direct || f.Text != tt.text || got != tt.value {
			t.Errorf("%v: direct %t, text %t, value %#v", s.ModelType, f.Direct, f.Text, got)
		}
		row := reflect.New(s.ModelType).Elem()
		place, zero := f.Look(t.Context(), row)
		if !zero {
			t.Errorf("%v: a new row is not zero", s.ModelType)
		}
		testkit.Must(t, f.Put(t.Context(), place, 42))
		if _, zero = f.Look(t.Context(), row); zero {
			t.Errorf("%v: it is zero after 42", s.ModelType)
		}
		if got := (model.Row{Struct: row}).ID(t.Context(), f); got != 42 {
			t.Errorf("%v: it is %d after 42", s.ModelType, got)
		}
	}
}

// The error is all that the application's author sees: it must name the field, its type, the value, and a way out.
func TestNewField_RefusesWhatCannotHoldAnIDAndSaysWhatCan(t *testing.T) {
	t.Parallel()

	type sized struct {
		ID string `gorm:"size:18;uid"`
	}
	type fits struct {
		ID string `gorm:"size:16;uid"`
	}
	type national struct {
		ID string `gorm:"type:NATIONAL CHARACTER VARYING(18);uid"`
	}
	type bytes struct {
		ID string `gorm:"type:varbinary( 18 );uid"`
	}
	type wrapped struct {
		ID sql.NullString `gorm:"size:9;uid"`
	}
	type wide struct {
		ID sql.NullString `gorm:"size:20;uid"`
	}
	type spelled struct {
		ID digits `gorm:"size:64;uid"`
	}
	type varchar struct {
		ID string `gorm:"type:varchar(20);uid"`
	}
	type char struct {
		ID string `gorm:"type:CHAR(18);uid"`
	}
	for _, tt := range []struct {
		model any
		to    model.Target
		says  []string // none if it is accepted
	}{
		{&Key[int32]{}, target, []string{"ID of type int32 has only 32 bits (size:32", "a string of 19 characters"}},
		{&Key[int32]{}, model.Target{Largest: 1<<53 - 1, Dialect: "sqlite"},
			[]string{"32 bits", "a string of 16 characters"}},
		{&Key[float64]{}, target, []string{"ID of type float64 is a float, which loses digits"}},
		{&Key[[]byte]{}, target, []string{"ID of type []uint8 is kept as bytes"}},
		{&Key[doubled]{}, target, []string{"ID of type model_test.doubled changes the id 9223372036854775807 to"}},
		{&Key[time.Time]{}, target, []string{"ID of type time.Time cannot be set to an id ("}},
		{&sized{}, target, []string{"sized.ID of type string has only 18 characters (size:18", "up to 19"}},
		{&national{}, target, []string{"national.ID of type string has only 18 characters"}},
		{&bytes{}, target, []string{"bytes.ID of type string has only 18 characters"}},
		{&wrapped{}, target, []string{"wrapped.ID of type sql.NullString has only 9 characters"}},
		{&wide{}, target, nil},
		{&spelled{}, target, nil},
		{&varchar{}, target, nil},
		{&char{}, target, []string{"char.ID of type string has only 18 characters"}},
		{&fits{}, model.Target{Largest: 1<<53 - 1, Dialect: "mysql"}, nil},
		{&fits{}, target, []string{"fits.ID of type string has only 16 characters"}},
	} {
		f, err := model.NewField(parse(t, tt.model).FieldsByName["ID"], tt.to)
		if tt.says == nil {
			testkit.Must(t, err)
			continue
		}
		testkit.IsError(t, err, model.ErrField, tt.says...)
		testkit.IsError(t, err, model.ErrField, "an id needs an int64, uint64 or uidplugin.ID in a BIGINT column")
		if f != nil {
			t.Errorf("%T: there is a field all the same", tt.model)
		}
	}
}
