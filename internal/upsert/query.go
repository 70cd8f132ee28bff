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
	"gorm.io/gorm/schema"
)

// selectChunk is how many rows are asked for in one SELECT with a UNION; SQLite
// takes up to 500.
const selectChunk = 100

// readRows returns fields of the rows of the table that equal rows in the columns by. The map has them by their index
// in rows. It leaves out a row that is not in the table, or is there more than once. The database decides what is
// equal, because it knows the types and collations. So each row is a SELECT of its own in one statement.
func (t *Tracker) readRows(db *gorm.DB, by []*schema.Field, fields []*model.Field, rows []model.Row) (map[int][]int64, error) {
	stmt := db.Statement
	query := newQuery(stmt)
	for i, r := range rows {
		if t.ambiguous(stmt.Context, r, by) {
			continue
		}
		var where []clause.Expression
		if target := t.conflict.TargetWhere; len(target.Exprs) > 0 {
			where = append(where, model.AllOf{target})
		}
		for _, f := range by {
			v, _ := r.Value(stmt.Context, f)
			if isNull(v) {
				where = nil // it is equal to nothing
				break
			}
			where = append(where, clause.Eq{Column: clause.Column{Name: f.DBName}, Value: v})
		}
		if where == nil {
			continue
		}
		if query.SQL.Len() > 0 {
			_, _ = query.WriteString(" UNION ALL ")
		}
		if stmt.Dialector.Name() != "mysql" {
			query.selectFields(clause.Expr{SQL: strconv.Itoa(i)}, fields, where...)
			continue
		}
		// At REPEATABLE READ a plain SELECT would not see a row that is younger than the
		// transaction, as the INSERT did, which has locked it.
		_ = query.WriteByte('(')
		query.selectFields(clause.Expr{SQL: strconv.Itoa(i)}, fields, where...)
		_, _ = query.WriteString(" FOR UPDATE)")
	}
	there := map[int][]int64{}
	if query.SQL.Len() == 0 {
		return there, nil
	}
	err := query.run(len(fields), func(index string, values []int64) {
		i, _ := strconv.Atoi(index)
		if _, ok := there[i]; ok {
			values = nil // several rows are there: which one it was is not known
		}
		there[i] = values
	})
	return there, err
}

// selectByID returns fields of the rows whose ids in the field by are those of rows,
// by this id as text.
func selectByID(db *gorm.DB, by *model.Field, fields []*model.Field, rows []model.Row) (map[string][]int64, error) {
	in := clause.IN{Column: clause.Column{Name: by.DBName}}
	for _, r := range rows {
		if v, zero := r.Value(db.Statement.Context, by.Field); !zero {
			in.Values = append(in.Values, v)
		}
	}
	query := newQuery(db.Statement)
	query.selectFields(clause.Column{Name: by.DBName}, fields, in)
	there := map[string][]int64{}
	err := query.run(len(fields), func(id string, values []int64) {
		there[model.Trimmed(id)] = values
	})
	return there, err
}

// A query reads uid fields on the connection, and from the table, of another
// statement, past GORM's callbacks.
type query struct{ *gorm.Statement }

func newQuery(stmt *gorm.Statement) query {
	return query{&gorm.Statement{DB: stmt.DB, Table: stmt.Table, TableExpr: stmt.TableExpr, Schema: stmt.Schema, ConnPool: stmt.ConnPool, Context: stmt.Context}}
}

// selectFields writes a SELECT of first and fields.
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

// isNull reports whether a value is NULL in the database.
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

// run gives each row to found: the first column as text, and the others, n ids.
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
