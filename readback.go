package uidplugin

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"reflect"
	"slices"
	"strconv"
	"strings"

	"gorm.io/gorm"
	"gorm.io/gorm/clause"
	"gorm.io/gorm/schema"
)

// ask reads which of the ids are in the table. A key that is ours tells for its
// whole row, and what else is in it; fields next to another key are asked for one by
// one, for GORM may have given such keys to the wrong rows.
func (g *generated) ask(db *gorm.DB, rows []row) error {
	if key := g.key(db.Statement.Schema); key != nil {
		return g.askBy(db, key, g.fields, rows)
	}
	for _, f := range g.fields {
		if err := g.askBy(db, f, []*field{f}, rows); err != nil {
			return err
		}
	}
	return nil
}

// askBy reads the rows that have in the field by what the structs have there, and
// sets fields of the structs to what the rows have; those of structs without such a
// row have met another row.
func (g *generated) askBy(db *gorm.DB, by *field, fields []*field, rows []row) error {
	ctx := db.Statement.Context
	var met []row
	for chunk := range slices.Chunk(rows, findChunk) {
		there, err := readBack(db, by, fields, chunk)
		if err != nil {
			return err
		}
		for _, r := range chunk {
			v, _ := r.value(ctx, by.Field)
			values, ok := there[digits(v)]
			if !ok {
				met = append(met, r)
			} else if err := g.correct(ctx, r, fields, values); err != nil {
				return err
			}
		}
	}
	return g.askByConflict(db, met, fields)
}

// askByConflict reads the rows that the structs have met, by what the statement
// says makes rows the same. Where that does not tell, fields are forgotten.
func (g *generated) askByConflict(db *gorm.DB, rows []row, fields []*field) error {
	ctx := db.Statement.Context
	by := g.conflictKey(db.Statement.Schema)
	for chunk := range slices.Chunk(rows, selectChunk) {
		var there map[int][]int64
		if len(by) > 0 {
			var err error
			if there, err = g.readMet(db, by, fields, chunk); err != nil {
				return err
			}
		}
		for i, r := range chunk {
			values := there[i]
			if values == nil {
				values = make([]int64, len(fields))
			}
			if err := g.correct(ctx, r, fields, values); err != nil {
				return err
			}
		}
	}
	return nil
}

// correct sets those of fields that were set in a row to what is in the table; 0
// if that is not known.
func (g *generated) correct(ctx context.Context, r row, fields []*field, values []int64) error {
	for i, f := range fields {
		if id := r.id(ctx, f); id != values[i] && g.has(f, id) {
			if err := r.set(ctx, f, values[i]); err != nil {
				return err
			}
		}
	}
	return nil
}

// conflictKey returns the fields by which a row that was met can be found: those
// that the ON CONFLICT names, else the primary key; nil if that is not known, or
// has ids that were made for the statement.
func (g *generated) conflictKey(s *schema.Schema) (by []*schema.Field) {
	if g.conflict.OnConstraint != "" {
		return nil
	}
	if len(g.conflict.Columns) == 0 {
		by = s.PrimaryFields
	}
	for _, column := range g.conflict.Columns {
		f := s.FieldsByDBName[column.Name]
		if column.Name == clause.PrimaryKey {
			f = s.PrioritizedPrimaryField
		}
		if f == nil || column.Raw {
			return nil
		}
		by = append(by, f)
	}
	if slices.ContainsFunc(by, func(f *schema.Field) bool {
		// What has a default in the database, GORM may have read back from another row.
		return g.tracks(f) || f.HasDefaultValue && f.DefaultValueInterface == nil && (!f.PrimaryKey || g.numbered)
	}) {
		return nil
	}
	return by
}

// ambiguous tells whether a row may have met another by something else than by.
// MySQL does not care for the columns that a conflict names: any unique index will
// do, in which the row is not NULL.
func (g *generated) ambiguous(ctx context.Context, r row, by []*schema.Field) bool {
	return slices.ContainsFunc(g.uniques, func(unique []*schema.Field) bool {
		if len(unique) == len(by) && !slices.ContainsFunc(by, func(f *schema.Field) bool { return !slices.Contains(unique, f) }) {
			return false
		}
		return !slices.ContainsFunc(unique, func(f *schema.Field) bool {
			v, _ := r.value(ctx, f)
			return isNull(v) || g.numbered && f.HasDefaultValue && f.PrimaryKey
		})
	})
}

// selectChunk is how many rows are asked for in one SELECT with a UNION; SQLite
// takes up to 500.
const selectChunk = 100

// readMet returns fields of the rows that have in by what rows have there, by
// their index in rows. A row that is not there, or not the only one, is left out.
// What is equal is for the database to say, which knows the types and collations,
// so each row is a SELECT of its own in one statement.
func (g *generated) readMet(db *gorm.DB, by []*schema.Field, fields []*field, rows []row) (map[int][]int64, error) {
	stmt := db.Statement
	query := newQuery(stmt)
	for i, r := range rows {
		if g.ambiguous(stmt.Context, r, by) {
			continue
		}
		var where []clause.Expression
		if target := g.conflict.TargetWhere.Exprs; len(target) > 0 {
			where = append(where, inParentheses{clause.Where{Exprs: target}})
		}
		for _, f := range by {
			v, _ := r.value(stmt.Context, f)
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

// readBack returns fields of the rows whose ids in the field by are those of rows,
// by this id as text.
func readBack(db *gorm.DB, by *field, fields []*field, rows []row) (map[string][]int64, error) {
	in := clause.IN{Column: clause.Column{Name: by.DBName}}
	for _, r := range rows {
		if v, zero := r.value(db.Statement.Context, by.Field); !zero {
			in.Values = append(in.Values, v)
		}
	}
	query := newQuery(db.Statement)
	query.selectFields(clause.Column{Name: by.DBName}, fields, in)
	there := map[string][]int64{}
	err := query.run(len(fields), func(id string, values []int64) {
		there[trimmed(id)] = values
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
func (q query) selectFields(first any, fields []*field, where ...clause.Expression) {
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

// inParentheses is a condition of several expressions.
type inParentheses struct{ clause.Where }

// Build implements [clause.Expression].
func (p inParentheses) Build(b clause.Builder) {
	_ = b.WriteByte('(')
	p.Where.Build(b)
	_ = b.WriteByte(')')
}

// isNull tells whether a value is NULL in the database.
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
			values[i] = parseDigits(text[i+1].String)
		}
		found(text[0].String, values)
	}
	return rows.Err()
}
