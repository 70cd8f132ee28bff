// Package narrow keeps ids out of columns that are too narrow for them, because MySQL without strict mode silently
// stores another number there. It checks every 64-bit field, because each may be a foreign key.
//
// Columns are read when the model is listed, or at the first create or update. If all are wide enough, later
// statements only load a pointer. Before a statement is refused, the columns are read again, at most once a second,
// because somebody may have widened one.
package narrow

import (
	"fmt"
	"log/slog"
	"reflect"
	"regexp"
	"strings"
	"sync"

	"github.com/uidplugin/uidplugin/internal/catalog"
	"github.com/uidplugin/uidplugin/internal/config"
	"github.com/uidplugin/uidplugin/internal/inspect"
	"github.com/uidplugin/uidplugin/internal/model"
	"github.com/uidplugin/uidplugin/internal/sqldb"
	"gorm.io/gorm"
	"gorm.io/gorm/clause"
)

// A Guard knows which columns of tables are too narrow for ids. It is safe for concurrent use.
type Guard struct {
	db      *gorm.DB
	reader  *sqldb.DB // reads columns; nil if the handle does not have connections
	catalog *catalog.Catalog
	log     *slog.Logger

	models sync.Map // *table by *schema.Schema
	warned sync.Map // logged warnings, by kind, table and column

	mu     sync.Mutex
	tables map[string]*table // by the table names of models
}

// New returns a Guard of a handle. The argument sql, which reads columns, may be nil.
func New(cfg *config.Config, db *gorm.DB, sql *sqldb.DB, models *catalog.Catalog) *Guard {
	if sql == nil {
		sql, _ = sqldb.Open(db, cfg.Timeout)
	}
	return &Guard{db: db, reader: sql, catalog: models, log: cfg.Log, tables: map[string]*table{}}
}

// BeforeInsert makes an INSERT fail if an id does not fit into its column.
func (g *Guard) BeforeInsert(db *gorm.DB) { g.guard(db, "INSERT", "VALUES") }

// BeforeUpdate makes an UPDATE fail if an id does not fit into its column.
func (g *Guard) BeforeUpdate(db *gorm.DB) { g.guard(db, "UPDATE", "SET") }

// AfterExec forgets all columns if an Exec, such as one of a migration, may have changed columns of a table.
func (g *Guard) AfterExec(db *gorm.DB) {
	if definition.MatchString(db.Statement.SQL.String()) {
		g.forget()
	}
}

// definition matches the beginning of a statement that may change columns of a table, and comments before it.
var definition = regexp.MustCompile(`(?is)^(?:\s|(?:--|#)[^\n]*\n|/\*.*?\*/)*(?:ALTER|CREATE|DROP|RENAME)\b`)

// Inspect warns of columns that are too narrow for ids.
func (g *Guard) Inspect(columns []inspect.Column) {
	byTable := map[string][]inspect.Column{}
	for _, column := range columns {
		byTable[column.Table] = append(byTable[column.Table], column)
	}
	for name, columns := range byTable {
		place := name
		if strings.Count(name, ".") == 1 {
			place = sqldb.Quoted(g.db.Dialector, name) // because GORM then gives statements a TableExpr
		}
		g.mu.Lock()
		t := g.tables[name]
		g.mu.Unlock()
		if t != nil {
			g.learn(t, t.known.Load(), place, columns)
		}
	}
}

// once reports whether a warning about a column is the first of its kind.
func (g *Guard) once(kind, table, column string) bool {
	_, before := g.warned.LoadOrStore([3]string{kind, table, column}, true)
	return !before
}

// guard makes a statement fail if a number does not fit into its column, or if a number column gets a text.
func (g *Guard) guard(db *gorm.DB, clauses ...string) {
	stmt := db.Statement
	t, place := g.tableOf(stmt, clauses[0])
	if db.Error != nil || t == nil {
		return
	}
	known := t.known.Load()
	if len(known.ids) == 0 {
		return
	}
	found := known.places[place]
	// Skip SQLite, because its integers have 64 bits, and a transaction that has read may become unable to write.
	if g.expired(found) && g.reader != nil && !db.DryRun && g.db.Dialector.Name() != "sqlite" {
		switch columns, err := g.columns(stmt, place, known.ids); {
		case err == nil:
			found = g.learn(t, known, place, columns)
		case found != nil && found.Limits != nil: // use the previous limits
		case sqldb.IsUnreachable(err) || sqldb.IsTransient(err):
			if g.db.Dialector.Name() == "mysql" { // because MySQL may be lenient
				_ = db.AddError(fmt.Errorf("uidplugin: the columns of the table %s could not be read, so ids may not fit into them: %w", stmt.Table, err))
			}
			return
		default:
			if g.once("unread", stmt.Table, "") {
				g.log.Warn("uidplugin: the columns of this table could not be read, so ids may not fit into them", "table", stmt.Table, "error", err)
			}
			found = g.learn(t, known, place, nil)
		}
	}
	limited, typed := found != nil && len(found.Limits) > 0, isTyped(stmt)
	if !limited && typed {
		return
	}
	model.BeforeBuild(stmt, func() {
		if !typed {
			_ = stmt.AddError(refuseTexts(stmt, known.numbers))
		}
		if limited && found.Check(stmt) != nil {
			_ = stmt.AddError(g.reread(stmt, t, place, found).Check(stmt))
		}
	}, clauses...)
}

// isTyped reports whether a statement takes all its values from structs of the model.
func isTyped(stmt *gorm.Statement) bool {
	t := reflect.TypeOf(stmt.Dest)
	for t != nil && (t.Kind() == reflect.Pointer || t.Kind() == reflect.Slice || t.Kind() == reflect.Array) {
		t = t.Elem()
	}
	conflict, _ := stmt.Clauses["ON CONFLICT"].Expression.(clause.OnConflict)
	return stmt.Schema != nil && t == stmt.Schema.ModelType && len(conflict.DoUpdates) == 0 && stmt.Clauses["SET"].Expression == nil
}

// tableOf returns the table that a statement writes to, or nil if unknown, and its name in the statement. The
// clause with the given name, INSERT or UPDATE, may override the model's table.
func (g *Guard) tableOf(stmt *gorm.Statement, name string) (t *table, place string) {
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
		if t = g.tableFor(stmt.Schema); len(t.known.Load().ids) > 0 {
			return t, place
		}
	}
	first, _, _ := strings.Cut(place, " ") // without the alias
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.tables[strings.Trim(first[strings.LastIndexByte(first, '.')+1:], "`\",")], place
}
