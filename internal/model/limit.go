package model

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"unicode"

	"gorm.io/gorm"
	"gorm.io/gorm/clause"
)

// A Limit is a column that does not keep all ids that a field may have.
type Limit struct {
	Range
	Field string // as in Order.CustomerID
	Small bool   // the ids are of segments or other sources, so that the column may be wide enough permanently
	Name  string // of the column
	Type  string // as the database writes it
	Fix   string // the statement that widens it
}

// Limits are the columns of a table that do not keep all ids, by their names in lower case.
type Limits map[string]Limit

// Check returns an error that wraps [ErrField] if a statement that GORM is about to build has a value that its column
// does not keep.
func (m Limits) Check(stmt *gorm.Statement) error {
	if values, ok := stmt.Clauses["VALUES"].Expression.(clause.Values); ok {
		for i, column := range values.Columns {
			if l, ok := m.of(column); ok {
				for _, row := range values.Values {
					if err := l.check(stmt, row[i]); err != nil {
						return err
					}
				}
			}
		}
	}
	set, _ := stmt.Clauses["SET"].Expression.(clause.Set)
	if conflict, ok := stmt.Clauses["ON CONFLICT"].Expression.(clause.OnConflict); ok {
		set = append(slices.Clip(set), conflict.DoUpdates...)
	}
	for _, a := range set {
		if l, ok := m.of(a.Column); ok {
			if err := l.check(stmt, a.Value); err != nil {
				return err
			}
		}
	}
	return nil
}

func (m Limits) of(column clause.Column) (Limit, bool) {
	l, ok := m[strings.ToLower(column.Name[strings.LastIndexByte(column.Name, '.')+1:])]
	return l, ok
}

// check returns an error if the column does not keep a value. If the database computes the value, it returns one if the
// value may be an id of another column.
func (l Limit) check(stmt *gorm.Statement, value any) error {
	switch v := value.(type) {
	case int64:
		if l.Keeps(strconv.FormatInt(v, 10)) {
			return nil
		}
	case clause.Column:
		if strings.EqualFold(v.Table, "excluded") {
			return nil // it is among the values
		}
	}
	// GORM writes values, expressions and subqueries of all kinds.
	out := &gorm.Statement{DB: stmt.DB, Table: stmt.Table, Schema: stmt.Schema, Context: stmt.Context, Clauses: map[string]clause.Clause{}}
	out.AddVar(out, value)
	text := out.SQL.String()
	if computed := strings.Trim(text, "()?$1") != ""; !computed && len(out.Vars) == 1 {
		if text = Digits(out.Vars[0]); l.Keeps(text) {
			return nil
		}
	} else if l.Small || !l.computesID(out) {
		return nil
	}
	return fmt.Errorf("%w %s: %s does not fit into the column %s of the table %s, of type %s: widen it by %s;"+
		" docs/from-auto-increment.md has the statements for columns with foreign key constraints",
		ErrField, l.Field, text, l.Name, stmt.Table, l.Type, l.Fix)
}

// computesID reports whether an expression may be an id that does not fit: it has a subquery, another column, or such a
// number.
func (l Limit) computesID(out *gorm.Statement) bool {
	if slices.ContainsFunc(out.Vars, func(v any) bool { return !l.Keeps(Digits(v)) }) {
		return true
	}
	words := strings.FieldsFunc(out.SQL.String(), func(r rune) bool { return r != '_' && !unicode.IsLetter(r) && !unicode.IsDigit(r) })
	return slices.ContainsFunc(words, func(word string) bool {
		another := out.Schema != nil && out.Schema.LookUpField(word) != nil && !strings.EqualFold(word, l.Name)
		return another || strings.EqualFold(word, "select")
	})
}
