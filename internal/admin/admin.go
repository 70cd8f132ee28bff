// Package admin examines and changes an id space for operators. It returns plain values, without formatting.
package admin

import (
	"context"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"time"

	"github.com/uidplugin/uidplugin"
	"github.com/uidplugin/uidplugin/generator"
	"github.com/uidplugin/uidplugin/internal/sqldb"
	"github.com/uidplugin/uidplugin/workernode"
	"gorm.io/gorm"
)

// GORM's names of the supported databases.
const (
	mysql    = "mysql"
	postgres = "postgres"
	sqlite   = "sqlite"
)

// A DB is a database that has the registry of an id space, or only tables whose registry is in another database.
type DB struct {
	SQL   *sqldb.DB
	Nodes *workernode.DB

	Schema   string           // of the tables on PostgreSQL, as given by --schema; if empty, ReadRegistry finds it
	Now      func() time.Time // clock of this machine
	Registry workernode.Registry
	Layout   generator.Layout

	Others  map[string]*DB // other databases with tables of the id space, by their names in WORKER_NODE
	Regions []*DB          // databases of other regions, whose registries were read

	gorm    *gorm.DB
	timeout time.Duration // per statement
}

// Connect returns a DB on the pool of db. It sends no statement. Call [DB.ReadRegistry] before anything else.
func Connect(db *gorm.DB, timeout time.Duration, now func() time.Time) (*DB, error) {
	statements, err := sqldb.Open(db, timeout)
	if err != nil {
		return nil, err
	}
	return &DB{SQL: statements, Nodes: workernode.New(statements), Now: now, gorm: db, timeout: timeout}, nil
}

var noTable = regexp.MustCompile(`Error 1146 |SQLSTATE 42P01|no such table`)

var errNoSpace = errors.New("this database has no id space")

// HasNoSpace reports whether an error of [DB.ReadRegistry] means that no process has begun an id space here.
func HasNoSpace(err error) bool {
	return errors.Is(err, errNoSpace) || errors.Is(err, workernode.ErrNotBegun)
}

// ReadRegistry finds the tables, and reads the layout and the registry.
func (d *DB) ReadRegistry(ctx context.Context) (err error) {
	if d.Schema != "" && d.SQL.Dialect() != postgres {
		return errors.New("--schema is for PostgreSQL only; on other databases the tables are in the database of --dsn")
	}
	d.SQL, err = workernode.Locate(ctx, d.SQL, sqldb.Place{Schema: d.Schema, Option: "--schema"})
	if err != nil {
		return err
	}
	d.Nodes = workernode.New(d.SQL)
	if d.Registry, err = d.Nodes.Registry(ctx); err != nil {
		if noTable.MatchString(err.Error()) {
			return fmt.Errorf("%w; with WithRegistry, use the registry's data source name: %w", errNoSpace, err)
		}
		return d.explainVersion(ctx, err)
	}
	d.Layout, err = generator.ParseLayout(d.Registry.Layout)
	return err
}

// explainVersion adds advice to an error from reading the registry, if the tables are of an earlier version.
func (d *DB) explainVersion(ctx context.Context, failed error) error {
	columns, err := d.columns(ctx, d.schema(), workernode.RegistryTable)
	isLatest := func(c column) bool { return c.Name == "FIRST_ID" }
	if err != nil || len(columns) == 0 || slices.ContainsFunc(columns, isLatest) {
		return failed
	}
	return fmt.Errorf("the tables are of an earlier version of uidplugin, because WORKER_REGISTRY has no column FIRST_ID: "+
		"start a process of this version, or run migrations.Up: %w", failed)
}

// schema returns the schema of the plugin's tables, as [DB.columns] takes it.
func (d *DB) schema() string {
	if d.SQL.Dialect() == sqlite {
		return ""
	}
	return d.SQL.Schema()
}

// own quotes the name of an object in the schema of the plugin's tables.
func (d *DB) own(name string) string {
	return d.SQL.Quoted(sqldb.Name{Schema: d.schema(), Table: name})
}

// AddOther adds a database that has tables of the id space, under its name in WORKER_NODE.
func (d *DB) AddOther(name string, other *DB) {
	other.Nodes, other.Registry, other.Layout = d.Nodes, d.Registry, d.Layout
	if d.Others == nil {
		d.Others = map[string]*DB{}
	}
	d.Others[name] = other
}

// Plugin registers a plugin for lookups only.
func (d *DB) Plugin(ctx context.Context) (*uidplugin.Plugin, error) {
	options := []uidplugin.Option{
		uidplugin.WithLookupOnly(), uidplugin.WithLayout(d.Layout), uidplugin.WithLogger(nil),
		uidplugin.WithTimeout(d.timeout),
	}
	if d.SQL.Dialect() == postgres {
		options = append(options, uidplugin.WithSchema(d.SQL.Schema()))
	}
	p := uidplugin.New(options...)
	if err := d.gorm.WithContext(ctx).Use(p); err != nil {
		return nil, err
	}
	return uidplugin.From(d.gorm), nil
}

// clock returns the time of the database, or of this machine if the database does not have a clock.
func (d *DB) clock(ctx context.Context) (time.Time, error) {
	now, ok, err := d.Nodes.Clock(ctx)
	if err != nil || !ok {
		return d.Now(), err
	}
	return now, nil
}

// timeOf returns the start of a tick, limited to times that JSON can express.
func (d *DB) timeOf(tick int64) time.Time { return workernode.TimeOf(d.Layout, tick) }

// tickFrom returns the lowest START_TICK of sessions that begin at t or later: one tick after their START_TICK.
func (d *DB) tickFrom(t time.Time) int64 {
	tick := d.Layout.TickAt(t)
	if tick >= 0 && !d.timeOf(tick).Before(t) {
		tick--
	}
	return max(tick, 0)
}

// lead returns how far ids may be ahead of the clock.
func (d *DB) lead() time.Duration { return time.Duration(d.Registry.LeadTicks) * d.Layout.Tick }

// A Filter limits a list to a time and a table.
type Filter struct {
	From, To time.Time // zero: unbounded
	Table    string    // TABLE or DATABASE.TABLE; empty: all tables
}

// ofTable returns a condition for the table's rows of WORKER_NODE, in any database if f.Table names no database.
func (f *Filter) ofTable() (condition string, args []any) {
	if f.Table == "" {
		return "1 = 1", nil
	}
	condition, args = `("TABLE_NAME" = ?`, []any{f.Table}
	for i, r := range f.Table {
		if r == '.' { // the names of the table and the database may contain dots
			condition += ` OR "DATABASE_NAME" = ? AND "TABLE_NAME" = ?`
			args = append(args, f.Table[:i], f.Table[i+1:])
		}
	}
	return condition + ")", args
}

// Time formats an instant in UTC; zero as "-".
func Time(t time.Time) string {
	if t.IsZero() {
		return "-"
	}
	return t.UTC().Format("2006-01-02 15:04:05.000")
}

// Count formats a number with its noun.
func Count(n int64, singular, plural string) string {
	if n == 1 {
		return "1 " + singular
	}
	return fmt.Sprintf("%d %s", n, plural)
}
