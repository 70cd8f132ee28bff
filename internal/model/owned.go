package model

import (
	"reflect"
	"slices"

	"gorm.io/gorm"
	"gorm.io/gorm/clause"
)

// GORM copies a statement's clauses, settings and columns when a hook or a callback makes a session of its handle.
// So everything that the plugin keeps in a statement has an owner, and only the owner uses it.

// An owner is the statement that a note belongs to. It is an expression, because it is kept in a clause.
type owner gorm.Statement

// Build implements [clause.Expression].
func (*owner) Build(clause.Builder) {}

// Keep keeps a note in a statement, in a clause that GORM does not build. A clause needs no allocation.
func Keep(stmt *gorm.Statement, name string, note clause.Expression) {
	stmt.Clauses[name] = clause.Clause{BeforeExpression: (*owner)(stmt), Expression: note}
}

// Kept returns the note that was kept in a statement, or nil. foreign reports that the note belongs to another
// statement, of which stmt is a copy.
func Kept(stmt *gorm.Statement, name string) (note clause.Expression, foreign bool) {
	c, ok := stmt.Clauses[name]
	if !ok {
		return nil, false
	}
	if o, _ := c.BeforeExpression.(*owner); o != (*owner)(stmt) {
		return nil, true
	}
	return c.Expression, false
}

const changesName = "uidplugin:changes"

// changes has what the plugin may change in a statement for its INSERT or UPDATE, before and after the change.
type changes struct{ before, after *gorm.Statement }

// Build implements [clause.Expression].
func (*changes) Build(clause.Builder) {}

func snapshot(stmt *gorm.Statement) *gorm.Statement {
	s := &gorm.Statement{Omits: stmt.Omits, Schema: stmt.Schema, Result: stmt.Result, Clauses: map[string]clause.Clause{}}
	for _, name := range changedClauses {
		if c, ok := stmt.Clauses[name]; ok {
			s.Clauses[name] = c
		}
	}
	return s
}

var changedClauses = [...]string{OnConflict, "RETURNING"}

// Change calls the function change, which may change Omits, Schema, Result and the clauses in changedClauses of a
// statement. [Undo] takes the changes back.
func Change(stmt *gorm.Statement, change func()) {
	var c *changes
	if note, _ := Kept(stmt, changesName); note != nil {
		c = note.(*changes)
	} else {
		c = &changes{before: snapshot(stmt)}
		Keep(stmt, changesName, c)
	}
	change()
	c.after = snapshot(stmt)
}

// IsChangedCopy reports whether a statement is a copy that was made between Change and Undo of the original.
func IsChangedCopy(stmt *gorm.Statement) bool {
	_, foreign := Kept(stmt, changesName)
	return foreign
}

// Undo takes back all changes of a statement. Call it right after the INSERT or UPDATE.
func Undo(stmt *gorm.Statement) {
	note, foreign := Kept(stmt, changesName)
	switch {
	case foreign:
		stmt.Clauses[changesName].Expression.(*changes).undoCopied(stmt)
	case note != nil:
		before := note.(*changes).before
		stmt.Omits, stmt.Schema, stmt.Result = before.Omits, before.Schema, before.Result
		for _, name := range changedClauses {
			setClause(stmt, name, before)
		}
	default:
		return
	}
	delete(stmt.Clauses, changesName)
}

// undoCopied takes the changes out of a copy that was made between Change and Undo of the original. It keeps what
// was added to the copy.
func (c *changes) undoCopied(copied *gorm.Statement) {
	if c.after == nil { // the function change has panicked
		return
	}
	if copied.Result == c.after.Result {
		copied.Result = c.before.Result
	}
	copied.Omits = withoutChange(copied.Omits, c.before.Omits, c.after.Omits)
	for _, name := range changedClauses {
		now, after := copied.Clauses[name], c.after.Clauses[name]
		if reflect.DeepEqual(after, c.before.Clauses[name]) {
			continue
		}
		if reflect.DeepEqual(now, after) {
			setClause(copied, name, c.before)
			continue
		}
		// GORM appends the columns of a RETURNING to the existing columns.
		mine, _ := after.Expression.(clause.Returning)
		if r, ok := now.Expression.(clause.Returning); ok && len(r.Columns) > 0 {
			columns := r.Columns
			if n := len(mine.Columns); len(columns) > n && slices.Equal(columns[:n], mine.Columns) {
				columns = columns[n:]
			}
			setClause(copied, name, c.before)
			copied.AddClause(clause.Returning{Columns: slices.Clip(columns)})
		}
	}
}

func setClause(stmt *gorm.Statement, name string, source *gorm.Statement) {
	if c, ok := source.Clauses[name]; ok {
		stmt.Clauses[name] = c
	} else {
		delete(stmt.Clauses, name)
	}
}

// withoutChange returns the Omits of a copied statement without the columns that were added to the original.
func withoutChange(copied, before, after []string) []string {
	if len(after) == len(before) || len(copied) < len(after) || !slices.Equal(copied[:len(after)], after) {
		return copied
	}
	return append(slices.Clip(before), copied[len(after):]...)
}
