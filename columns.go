package uidplugin

import (
	"maps"
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

// MySQL without strict mode stores another number than it was given if the column is too narrow, and reports no error.
// So the plugin compares the ids of a statement with their columns before the statement is sent.
//
// The columns of a table are read when its model is listed, or at its first create or update. As long as they hold all
// ids, that is all: a statement costs a look at a pointer. Where a column is narrow, the values are compared. The column
// is read again before a statement is refused, because somebody may have widened it.

// A table is a table of the application. Any number of goroutines may use it at once.
type table struct {
	known atomic.Pointer[tableColumns] // never changed, only replaced, under the mutex of the catalog
}

// tableColumns is what is known of the columns of a table.
type tableColumns struct {
	ids    map[string]idColumn // by name
	places map[string]*limits  // by the TableExpr of statements: db.Table sends rows of a model to another table
}

// An idColumn is a column for ids: a uid field, a foreign key that refers to one, or a field of a type of this module.
type idColumn struct {
	field string // as in Order.CustomerID
	small bool   // see [model.Limit]
}

// limits are the columns of a table that are too narrow for all ids.
type limits struct {
	model.Limits
	until time.Time // when they are read again; zero: after a statement that changes a table
}

// recheck is how long limits are used that may change unnoticed: on a server that cuts off what does not fit, and of a
// table that was not found. Other servers refuse what does not fit.
const recheck = 10 * time.Second

// noteColumns notes the columns for ids in the table of a schema, and the foreign keys that refer to them.
func (c *catalog) noteColumns(s *schema.Schema) *table {
	for _, name := range s.DBNames {
		if f := s.FieldsByDBName[name]; model.HasTag(f) || model.IsKeyType(f) {
			c.noteColumn(f, f)
		}
	}
	for _, r := range model.Relations(s) {
		for _, ref := range r.References {
			// The type of a polymorphic association refers to no field.
			if pk := ref.PrimaryKey; pk != nil && slices.Contains(model.UIDFields(pk.Schema), pk) {
				c.noteColumn(ref.ForeignKey, pk)
			}
		}
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.tableNamed(s.Table)
}

// noteColumn notes that the column of f has ids of the field key.
func (c *catalog) noteColumn(f, key *schema.Field) {
	small := false
	if model.HasTag(key) {
		source, err := c.source(key)
		small = err == nil && source.Foreign
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	t := c.tableNamed(f.Schema.Table)
	before, noted := t.known.Load().ids[f.DBName]
	small = small && (before.small || !noted)
	if noted && before.small == small {
		return
	}
	ids := maps.Clone(t.known.Load().ids)
	ids[f.DBName] = idColumn{f.Schema.Name + "." + f.Name, small}
	t.known.Store(&tableColumns{ids: ids})
}

// tableNamed returns a table. The mutex is held.
func (c *catalog) tableNamed(name string) *table {
	t := c.tables[name]
	if t == nil {
		t = &table{}
		t.known.Store(&tableColumns{ids: map[string]idColumn{}})
		c.tables[name] = t
	}
	return t
}

// forgetColumns has the columns of all tables read again.
func (c *catalog) forgetColumns() {
	if c.db.Dialector.Name() == "sqlite" {
		return // where no statement changes the type of a column
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, t := range c.tables {
		t.known.Store(&tableColumns{ids: t.known.Load().ids})
	}
}

// learn returns the limits of columns, and notes them unless the table or its columns for ids have changed since they
// were read.
func (c *catalog) learn(t *table, known *tableColumns, place string, columns []sqldb.Column) *limits {
	found := c.limitsOf(known.ids, columns)
	c.mu.Lock()
	defer c.mu.Unlock()
	if t.known.Load() == known {
		places := maps.Clone(known.places)
		if len(places) == 0 || len(places) > 1000 {
			places = map[string]*limits{}
		}
		places[place] = found
		t.known.Store(&tableColumns{known.ids, places})
	}
	return found
}

// limitsOf returns which columns for ids are too narrow, and warns of them.
func (c *catalog) limitsOf(ids map[string]idColumn, columns []sqldb.Column) *limits {
	found := &limits{Limits: model.Limits{}}
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
			fix := c.wideStatement(column, r)
			found.Limits[strings.ToLower(name)] = model.Limit{Range: r, Field: id.field, Small: id.small, Name: column.Name, Type: column.Type, Fix: fix}
			if c.once("narrow", column.Table, column.Name) {
				c.Log.Warn("uidplugin: this column is too narrow for ids: a create or an update with an id that does not fit fails."+
					" Run the statement; docs/from-auto-increment.md has those for columns with foreign key constraints.",
					"table", column.Table, "column", column.Name, "type", column.Type, "statement", fix)
			}
		}
	}
	return found
}

// guard lets a statement fail that has an id for a column that does not keep it. GORM builds a statement from clauses.
// The values are known when it begins, so guard takes the place of what builds one of the given clauses: of the first
// one that the dialect does not build itself.
func (c *catalog) guard(db *gorm.DB, clauses ...string) {
	stmt := db.Statement
	t := c.tableOf(stmt)
	if db.Error != nil || c.reader == nil || t == nil {
		return
	}
	known := t.known.Load()
	if len(known.ids) == 0 {
		return
	}
	place := ""
	if stmt.TableExpr != nil {
		place = stmt.TableExpr.SQL
	}
	found := known.places[place]
	if found == nil || !found.until.IsZero() && time.Now().After(found.until) {
		if db.DryRun || c.db.Dialector.Name() == "sqlite" {
			return // SQLite keeps 64 bits, and a transaction that has read may not be able to write
		}
		columns, err := c.columns(stmt, known.ids)
		if err != nil && c.once("unread", stmt.Table, "") {
			c.Log.Warn("uidplugin: the columns of this table could not be read, so ids may not fit into them", "table", stmt.Table, "error", err)
		}
		found = c.learn(t, known, place, columns)
	}
	if len(found.Limits) == 0 {
		return
	}
	i := slices.IndexFunc(clauses, func(name string) bool { return db.ClauseBuilders[name] == nil })
	if i < 0 {
		return
	}
	name := clauses[i]
	guarded := stmt.Clauses[name]
	before := guarded.Builder
	guarded.Builder = func(cl clause.Clause, b clause.Builder) {
		if found.Check(stmt) != nil {
			known := t.known.Load()
			columns, err := c.columns(stmt, known.ids)
			if err == nil {
				err = c.learn(t, known, place, columns).Check(stmt)
			}
			_ = stmt.AddError(err)
		}
		cl.Builder = before
		cl.Build(b)
	}
	stmt.Clauses[name] = guarded
}

// tableOf returns the table of a statement, or nil if nothing is known of it.
func (c *catalog) tableOf(stmt *gorm.Statement) *table {
	if stmt.Schema != nil {
		return c.plan(stmt.Schema).table
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.tables[stmt.Table]
}

// columns reads the columns of the table of a statement, on its connection.
func (c *catalog) columns(stmt *gorm.Statement, ids map[string]idColumn) ([]sqldb.Column, error) {
	reader, names := c.reader.On(stmt.ConnPool), slices.Collect(maps.Keys(ids))
	if stmt.TableExpr != nil {
		return reader.ColumnsFor(stmt.Context, stmt.TableExpr.SQL, names)
	}
	columns, err := reader.ColumnsFor(stmt.Context, stmt.Quote(stmt.Table), names)
	for i := range columns {
		columns[i].Table = stmt.Table
	}
	return columns, err
}

// wideStatement returns the statement after which a column holds all ids. SQLite has none.
func (c *catalog) wideStatement(column sqldb.Column, r model.Range) string {
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
	case strings.ContainsAny(d, "'("): // as MariaDB writes texts, and expressions
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

// quote returns a name in the quotes of the dialect.
func (c *catalog) quote(name string) string {
	var quoted strings.Builder
	c.db.Dialector.QuoteTo(&quoted, name)
	return quoted.String()
}
