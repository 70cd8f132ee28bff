package fill

import (
	"context"
	"reflect"
	"slices"
	"sync"

	"github.com/uidplugin/uidplugin/internal/catalog"
	"github.com/uidplugin/uidplugin/internal/model"
	"github.com/uidplugin/uidplugin/internal/sqldb"
	"github.com/uidplugin/uidplugin/internal/upsert"
	"gorm.io/gorm"
	"gorm.io/gorm/clause"
)

// notes record which rows were given ids by a statement that owns the notes, or on a handle of [Filler.Collect].
type notes struct {
	parent *notes // of Collect, or of the statement that saves these rows as an association; else nil
	shared bool   // other creates may refer to these notes, so they do not return to the pool
	whole  bool   // these are the notes of [Filler.Collect], or of a statement on its handle

	mu   sync.Mutex
	rows []filledRows
}

// filledRows are rows whose field was given an id: a struct, a map, or the elements of a slice from index first on,
// without the indexes in except.
type filledRows struct {
	field  *catalog.Field
	value  reflect.Value
	first  int
	except []int

	associated bool // set by the create of associated rows, not by this create
}

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

// notesKey is the name of the notes in a statement; see [model.Keep].
const notesKey = "uidplugin:filled"

// Build implements [clause.Expression].
func (*notes) Build(clause.Builder) {}

// notesPool has notes without a statement. Only the statement that used them may return them.
var notesPool = sync.Pool{New: func() any { return new(notes) }}

func notesIn(stmt *gorm.Statement) *notes {
	note, _ := model.Kept(stmt, notesKey)
	n, _ := note.(*notes)
	return n
}

// notesOf returns the notes of a statement, and begins them if it has none.
func notesOf(stmt *gorm.Statement) *notes {
	n := notesIn(stmt)
	if n == nil {
		n = notesPool.Get().(*notes)
		model.Keep(stmt, notesKey, n)
	}
	return n
}

// inherit begins the notes of a create of associated rows, or of a statement on a handle of [Filler.Collect].
func inherit(stmt *gorm.Statement) {
	if v, ok := stmt.Settings.Load(sharedKey{}); ok {
		n, parent := notesOf(stmt), v.(*notes)
		n.parent, n.whole = parent, parent.whole
	}
}

func (n *notes) add(rows ...filledRows) {
	n.mu.Lock()
	n.rows = append(n.rows, rows...)
	n.mu.Unlock()
}

// has reports whether the create itself has set a field.
func (n *notes) has(f *catalog.Field) bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	return slices.ContainsFunc(n.rows, func(r filledRows) bool { return r.field.Field.Field == f.Field.Field && !r.associated })
}

func (n *notes) end() []filledRows {
	n.mu.Lock()
	defer n.mu.Unlock()
	rows := n.rows
	n.rows = nil
	return rows
}

// sharedKey is the key of a statement's notes in its settings. GORM copies the settings to creates of associated
// rows, but not the clauses. A copy of the statement has both, so the function forget can remove the notes from it.
type sharedKey struct{}

// share makes the notes known to the creates of associated rows.
func (n *notes) share(stmt *gorm.Statement) {
	n.shared = true
	stmt.Settings.Store(sharedKey{}, n)
}

// forget removes what the plugin keeps in a statement. Call it before the statement's other callbacks. Notes that
// it finds belong to the statement that stmt is a copy of, or to a create that panicked.
func forget(stmt *gorm.Statement) {
	if len(stmt.Clauses) == 0 {
		return
	}
	model.Undo(stmt)
	upsert.Forget(stmt)
	if _, ok := stmt.Clauses[notesKey]; ok {
		delete(stmt.Clauses, notesKey)
		stmt.Settings.Delete(sharedKey{})
	}
}

// Collect returns a handle that records which rows its creates give ids to. The function clear sets these ids to 0.
func (f *Filler) Collect(tx *gorm.DB) (_ *gorm.DB, clear func()) {
	n := &notes{shared: true, whole: true}
	tx = tx.Session(&gorm.Session{Context: tx.Statement.Context}) // with settings of its own
	tx.Statement.Settings.Store(sharedKey{}, n)
	return tx, func() {
		for _, r := range n.end() {
			r.clear(tx.Statement.Context)
		}
	}
}

// Settle ends the notes of a create or an update. If the statement was refused, Settle clears the ids that the
// statement has set, because the application may create the same structs again. It also clears the ids of
// associated rows, whose INSERTs are rolled back.
func (f *Filler) Settle(db *gorm.DB, refused bool) {
	stmt := db.Statement
	n := notesIn(stmt)
	if n == nil {
		return // there are none, or they belong to another statement
	}
	delete(stmt.Clauses, notesKey)
	if n.shared {
		stmt.Settings.Delete(sharedKey{})
	}
	rows := n.end()
	switch {
	case refused:
		for _, r := range rows {
			r.clear(stmt.Context)
		}
	case n.whole, db.Error == nil && n.parent != nil && sqldb.HoldsConnection(stmt.ConnPool):
		for i := range rows {
			rows[i].associated = true
		}
		n.parent.add(rows...)
	}
	if !n.shared && cap(rows) <= 1024 {
		clear(rows)
		n.rows, n.parent, n.whole = rows[:0], nil, false
		notesPool.Put(n)
	}
}

// Disown removes the notes of a create or an update from a copy of its statement.
func (f *Filler) Disown(db *gorm.DB) {
	stmt := db.Statement
	if len(stmt.Clauses) == 0 {
		return
	}
	if _, copied := model.Kept(stmt, notesKey); copied || model.IsChangedCopy(stmt) {
		forget(stmt)
	}
}
