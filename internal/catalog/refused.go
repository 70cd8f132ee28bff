package catalog

import (
	"context"
	"reflect"
	"slices"
	"sync"

	"github.com/uidplugin/uidplugin/internal/model"
	"github.com/uidplugin/uidplugin/internal/sqldb"
	"github.com/uidplugin/uidplugin/internal/upsert"
	"gorm.io/gorm"
	"gorm.io/gorm/clause"
)

// A table may refuse rows because of their ids, as a followed one does if they are too old. The application then creates
// the same structs again, so they must not keep the ids that were refused. Each create therefore notes which keys it has
// set.

// filled notes which rows of a create were given ids. It belongs to one statement; see [model.Keep].
type filled struct {
	parent *filled // of the create that saves these rows as an association; nil if there is none
	shared bool    // creates of associated rows may have it, so it is not used for another statement

	mu   sync.Mutex
	rows []filledRows
}

// filledRows are a struct, a map, or the rows of a slice from the first on except some, whose field was given an id.
type filledRows struct {
	field  *Field
	value  reflect.Value
	first  int
	except []int

	associated bool // saved by the create of an associated row
}

// clear sets the field to zero.
func (r filledRows) clear(ctx context.Context) {
	if r.value.Kind() != reflect.Slice && r.value.Kind() != reflect.Array {
		r.clearRow(ctx, r.value)
		return
	}
	for i := r.first; i < r.value.Len(); i++ {
		if _, except := slices.BinarySearch(r.except, i); !except {
			r.clearRow(ctx, r.value.Index(i))
		}
	}
}

func (r filledRows) clearRow(ctx context.Context, v reflect.Value) {
	for v.Kind() == reflect.Pointer {
		v = v.Elem()
	}
	row := model.Row{Struct: v}
	if v.Kind() == reflect.Map {
		row.Map, _ = v.Interface().(map[string]any)
	}
	if v.IsValid() {
		_ = row.Set(ctx, r.field.Field, 0)
	}
}

const filledClause = "uidplugin:filled"

// Build implements [clause.Expression].
func (*filled) Build(clause.Builder) {}

// filledPool has notes without a statement. Only the statement that they belonged to may return them.
var filledPool = sync.Pool{New: func() any { return new(filled) }}

// filledIn returns the notes of a create, or nil.
func filledIn(stmt *gorm.Statement) *filled {
	note, _ := model.Kept(stmt, filledClause)
	notes, _ := note.(*filled)
	return notes
}

// filledOf returns the notes of a create, and begins them if needed.
func filledOf(stmt *gorm.Statement) *filled {
	if notes := filledIn(stmt); notes != nil {
		return notes
	}
	notes := filledPool.Get().(*filled)
	if v, ok := stmt.Settings.Load(filledKey{}); ok {
		notes.parent = v.(*filled)
	}
	model.Keep(stmt, filledClause, notes)
	return notes
}

func (n *filled) add(rows ...filledRows) {
	n.mu.Lock()
	n.rows = append(n.rows, rows...)
	n.mu.Unlock()
}

// has reports whether the create itself has set a field.
func (n *filled) has(f *Field) bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	return slices.ContainsFunc(n.rows, func(r filledRows) bool { return r.field.Field.Field == f.Field.Field && !r.associated })
}

// end returns the rows, and forgets them.
func (n *filled) end() []filledRows {
	n.mu.Lock()
	defer n.mu.Unlock()
	rows := n.rows
	n.rows = nil
	return rows
}

// filledKey is the key of a create's notes in its settings. GORM copies the settings to the creates of associated rows,
// but not the clauses. A copy of the statement has both, so forget can tell it apart and remove the notes.
type filledKey struct{}

// share makes the notes known to the creates of associated rows.
func (n *filled) share(stmt *gorm.Statement) {
	n.shared = true
	stmt.Settings.Store(filledKey{}, n)
}

// isCopy reports whether a statement is a copy of a create or an update that has notes.
func isCopy(stmt *gorm.Statement) bool {
	_, copied := model.Kept(stmt, filledClause)
	return copied || model.IsChangedCopy(stmt)
}

// forget removes what the plugin keeps in a statement. Call it before the statement's other callbacks: what is there
// then is of the statement that this one is a copy of, or of an earlier create of the same handle that has panicked.
func forget(stmt *gorm.Statement) {
	if len(stmt.Clauses) == 0 {
		return
	}
	model.Undo(stmt)
	upsert.Forget(stmt)
	if _, ok := stmt.Clauses[filledClause]; ok {
		delete(stmt.Clauses, filledClause)
		stmt.Settings.Delete(filledKey{})
	}
}

// Settle ends the notes of a create. If the database has refused the id of a row, it clears the keys that the create has
// set, also those of associated rows, which are rolled back with it.
func (c *Catalog) Settle(db *gorm.DB) {
	stmt := db.Statement
	var refused bool
	db.Error, refused = c.refusal(stmt, db.Error)
	notes := filledIn(stmt)
	if notes == nil {
		return // those of another statement are not ours
	}
	delete(stmt.Clauses, filledClause)
	if notes.shared {
		stmt.Settings.Delete(filledKey{})
	}
	rows := notes.end()
	switch {
	case refused:
		for _, r := range rows {
			r.clear(stmt.Context)
		}
	case db.Error == nil && notes.parent != nil && sqldb.HoldsConnection(stmt.ConnPool):
		for i := range rows {
			rows[i].associated = true
		}
		notes.parent.add(rows...)
	}
	if !notes.shared && cap(rows) <= 1024 {
		clear(rows)
		notes.rows, notes.parent = rows[:0], nil
		filledPool.Put(notes)
	}
}

// refusal returns the error of a statement for callers, and reports whether the database has refused the id of a row.
func (c *Catalog) refusal(stmt *gorm.Statement, err error) (_ error, refused bool) {
	if err == nil || c.OnInsertError == nil {
		return err, false
	}
	return c.OnInsertError(stmt, err)
}
