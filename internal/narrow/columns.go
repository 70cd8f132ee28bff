package narrow

import (
	"database/sql"
	"maps"
	"reflect"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"github.com/uidplugin/uidplugin/internal/inspect"
	"github.com/uidplugin/uidplugin/internal/model"
	"github.com/uidplugin/uidplugin/internal/sqldb"
	"gorm.io/gorm"
	"gorm.io/gorm/schema"
)

// A table has what the Guard knows about one table of the application. It is safe for concurrent use.
type table struct {
	known atomic.Pointer[tableColumns] // immutable; replaced under the mutex of the Guard
}

type tableColumns struct {
	ids     map[string]idColumn     // by column name
	numbers map[string]numberColumn // the entries of the map ids with number = true, by name in lower case
	places  map[string]*limits      // by the table's name in the statement, because db.Table can name another table
}

type idColumn struct {
	field  string // such as Order.CustomerID
	small  bool   // see [Limit]; false for uid fields with the layout's ids, foreign keys to them, and key types
	number bool   // the field is an integer
}

// limits holds the columns of a table that are too narrow for the largest id; nil Limits mean unknown columns.
type limits struct {
	Limits
	until time.Time // when to read the columns again; zero means only after a statement that changes a table
	again time.Time // from this time on, a value that does not fit makes the plugin read the columns again
}

// rereads is the shortest time between two reads of a table's columns if values often do not fit.
const rereads = time.Second

// recheck is how long limits are used if the columns are unknown, or the server changes values that do not fit.
const recheck = 10 * time.Second

// expired reports whether limits must be read. With dbresolver, limits that have an end expire at once: any
// statement may be for another database, and the pool of a transaction does not show which.
func (g *Guard) expired(l *limits) bool {
	if l == nil || l.until.IsZero() {
		return l == nil
	}
	// Look at the callbacks instead of at the map db.Plugins, because another db.Use may be writing to the map.
	return time.Now().After(l.until) || g.db.Callback().Create().Get("gorm:db_resolver") != nil
}

// Note notes the columns that may hold ids, in the tables of listed models and of their associations.
func (g *Guard) Note(db *gorm.DB, models []any) {
	g.catalog.Visit(db, models, func(_ string, s *schema.Schema) { g.noteColumns(s) })
}

func (g *Guard) tableFor(s *schema.Schema) *table {
	if t, ok := g.models.Load(s); ok {
		return t.(*table)
	}
	model.Walk(g.db, s, g.noteColumns)
	g.mu.Lock()
	defer g.mu.Unlock()
	t := g.tableNamed(s.Table)
	g.models.Store(s, t)
	return t
}

// noteColumns notes the columns of a schema's table that may hold ids, and the foreign keys to uid fields.
func (g *Guard) noteColumns(s *schema.Schema) {
	for _, name := range s.DBNames {
		if f := s.FieldsByDBName[name]; model.HasTag(f) || model.IsKeyType(f) {
			g.noteColumn(f, f)
		} else if mayHoldIDs(f) {
			g.noteColumn(f, nil)
		}
	}
	for _, r := range model.Relations(s) {
		for _, ref := range r.References {
			// The type column of a polymorphic association does not refer to a field.
			if pk := ref.PrimaryKey; pk != nil && slices.Contains(model.UIDFields(pk.Schema), pk) {
				g.noteColumn(ref.ForeignKey, pk)
			}
		}
	}
}

// noteColumn notes that the column of f holds ids of the field key or, if key is nil, may hold ids of any field.
func (g *Guard) noteColumn(f, key *schema.Field) {
	small := key == nil
	if !small && model.HasTag(key) {
		source, err := g.catalog.SourceOf(key)
		small = err == nil && source.Foreign
	}
	// GORM holds this mutex while it copies the key's data type to a foreign key, even to one that is a Go string.
	f.Schema.Relationships.Mux.RLock()
	number := model.IsKeyType(f) || (f.GORMDataType == schema.Int || f.GORMDataType == schema.Uint) && f.IndirectFieldType.Kind() != reflect.String
	f.Schema.Relationships.Mux.RUnlock()
	g.mu.Lock()
	defer g.mu.Unlock()
	t := g.tableNamed(f.Schema.Table)
	before, noted := t.known.Load().ids[f.DBName]
	small = small && (before.small || !noted)
	if noted && before.small == small {
		return
	}
	ids := maps.Clone(t.known.Load().ids)
	ids[f.DBName] = idColumn{f.Schema.Name + "." + f.Name, small, number}
	numbers := map[string]numberColumn{}
	for name, id := range ids {
		if id.number {
			numbers[strings.ToLower(name)] = numberColumn{Field: id.field, Plain: id.small}
		}
	}
	t.known.Store(&tableColumns{ids: ids, numbers: numbers})
}

// tableNamed returns a table, and adds it if missing. The caller holds the mutex.
func (g *Guard) tableNamed(name string) *table {
	t := g.tables[name]
	if t == nil {
		t = &table{}
		t.known.Store(&tableColumns{ids: map[string]idColumn{}})
		g.tables[name] = t
	}
	return t
}

// forget makes later statements read the columns of all tables again.
func (g *Guard) forget() {
	if g.db.Dialector.Name() == "sqlite" {
		return // because SQLite cannot change a column's type
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	for _, t := range g.tables {
		known := t.known.Load()
		t.known.Store(&tableColumns{ids: known.ids, numbers: known.numbers})
	}
}

// reread reads the limits again, unless old.again is still to come, because somebody may have widened a column.
func (g *Guard) reread(stmt *gorm.Statement, t *table, place string, old *limits) *limits {
	if time.Now().Before(old.again) {
		return old
	}
	known := t.known.Load()
	columns, err := g.columns(stmt, place, nil) // nil: read the catalog, which the statement in the error needs
	if err != nil {
		return old
	}
	found := g.limitsOf(known.ids, columns)
	found.again = time.Now().Add(rereads)
	g.keep(t, known, place, found)
	return found
}

func (g *Guard) learn(t *table, known *tableColumns, place string, columns []inspect.Column) *limits {
	found := g.limitsOf(known.ids, columns)
	g.keep(t, known, place, found)
	return found
}

// keep stores the limits of a table, unless t.known was replaced after the caller had loaded it.
func (g *Guard) keep(t *table, known *tableColumns, place string, found *limits) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if t.known.Load() == known {
		places := maps.Clone(known.places)
		if len(places) == 0 || len(places) > 1000 {
			places = map[string]*limits{}
		}
		places[place] = found
		t.known.Store(&tableColumns{known.ids, known.numbers, places})
	}
}

// limitsOf returns the columns that are too narrow, and warns of those that are known to hold ids.
func (g *Guard) limitsOf(ids map[string]idColumn, columns []inspect.Column) *limits {
	found := &limits{}
	if len(columns) > 0 {
		found.Limits = Limits{}
	}
	if len(columns) == 0 || columns[0].Lenient {
		found.until = time.Now().Add(recheck)
	}
	for _, column := range columns {
		r := model.RangeOf(column.Type, g.db.Dialector.Name())
		if r.Largest >= g.catalog.Target().Largest {
			continue
		}
		for name, id := range ids {
			if !strings.EqualFold(name, column.Name) {
				continue
			}
			if id.small && model.IsInexact(column.Type) {
				continue // because such a column is not meant for ids
			}
			table := column.Table
			if !strings.ContainsAny(table, "`\" ") {
				table = sqldb.Quoted(g.db.Dialector, table)
			}
			fix := column.WideStatement(g.db.Dialector.Name(), table, r.Characters > 0)
			found.Limits[strings.ToLower(name)] = Limit{Range: r, Field: id.field, Small: id.small, Name: column.Name, Type: column.Type, Fix: fix, Lenient: column.Lenient}
			if !id.small && g.once("narrow", column.Table, column.Name) {
				g.log.Warn("uidplugin: this column is too narrow for ids: a create or an update with an id that does not fit fails."+
					" Run the statement; docs/from-auto-increment.md has the statements for columns with foreign key constraints.",
					"table", column.Table, "column", column.Name, "type", column.Type, "statement", fix)
			}
		}
	}
	return found
}

// columns reads the columns of a statement's table on the statement's connection. See [inspect.ColumnsFor].
func (g *Guard) columns(stmt *gorm.Statement, place string, ids map[string]idColumn) ([]inspect.Column, error) {
	names := make(map[string]bool, len(ids))
	for name, id := range ids {
		names[name] = !id.small
	}
	reader := g.reader.On(stmt.ConnPool)
	if place != stmt.Table {
		return inspect.ColumnsFor(stmt.Context, reader, place, names)
	}
	columns, err := inspect.ColumnsFor(stmt.Context, reader, stmt.Quote(place), names)
	for i := range columns {
		columns[i].Table = place
	}
	return columns, err
}

// mayHoldIDs reports whether GORM writes f, and f is a 64-bit integer, a NullInt64, or a pointer to one of them.
// Like [model.IsKeyType] it avoids properties of f that GORM changes while it parses a model that refers to f.
func mayHoldIDs(f *schema.Field) bool {
	switch t := f.IndirectFieldType; t.Kind() {
	case reflect.Int, reflect.Int64, reflect.Uint, reflect.Uint64:
		return f.Creatable || f.Updatable
	default:
		return t == reflect.TypeFor[sql.NullInt64]() && (f.Creatable || f.Updatable)
	}
}
