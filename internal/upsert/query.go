package upsert

import (
	"database/sql"
	"database/sql/driver"
	"errors"
	"reflect"
	"strconv"
	"strings"

	"github.com/uidplugin/uidplugin/internal/model"
	"gorm.io/gorm"
	"gorm.io/gorm/clause"
)

// selectChunk limits the rows of one SELECT with UNIONs. SQLite accepts up to 500.
const selectChunk = 100

// readRows runs the lookups that have no values in found yet. In found, at the index of a lookup, it stores the fields
// of the row that the lookup found, or nil if there are several rows. The database compares the values, with its own
// types and collations.
func (t *Tracker) readRows(
	db *gorm.DB, lookups []lookup, compare comparisons, fields []*model.Field, found map[int][]int64,
) error {
	stmt := db.Statement
	query := newQuery(stmt)
	for n, l := range lookups {
		if found[n] != nil {
			continue
		}
		delete(found, n)
		var where []clause.Expression
		if target := t.conflict.TargetWhere; len(target.Exprs) > 0 && stmt.Dialector.Name() != "mysql" {
			where = append(where, model.AllOf{target})
		}
		for _, f := range l.fields {
			v, _ := l.sent(f)
			where = append(where, compare.at(l.key, f).condition(stmt, f, v))
		}
		if query.SQL.Len() > 0 {
			_, _ = query.WriteString(" UNION ALL ")
		}
		if stmt.Dialector.Name() != "mysql" {
			query.selectFields(clause.Expr{SQL: strconv.Itoa(n)}, fields, where...)
			continue
		}
		// At REPEATABLE READ a plain SELECT would miss rows that were committed after the transaction's first
		// read. FOR UPDATE sees and locks them, as the INSERT did.
		_ = query.WriteByte('(')
		query.selectFields(clause.Expr{SQL: strconv.Itoa(n)}, fields, where...)
		_, _ = query.WriteString(" FOR UPDATE)")
	}
	if query.SQL.Len() == 0 {
		return nil
	}
	return query.run(len(fields), func(index string, values []int64) {
		n, _ := strconv.Atoi(index)
		if _, ok := found[n]; ok {
			values = nil // the conflicting row is ambiguous
		}
		found[n] = values
	})
}

// selectByID looks up the ids of rows in the column of idField. It returns the values of fields by the id as decimal text.
func selectByID(db *gorm.DB, idField *model.Field, fields []*model.Field, rows []sentRow) (map[string][]int64, error) {
	in := clause.IN{Column: clause.Column{Name: idField.DBName}}
	for _, r := range rows {
		if v, zero := r.Value(db.Statement.Context, idField.Field); !zero {
			in.Values = append(in.Values, v)
		}
	}
	query := newQuery(db.Statement)
	query.selectFields(clause.Column{Name: idField.DBName}, fields, in)
	found := map[string][]int64{}
	err := query.run(len(fields), func(id string, values []int64) {
		found[model.Trimmed(id)] = values
	})
	return found, err
}

// A query reads uid fields from another statement's table, on its connection. It bypasses GORM's callbacks.
type query struct{ *gorm.Statement }

func newQuery(stmt *gorm.Statement) query {
	return query{&gorm.Statement{DB: stmt.DB, Table: stmt.Table, TableExpr: stmt.TableExpr, Schema: stmt.Schema, ConnPool: stmt.ConnPool, Context: stmt.Context}}
}

// selectFields writes a SELECT of the expression in first and the columns of fields, with the conditions in where.
func (q query) selectFields(first any, fields []*model.Field, where ...clause.Expression) {
	columns := clause.Expr{SQL: "?" + strings.Repeat(",?", len(fields)), Vars: []any{first}}
	for _, f := range fields {
		columns.Vars = append(columns.Vars, clause.Column{Name: f.DBName})
	}
	q.Clauses = map[string]clause.Clause{}
	q.AddClause(clause.Select{Expression: columns})
	q.AddClause(clause.From{})
	q.AddClause(clause.Where{Exprs: where})
	q.Build("SELECT", "FROM", "WHERE")
}

func isNull(v any) bool {
	if rv := reflect.ValueOf(v); !rv.IsValid() || rv.Kind() == reflect.Pointer && rv.IsNil() {
		return true
	}
	if valuer, ok := v.(driver.Valuer); ok {
		sent, _ := valuer.Value()
		return sent == nil
	}
	return false
}

// run sends the query, and calls found with each row: the first column as text, and the other n columns as ids.
func (q query) run(n int, found func(first string, values []int64)) (err error) {
	rows, err := q.ConnPool.QueryContext(q.Context, q.SQL.String(), q.Vars...)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, rows.Close()) }()
	text, scan := make([]sql.NullString, 1+n), make([]any, 1+n)
	for i := range text {
		scan[i] = &text[i]
	}
	for rows.Next() {
		if err := rows.Scan(scan...); err != nil {
			return err
		}
		values := make([]int64, n)
		for i := range values {
			values[i] = model.ParseDigits(text[i+1].String)
		}
		found(text[0].String, values)
	}
	return rows.Err()
}
