package narrow

import (
	"fmt"
	"iter"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"unicode"

	"github.com/uidplugin/uidplugin/internal/model"
	"gorm.io/gorm"
	"gorm.io/gorm/clause"
)

// A Limit is a column that cannot hold the largest id of the layout.
type Limit struct {
	model.Range
	Field string // as in Order.CustomerID
	Small bool   // the column is not known to have ids of the layout, so it may be wide enough for its values
	Name  string // of the column
	Type  string // as the database writes it
	Fix   string // the statement that widens it

	Lenient bool // the database changes values that do not fit instead of refusing them
}

// Limits has the limits of a table by the names of columns, in lower case.
type Limits map[string]Limit

// Check returns an error that wraps [model.ErrField] if a value of the statement does not fit into its column.
func (m Limits) Check(stmt *gorm.Statement) error {
	for column, value := range written(stmt) {
		if l, ok := m[column]; ok {
			if err := l.check(stmt, value); err != nil {
				return err
			}
		}
	}
	return nil
}

// written returns the columns, in lower case, and the values that the statement is about to write.
func written(stmt *gorm.Statement) iter.Seq2[string, any] {
	name := func(c clause.Column) string {
		return strings.ToLower(strings.Trim(c.Name[strings.LastIndexByte(c.Name, '.')+1:], "`\""))
	}
	return func(yield func(string, any) bool) {
		values, _ := stmt.Clauses["VALUES"].Expression.(clause.Values)
		for i, column := range values.Columns {
			column := name(column)
			for _, row := range values.Values {
				if !yield(column, row[i]) {
					return
				}
			}
		}
		set, _ := stmt.Clauses["SET"].Expression.(clause.Set)
		conflict, _ := stmt.Clauses["ON CONFLICT"].Expression.(clause.OnConflict)
		for _, a := range slices.Concat(set, conflict.DoUpdates) {
			if !yield(name(a.Column), a.Value) {
				return
			}
		}
	}
}

// A numberColumn is a numeric column for [refuseTexts].
type numberColumn struct {
	Field string // as in Order.CustomerID
	Plain bool   // nothing shows that the column has ids, so we refuse only texts of public ids, such as ord_7bh...
}

// refuseTexts returns an error that wraps [model.ErrField] if the statement writes a non-numeric text into one of
// the columns, because MySQL without strict mode would store 0. The keys of the map are in lower case.
func refuseTexts(stmt *gorm.Statement, columns map[string]numberColumn) error {
	for column, value := range written(stmt) {
		c, ok := columns[column]
		if !ok {
			continue
		}
		out, computed := render(stmt, value)
		for _, v := range out.Vars {
			if text, ok := model.TextOf(v); ok && !model.IsDecimal(text) && (!computed && !c.Plain || model.IsKeyText(text)) {
				return fmt.Errorf("%w %s: the text %.40q is not a number, but the column %s of the table %s has numbers; parse it into a key first",
					model.ErrField, c.Field, text, column, stmt.Table)
			}
		}
	}
	return nil
}

// render writes a value, expression or subquery as GORM does. computed reports whether the database calculates it.
func render(stmt *gorm.Statement, value any) (out *gorm.Statement, computed bool) {
	out = &gorm.Statement{DB: stmt.DB, Table: stmt.Table, Schema: stmt.Schema, Context: stmt.Context, Clauses: map[string]clause.Clause{}}
	out.AddVar(out, value)
	return out, strings.Trim(out.SQL.String(), "()?$1") != ""
}

// check returns an error if the value does not fit into the column. If the database is lenient, expressions that
// may not fit are refused, too. For a Small column, these are only bare numbers, such as (5000000000).
func (l Limit) check(stmt *gorm.Statement, value any) error {
	switch v := reflect.Indirect(reflect.ValueOf(value)); {
	case !v.IsValid():
		return nil // NULL
	case v.Type().PkgPath() != "" || l.Characters > 0: // a Valuer or a column of texts is rendered below
	case v.CanInt() && v.Int() <= l.Largest, v.CanUint() && v.Uint() <= uint64(l.Largest):
		return nil
	}
	if c, ok := value.(clause.Column); ok && strings.EqualFold(c.Table, "excluded") && strings.EqualFold(c.Name, l.Name) {
		return nil // checked with the inserted values
	}
	out, computed := render(stmt, value)
	text := strings.Trim(out.SQL.String(), "() ")
	if !computed && len(out.Vars) == 1 {
		if text = model.Digits(out.Vars[0]); l.Keeps(text) {
			return nil
		}
	} else if !l.Lenient || l.Small && !model.IsDecimal(text) || l.keepsResult(out) {
		return nil
	}
	return fmt.Errorf("%w %s: %s does not fit into the column %s of the table %s, of type %s: widen it by %s;"+
		" docs/from-auto-increment.md has the statements for columns with foreign key constraints",
		model.ErrField, l.Field, text, l.Name, stmt.Table, l.Type, l.Fix)
}

// choice matches the words of expressions that select a value.
var choice = regexp.MustCompile(`(?i)^(case|when|then|else|end|if|ifnull|nullif|coalesce|null|is|not|and|or|values|excluded)$`)

// keepsResult reports whether an expression only chooses among the column's values and constants that fit.
func (l Limit) keepsResult(out *gorm.Statement) bool {
	query := out.SQL.String()
	if strings.ContainsAny(query, "+-*/%&|^~@") || strings.Contains(query, "<<") ||
		slices.ContainsFunc(out.Vars, func(v any) bool { return !l.Keeps(model.Digits(v)) }) {
		return false
	}
	words := strings.FieldsFunc(query, func(r rune) bool { return r != '_' && !unicode.IsLetter(r) && !unicode.IsDigit(r) })
	return !slices.ContainsFunc(words, func(word string) bool {
		known := strings.EqualFold(word, l.Name) || strings.EqualFold(word, out.Table) || choice.MatchString(word)
		return !known && (!model.IsDecimal(word) || !l.Keeps(word))
	})
}
