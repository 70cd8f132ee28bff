package model_test

import (
	"fmt"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/uidplugin/uidplugin/internal/model"
	"github.com/uidplugin/uidplugin/internal/testkit"
	"gorm.io/gorm"
	"gorm.io/gorm/clause"
	"gorm.io/gorm/schema"
)

// Country, City, Street and Tag refer to each other in circles.
type (
	Country struct {
		ID     int64
		Cities []City
	}
	City struct {
		ID        int64
		CountryID int64
		Country   *Country
		MayorID   int64
		Mayor     *Person
		Tags      []Tag `gorm:"many2many:city_tags"`
	}
	Person struct {
		ID     int64
		BossID *int64
		Boss   *Person
	}
	Tag struct {
		ID     int64
		Cities []City `gorm:"many2many:city_tags"`
	}
)

func TestWalk_VisitsWhatCanBeReachedOnce(t *testing.T) {
	t.Parallel()

	db := testkit.SQLite{}.Open(t)
	for _, tt := range []struct {
		model any
		want  string
	}{
		{&Country{}, "Country City Person Tag"},
		{&Tag{}, "Tag City Country Person"},
		{&Person{}, "Person"},
	} {
		s, err := model.Parse(db, tt.model)
		testkit.Must(t, err)
		var names []string
		model.Walk(db, s, func(s *schema.Schema) { names = append(names, s.Name) })
		if got := strings.Join(names, " "); got != tt.want {
			t.Errorf("%T: %s", tt.model, got)
		}
	}
}

func TestParse_SaysWhichModelIsNone(t *testing.T) {
	t.Parallel()

	for _, m := range []any{5, new(int), map[string]any{}, "orders", nil, []string{"orders"}} {
		_, err := model.Parse(testkit.SQLite{}.Open(t), m)
		testkit.IsError(t, err, schema.ErrUnsupportedDataType, fmt.Sprintf("uidplugin: model %T: ", m),
			"pass a pointer to the struct of a model, such as &Order{}")
		if strings.Contains(err.Error(), "0x") {
			t.Errorf("an address: %v", err)
		}
	}
}

// GORM's ReflectValueOf sets an embedded pointer, and so changes the row of the application.
func TestFieldOf_LeavesEmbeddedPointersNil(t *testing.T) {
	t.Parallel()

	type Inner struct {
		A    int64
		Deep *struct{ B int64 } `gorm:"embedded"`
	}
	type outer struct {
		ID int64
		*Inner
	}
	s := parse(t, &outer{})
	for _, tt := range []struct {
		row  outer
		want map[string]any // nil: not valid
	}{
		{outer{ID: 1}, map[string]any{"ID": int64(1), "A": nil, "B": nil}},
		{outer{Inner: &Inner{A: 2}}, map[string]any{"ID": int64(0), "A": int64(2), "B": nil}},
		{outer{Inner: &Inner{Deep: &struct{ B int64 }{3}}}, map[string]any{"A": int64(0), "B": int64(3)}},
	} {
		before := tt.row
		for name, want := range tt.want {
			var got any
			if v := model.FieldOf(reflect.ValueOf(&tt.row).Elem(), s.FieldsByName[name]); v.IsValid() {
				got = v.Interface()
			}
			if got != want || tt.row != before {
				t.Errorf("%+v: %s is %v", tt.row, name, got)
			}
		}
	}
}

func TestIsEmpty_TellsAssociationsThatGORMSavesNot(t *testing.T) {
	t.Parallel()

	for _, tt := range []struct {
		v    any
		want bool
	}{
		{nil, true}, {Tag{}, true}, {Tag{ID: 1}, false}, {(*Tag)(nil), true}, {&Tag{}, false},
		{[]Tag(nil), true}, {[]Tag{}, true}, {&[]Tag{}, true}, {[]Tag{{}}, false}, {&[]*Tag{nil}, false},
	} {
		if got := model.IsEmpty(reflect.ValueOf(tt.v)); got != tt.want {
			t.Errorf("%#v: %t", tt.v, got)
		}
	}
}

// The copy is for one statement, so nothing of the schema, which all share, may change with it.
func TestWithoutDefault_ChangesOnlyTheCopy(t *testing.T) {
	t.Parallel()

	type row struct {
		ID   int64  `gorm:"primaryKey;uid"`
		Kind string `gorm:"default:gen_kind()"`
	}
	s := parse(t, &row{})
	key := s.PrioritizedPrimaryField
	defaults := slices.Clone(s.FieldsWithDefaultDBValue)
	if len(defaults) != 2 {
		t.Fatalf("%d fields have a default", len(defaults))
	}
	c := model.WithoutDefault(s, key)
	if k := c.PrioritizedPrimaryField; k.HasDefaultValue || k.AutoIncrement || c.FieldsByDBName["id"] != k {
		t.Errorf("the key of the copy is %+v", k)
	}
	if f := c.FieldsWithDefaultDBValue; len(f) != 1 || f[0].Name != "Kind" {
		t.Errorf("with a default the copy has %v", f)
	}
	if !key.HasDefaultValue || !key.AutoIncrement || s.FieldsByDBName["id"] != key ||
		!slices.Equal(s.FieldsWithDefaultDBValue, defaults) {
		t.Error("the schema has changed")
	}
}

func TestCopyForInsert_HasNoOnConflictOfItsOwn(t *testing.T) {
	t.Parallel()

	s := parse(t, &withType{})
	other := clause.Insert{Modifier: "IGNORE"}
	s.CreateClauses = append(s.CreateClauses, other)
	c := model.CopyForInsert(s)
	if len(c.CreateClauses) != 1 || c.CreateClauses[0] != clause.Interface(other) || len(s.CreateClauses) != 2 {
		t.Errorf("the copy has %v, the schema %v", c.CreateClauses, s.CreateClauses)
	}
	c.FieldsByName["New"], c.FieldsByDBName["new"] = &schema.Field{}, &schema.Field{}
	if s.FieldsByName["New"] != nil || s.FieldsByDBName["new"] != nil {
		t.Error("a field of the copy is in the schema")
	}
}

// A conflict is never about an id that was made for the statement.
func TestModelUniques_AreKeysAndIndexesWithoutUIDFields(t *testing.T) {
	t.Parallel()

	type row struct {
		ID     int64  `gorm:"primaryKey;uid"`
		Mail   string `gorm:"unique"`
		Tenant int    `gorm:"uniqueIndex:one"`
		No     int    `gorm:"uniqueIndex:one;index"`
		Trace  int64  `gorm:"uid;uniqueIndex:two"`
		Place  int    `gorm:"uniqueIndex:two"`
	}
	type own struct {
		Tenant int `gorm:"primaryKey"`
		No     int `gorm:"primaryKey"`
	}
	for _, tt := range []struct {
		model any
		want  []string
	}{
		{&row{}, []string{"mail", "tenant no"}}, {&own{}, []string{"tenant no"}}, {&keyElsewhere{}, []string{"id"}},
	} {
		m, err := newModel(t, tt.model)
		testkit.Must(t, err)
		var got []string
		for _, fields := range m.Uniques() {
			var names []string
			for _, f := range fields {
				names = append(names, f.DBName)
			}
			got = append(got, strings.Join(names, " "))
		}
		slices.Sort(got)
		if !slices.Equal(got, tt.want) {
			t.Errorf("%T: %q", tt.model, got)
		}
	}
}

// Each clause is written as GORM writes it alone. GORM sorts the expressions of one in place, which other goroutines may
// read.
func TestAllOf_KeepsEachWhereTogether(t *testing.T) {
	t.Parallel()

	a, b := clause.Eq{Column: "a", Value: 1}, clause.Eq{Column: "b", Value: 2}
	first := clause.Where{Exprs: []clause.Expression{clause.Or(a), b}}
	group := clause.Where{Exprs: []clause.Expression{clause.AndConditions{Exprs: []clause.Expression{clause.Or(a), b}}}}
	for want, all := range map[string]model.AllOf{
		"(`b` = ? OR `a` = ?) AND `a` = ?":              {first, a},
		"(`b` = ? OR `a` = ?) AND (`b` = ? OR `a` = ?)": {group, nil, first},
		"`b` = ?": {nil, clause.Where{}, b},
	} {
		stmt := &gorm.Statement{DB: testkit.SQLite{}.Open(t)}
		all.Build(stmt)
		if got := stmt.SQL.String(); got != want {
			t.Errorf("%s, want %s", got, want)
		}
	}
	for _, exprs := range [][]clause.Expression{first.Exprs, group.Exprs[0].(clause.AndConditions).Exprs} {
		if _, ok := exprs[0].(clause.OrConditions); !ok {
			t.Errorf("sorted: %v", exprs)
		}
	}
}
