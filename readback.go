package uidplugin

import (
	"context"
	"database/sql"
	"errors"
	"slices"
	"strings"

	"gorm.io/gorm"
	"gorm.io/gorm/clause"
)

// ask reads which of the ids are in the table, and forgets those that are not. A
// key that is ours tells for its whole row, and what else is in it; fields beside
// another key are asked for one by one, for GORM may have given such keys to the
// wrong rows.
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
// sets fields of the structs to what the rows have; those of structs without a row
// are forgotten.
func (g *generated) askBy(db *gorm.DB, by *field, fields []*field, rows []row) error {
	ctx := db.Statement.Context
	for chunk := range slices.Chunk(rows, findChunk) {
		there, err := readBack(db, by, fields, chunk)
		if err != nil {
			return err
		}
		for _, r := range chunk {
			v, _ := r.value(ctx, by.Field)
			values, ok := there[digits(v)]
			if !ok {
				if err := g.forget(ctx, r, fields); err != nil {
					return err
				}
				continue
			}
			for i, f := range fields {
				if id := r.id(ctx, f); f != by && id != values[i] && g.has(f, id) {
					if err := r.set(ctx, f, values[i]); err != nil {
						return err
					}
				}
			}
		}
	}
	return nil
}

// forget zeroes those of fields that were set in a row.
func (g *generated) forget(ctx context.Context, r row, fields []*field) error {
	for _, f := range fields {
		if g.has(f, r.id(ctx, f)) {
			if err := r.set(ctx, f, 0); err != nil {
				return err
			}
		}
	}
	return nil
}

// readBack returns fields of the rows whose ids in the field by are those of rows,
// by this id as text.
func readBack(db *gorm.DB, by *field, fields []*field, rows []row) (there map[string][]int64, err error) {
	stmt := db.Statement
	in := clause.IN{Column: clause.Column{Name: by.DBName}}
	for _, r := range rows {
		if v, zero := r.value(stmt.Context, by.Field); !zero {
			in.Values = append(in.Values, v)
		}
	}
	columns := []clause.Column{{Name: by.DBName}}
	for _, f := range fields {
		columns = append(columns, clause.Column{Name: f.DBName})
	}
	query := &gorm.Statement{DB: db, Table: stmt.Table, TableExpr: stmt.TableExpr, Schema: by.Schema, Clauses: map[string]clause.Clause{}}
	query.AddClause(clause.Select{Columns: columns})
	query.AddClause(clause.From{})
	query.AddClause(clause.Where{Exprs: []clause.Expression{in}})
	query.Build("SELECT", "FROM", "WHERE")
	found, err := stmt.ConnPool.QueryContext(stmt.Context, query.SQL.String(), query.Vars...)
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
		values := make([]int64, len(fields))
		for i := range fields {
			values[i] = parseDigits(text[i+1].String)
		}
		there[strings.TrimSpace(text[0].String)] = values // a CHAR column pads
	}
	return there, found.Err()
}
