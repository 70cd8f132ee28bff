package model

import (
	"errors"
	"math"
	"regexp"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"

	"gorm.io/gorm/schema"
)

// charColumn is a column type with a number of characters.
var charColumn = regexp.MustCompile(`(?i)^\s*(?:national\s+)?(?:n?(?:var)?(?:char|binary)(?:acter)?(?:\s+varying)?2?)\s*\(\s*(\d+)`)

// numericColumn is a column type with a number of digits, some of them behind the point.
var numericColumn = regexp.MustCompile(`\(\s*(\d+)\s*(?:,\s*(\d+)\s*)?\)`)

// A Range is the values that a column keeps as they are: the integers from Least to Largest, and texts of up to
// Characters. Characters is 0 in a column that is not for texts. [RangeOf] returns one.
type Range struct {
	Least, Largest int64
	Characters     int
}

// everything is the range of a column that keeps all ids, and of one of an unknown type.
var everything = Range{Least: math.MinInt64, Largest: math.MaxInt64}

// RangeOf returns the range of a column type, as the database or the tag of a field writes it.
func RangeOf(column, dialect string) Range {
	column = strings.ToLower(column)
	if m := charColumn.FindStringSubmatch(column); m != nil {
		n, _ := strconv.Atoi(m[1])
		return Range{Least: -largestOf(n - 1), Largest: largestOf(n), Characters: n}
	}
	name := strings.FieldsFunc(column, func(r rune) bool { return unicode.IsSpace(r) || r == '(' })
	if len(name) == 0 {
		return everything
	}
	if dialect == "sqlite" { // where only the class of a type counts
		if strings.Contains(column, "real") || strings.Contains(column, "floa") || strings.Contains(column, "doub") {
			return Range{Least: -1 << 53, Largest: 1 << 53}
		}
		return everything
	}
	bits := 0 // with the sign
	switch name[0] {
	case "int", "integer", "int4", "serial", "serial4":
		bits = 32
	case "mediumint", "middleint", "int3":
		bits = 24
	case "smallint", "int2", "smallserial", "serial2":
		bits = 16
	case "tinyint", "int1":
		bits = 8
	case "bool", "boolean":
		return Range{Largest: 1}
	case "bit":
		return Range{Largest: 1<<min(max(1, firstOf(column)), 63) - 1}
	case "real", "float4":
		return Range{Least: -1 << 24, Largest: 1 << 24}
	case "float":
		if dialect == "mysql" {
			return Range{Least: -1 << 24, Largest: 1 << 24}
		}
		return Range{Least: -1 << 53, Largest: 1 << 53}
	case "float8", "double":
		return Range{Least: -1 << 53, Largest: 1 << 53}
	case "decimal", "dec", "numeric", "fixed":
		digits := 10 // MySQL's; others keep all
		if m := numericColumn.FindStringSubmatch(column); m != nil {
			places, _ := strconv.Atoi(m[2])
			digits = firstOf(column) - places
		} else if dialect != "mysql" {
			return everything
		}
		return Range{Least: -largestOf(digits), Largest: largestOf(digits)}
	}
	switch {
	case bits == 0:
		return everything
	case strings.Contains(column, "unsigned"):
		return Range{Largest: 1<<bits - 1}
	}
	return Range{Least: -1 << (bits - 1), Largest: 1<<(bits-1) - 1}
}

// firstOf returns the first number in the parentheses of a column type; 0 without parentheses.
func firstOf(column string) (n int) {
	if m := numericColumn.FindStringSubmatch(column); m != nil {
		n, _ = strconv.Atoi(m[1])
	}
	return n
}

// largestOf returns the largest integer with a number of digits, up to what an int64 holds.
func largestOf(digits int) int64 {
	if digits > 18 {
		return math.MaxInt64
	}
	n := int64(1)
	for range digits {
		n *= 10
	}
	return n - 1
}

// Keeps reports whether a column with the range keeps a value that is written as text. It does if the text is neither
// an integer nor for a column of texts: such a value is not an id.
func (r Range) Keeps(text string) bool {
	if r.Characters > 0 {
		return utf8.RuneCountInString(text) <= r.Characters
	}
	n, err := strconv.ParseInt(strings.TrimSpace(text), 10, 64)
	if err != nil {
		return !errors.Is(err, strconv.ErrRange)
	}
	return r.Least <= n && n <= r.Largest
}

// TooNarrow reports whether a column of a type that a tag names cannot hold all of the target's ids, or does not return
// them as integers. The type "int" does not count: it is GORM's word for an integer of the field's size.
func TooNarrow(column schema.DataType, t Target) bool {
	name := strings.ToLower(strings.TrimSpace(string(column)))
	switch {
	case column == schema.Int || column == schema.Uint || charColumn.MatchString(name):
		return false
	case inexact.MatchString(name):
		return true
	case t.Dialect != "sqlite":
		return RangeOf(name, t.Dialect).Largest < t.Largest
	}
	// SQLite keeps 64 bits in every integer, but other databases do not.
	return !sqliteInteger.MatchString(name) && RangeOf(name, "").Largest < t.Largest
}

var sqliteInteger = regexp.MustCompile(`^int(eger)?\b`)

// inexact is a column type that returns no integers, or not all digits.
var inexact = regexp.MustCompile(`^(real|float|double|bit)`)
