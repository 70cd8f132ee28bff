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

// charColumn matches a column type with a length in characters or bytes.
var charColumn = regexp.MustCompile(`(?i)^\s*(?:national\s+)?(?:n?(?:var)?(?:char|binary)(?:acter)?(?:\s+varying)?2?)\s*\(\s*(\d+)`)

// numericColumn matches the precision and the scale of a column type.
var numericColumn = regexp.MustCompile(`\(\s*(\d+)\s*(?:,\s*(\d+)\s*)?\)`)

// A Range describes the values that a column stores unchanged: integers up to Largest, and texts no longer than
// Characters. Characters is 0 for columns of numbers. Negative numbers are not compared, because ids are positive.
type Range struct {
	Largest    int64
	Characters int
}

// everything is the range of a column that holds all ids, or has an unknown type.
var everything = Range{Largest: math.MaxInt64}

// RangeOf returns the range of a column type, as the database or the field's tag spells it.
func RangeOf(column, dialect string) Range {
	column = strings.ToLower(column)
	if dialect == "sqlite" { // on SQLite, only types with one of these words lose digits
		if strings.Contains(column, "real") || strings.Contains(column, "floa") || strings.Contains(column, "doub") {
			return Range{Largest: 1 << 53}
		}
		return everything
	}
	if m := charColumn.FindStringSubmatch(column); m != nil {
		n, _ := strconv.Atoi(m[1])
		return Range{Largest: largestOf(n), Characters: n}
	}
	name := strings.FieldsFunc(column, func(r rune) bool { return unicode.IsSpace(r) || r == '(' })
	if len(name) == 0 {
		return everything
	}
	bits := 0 // including the sign
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
		return Range{Largest: 1 << 24}
	case "float":
		if dialect == "mysql" {
			return Range{Largest: 1 << 24}
		}
		return Range{Largest: 1 << 53}
	case "float8", "double":
		return Range{Largest: 1 << 53}
	case "decimal", "dec", "numeric", "fixed":
		digits := 10 // MySQL's default; other databases store any number
		if m := numericColumn.FindStringSubmatch(column); m != nil {
			places, _ := strconv.Atoi(m[2])
			digits = firstOf(column) - places
		} else if dialect != "mysql" {
			return everything
		}
		return Range{Largest: largestOf(digits)}
	}
	switch {
	case bits == 0:
		return everything
	case strings.Contains(column, "unsigned"):
		return Range{Largest: 1<<bits - 1}
	}
	return Range{Largest: 1<<(bits-1) - 1}
}

// firstOf returns the first number in the parentheses of a column type, or 0.
func firstOf(column string) (n int) {
	if m := numericColumn.FindStringSubmatch(column); m != nil {
		n, _ = strconv.Atoi(m[1])
	}
	return n
}

// largestOf returns the largest integer with that number of digits, at most the largest int64.
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

// Keeps reports whether the column stores a value unchanged. A non-numeric text in a column of numbers passes,
// because it is not an id.
func (r Range) Keeps(text string) bool {
	if r.Characters > 0 {
		return utf8.RuneCountInString(text) <= r.Characters
	}
	text = strings.TrimSpace(text)
	if n, err := strconv.ParseInt(text, 10, 64); err == nil {
		return n <= r.Largest
	}
	f, err := strconv.ParseFloat(text, 64) // also for digits beyond int64
	return errors.Is(err, strconv.ErrSyntax) || f < math.MaxInt64 && f <= float64(r.Largest)
}

// TooNarrow reports whether the column type in a field's tag is too small for the target's ids, or inexact. "int" and
// "uint" pass, because for GORM they mean the field's size. A type of texts passes here: its length is compared
// elsewhere.
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
	// SQLite stores 64 bits in every integer, but the model may move to a database where a smallint is too small.
	return !sqliteInteger.MatchString(name) && RangeOf(name, "").Largest < t.Largest
}

var sqliteInteger = regexp.MustCompile(`^int(eger)?\b`)

// IsInexact reports whether a column loses digits or does not return integers.
func IsInexact(column string) bool { return inexact.MatchString(strings.ToLower(column)) }

var inexact = regexp.MustCompile(`^(real|float|double|bit)`)
