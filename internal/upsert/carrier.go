package upsert

import (
	"slices"
	"strings"

	"gorm.io/gorm"
	"gorm.io/gorm/clause"
	"gorm.io/gorm/schema"
)

// A carrier is an assignment with LAST_INSERT_ID(expr) in MySQL's ON DUPLICATE KEY UPDATE.
type carrier struct {
	column clause.Column
	value  clause.Column // what the column gets: the same as without the carrier
	at     int           // place of the assignment in DoUpdates
}

// carrier prefers a column that the statement assigns anyway, because Vitess refuses to assign a column that
// chooses the shard. Such columns usually have an index, so columns without an index are best. Of equally good
// columns the method takes the last, because keys usually come first.
//
// If the statement sets this column c to the new row's value, the carrier sets c to it right before that, so no
// other expression sees a difference. It must not use IF(x,c,c), because MariaDB then writes no c of type TEXT.
func (t *Tracker) carrier(stmt *gorm.Statement, conflict clause.OnConflict) carrier {
	last := len(conflict.DoUpdates)
	untouched := t.untouched(stmt, conflict)
	best, least := carrier{untouched, untouched, last}, 8
	consider := func(column, value clause.Column, place, objections int) {
		if n := objections + 2*t.objections(stmt, conflict, column); n <= least && !column.Raw {
			best, least = carrier{column, value, place}, n
		}
	}
	keyLater := t.assigns(stmt.Schema, conflict, true) // then LAST_INSERT_ID must read the key after its assignment
	for i, a := range conflict.DoUpdates {
		if sent, ok := a.Value.(clause.Column); ok && sent.Table == "excluded" && sent.Name == a.Column.Name && !keyLater {
			consider(a.Column, sent, i, 0)
		} else {
			consider(a.Column, a.Column, last, 1)
		}
	}
	if conflict.UpdateAll && !keyLater {
		for _, f := range t.updatedByAll(stmt) {
			consider(clause.Column{Name: f.DBName}, clause.Column{Table: "excluded", Name: f.DBName}, last, 0)
		}
	}
	if best.value.Table == "excluded" && isReference(best.column.Name) && !conflict.UpdateAll { // no better one
		for _, f := range stmt.Schema.Fields {
			spare := clause.Column{Name: f.DBName}
			if f.DBName != "" && f.Updatable && t.objections(stmt, conflict, spare) == 0 {
				best = carrier{spare, spare, last}
			}
		}
	}
	return best
}

// assignment returns the carrier's assignment of LAST_INSERT_ID(expr).
func (c carrier) assignment(expr clause.Expr) clause.Assignment {
	value := clause.Expr{SQL: "?", Vars: []any{c.value}}
	if c.value.Table == "excluded" {
		value = clause.Expr{SQL: "VALUES(?)", Vars: []any{clause.Column{Name: c.value.Name}}}
	}
	return clause.Assignment{Column: c.column, Value: clause.Expr{
		SQL: "IF(LAST_INSERT_ID(" + expr.SQL + ")=0,?,?)", Vars: append(expr.Vars, value, value),
	}}
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
	case isReference(f.DBName), slices.ContainsFunc(conflict.Columns, func(c clause.Column) bool { return c.Name == f.DBName }),
		slices.ContainsFunc(t.uniques, func(unique []*schema.Field) bool { return slices.Contains(unique, f) }):
		return 1
	}
	return 0
}

// isReference reports whether a column seems to be a foreign key, which GORM updates when it saves a row's
// children. Vitess often shards children by such a column c, and then lets a statement set c only to VALUES(c).
func isReference(column string) bool { return strings.HasSuffix(strings.ToLower(column), "_id") }

// isPlain reports whether IF(x,c,c) surely has the value of the column c. With other types IF may change the value:
// an ENUM becomes text, and a TIMESTAMP is ambiguous in the hour that occurs twice when clocks are set back.
func isPlain(f *schema.Field) bool {
	switch f.DataType {
	case schema.Bool, schema.Int, schema.Uint, schema.Float, schema.String, schema.Bytes:
		return true
	}
	return false
}

// untouched returns a column to assign to itself, because MySQL needs an assignment even if nothing should be
// updated. It is the column that GORM would take, or with UpdateAll a uid field, not the key, that GORM would set.
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

// assigns reports whether the application's update part assigns a tracked field, or with onlyKeys a tracked key.
func (t *Tracker) assigns(s *schema.Schema, conflict clause.OnConflict, onlyKeys bool) bool {
	return slices.ContainsFunc(conflict.DoUpdates, func(a clause.Assignment) bool {
		f := s.FieldsByDBName[a.Column.Name]
		return f != nil && (f.PrimaryKey || !onlyKeys) && t.tracks(f)
	})
}
