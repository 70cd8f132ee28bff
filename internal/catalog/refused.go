package catalog

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"
	"sync"

	"github.com/uidplugin/uidplugin/internal/follow"
	"github.com/uidplugin/uidplugin/internal/model"
	"github.com/uidplugin/uidplugin/internal/sqldb"
	"gorm.io/gorm"
	"gorm.io/gorm/clause"
)

// A followed table refuses rows whose ids are too old. The application then creates the same structs again, so they must
// not keep the ids that were refused. Each create therefore notes which keys it has set.

// ErrTooLate reports that a followed table has refused a row, because the row's id is older than the slack allows.
var ErrTooLate = errors.New("uidplugin: too late")

// filled notes which rows of a create were given ids. It travels in the statement's clauses under a name that GORM does
// not build, because an entry in that map costs no allocation.
type filled struct {
	rows   []filledRows
	parent *filled // of the create that saves these rows as an association; nil if there is none
}

// filledRows are a struct, a map, or the rows of a slice from the first on except some, whose field was given an id.
type filledRows struct {
	field  *Field
	value  reflect.Value
	first  int
	except []int
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

var filledPool = sync.Pool{New: func() any { return new(filled) }}

// noteFilled begins the notes of a create, even if the statement has some, because it may be a copy of another one.
func noteFilled(stmt *gorm.Statement) *filled {
	notes := filledPool.Get().(*filled)
	stmt.Clauses[filledClause] = clause.Clause{Expression: notes}
	return notes
}

// filledOf returns the notes of a create.
func filledOf(stmt *gorm.Statement) *filled {
	if notes, ok := stmt.Clauses[filledClause].Expression.(*filled); ok {
		return notes
	}
	return noteFilled(stmt)
}

func (n *filled) add(rows filledRows) { n.rows = append(n.rows, rows) }

// filledKey is the key of a create's notes in its settings, which GORM copies to the creates of associated rows.
type filledKey struct{}

// share makes the notes known to the creates of associated rows.
func (n *filled) share(stmt *gorm.Statement) {
	if v, ok := stmt.Settings.Load(filledKey{}); ok {
		n.parent = v.(*filled)
	}
	stmt.Settings.Store(filledKey{}, n)
}

// Settle ends the notes of a create. If a row was too late, it clears the keys that the create has set, also those of
// associated rows, which are rolled back with it.
func (c *Catalog) Settle(db *gorm.DB) {
	stmt := db.Statement
	if db.Error != nil {
		db.Error = c.tooLate(stmt, db.Error)
	}
	notes, ok := stmt.Clauses[filledClause].Expression.(*filled)
	if !ok {
		return
	}
	delete(stmt.Clauses, filledClause)
	parent := notes.parent
	if v, ok := stmt.Settings.Load(filledKey{}); ok && v.(*filled) == notes {
		stmt.Settings.Delete(filledKey{})
	} else if ok {
		parent = v.(*filled)
	}
	switch {
	case errors.Is(db.Error, ErrTooLate):
		for _, rows := range notes.rows {
			rows.clear(stmt.Context)
		}
	case db.Error == nil && parent != nil && sqldb.HoldsConnection(stmt.ConnPool):
		parent.rows = append(parent.rows, notes.rows...)
	}
	clear(notes.rows)
	notes.rows, notes.parent = notes.rows[:0], nil
	if cap(notes.rows) <= 1024 {
		filledPool.Put(notes)
	}
}

// tooLate returns an error that wraps ErrTooLate if a followed table has refused a row. It then moves the clock to the
// database's, because the table would refuse the next ids as well if this process's clock is behind.
func (c *Catalog) tooLate(stmt *gorm.Statement, err error) error {
	at, ok := follow.TooLate(err)
	if !ok || errors.Is(err, ErrTooLate) {
		return err
	}
	table := cmp.Or(stmt.Table, "the table") // which is unknown for Exec
	if stmt.Schema != nil && strings.HasSuffix(stmt.Schema.Table, "."+stmt.Table) {
		table = stmt.Schema.Table // GORM leaves the name of the table's schema out, and followers have it
	}
	if stmt.Table != "" {
		c.mu.Lock()
		c.refused[table]++
		c.mu.Unlock()
	}
	c.supply.ReachClock(at)
	return fmt.Errorf("%w: %s is followed, and the id of a row is older than its slack allows; create the rows again, in a transaction"+
		" from its beginning, and with new ids where the application, or an earlier statement or batch, has set them: %w", ErrTooLate, table, err)
}

// TooLate returns the number of refused creates by table.
func (c *Catalog) TooLate() map[string]int64 {
	c.mu.Lock()
	defer c.mu.Unlock()
	return maps.Clone(c.refused)
}
