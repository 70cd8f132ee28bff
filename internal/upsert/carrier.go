package upsert

import (
	"slices"

	"gorm.io/gorm"
	"gorm.io/gorm/clause"
	"gorm.io/gorm/schema"
)

// carrier returns the column whose assignment carries LAST_INSERT_ID(expr): one that the statement assigns anyway,
// because others may be refused. Vitess for instance refuses to assign the columns that choose the shard. So the best
// is a column that is in no index, and of those the last, because keys come first. A key is only taken if GORM alone
// assigns it, too.
func (t *Tracker) carrier(stmt *gorm.Statement, conflict clause.OnConflict) clause.Column {
	var assigned []clause.Column
	for _, a := range conflict.DoUpdates {
		assigned = append(assigned, a.Column)
	}
	if conflict.UpdateAll {
		for _, f := range t.updatedByAll(stmt) {
			assigned = append(assigned, clause.Column{Name: f.DBName})
		}
	}
	best, least := t.untouched(stmt, conflict), 4
	for _, column := range assigned {
		if n := t.objections(stmt, conflict, column); n <= least && !column.Raw {
			best, least = column, n
		}
	}
	return best
}

// objections tells how bad a column is as a carrier; 0 is best.
func (t *Tracker) objections(stmt *gorm.Statement, conflict clause.OnConflict, column clause.Column) int {
	f := stmt.Schema.FieldsByDBName[column.Name]
	switch {
	case f == nil:
		return 2
	case f.PrimaryKey:
		return 3
	case t.tracks(f) || !isPlain(f):
		return 2
	case slices.ContainsFunc(conflict.Columns, func(c clause.Column) bool { return c.Name == f.DBName }),
		slices.ContainsFunc(t.uniques, func(unique []*schema.Field) bool { return slices.Contains(unique, f) }):
		return 1
	}
	return 0
}

// isPlain reports whether IF(x,c,c) surely has the value of the column c. Others may change: the text of an ENUM, or
// the hour that a TIMESTAMP has twice.
func isPlain(f *schema.Field) bool {
	switch f.DataType {
	case schema.Bool, schema.Int, schema.Uint, schema.Float, schema.String, schema.Bytes:
		return true
	}
	return false
}

// untouched returns the column that is assigned to itself where MySQL needs an assignment and nothing is updated: the
// one that GORM takes, or an id that an UpdateAll of GORM would overwrite.
func (t *Tracker) untouched(stmt *gorm.Statement, conflict clause.OnConflict) clause.Column {
	s := stmt.Schema
	if conflict.UpdateAll {
		columns, restricted := stmt.SelectAndOmitColumns(true, true)
		for _, f := range t.fields {
			if selected, named := columns[f.DBName]; !f.PrimaryKey && (selected || !named && !restricted) {
				return clause.Column{Name: f.DBName}
			}
		}
	}
	if s.PrioritizedPrimaryField != nil {
		return clause.Column{Name: s.PrioritizedPrimaryField.DBName}
	}
	return clause.Column{Name: s.DBNames[0]}
}

// assignsKey reports whether the application assigns a key that was made for the statement.
func (t *Tracker) assignsKey(s *schema.Schema, conflict clause.OnConflict) bool {
	return slices.ContainsFunc(conflict.DoUpdates, func(a clause.Assignment) bool {
		f := s.FieldsByDBName[a.Column.Name]
		return f != nil && f.PrimaryKey && t.tracks(f)
	})
}
