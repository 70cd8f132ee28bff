package model_test

import (
	"database/sql"
	"encoding/json"
	"maps"
	"reflect"
	"testing"

	"github.com/uidplugin/uidplugin/internal/model"
	"github.com/uidplugin/uidplugin/internal/testkit"
)

func TestRowsOf_FindsStructsAndMapsAndLeavesOutTheRest(t *testing.T) {
	t.Parallel()

	one, two := &KeyFirst{ID: 1}, &KeyFirst{ID: 2}
	m := map[string]any{"id": 3}
	for _, tt := range []struct {
		dest any
		want []int64
	}{
		{*one, []int64{1}},
		{one, []int64{1}},
		{&one, []int64{1}},
		{[]KeyFirst{*one, *two}, []int64{1, 2}},
		{[2]KeyFirst{*two, *one}, []int64{2, 1}},
		{[]*KeyFirst{one, nil, two}, []int64{1, 2}},
		{m, []int64{3}},
		{[]map[string]any{m, nil, m}, []int64{3, 3}},
		{[]*map[string]any{&m, nil}, []int64{3}},
		{[]untagged{{ID: 9}}, nil},
		{[]KeyFirst{}, nil},
		{(*KeyFirst)(nil), nil},
		{map[string]int{"id": 3}, nil},
		{nil, nil},
	} {
		f := fieldOf(t, &KeyFirst{}, "ID")
		var got []int64
		for _, r := range model.RowsOf(reflect.ValueOf(tt.dest), f.Schema.ModelType) {
			got = append(got, r.ID(t.Context(), f))
		}
		if !reflect.DeepEqual(got, tt.want) {
			t.Errorf("%#v: %v, want %v", tt.dest, got, tt.want)
		}
	}
}

// A map may name a field by its column, by its name, or as GORM's naming strategy takes it for the column.
func TestRowID_OfAMapIsUnderAnyNameOfTheField(t *testing.T) {
	t.Parallel()

	f := fieldOf(t, &KeyFirst{}, "Trace")
	for _, tt := range []struct {
		m    map[string]any
		want int64
	}{
		{map[string]any{"trace": 5}, 5},
		{map[string]any{"Trace": 5}, 5},
		{map[string]any{"trace": 5, "Trace": 6}, 5},
		{map[string]any{"TRACE": 5}, 5},
		{map[string]any{"trace": "5"}, 5},
		{map[string]any{"trace": []byte("5")}, 5},
		{map[string]any{"trace": uint64(5)}, 5},
		{map[string]any{"trace": sql.NullInt64{Int64: 5, Valid: true}}, 5},
		{map[string]any{"trace": json.Number("5")}, 5},
		{map[string]any{"trace": 0}, 0},
		{map[string]any{"trace": nil}, 0},
		{map[string]any{"trace": "five"}, 0},
		{map[string]any{"id": 5}, 0},
		{map[string]any{}, 0},
	} {
		if got := (model.Row{Map: tt.m}).ID(t.Context(), f); got != tt.want {
			t.Errorf("%v: %d", tt.m, got)
		}
	}
}

// A map gets the id under the name that it uses already: two names of one column make GORM send it twice.
func TestRowSet_OfAMapKeepsItsName(t *testing.T) {
	t.Parallel()

	number, text := fieldOf(t, &KeyFirst{}, "Trace"), fieldOf(t, &Key[string]{}, "ID")
	for _, tt := range []struct {
		field *model.Field
		m     map[string]any
		id    int64
		want  map[string]any
	}{
		{number, map[string]any{}, 7, map[string]any{"trace": int64(7)}},
		{number, map[string]any{"Trace": 0}, 7, map[string]any{"Trace": int64(7)}},
		{number, map[string]any{"TRACE": 0, "id": 1}, 7, map[string]any{"TRACE": int64(7), "id": 1}},
		{text, map[string]any{"ID": ""}, 7, map[string]any{"ID": "7"}},
		{number, map[string]any{"Trace": 5, "id": 1}, 0, map[string]any{"id": 1}},
		{number, map[string]any{"id": 1}, 0, map[string]any{"id": 1}},
	} {
		testkit.Must(t, model.Row{Map: tt.m}.Set(t.Context(), tt.field, tt.id))
		if !maps.Equal(tt.m, tt.want) {
			t.Errorf("%v, want %v", tt.m, tt.want)
		}
	}
}

// 0 means that a struct has no id; in a pointer that is nil, not a pointer to 0, which is a value of its own.
func TestRowSet_OfAStructTakesZeroForNone(t *testing.T) {
	t.Parallel()

	for _, m := range []any{
		&Key[int64]{}, &Key[uint64]{}, &Key[string]{}, &Key[*int64]{}, &Key[sql.NullInt64]{}, &Key[digits]{},
	} {
		f, r := fieldOf(t, m, "ID"), model.Row{Struct: reflect.ValueOf(m).Elem()}
		testkit.Must(t, r.Set(t.Context(), f, 7))
		if got := r.ID(t.Context(), f); got != 7 {
			t.Errorf("%T: %d after 7", m, got)
		}
		testkit.Must(t, r.Set(t.Context(), f, 0))
		if !r.Struct.IsZero() {
			t.Errorf("%T: %+v after 0", m, m)
		}
	}
}

func TestDigits_AreWhatTheDatabaseGets(t *testing.T) {
	t.Parallel()

	n := int64(12)
	for _, tt := range []struct {
		v    any
		want string
	}{
		{int64(-1), "-1"}, {uint64(1 << 63), "9223372036854775808"}, {&n, "12"}, {(*int64)(nil), ""}, {nil, ""},
		{"12", "12"}, {[]byte("12"), "12"}, {digits{"12"}, "12"}, {&digits{"12"}, "12"}, {(*digits)(nil), ""},
		{sql.NullInt64{}, ""}, {sql.NullString{String: "12", Valid: true}, "12"}, {doubled(6), "12"},
	} {
		if got := model.Digits(tt.v); got != tt.want {
			t.Errorf("%#v: %q", tt.v, got)
		}
	}
}

// Columns pad and add places, which must not make two ids of one; what is no number must not become one.
func TestParseDigits_ReadsANumberAsItIsWritten(t *testing.T) {
	t.Parallel()

	for _, tt := range []struct {
		text, trimmed string
		want          int64
	}{
		{"12", "12", 12}, {" 12  ", "12", 12}, {"12.000", "12", 12},
		{"12.", "12", 12}, {"9223372036854775807", "9223372036854775807", 1<<63 - 1},
		{"9223372036854775808", "9223372036854775808", 0}, {"12.5", "12.5", 0},
		{"012", "012", 0}, {"+12", "+12", 0}, {"1e3", "1e3", 0},
		{"1.2.0", "1.2.0", 0}, {"a12", "a12", 0}, {"", "", 0}, {"0", "0", 0},
	} {
		if got := model.Trimmed(tt.text); got != tt.trimmed {
			t.Errorf("%q is trimmed to %q", tt.text, got)
		}
		if got := model.ParseDigits(tt.text); got != tt.want {
			t.Errorf("%q is %d", tt.text, got)
		}
	}
}
