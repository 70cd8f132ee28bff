// Package integration_test runs the library on real databases: SQLite in the
// process, and MariaDB, Oracle MySQL and PostgreSQL where the environment names
// them. integration/servers.sh brings private ones up; make test does both.
package integration_test

import (
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
	"gorm.io/gorm/logger"
)

// An engine is a database server, or SQLite.
type engine struct {
	name string
	env  string // variable with the DSN of a user who may do everything
}

var engines = []engine{
	{name: "sqlite"},
	{name: "mariadb", env: "UID_TEST_MARIADB"},
	{name: "mysql", env: "UID_TEST_MYSQL"},
	{name: "postgres", env: "UID_TEST_POSTGRES"},
}

func (e engine) here() bool { return e.env == "" || os.Getenv(e.env) != "" }

func (e engine) isMySQL() bool { return e.name == "mariadb" || e.name == "mysql" }

// TestMain tells which engines are left out. go test shows what a package that
// passes prints only with -v, so whoever sits at a terminal is told there.
func TestMain(m *testing.M) {
	if runChild() {
		return
	}
	var absent []string
	for _, e := range engines {
		if !e.here() {
			absent = append(absent, e.name)
		}
	}
	if len(absent) > 0 {
		text := fmt.Sprintf("integration: left out, for there is no server: %s; make test brings them up\n", strings.Join(absent, ", "))
		fmt.Print(text)
		if tty, err := os.OpenFile("/dev/tty", os.O_WRONLY, 0); err == nil {
			fmt.Fprint(tty, text)
			_ = tty.Close()
		}
	}
	os.Exit(m.Run())
}

// each runs a test on all engines, or on those named.
func each(t *testing.T, test func(t *testing.T, d *database), only ...string) {
	for _, e := range engines {
		if len(only) > 0 && !slices.Contains(only, e.name) {
			continue
		}
		t.Run(e.name, func(t *testing.T) {
			t.Parallel()
			if !e.here() {
				t.Skipf("%s is not set: no %s", e.env, e.name)
			}
			test(t, fresh(t, e))
		})
	}
}

// A database is empty when a test gets it, and its own.
type database struct {
	engine
	schema string // its name; for SQLite the file
}

var serial atomic.Int64

// fresh makes an empty database, and drops it when the test ends.
func fresh(t *testing.T, e engine) *database {
	d := &database{engine: e, schema: fmt.Sprintf("t%d_%d", os.Getpid(), serial.Add(1))}
	create, drop := "CREATE DATABASE "+d.schema, "DROP DATABASE "+d.schema
	switch e.name {
	case "sqlite":
		d.schema = filepath.Join(t.TempDir(), "test.db")
		// Several that make the file a WAL at once get "database is locked" at once.
		db, err := d.connect(nil)
		if err != nil {
			t.Fatal(err)
		}
		if err := errors.Join(db.Exec("PRAGMA user_version = 1").Error, closed(db)); err != nil {
			t.Fatal(err)
		}
		return d
	case "postgres":
		create, drop = "CREATE SCHEMA "+d.schema, "DROP SCHEMA "+d.schema+" CASCADE"
	}
	admin := open(t, &database{engine: e})
	if err := admin.Exec(create).Error; err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := admin.Exec(drop).Error; err != nil {
			t.Error(err)
		}
	})
	return d
}

// dsn returns the data source name of the database, with further parameters as
// the engine's driver writes them.
func (d *database) dsn(params ...string) string {
	dsn := os.Getenv(d.env)
	switch {
	case d.name == "sqlite":
		return "file:" + d.schema + "?_pragma=busy_timeout(10000)&_pragma=journal_mode(WAL)&_txlock=immediate"
	case d.schema == "":
		return dsn
	case d.name == "postgres":
		return strings.Join(append([]string{dsn, "search_path=" + d.schema}, params...), " ")
	}
	address, query, _ := strings.Cut(dsn, "?")
	address = address[:strings.LastIndex(address, "/")+1] + d.schema
	return address + "?" + strings.Join(append([]string{query}, params...), "&")
}

func (d *database) dialector(dsn string) gorm.Dialector {
	switch d.name {
	case "sqlite":
		return sqlite.Open(dsn)
	case "postgres":
		return postgres.Open(dsn)
	}
	return mysql.Open(dsn)
}

// connect returns a new handle with a pool of its own.
func (d *database) connect(config *gorm.Config, params ...string) (*gorm.DB, error) {
	if config == nil {
		config = &gorm.Config{}
	}
	if config.Logger == nil {
		config.Logger = logger.Discard
	}
	return gorm.Open(d.dialector(d.dsn(params...)), config)
}

// open is connect for a test, which closes the pool in the end.
func open(t *testing.T, d *database, params ...string) *gorm.DB {
	t.Helper()
	db, err := d.connect(nil, params...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if pool, err := db.DB(); err == nil {
			_ = pool.Close()
		}
	})
	return db
}
