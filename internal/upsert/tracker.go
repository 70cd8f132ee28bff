// Package upsert corrects ids after an INSERT ... ON CONFLICT.
//
// Such a statement may find that the row exists under another key. Then the id made for the new row is not in the
// table, so the struct should not keep it. The struct gets the id of the existing row, or zero if that row is
// unknown. GORM's own association saves are such statements.
//
// detect.go chooses how to detect conflicts. Without a conflict a statement needs a further round trip only with
// bySelect, and with byLastInsertID for most batches. [Rewrite] changes the statement before the INSERT, and
// [Reconcile] corrects the rows after it.
//
// If the statement does not return the existing row, we look it up by [Tracker.keys], with the values that were
// sent, and then with the values that the columns store instead. The row is unknown if none is found, or if two
// keys lead to different rows. A new row with associations then gets an error.
package upsert

import (
	"maps"
	"regexp"
	"slices"
	"strings"

	"github.com/uidplugin/uidplugin/internal/model"
	"gorm.io/gorm"
	"gorm.io/gorm/clause"
	"gorm.io/gorm/schema"
)

// A Tracker records the ids set in one statement that has an ON CONFLICT, or may get one from a hook.
type Tracker struct {
	fields []*model.Field
	ids    [][]int64 // per field, in ascending order once the statement is rewritten

	decision
	conflict clause.OnConflict // handling of existing rows
	unknown  bool              // the handling is in the application's own SQL, so conflict is empty
	uniques  [][]*schema.Field // [model.Model.Uniques], on MySQL; see keys
	sent     [][]int64         // ids of the fields in each row, in case fewer rows come back
}

// trackerKey is the name of a statement's note that holds its Tracker; see [model.Keep].
const trackerKey = "uidplugin:upsert"

// Build implements [clause.Expression].
func (*Tracker) Build(clause.Builder) {}

// TrackerOf returns the Tracker of a statement, or sets a new one.
func TrackerOf(stmt *gorm.Statement) *Tracker {
	t := trackerIn(stmt)
	if t == nil {
		t = &Tracker{}
		model.Keep(stmt, trackerKey, t)
	}
	return t
}

func trackerIn(stmt *gorm.Statement) *Tracker {
	note, _ := model.Kept(stmt, trackerKey)
	t, _ := note.(*Tracker)
	return t
}

// Forget removes the Tracker of a statement, also if the statement is a copy and the Tracker belongs to the original.
func Forget(stmt *gorm.Statement) { delete(stmt.Clauses, trackerKey) }

// Conflicts reports whether a statement accepts existing rows without an error, by ON CONFLICT or INSERT IGNORE.
func Conflicts(stmt *gorm.Statement) bool {
	if len(stmt.Clauses) == 0 {
		return false
	}
	if _, ok := stmt.Clauses[model.OnConflict]; ok || ignores(stmt) {
		return true
	}
	_, ok := otherConflict(stmt)
	return ok
}

// otherConflict reports whether a clause other than ON CONFLICT makes a statement accept existing rows. The
// OnConflict is empty if only SQL text shows this.
func otherConflict(stmt *gorm.Statement) (clause.OnConflict, bool) {
	for _, name := range stmt.BuildClauses {
		c := stmt.Clauses[name]
		if c.Name != "" && c.Name != name && acceptsRows.MatchString(c.Name) {
			return clause.OnConflict{}, true
		}
		for _, e := range [...]clause.Expression{c.Expression, c.BeforeExpression, c.AfterNameExpression, c.AfterExpression} {
			switch e := e.(type) {
			case nil, clause.Values, clause.Insert, clause.Returning, clause.Where:
			case clause.OnConflict:
				return e, true
			case *clause.OnConflict:
				return *e, true
			default:
				if acceptsRows.MatchString(built(stmt, e)) {
					return clause.OnConflict{}, true
				}
			}
		}
	}
	return clause.OnConflict{}, false
}

var acceptsRows = regexp.MustCompile(`(?i)\bON\s+(?:CONFLICT|DUPLICATE\s+KEY)\b|\bIGNORE\b`)

// built returns the SQL of an expression. It builds into a [gorm.Statement], because expressions of applications rely
// on this type.
func built(stmt *gorm.Statement, e clause.Expression) string {
	into := newQuery(stmt).Statement
	into.Model, into.Dest, into.ReflectValue, into.Clauses = stmt.Model, stmt.Dest, stmt.ReflectValue, maps.Clone(stmt.Clauses)
	e.Build(into)
	return into.SQL.String()
}

// ignores reports whether a statement is an INSERT IGNORE.
func ignores(stmt *gorm.Statement) bool {
	insert, _ := stmt.Clauses["INSERT"].Expression.(clause.Insert)
	return insert.Modifier != "" && strings.Contains(strings.ToUpper(insert.Modifier), "IGNORE")
}

// Note records that f was set to id in some row.
func (t *Tracker) Note(f *model.Field, id int64) {
	i := slices.Index(t.fields, f)
	if i < 0 {
		i = len(t.fields)
		t.fields, t.ids = append(t.fields, f), append(t.ids, nil)
	}
	t.ids[i] = append(t.ids[i], id)
}

// has reports whether f was set to id.
func (t *Tracker) has(f *model.Field, id int64) bool {
	i := slices.Index(t.fields, f)
	if i < 0 || id == 0 {
		return false
	}
	_, ok := slices.BinarySearch(t.ids[i], id)
	return ok
}

// tracks reports whether ids were set in f.
func (t *Tracker) tracks(f *schema.Field) bool {
	return slices.ContainsFunc(t.fields, func(other *model.Field) bool { return other.DBName == f.DBName })
}

// key returns the tracked field that is the sole key of the model, or nil.
func (t *Tracker) key(s *schema.Schema) *model.Field {
	for _, f := range t.fields {
		if len(s.PrimaryFields) == 1 && f.DBName == s.PrimaryFields[0].DBName {
			return f
		}
	}
	return nil
}
