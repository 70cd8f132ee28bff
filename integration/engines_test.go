// Package integration_test runs the library on real databases: SQLite in the
// process, and MariaDB, Oracle MySQL and PostgreSQL where the environment names
// them. integration/servers.sh brings private ones up; make test does both.
package integration_test

import (
	"fmt"
	"os"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/uidplugin/uidplugin/internal/testkit"
	"gorm.io/gorm"
)

// An engine is a database server, or SQLite.
type engine struct {
	name string
	env  string // variable with the DSN of a user who may do everything
}

var engines = func() (all []engine) {
	for _, e := range testkit.Engines() {
		all = append(all, engine{e.Name, e.Variable})
	}
	return all
}()

func (e engine) kit() testkit.Engine { return testkit.Engine{Name: e.name, Variable: e.env} }

func (e engine) here() bool { return e.kit().Available() }

func (e engine) isMySQL() bool { return e.kit().IsMySQL() }

// TestMain says which engines are left out. go test shows what a package that
// passes prints only with -v, so at a terminal it is written there.
func TestMain(m *testing.M) {
	testkit.RunRole(testkit.Roles{createRows: testkit.Role(child), makeIDs: testkit.Role(maker),
		startAndReport: testkit.Role(started), fetchSegments: testkit.Role(segmentChild)})
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

// withoutRace skips a test of one goroutine that takes minutes with the race detector. make test runs it without.
func withoutRace(t *testing.T) {
	t.Helper()
	if testkit.Race {
		t.Skip("the race detector makes it slow and finds nothing in it; make test runs it without")
	}
}

// each runs a test on all engines, or on those named.
func each(t *testing.T, test func(t *testing.T, d *database), only ...string) {
	t.Helper()
	testkit.Each(t, func(t *testing.T, d *testkit.Database) { test(t, wrap(d)) }, only...)
}

// A database is empty when a test gets it, and its own.
type database struct {
	engine
	schema string // its name; for SQLite the file
}

func wrap(d *testkit.Database) *database {
	return &database{engine: engine{d.Name, d.Variable}, schema: d.Schema}
}

func (d *database) kit() *testkit.Database {
	return &testkit.Database{Engine: d.engine.kit(), Schema: d.schema}
}

// serial numbers what tests name themselves.
var serial atomic.Int64

// fresh makes an empty database, and drops it when the test ends.
func fresh(t *testing.T, e engine) *database { return wrap(e.kit().New(t)) }

// dsn returns the data source name of the database, with further parameters as
// the engine's driver writes them.
func (d *database) dsn(params ...string) string { return d.kit().DSN(params...) }

func (d *database) dialector(dsn string) gorm.Dialector { return d.engine.kit().Dialector(dsn) }

// connect returns a new handle with a pool of its own.
func (d *database) connect(config *gorm.Config, params ...string) (*gorm.DB, error) {
	return d.kit().Connect(config, params...)
}

// open is connect for a test, which closes the pool in the end.
func open(t *testing.T, d *database, params ...string) *gorm.DB {
	t.Helper()
	return d.kit().Open(t, nil, params...)
}
