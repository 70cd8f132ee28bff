package model_test

import (
	"math"
	"strconv"
	"testing"

	"github.com/uidplugin/uidplugin/internal/model"
)

// The type that the database reports for a column decides whether an id is refused.
func TestRangeOf_KnowsTheTypesOfEachDatabase(t *testing.T) {
	t.Parallel()

	all := model.Range{Largest: math.MaxInt64}
	for _, tt := range []struct {
		column, dialect string
		want            model.Range
	}{
		{"bigint", "mysql", all}, {"bigint(20) unsigned", "mysql", all}, {"text", "postgres", all}, {"", "mysql", all},
		{"json", "mysql", all}, {"numeric", "postgres", all}, {"int", "sqlite", all}, {"VARCHAR(5)", "sqlite", all},
		{"int(11)", "mysql", model.Range{Largest: math.MaxInt32}},
		{"INT UNSIGNED", "mysql", model.Range{Largest: math.MaxUint32}},
		{"integer", "postgres", model.Range{Largest: math.MaxInt32}},
		{"mediumint(9)", "mysql", model.Range{Largest: 1<<23 - 1}},
		{"smallint(5) unsigned zerofill", "mysql", model.Range{Largest: math.MaxUint16}},
		{"tinyint(1)", "mysql", model.Range{Largest: 127}},
		{"boolean", "postgres", model.Range{Largest: 1}}, {"bit(8)", "mysql", model.Range{Largest: 255}}, {"bit", "mysql", model.Range{Largest: 1}},
		{"bit(64)", "mysql", model.Range{Largest: math.MaxInt64}},
		{"decimal(10,2)", "mysql", model.Range{Largest: 99_999_999}},
		{"decimal", "mysql", model.Range{Largest: 9_999_999_999}},
		{"decimal(20,0)", "mysql", model.Range{Largest: math.MaxInt64}},
		{"float", "mysql", model.Range{Largest: 1 << 24}}, {"double", "mysql", model.Range{Largest: 1 << 53}},
		{"real", "postgres", model.Range{Largest: 1 << 24}}, {"REAL", "sqlite", model.Range{Largest: 1 << 53}},
		{"character varying(3)", "postgres", model.Range{Largest: 999, Characters: 3}},
		{"varchar(20)", "mysql", model.Range{Largest: math.MaxInt64, Characters: 20}},
	} {
		if got := model.RangeOf(tt.column, tt.dialect); got != tt.want {
			t.Errorf("%s on %s: %+v, want %+v", tt.column, tt.dialect, got, tt.want)
		}
	}
}

// A value that is not an id must not be refused as one.
func TestRangeKeeps_ComparesNumbersAndLengths(t *testing.T) {
	t.Parallel()

	number, text := model.RangeOf("int", "mysql"), model.RangeOf("varchar(4)", "mysql")
	for _, tt := range []struct {
		r    model.Range
		text string
		want bool
	}{
		{number, "2147483647", true}, {number, "2147483648", false}, {number, " -2147483649 ", true},
		{number, strconv.FormatUint(math.MaxUint64, 10), false}, {number, "", true}, {number, "true", true}, {number, "abc", true},
		{number, "7.5", true}, {number, "2147483648.0", false}, {number, "7.5e18", false}, {number, "1e999", false},
		{text, "9999", true}, {text, "10000", false}, {text, "äöüß", true}, {text, "-1000", false}, {text, "", true},
	} {
		if got := tt.r.Keeps(tt.text); got != tt.want {
			t.Errorf("%+v keeps %q: %t", tt.r, tt.text, got)
		}
	}
}
