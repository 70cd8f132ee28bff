package testkit

import (
	"cmp"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/glebarez/sqlite"
	"gorm.io/driver/mysql"
	"gorm.io/driver/postgres"
	"gorm.io/gorm"
)

// An Engine is a database server, or SQLite.
type Engine struct {
	Name string // sqlite, mariadb, mysql or postgres

	// Variable is the environment variable with the data source name of a user with all rights. SQLite has none.
	Variable string
}

// Engines returns all engines, also those whose server is not available.
func Engines() []Engine {
	return []Engine{
		{Name: "sqlite"},
		MariaDB(),
		{Name: "mysql", Variable: "UID_TEST_MYSQL"},
		{Name: "postgres", Variable: "UID_TEST_POSTGRES"},
	}
}

// Available reports whether the environment names a server of the engine.
func (e Engine) Available() bool { return e.Variable == "" || os.Getenv(e.Variable) != "" }

// Need skips a test if the environment names no server of the engine. With CI=true it fails the test instead,
// except for Oracle MySQL, because not every machine can install it.
func (e Engine) Need(tb testing.TB) {
	tb.Helper()
	if e.Available() {
		return
	}
	why := fmt.Sprintf("%s is not set: no %s; make test brings one up", e.Variable, e.Name)
	if os.Getenv("CI") == "true" && e.Name != "mysql" {
		tb.Fatal(why)
	}
	tb.Skip(why)
}

// MariaDB returns the engine MariaDB.
func MariaDB() Engine { return Engine{Name: "mariadb", Variable: "UID_TEST_MARIADB"} }

// IsMySQL reports whether the engine is MySQL or MariaDB.
func (e Engine) IsMySQL() bool { return e.Name == "mariadb" || e.Name == "mysql" }

// SQLFile returns the name of the engine's SQL file in the folders migrations and segment.
func (e Engine) SQLFile() string {
	if e.IsMySQL() {
		return "mysql.sql"
	}
	return e.Name + ".sql"
}

// Dialector returns GORM's dialector for the engine.
func (e Engine) Dialector(dsn string) gorm.Dialector {
	switch e.Name {
	case "sqlite":
		return sqlite.Open(dsn)
	case "postgres":
		return postgres.Open(dsn)
	}
	return mysql.Open(dsn)
}

// Each runs a test in parallel on all engines, or on the named engines, each with a new database.
func Each(t *testing.T, test func(t *testing.T, d *Database), only ...string) {
	t.Helper()
	for _, e := range Engines() {
		if len(only) > 0 && !slices.Contains(only, e.Name) {
			continue
		}
		t.Run(e.Name, func(t *testing.T) {
			t.Parallel()
			e.Need(t)
			test(t, e.New(t))
		})
	}
}

// A Database is one database of an engine; a file for SQLite. It can be sent to child processes as JSON.
type Database struct {
	Engine
	Schema string // name, or path for SQLite; empty means the database that the DSN in Variable names
	Path   string // search_path on PostgreSQL; empty means the server's default, whose first schema is public
}

var serial atomic.Int64

// New creates an empty database, and drops it when the test ends.
func (e Engine) New(tb testing.TB) *Database {
	tb.Helper()
	d, drop, err := e.Create(tb.TempDir())
	Must(tb, err)
	tb.Cleanup(func() {
		if err := drop(); err != nil {
			tb.Error(err)
		}
	})
	return d
}

// Create creates an empty database. For SQLite it is a file in dir. The caller should call drop.
func (e Engine) Create(dir string) (d *Database, drop func() error, err error) {
	d = &Database{Engine: e, Schema: fmt.Sprintf("t%d_%d", os.Getpid(), serial.Add(1))}
	create, remove := "CREATE DATABASE "+d.Schema, "DROP DATABASE "+d.Schema
	switch e.Name {
	case "sqlite":
		d.Schema = filepath.Join(dir, d.Schema+".db")
		// Create the WAL file now, because handles that create it concurrently fail with "database is locked".
		db, err := d.Connect(nil)
		if err != nil {
			return nil, nil, err
		}
		return d, func() error { return nil }, errors.Join(db.Exec("PRAGMA user_version = 1").Error, Close(db))
	case "postgres":
		remove += " WITH (FORCE)" // connections of killed processes may be left
	}
	db, err := (&Database{Engine: e}).Connect(nil)
	if err != nil {
		return nil, nil, err
	}
	if err := db.Exec(create).Error; err != nil {
		return nil, nil, errors.Join(err, Close(db))
	}
	return d, func() error { return errors.Join(db.Exec(remove).Error, Close(db)) }, nil
}

// Beside creates another schema that statements on d's connections can name. On MySQL and MariaDB it is another
// database, which is dropped when the test ends. On PostgreSQL it is dropped together with d.
func (d *Database) Beside(tb testing.TB) (schema string) {
	tb.Helper()
	if d.Name != "postgres" {
		return d.New(tb).Schema
	}
	schema = fmt.Sprintf("s%d_%d", os.Getpid(), serial.Add(1))
	db, err := d.Connect(nil)
	Must(tb, err)
	defer func() { _ = Close(db) }()
	Must(tb, db.Exec("CREATE SCHEMA "+schema).Error)
	return schema
}

// Elsewhere is like [Database.Beside], but returns a Database.
func (d *Database) Elsewhere(tb testing.TB) *Database {
	tb.Helper()
	if d.Name != "postgres" {
		return d.New(tb)
	}
	return &Database{Engine: d.Engine, Schema: d.Schema, Path: d.Beside(tb)}
}

// Current returns the schema of unqualified names on d's connections.
func (d *Database) Current() string {
	switch d.Name {
	case "sqlite":
		return "main"
	case "postgres":
		return cmp.Or(d.Path, "public")
	}
	return d.Schema
}

// DSN returns the data source name with params, in the driver's format. SQLite and an empty Schema ignore params.
func (d *Database) DSN(params ...string) string {
	dsn := os.Getenv(d.Variable)
	switch {
	case d.Name == "sqlite":
		return fileDSN(d.Schema, "_pragma=busy_timeout(10000)", "_pragma=journal_mode(WAL)", "_txlock=immediate")
	case d.Schema == "":
		return dsn
	case d.Name == "postgres":
		path := ""
		if d.Path != "" {
			path = "search_path=" + d.Path
		}
		return strings.Join(append([]string{dsn, "dbname=" + d.Schema, path}, params...), " ")
	}
	address, query, _ := strings.Cut(dsn, "?")
	address = address[:strings.LastIndex(address, "/")+1] + d.Schema
	return address + "?" + strings.Join(append([]string{query}, params...), "&")
}

// Connect returns a handle with its own pool, which the caller should close. By default GORM does not log.
func (d *Database) Connect(config *gorm.Config, params ...string) (*gorm.DB, error) {
	return gorm.Open(d.Dialector(d.DSN(params...)), quiet(config))
}

// Open is like Connect, and closes the pool when the test ends.
func (d *Database) Open(tb testing.TB, config *gorm.Config, params ...string) *gorm.DB {
	tb.Helper()
	db, err := d.Connect(config, params...)
	Must(tb, err)
	tb.Cleanup(func() { _ = Close(db) })
	return db
}

// Close closes the pool of a handle.
func Close(db *gorm.DB) error {
	pool, err := db.DB()
	if err != nil {
		return err
	}
	return pool.Close()
}
