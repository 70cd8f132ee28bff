package catalog

import (
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"github.com/uidplugin/uidplugin/internal/model"
	"github.com/uidplugin/uidplugin/internal/sqldb"
	"gorm.io/gorm"
	"gorm.io/gorm/clause"
	"gorm.io/gorm/schema"
)

// MySQL without strict mode silently stores another number if a column is too narrow. So we compare the integers of a
// statement with their columns before sending it. We check every 64-bit field, because it may be a foreign key.
//
// Columns are read when the model is listed, or at the first create or update. If all hold 64 bits, later statements
// only load a pointer. Otherwise the values are compared. Before refusing a statement we read the column again, because
// somebody may have widened it.

// A table is a table of the application. It is safe for concurrent use.
type table struct {
	known atomic.Pointer[tableColumns] // immutable; replaced under the mutex of the catalog
}

// tableColumns holds the known columns of a table.
type tableColumns struct {
	ids     map[string]idColumn           // by column name
	numbers map[string]model.NumberColumn // those of ids that hold numbers, by column name in lower case
	places  map[string]*limits            // by the table's name in statements, because db.Table sends rows to other tables
}

// An idColumn is a column that may hold ids.
type idColumn struct {
	field  string // such as Order.CustomerID
	small  bool   // see [model.Limit]; false for uid fields, foreign keys to them, and types of this module
	number bool   // the field is not a string
}

// limits holds the columns of a table that are too narrow for 64 bits; nil Limits mean unknown columns.
type limits struct {
	model.Limits
	until time.Time // when to read them again; zero means after a statement that changes a table
	again time.Time // when a value that does not fit makes the plugin read them again
}

// rereads is how often values that do not fit make the plugin read the columns of a table, because creates that fail may
// be frequent.
const rereads = time.Second

// recheck bounds the age of limits that may change unnoticed: of unknown tables, and on servers that cut off values
// instead of refusing them.
const recheck = 10 * time.Second

// expired reports whether limits must be read. With dbresolver any statement may be for another database, and the pool
// of a transaction does not show which.
func (c *Catalog) expired(l *limits) bool {
	if l == nil || l.until.IsZero() {
		return l == nil
	}
	// Its callback shows dbresolver, because another db.Use may be writing to the map of plugins.
	return time.Now().After(l.until) || c.db.Callback().Create().Get("gorm:db_resolver") != nil
}

// noteColumns notes the columns of a schema's table that may hold ids, and foreign keys to them.
func (c *Catalog) noteColumns(s *schema.Schema) *table {
	for _, name := range s.DBNames {
		if f := s.FieldsByDBName[name]; model.HasTag(f) || model.IsKeyType(f) {
			c.noteColumn(f, f)
		} else if model.MayHoldIDs(f) {
			c.noteColumn(f, nil)
		}
	}
	for _, r := range model.Relations(s) {
		for _, ref := range r.References {
			// The type column of a polymorphic association does not refer to a field.
			if pk := ref.PrimaryKey; pk != nil && slices.Contains(model.UIDFields(pk.Schema), pk) {
				c.noteColumn(ref.ForeignKey, pk)
			}
		}
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.tableNamed(s.Table)
}

// noteColumn notes that the column of f holds ids of the field key, or any ids if key is nil.
func (c *Catalog) noteColumn(f, key *schema.Field) {
	small := key == nil
	if !small && model.HasTag(key) {
		source, err := c.source(key)
		small = err == nil && source.Foreign
	}
	// GORM gives a foreign key the type of the referenced key, with this mutex, but writes a string field as text.
	f.Schema.Relationships.Mux.RLock()
	number := model.IsKeyType(f) || (f.GORMDataType == schema.Int || f.GORMDataType == schema.Uint) && f.IndirectFieldType.Kind() != reflect.String
	f.Schema.Relationships.Mux.RUnlock()
	c.mu.Lock()
	defer c.mu.Unlock()
	t := c.tableNamed(f.Schema.Table)
	before, noted := t.known.Load().ids[f.DBName]
	small = small && (before.small || !noted)
	if noted && before.small == small {
		return
	}
	ids := maps.Clone(t.known.Load().ids)
	ids[f.DBName] = idColumn{f.Schema.Name + "." + f.Name, small, number}
	numbers := map[string]model.NumberColumn{}
	for name, id := range ids {
		if id.number {
			numbers[strings.ToLower(name)] = model.NumberColumn{Field: id.field, Plain: id.small}
		}
	}
	t.known.Store(&tableColumns{ids: ids, numbers: numbers})
}

// tableNamed returns a table, and adds it if missing. The caller holds the mutex.
func (c *Catalog) tableNamed(name string) *table {
	t := c.tables[name]
	if t == nil {
		t = &table{}
		t.known.Store(&tableColumns{ids: map[string]idColumn{}})
		c.tables[name] = t
	}
	return t
}

// forgetColumns makes later statements read the columns of all tables again.
func (c *Catalog) forgetColumns() {
	if c.db.Dialector.Name() == "sqlite" {
		return // because SQLite cannot change a column's type
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, t := range c.tables {
		known := t.known.Load()
		t.known.Store(&tableColumns{ids: known.ids, numbers: known.numbers})
	}
}

// reread returns the limits of a table as they are now, because another program may have widened a column.
func (c *Catalog) reread(stmt *gorm.Statement, t *table, place string, before *limits) *limits {
	if time.Now().Before(before.again) {
		return before
	}
	known := t.known.Load()
	columns, err := c.columns(stmt, place, nil) // all columns, for the statement in the error
	if err != nil {
		return before
	}
	found := c.limitsOf(known.ids, columns)
	found.again = time.Now().Add(rereads)
	c.keep(t, known, place, found)
	return found
}

// learn returns the limits of columns, and keeps them.
func (c *Catalog) learn(t *table, known *tableColumns, place string, columns []sqldb.Column) *limits {
	found := c.limitsOf(known.ids, columns)
	c.keep(t, known, place, found)
	return found
}

// keep stores the limits of a table unless known is outdated.
func (c *Catalog) keep(t *table, known *tableColumns, place string, found *limits) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if t.known.Load() == known {
		places := maps.Clone(known.places)
		if len(places) == 0 || len(places) > 1000 {
			places = map[string]*limits{}
		}
		places[place] = found
		t.known.Store(&tableColumns{known.ids, known.numbers, places})
	}
}

// limitsOf returns the columns that are too narrow, and warns if they hold ids.
func (c *Catalog) limitsOf(ids map[string]idColumn, columns []sqldb.Column) *limits {
	found := &limits{}
	if len(columns) > 0 {
		found.Limits = model.Limits{}
	}
	if len(columns) == 0 || columns[0].Lenient {
		found.until = time.Now().Add(recheck)
	}
	for _, column := range columns {
		r := model.RangeOf(column.Type, c.db.Dialector.Name())
		if r.Largest >= c.target().Largest {
			continue
		}
		for name, id := range ids {
			if !strings.EqualFold(name, column.Name) {
				continue
			}
			if id.small && model.IsInexact(column.Type) {
				continue // because it is not meant for ids
			}
			fix := c.wideStatement(column, r)
			found.Limits[strings.ToLower(name)] = model.Limit{Range: r, Field: id.field, Small: id.small, Name: column.Name, Type: column.Type, Fix: fix, Lenient: column.Lenient}
			if !id.small && c.once("narrow", column.Table, column.Name) {
				c.Log.Warn("uidplugin: this column is too narrow for ids: a create or an update with an id that does not fit fails."+
					" Run the statement; docs/from-auto-increment.md has those for columns with foreign key constraints.",
					"table", column.Table, "column", column.Name, "type", column.Type, "statement", fix)
			}
		}
	}
	return found
}

// guard makes a statement fail if it has a number that does not fit its column, or a text for a number column. clauses
// come first in the statement.
func (c *Catalog) guard(db *gorm.DB, clauses ...string) {
	stmt := db.Statement
	t, place := c.tableOf(stmt, clauses[0])
	if db.Error != nil || t == nil {
		return
	}
	known := t.known.Load()
	if len(known.ids) == 0 {
		return
	}
	found := known.places[place]
	// Skip SQLite, because it keeps 64 bits and a transaction that has read may become unable to write.
	if c.expired(found) && c.reader != nil && !db.DryRun && c.db.Dialector.Name() != "sqlite" {
		switch columns, err := c.columns(stmt, place, known.ids); {
		case err == nil:
			found = c.learn(t, known, place, columns)
		case found != nil && found.Limits != nil: // use the previous limits
		case sqldb.IsUnreachable(err) || sqldb.IsTransient(err):
			if c.db.Dialector.Name() == "mysql" { // because MySQL may be lenient
				_ = db.AddError(fmt.Errorf("uidplugin: the columns of the table %s could not be read, so ids may not fit into them: %w", stmt.Table, err))
			}
			return
		default:
			if c.once("unread", stmt.Table, "") {
				c.Log.Warn("uidplugin: the columns of this table could not be read, so ids may not fit into them", "table", stmt.Table, "error", err)
			}
			found = c.learn(t, known, place, nil)
		}
	}
	limited, typed := found != nil && len(found.Limits) > 0, isTyped(stmt)
	if !limited && typed {
		return
	}
	model.BeforeBuild(stmt, func() {
		if !typed {
			_ = stmt.AddError(model.RefuseTexts(stmt, known.numbers, c.public.IsText))
		}
		if limited && found.Check(stmt) != nil {
			_ = stmt.AddError(c.reread(stmt, t, place, found).Check(stmt))
		}
	}, clauses...)
}

// isTyped reports whether a statement writes only the model's fields.
func isTyped(stmt *gorm.Statement) bool {
	t := reflect.TypeOf(stmt.Dest)
	for t != nil && (t.Kind() == reflect.Pointer || t.Kind() == reflect.Slice || t.Kind() == reflect.Array) {
		t = t.Elem()
	}
	conflict, _ := stmt.Clauses["ON CONFLICT"].Expression.(clause.OnConflict)
	return stmt.Schema != nil && t == stmt.Schema.ModelType && len(conflict.DoUpdates) == 0 && stmt.Clauses["SET"].Expression == nil
}

// tableOf returns the table that a statement writes to, or nil if unknown, and its name in the statement. The clause
// name may name another table than the model's.
func (c *Catalog) tableOf(stmt *gorm.Statement, name string) (t *table, place string) {
	var other clause.Table
	switch e := stmt.Clauses[name].Expression.(type) {
	case clause.Insert:
		other = e.Table
	case clause.Update:
		other = e.Table
	}
	place = stmt.Table
	if other.Name != "" && other.Name != clause.CurrentTable {
		place = stmt.Quote(other)
	} else if stmt.TableExpr != nil {
		place = stmt.TableExpr.SQL
	}
	if stmt.Schema != nil {
		if t = c.Plan(stmt.Schema).table; len(t.known.Load().ids) > 0 {
			return t, place
		}
	}
	first, _, _ := strings.Cut(place, " ") // without the alias
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.tables[strings.Trim(first[strings.LastIndexByte(first, '.')+1:], "`\",")], place
}

// columns reads the columns of a statement's table, on its connection. See [sqldb.DB.ColumnsFor].
func (c *Catalog) columns(stmt *gorm.Statement, place string, ids map[string]idColumn) ([]sqldb.Column, error) {
	names := make(map[string]bool, len(ids))
	for name, id := range ids {
		names[name] = !id.small
	}
	reader := c.reader.On(stmt.ConnPool)
	if place != stmt.Table {
		return reader.ColumnsFor(stmt.Context, place, names)
	}
	columns, err := reader.ColumnsFor(stmt.Context, stmt.Quote(place), names)
	for i := range columns {
		columns[i].Table = place
	}
	return columns, err
}

// wideStatement returns a statement that makes a column hold all ids, or a description on SQLite.
func (c *Catalog) wideStatement(column sqldb.Column, r model.Range) string {
	table, name, kind := column.Table, c.quote(column.Name), "BIGINT"
	if !strings.ContainsAny(table, "`\" ") {
		table = c.quote(table)
	}
	if r.Characters > 0 {
		kind = "VARCHAR(20)"
	} else if strings.Contains(column.Type, "unsigned") {
		kind = "BIGINT UNSIGNED"
	}
	switch c.db.Dialector.Name() {
	case "sqlite":
		return "creating the table again with " + name + " " + kind
	case "postgres":
		return "ALTER TABLE " + table + " ALTER COLUMN " + name + " TYPE " + kind
	}
	rest := " NOT NULL"
	if column.Nullable {
		rest = ""
	}
	switch d := column.Default; {
	case d == "" || d == "NULL":
	case strings.ContainsAny(d, "'("): // MariaDB quotes texts and writes expressions as they are
		rest += " DEFAULT " + d
	default:
		rest += " DEFAULT '" + d + "'"
	}
	if column.Auto {
		rest += " AUTO_INCREMENT"
	}
	if column.Comment != "" {
		rest += " COMMENT '" + strings.NewReplacer(`\`, `\\`, "'", "''").Replace(column.Comment) + "'"
	}
	return "ALTER TABLE " + table + " MODIFY " + name + " " + kind + rest
}

// quote quotes a name for the dialect.
func (c *Catalog) quote(name string) string {
	var quoted strings.Builder
	c.db.Dialector.QuoteTo(&quoted, name)
	return quoted.String()
}
