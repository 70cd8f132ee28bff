// Package plugins_test runs uidplugin next to other GORM plugins, on SQLite and,
// where the environment names one, on MariaDB. It is a module of its own: users of
// uidplugin do not need what those plugins require.
package plugins_test

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/glebarez/sqlite"
	"github.com/uidplugin/uidplugin"
	"github.com/uidplugin/uidplugin/internal/testkit"
	"gorm.io/driver/mysql"
	"gorm.io/gorm"
	"gorm.io/gorm/logger"
)

// The keys of these models are plain columns by their tags, because many tests migrate with a handle without the
// plugin.
type (
	Customer struct {
		ID       int64 `gorm:"primaryKey;autoIncrement:false;uid"`
		TenantID string
		Name     string
		Orders   []Order
	}
	Order struct {
		ID         uidplugin.ID `gorm:"primaryKey;autoIncrement:false;uid"`
		TenantID   string
		CustomerID int64
		Note       string
	}
)

var shop = []any{&Customer{}, &Order{}}

// An engine is SQLite, or a database server.
type engine struct {
	name string
	env  string // variable with the DSN of a user who may do everything
}

var engines = []engine{{name: "sqlite"}, {name: "mariadb", env: "UID_TEST_MARIADB"}}

// each runs a test on all engines.
func each(t *testing.T, test func(t *testing.T, e engine)) {
	for _, e := range engines {
		t.Run(e.name, func(t *testing.T) {
			t.Parallel()
			if e.env != "" && os.Getenv(e.env) == "" {
				t.Skipf("%s is not set: no %s", e.env, e.name)
			}
			test(t, e)
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
	t.Helper()
	if e.env == "" {
		return &database{e, filepath.Join(t.TempDir(), "test.db")}
	}
	d := &database{e, fmt.Sprintf("plugins%d_%d", os.Getpid(), serial.Add(1))}
	admin := (&database{engine: e}).open(t, nil)
	must(t, admin.Exec("CREATE DATABASE "+d.schema).Error)
	t.Cleanup(func() {
		if err := admin.Exec("DROP DATABASE " + d.schema).Error; err != nil {
			t.Error(err)
		}
	})
	return d
}

// migrated returns a fresh database with tables for models, and without those of the plugin. There are no foreign
// keys, because some tests distribute rows over several databases.
func migrated(t *testing.T, e engine, models ...any) *database {
	t.Helper()
	d := fresh(t, e)
	must(t, d.open(t, &gorm.Config{DisableForeignKeyConstraintWhenMigrating: true}).AutoMigrate(models...))
	return d
}

func (d *database) dialector() gorm.Dialector {
	if d.env == "" {
		return sqlite.Open("file:" + d.schema + "?_pragma=busy_timeout(10000)&_pragma=journal_mode(WAL)&_pragma=synchronous(OFF)&_txlock=immediate")
	}
	dsn := os.Getenv(d.env)
	if d.schema != "" {
		address, query, _ := strings.Cut(dsn, "?")
		dsn = address[:strings.LastIndex(address, "/")+1] + d.schema + "?" + query
	}
	return mysql.Open(dsn)
}

// open returns a new handle with a pool of its own, which is closed when the test
// ends.
func (d *database) open(t *testing.T, config *gorm.Config) *gorm.DB {
	t.Helper()
	if config == nil {
		config = &gorm.Config{}
	}
	if config.Logger == nil {
		config.Logger = logger.Discard
	}
	db, err := gorm.Open(d.dialector(), config)
	must(t, err)
	closePool(t, db.Config.ConnPool)
	return db
}

// closePool closes a pool when the test ends.
func closePool(t *testing.T, pool gorm.ConnPool) {
	if prepared, ok := pool.(*gorm.PreparedStmtDB); ok {
		pool = prepared.ConnPool
	}
	t.Cleanup(func() { _ = pool.(interface{ Close() error }).Close() })
}

var quiet = uidplugin.WithLogger(slog.New(slog.DiscardHandler))

// plugin returns a new plugin, which is closed when the test ends.
func plugin(t *testing.T, options ...uidplugin.Option) *uidplugin.Plugin {
	p := uidplugin.New(append([]uidplugin.Option{quiet}, options...)...)
	t.Cleanup(func() { _ = p.Close(context.Background()) })
	return p
}

// ordered calls a test twice: with p registered before the other plugin, and after it.
func ordered(t *testing.T, test func(t *testing.T, use func(db *gorm.DB, p, other gorm.Plugin))) {
	t.Run("before", func(t *testing.T) {
		test(t, func(db *gorm.DB, p, other gorm.Plugin) {
			t.Helper()
			must(t, db.Use(p))
			must(t, db.Use(other))
		})
	})
	t.Run("after", func(t *testing.T) {
		test(t, func(db *gorm.DB, p, other gorm.Plugin) {
			t.Helper()
			must(t, db.Use(other))
			must(t, db.Use(p))
		})
	})
}

// workers returns the worker ids of a database by table.
func workers(t *testing.T, d *database) map[string][]int64 {
	t.Helper()
	var nodes []struct {
		ID    int64  `gorm:"column:ID"`
		Table string `gorm:"column:TABLE_NAME"`
	}
	must(t, d.open(t, nil).Raw("SELECT ID, TABLE_NAME FROM WORKER_NODE WHERE TABLE_NAME <> ''").Scan(&nodes).Error)
	byTable := map[string][]int64{}
	for _, n := range nodes {
		byTable[n.Table] = append(byTable[n.Table], n.ID)
	}
	return byTable
}

// oneWorkerEach checks that a database has exactly one worker id for each of the tables.
func oneWorkerEach(t *testing.T, d *database, tables ...string) {
	t.Helper()
	got := workers(t, d)
	for _, table := range tables {
		if len(got[table]) != 1 {
			t.Errorf("table %s has the worker ids %v, want one", table, got[table])
		}
	}
	if len(got) != len(tables) {
		t.Errorf("there are worker ids %v; want them for %v", got, tables)
	}
}

// untouched checks that databases have none of the plugin's tables.
func untouched(t *testing.T, databases ...*database) {
	t.Helper()
	for _, d := range databases {
		for _, table := range []string{"WORKER_NODE", "WORKER_SLOT", "WORKER_SESSION", "WORKER_REGISTRY"} {
			if d.open(t, nil).Migrator().HasTable(table) {
				t.Errorf("%s is in %s, too", table, d.schema)
			}
		}
	}
}

// count returns how many rows of a model a database has.
func count(t *testing.T, d *database, model any) (n int64) {
	t.Helper()
	must(t, d.open(t, nil).Model(model).Count(&n).Error)
	return n
}

// located checks that the plugin of db leads an id to a table.
func located(t *testing.T, db *gorm.DB, id int64, table string) {
	t.Helper()
	where, err := uidplugin.From(db).Locate(context.Background(), uidplugin.ID(id))
	if err != nil || where.Table != table {
		t.Errorf("Locate(%d) = %+v, %v; want table %s", id, where, err, table)
	}
}

// foundName returns the name of the customer that Find returns.
func foundName(t *testing.T, db *gorm.DB, id int64) (string, error) {
	t.Helper()
	row, err := uidplugin.From(db).Find(context.Background(), uidplugin.ID(id))
	if err != nil {
		return "", err
	}
	c, ok := row.(*Customer)
	if !ok || c.ID != id {
		t.Fatalf("Find(%d) = %#v", id, row)
	}
	return c.Name, nil
}

func must(t *testing.T, err error) {
	t.Helper()
	testkit.Must(t, err)
}
