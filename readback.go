package uidplugin

import (
	"database/sql"
	"errors"
	"slices"

	"gorm.io/gorm"
	"gorm.io/gorm/clause"
	"gorm.io/gorm/schema"
)

// ask reads which of the rows are there, by their primary keys, and what the
// fields are in them; rows that are not there are forgotten.
func (g *generated) ask(db *gorm.DB, rows []row) error {
	identity := g.identity(db.Statement.Schema)
	for chunk := range slices.Chunk(rows, findChunk) {
		there, err := g.query(db, identity, chunk)
		if err != nil {
			return err
		}
		for _, r := range chunk {
			values, ok := there[r.text(db.Statement.Context, identity)]
			if !ok {
				if err := g.forget(db.Statement.Context, r); err != nil {
					return err
				}
				continue
			}
			for i, f := range g.fields {
				if values[i] != r.id(db.Statement.Context, f) && g.has(f, r.id(db.Statement.Context, f)) {
					if err := r.set(db.Statement.Context, f, values[i]); err != nil {
						return err
					}
				}
			}
		}
	}
	return nil
}

// identity returns the fields that tell rows apart: a primary key that is an id
// of ours does so alone, whatever else is in a composite key.
func (g *generated) identity(s *schema.Schema) []*schema.Field {
	for _, f := range g.fields {
		if f.PrimaryKey {
			return []*schema.Field{f.Field}
		}
	}
	return s.PrimaryFields
}

// query returns the fields of those rows that are there, by their identity.
func (g *generated) query(db *gorm.DB, identity []*schema.Field, rows []row) (there map[string][]int64, err error) {
	stmt := db.Statement
	if len(stmt.Schema.PrimaryFields) == 0 {
		return nil, nil // nobody can know
	}
	var where clause.Where
	for _, key := range stmt.Schema.PrimaryFields { // all of them, for the index
		in := clause.IN{Column: clause.Column{Name: key.DBName}}
		for _, r := range rows {
			v, _ := r.value(stmt.Context, key)
			in.Values = append(in.Values, v)
		}
		where.Exprs = append(where.Exprs, in)
	}
	var columns []clause.Column
	for _, f := range identity {
		columns = append(columns, clause.Column{Name: f.DBName})
	}
	for _, f := range g.fields {
		columns = append(columns, clause.Column{Name: f.DBName})
	}
	ask := &gorm.Statement{DB: db, Table: stmt.Table, TableExpr: stmt.TableExpr, Schema: stmt.Schema, Clauses: map[string]clause.Clause{}}
	ask.AddClause(clause.Select{Columns: columns})
	ask.AddClause(clause.From{})
	ask.AddClause(where)
	ask.Build("SELECT", "FROM", "WHERE")
	found, err := stmt.ConnPool.QueryContext(stmt.Context, ask.SQL.String(), ask.Vars...)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, found.Close()) }()
	there = map[string][]int64{}
	text, scan := make([]sql.NullString, len(columns)), make([]any, len(columns))
	for i := range text {
		scan[i] = &text[i]
	}
	for found.Next() {
		if err := found.Scan(scan...); err != nil {
			return nil, err
		}
		key, values := "", make([]int64, len(g.fields))
		for i, t := range text {
			if i < len(identity) {
				key += t.String + "\x00"
			} else {
				values[i-len(identity)] = parseDigits(t.String)
			}
		}
		there[key] = values
	}
	return there, found.Err()
}
