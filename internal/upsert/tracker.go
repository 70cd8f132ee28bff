// Package upsert reconciles ids with what an INSERT ... ON CONFLICT did.
//
// Such a statement may find that the row exists already, under another key. Then the id that was made for the row is in
// no row of the table, and the struct must not keep it. The struct gets the id of the row that exists, or zero where
// the database does not tell. GORM's own association saves are such statements.
//
// How to learn what happened depends on the dialect, on what GORM itself reads back, and on the number of rows.
// detect.go decides. [Rewrite] changes the statement for it, right before the INSERT, and [Reconcile] corrects the rows
// right after it.
//
// A statement without a conflict costs no further round trip, with these exceptions, in which nothing in the statement
// can tell:
//
//   - an update part with a WHERE over several rows
//   - maps, but not on MySQL
//   - a result that the application asked for by gorm.WithResult
//   - on MySQL, an id next to a key that the database numbers
//   - on MySQL, a last insert id that the application itself uses
//
// After a conflict the row that exists is looked up, if the statement says by what: see [Tracker.conflictKey].
package upsert

import (
	"slices"
	"strings"

	"github.com/uidplugin/uidplugin/internal/model"
	"gorm.io/gorm"
	"gorm.io/gorm/clause"
	"gorm.io/gorm/schema"
)

// A Tracker has the ids that were set in one statement that has an ON CONFLICT, or may get one from a hook.
type Tracker struct {
	fields []*model.Field
	ids    [][]int64 // of each field, in ascending order

	unselected []*model.Field // those of fields that the application has not selected

	decision
	conflict clause.OnConflict // what to do with rows that exist; empty if not known
	uniques  [][]*schema.Field // [model.Model.Uniques], on MySQL; see ambiguous
	numbered bool              // the database numbers the keys of some rows
	sent     [][]int64         // ids of the fields in each row, in case fewer rows come back
	restore  func()            // undoes what Rewrite has done to the statement; may be nil
}

// trackerKey is where Track leaves the Tracker of a statement.
const trackerKey = "uidplugin:upsert"

// Track returns a new Tracker for a statement.
func Track(db *gorm.DB) *Tracker {
	t := &Tracker{}
	db.InstanceSet(trackerKey, t)
	return t
}

// TrackerOf returns the Tracker that a statement has, or a new one.
func TrackerOf(db *gorm.DB) *Tracker {
	if t, ok := db.InstanceGet(trackerKey); ok {
		return t.(*Tracker)
	}
	return Track(db)
}

// Conflicts reports whether a statement may find rows that exist already and not fail: by an ON CONFLICT, or as INSERT
// IGNORE.
func Conflicts(stmt *gorm.Statement) bool {
	if len(stmt.Clauses) == 0 {
		return false
	}
	if _, ok := stmt.Clauses[model.OnConflict]; ok {
		return true
	}
	insert, _ := stmt.Clauses["INSERT"].Expression.(clause.Insert)
	return insert.Modifier != "" && strings.Contains(strings.ToUpper(insert.Modifier), "IGNORE")
}

// Note remembers that f was set to id in some row. Ids of a field come in ascending order.
func (t *Tracker) Note(f *model.Field, id int64) {
	i := slices.Index(t.fields, f)
	if i < 0 {
		i = len(t.fields)
		t.fields, t.ids = append(t.fields, f), append(t.ids, nil)
	}
	t.ids[i] = append(t.ids[i], id)
}

// NoteUnselected remembers that the application has not selected f.
func (t *Tracker) NoteUnselected(f *model.Field) { t.unselected = append(t.unselected, f) }

// has reports whether f was set to id.
func (t *Tracker) has(f *model.Field, id int64) bool {
	i := slices.Index(t.fields, f)
	if i < 0 || id == 0 {
		return false
	}
	_, ok := slices.BinarySearch(t.ids[i], id)
	return ok
}

// tracks reports whether f is one of the fields that were set.
func (t *Tracker) tracks(f *schema.Field) bool {
	return slices.ContainsFunc(t.fields, func(other *model.Field) bool { return other.DBName == f.DBName })
}

// key returns the tracked field that is the only key of the model, if one is.
func (t *Tracker) key(s *schema.Schema) *model.Field {
	for _, f := range t.fields {
		if len(s.PrimaryFields) == 1 && f.DBName == s.PrimaryFields[0].DBName {
			return f
		}
	}
	return nil
}
