package uidplugin_test

import (
	"encoding/json"
	"encoding/xml"
	"errors"
	"fmt"
	"math"
	"strconv"
	"strings"
	"testing"

	"github.com/uidplugin/uidplugin"
	"github.com/uidplugin/uidplugin/internal/testkit"
	"gorm.io/gorm/schema"
)

func TestID_WrittenToJSONAsText(t *testing.T) {
	t.Parallel()

	for _, tt := range []struct {
		value any
		want  string
	}{
		{uidplugin.ID(302914527191040001), `"302914527191040001"`},
		{uidplugin.ID(0), `"0"`},
		{uidplugin.ID(math.MaxInt64), `"9223372036854775807"`},
		{uidplugin.ID(-1), `"-1"`},
		{new(uidplugin.ID), `"0"`},
		{(*uidplugin.ID)(nil), `null`},
		{[]uidplugin.ID{1, 2}, `["1","2"]`},
		{map[uidplugin.ID]int{7: 1}, `{"7":1}`},
		{struct{ ID uidplugin.ID }{7}, `{"ID":"7"}`},
		{struct {
			ID uidplugin.ID `json:"id,omitempty"`
		}{}, `{}`},
		{uidplugin.Model{ID: 7}, `{"ID":"7","CreatedAt":"0001-01-01T00:00:00Z","UpdatedAt":"0001-01-01T00:00:00Z","DeletedAt":null}`},
	} {
		if got, err := json.Marshal(tt.value); err != nil || string(got) != tt.want {
			t.Errorf("%T: %s, %v", tt.value, got, err)
		}
	}
}

func TestID_ReadFromJSON(t *testing.T) {
	t.Parallel()

	for _, tt := range []struct {
		text string
		want uidplugin.ID
		err  error // nil together with want 5, the value before, means an error of any kind
	}{
		{`"302914527191040001"`, 302914527191040001, nil},
		{`302914527191040001`, 302914527191040001, nil},
		{` "7" `, 7, nil},
		{`0`, 0, nil},
		{`"-7"`, -7, nil},
		{`"9223372036854775807"`, math.MaxInt64, nil},
		{`null`, 5, nil},

		{`"9223372036854775808"`, 5, strconv.ErrRange},
		{`9223372036854775808`, 5, strconv.ErrRange},
		{`""`, 5, strconv.ErrSyntax},
		{`"abc"`, 5, strconv.ErrSyntax},
		{`" 7"`, 5, strconv.ErrSyntax},
		{`"0x7"`, 5, strconv.ErrSyntax},
		{`"1_000"`, 5, strconv.ErrSyntax},
		{`1.5`, 5, strconv.ErrSyntax},
		{`1e3`, 5, strconv.ErrSyntax},
		{`true`, 5, strconv.ErrSyntax},
		{`{}`, 5, strconv.ErrSyntax},
		{`[1]`, 5, strconv.ErrSyntax},
	} {
		id := uidplugin.ID(5)
		if err := json.Unmarshal([]byte(tt.text), &id); id != tt.want || !errors.Is(err, tt.err) {
			t.Errorf("%s: %d, %v", tt.text, id, err)
		} else if err != nil {
			saysAll(t, err.Error(), "uidplugin: not an id")
		}
	}

	var m map[uidplugin.ID]string
	if err := json.Unmarshal([]byte(`{"302914527191040001":"a"}`), &m); err != nil || m[302914527191040001] != "a" {
		t.Errorf("map: %v, %v", m, err)
	}
	testkit.IsError(t, json.Unmarshal([]byte(`{"x":"a"}`), &m), strconv.ErrSyntax)
}

func TestID_AsText(t *testing.T) {
	t.Parallel()

	type doc struct {
		ID uidplugin.ID `xml:"id,attr"`
	}
	text, err := xml.Marshal(doc{7})
	if err != nil || string(text) != `<doc id="7"></doc>` {
		t.Errorf("%s, %v", text, err)
	}
	var d doc
	if err := xml.Unmarshal(text, &d); err != nil || d.ID != 7 {
		t.Errorf("%+v, %v", d, err)
	}
	if s := fmt.Sprint(uidplugin.ID(7), uidplugin.ID(-7)); s != "7 -7" {
		t.Error(s)
	}
}

func TestID_ParseID(t *testing.T) {
	t.Parallel()

	for _, tt := range []struct {
		text string
		want uidplugin.ID
		err  error
	}{
		{"0", 0, nil},
		{"302914527191040001", 302914527191040001, nil},
		{"-9223372036854775808", math.MinInt64, nil},
		{"", 0, strconv.ErrSyntax},
		{"ord_7", 0, strconv.ErrSyntax},
		{"7 ", 0, strconv.ErrSyntax},
		{"+1", 0, strconv.ErrSyntax},
		{"007", 0, strconv.ErrSyntax},
		{"-0", 0, strconv.ErrSyntax},
		{"9223372036854775808", 0, strconv.ErrRange},
		{"-9223372036854775809", 0, strconv.ErrRange},
	} {
		got, err := uidplugin.ParseID(tt.text)
		if got != tt.want || !errors.Is(err, tt.err) {
			t.Errorf("ParseID(%q) = %d, %v", tt.text, got, err)
		}
		if err != nil {
			saysAll(t, err.Error(), "uidplugin: not an id", strconv.Quote(tt.text))
		}
	}
	for _, digit := range []string{"9", "x"} { // of a user; the error must not be as long
		if _, err := uidplugin.ParseID(strings.Repeat(digit, 1<<20)); err == nil || len(err.Error()) > 200 {
			t.Errorf("a megabyte: %.300v", err)
		}
	}
}

func TestID_InTheDatabase(t *testing.T) {
	t.Parallel()

	for _, tt := range []struct {
		src  any
		want uidplugin.ID
		ok   bool
	}{
		{int64(7), 7, true},
		{int64(-7), -7, true},
		{uint64(7), 7, true},
		{uint64(math.MaxInt64), math.MaxInt64, true},
		{[]byte("7"), 7, true},
		{"7", 7, true},
		{nil, 0, true},

		{uint64(math.MaxInt64 + 1), 5, false},
		{"seven", 5, false},
		{[]byte{}, 5, false},
		{7.0, 5, false},
		{true, 5, false},
	} {
		id := uidplugin.ID(5)
		err := id.Scan(tt.src)
		if id != tt.want || (err == nil) != tt.ok {
			t.Errorf("Scan(%T %v): %d, %v", tt.src, tt.src, id, err)
		}
		if err != nil {
			saysAll(t, err.Error(), "uidplugin: not an id")
		}
	}
	if v, err := uidplugin.ID(7).Value(); v != int64(7) || err != nil {
		t.Errorf("Value: %v, %v", v, err)
	}
	if v := uidplugin.ID(0).GormDataType(); v == string(schema.Int) || v == string(schema.Uint) {
		t.Errorf("GORM would make the type %q AUTO_INCREMENT", v)
	}
}
