package publicid

import (
	"fmt"
	"regexp"
	"slices"
	"strings"

	"github.com/uidplugin/uidplugin/internal/model"
	"gorm.io/gorm"
	"gorm.io/gorm/clause"
	"gorm.io/gorm/schema"
)

// A textCondition is a clause without SQL. It makes a query, an update or a delete fail if a condition may compare
// a numeric column with a text. MySQL reads the text as 0, so id > 'text' would be true for every row. The column's
// type adds the clause, so other models pay nothing.
type textCondition struct {
	column        *schema.Field
	remedy        string         // advice for the error
	word          *regexp.Regexp // matches the name of the column
	before, after *regexp.Regexp // match column and operator in the SQL before a value, and in the SQL after it
}

func newTextCondition(f *schema.Field, remedy string) textCondition {
	const letter, operator = `\pL\pN_$`, `\s*[=<>!]+\s*`
	column := `(?:([` + letter + `]+)\.)?` + regexp.QuoteMeta(f.DBName) // the first group is the table
	return textCondition{
		f, remedy,
		regexp.MustCompile(`(?i)(?:^|[^` + letter + `])` + column + `(?:$|[^` + letter + `])`),
		regexp.MustCompile(`(?i)(?:^|[^` + letter + `])(?:` + column + `|\(\s*` + column + `\s*\))` +
			`(?:` + operator + `|\s*\b(?:not\s+)?(?:in|between(?:\s+\S+\s+and)?)\b)[\s(,` + value + `]*$`),
		regexp.MustCompile(`(?i)^` + operator + `\(?` + column + `(?:$|[^` + letter + `])`),
	}
}

var _ gorm.StatementModifier = textCondition{}

// Name, Build and MergeClause implement [clause.Interface]; GORM calls ModifyStatement instead.
func (textCondition) Name() string { return "" }

// Build does nothing.
func (textCondition) Build(clause.Builder) {}

// MergeClause does nothing.
func (textCondition) MergeClause(*clause.Clause) {}

// ModifyStatement adds an error to a statement that compares ids with a text. Each column has a clause. Only the
// first clause checks, for all columns of the model and of joined associations, so that each condition is built once.
func (c textCondition) ModifyStatement(stmt *gorm.Statement) {
	all := slices.Clip(c.column.Schema.QueryClauses)
	for _, j := range stmt.Joins {
		owner := c.column.Schema
		for name := range strings.SplitSeq(j.Name, ".") {
			r := owner.Relationships.Relations[name]
			if r == nil {
				break
			}
			owner = r.FieldSchema
			all = append(all, owner.QueryClauses...)
		}
	}
	var columns textConditions
	for _, other := range all {
		if other, ok := other.(textCondition); ok {
			columns = append(columns, other)
		}
	}
	if len(columns) > 0 && columns[0].column != c.column {
		return
	}
	where, _ := stmt.Clauses["WHERE"].Expression.(clause.Where)
	group, _ := stmt.Clauses["GROUP BY"].Expression.(clause.GroupBy)
	columns.look(stmt, stmt.Table, where.Exprs)
	columns.look(stmt, stmt.Table, group.Having)
	for _, j := range stmt.Joins {
		if j.On != nil {
			columns.look(stmt, j.Name, j.On.Exprs)
		} else {
			columns.look(stmt, stmt.Table, []clause.Expression{clause.NamedExpr{SQL: j.Name, Vars: j.Conds}})
		}
	}
}

type textConditions []textCondition

func (cs textConditions) look(stmt *gorm.Statement, table string, conditions []clause.Expression) {
	for _, e := range conditions {
		switch e := e.(type) {
		case clause.AndConditions:
			cs.look(stmt, table, e.Exprs)
		case clause.OrConditions:
			cs.look(stmt, table, e.Exprs)
		case clause.NotConditions:
			cs.look(stmt, table, e.Exprs)
		default:
			cs.check(stmt, table, e)
		}
	}
}

// check adds an error to the statement if a condition compares a column with a text that is not a number. It also
// refuses conditions that name a column and have a public id among their values. The second rule works for any SQL,
// because nothing is parsed.
func (cs textConditions) check(stmt *gorm.Statement, table string, condition clause.Expression) {
	db := stmt.DB.Session(&gorm.Session{NewDB: true})
	plain := &plainDialector{Dialector: db.Dialector}
	db.Dialector = plain
	out := &gorm.Statement{DB: db, Table: table, Schema: stmt.Schema, Context: stmt.Context, Clauses: map[string]clause.Clause{}}
	condition.Build(out)
	query := unquoted.Replace(out.SQL.String())
	for _, v := range out.Vars { // includes the values of subqueries
		if text, ok := model.TextOf(v); ok {
			for _, c := range cs {
				if c.word.MatchString(query) && isPublicID(text) {
					c.refuse(stmt, text)
				}
			}
		}
	}
	at := -1
	for _, v := range plain.values {
		next := strings.Index(query[at+1:], value)
		if next < 0 {
			return
		}
		at += 1 + next
		if text, ok := model.TextOf(v); ok && !model.IsDecimal(text) {
			for _, c := range cs {
				m := c.before.FindStringSubmatch(query[:at])
				if m == nil {
					m = c.after.FindStringSubmatch(query[at+1:])
				}
				own := c.column.Schema == cs[0].column.Schema
				if qualifier := strings.Join(m[min(1, len(m)):], ""); m != nil && own && (qualifier == "" || strings.EqualFold(qualifier, stmt.Table)) {
					c.refuse(stmt, text)
				}
			}
		}
	}
}

func (c textCondition) refuse(stmt *gorm.Statement, text string) {
	if stmt.Error == nil {
		_ = stmt.AddError(fmt.Errorf("%w: a condition compares %s.%s, a number, with the text %.40q; %s; if the text is for another column, give that column its own Where",
			ErrInvalid, c.column.Schema.Table, c.column.DBName, text, c.remedy))
	}
}

// value is the placeholder that a plainDialector writes.
const value = "\x00"

var unquoted = strings.NewReplacer("`", "", `"`, "", "[", "", "]", "")

// A plainDialector renders SQL for inspection and records the values.
type plainDialector struct {
	gorm.Dialector
	values []any
}

func (d *plainDialector) BindVarTo(w clause.Writer, _ *gorm.Statement, v any) {
	_, _ = w.WriteString(value)
	d.values = append(d.values, v)
}

func (d *plainDialector) QuoteTo(w clause.Writer, name string) { _, _ = w.WriteString(name) }
