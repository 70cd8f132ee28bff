package model

import (
	"database/sql"
	"fmt"
	"reflect"
	"regexp"
	"strconv"
	"strings"

	"gorm.io/gorm"
	"gorm.io/gorm/clause"
	"gorm.io/gorm/schema"
)

// A NoTextCondition is a clause that adds no SQL: it fails a query, an update or a delete with a condition that compares
// a column of numbers with a text that is not a number. MySQL takes such a text for 0, so id > 'text' holds for all rows.
// The type of the column adds it to its models, so no other model pays for it.
type NoTextCondition struct {
	Column *schema.Field
	Err    error  // what to wrap
	Remedy string // for the error
}

var _ gorm.StatementModifier = NoTextCondition{}

// Name, Build and MergeClause implement [clause.Interface]; GORM calls ModifyStatement instead.
func (NoTextCondition) Name() string { return "" }

// Build does nothing.
func (NoTextCondition) Build(clause.Builder) {}

// MergeClause does nothing.
func (NoTextCondition) MergeClause(*clause.Clause) {}

// ModifyStatement adds an error to a statement with such a condition.
func (c NoTextCondition) ModifyStatement(stmt *gorm.Statement) {
	if where, ok := stmt.Clauses["WHERE"].Expression.(clause.Where); ok {
		c.look(stmt, where.Exprs)
	}
}

// look looks for the column in conditions. Those of subqueries are about other columns.
func (c NoTextCondition) look(stmt *gorm.Statement, conditions []clause.Expression) {
	for _, e := range conditions {
		switch e := e.(type) {
		case clause.AndConditions:
			c.look(stmt, e.Exprs)
		case clause.OrConditions:
			c.look(stmt, e.Exprs)
		case clause.NotConditions:
			c.look(stmt, e.Exprs)
		case clause.Eq:
			c.compare(stmt, e.Column, e.Value)
		case clause.Neq:
			c.compare(stmt, e.Column, e.Value)
		case clause.Gt:
			c.compare(stmt, e.Column, e.Value)
		case clause.Gte:
			c.compare(stmt, e.Column, e.Value)
		case clause.Lt:
			c.compare(stmt, e.Column, e.Value)
		case clause.Lte:
			c.compare(stmt, e.Column, e.Value)
		case clause.IN:
			c.compare(stmt, e.Column, e.Values)
		case clause.Expr:
			c.lookInSQL(stmt, e.SQL, e.Vars)
		case clause.NamedExpr:
			c.lookInSQL(stmt, e.SQL, e.Vars)
		}
	}
}

// compared matches SQL that ends with a column and an operator: its table, if it is written, and its name.
var compared = regexp.MustCompile("(?i)(?:([\\w$]+)[`\"\\]]?\\.)?[`\"\\[]?([\\w$]+)[`\"\\]]?\\s*(?:[=<>!]+|\\b(?:not\\s+)?(?:in|between))[\\s(?,]*$")

// placeholder matches where SQL has a value.
var placeholder = regexp.MustCompile(`\?|@\w+`)

func (c NoTextCondition) lookInSQL(stmt *gorm.Statement, query string, values []any) {
	if len(values) == 0 {
		return
	}
	next := 0
	for _, at := range placeholder.FindAllStringIndex(query, -1) {
		var value any
		if name := query[at[0]+1 : at[1]]; name != "" {
			value = namedValue(name, values)
		} else if next < len(values) {
			value = values[next]
			next++
		}
		if value == nil || notNumber(reflect.ValueOf(value)) == "" {
			continue
		}
		if m := compared.FindStringSubmatch(query[:at[0]]); m != nil {
			c.compare(stmt, clause.Column{Table: m[1], Name: m[2]}, value)
		}
	}
}

// namedValue returns the value of @name; nil if there is none.
func namedValue(name string, values []any) any {
	for _, v := range values {
		switch v := v.(type) {
		case sql.NamedArg:
			if v.Name == name {
				return v.Value
			}
		case map[string]any:
			if value, ok := v[name]; ok {
				return value
			}
		}
	}
	return nil
}

// compare adds an error to a statement that compares the column with a text that is not a number.
func (c NoTextCondition) compare(stmt *gorm.Statement, column, value any) {
	of, ok := column.(clause.Column)
	if name, is := column.(string); is {
		of.Table, of.Name = "", name[strings.LastIndexByte(name, '.')+1:]
		of.Table, ok = strings.TrimSuffix(name[:len(name)-len(of.Name)], "."), true
	}
	if !ok || of.Name != c.Column.DBName && (of.Name != clause.PrimaryKey || c.Column != c.Column.Schema.PrioritizedPrimaryField) {
		return
	}
	if of.Table != "" && of.Table != clause.CurrentTable && of.Table != stmt.Table {
		return // a column of a joined table
	}
	if text := notNumber(reflect.ValueOf(value)); text != "" {
		_ = stmt.AddError(fmt.Errorf("%w: a condition compares %s.%s, a number, with the text %.40q; %s",
			c.Err, c.Column.Schema.Table, c.Column.DBName, text, c.Remedy))
	}
}

// notNumber returns the first text that a value is or has and that is not a decimal number; for an empty one, quotes.
func notNumber(v reflect.Value) string {
	for v.Kind() == reflect.Pointer || v.Kind() == reflect.Interface {
		v = v.Elem()
	}
	switch v.Kind() {
	case reflect.String:
		if _, err := strconv.ParseInt(v.String(), 10, 64); err == nil {
			return ""
		} else if v.Len() == 0 {
			return `""`
		}
		return v.String()
	case reflect.Slice, reflect.Array:
		if v.Type().Elem().Kind() == reflect.Uint8 {
			return ""
		}
		for i := range v.Len() {
			if text := notNumber(v.Index(i)); text != "" {
				return text
			}
		}
	}
	return ""
}
