// Package plugins_test runs uidplugin next to other GORM plugins, on SQLite and, where the environment names one, on
// MariaDB. It is a module of its own, because users of uidplugin do not need these plugins.
package plugins_test

import (
	"context"
	"log/slog"
	"testing"

	"github.com/uidplugin/uidplugin"
	"github.com/uidplugin/uidplugin/internal/testkit"
	"gorm.io/gorm"
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

var must = testkit.Must

// each runs a test on SQLite and MariaDB.
func each(t *testing.T, test func(t *testing.T, e testkit.Engine)) {
	t.Helper()
	testkit.Each(t, func(t *testing.T, d *testkit.Database) { test(t, d.Engine) }, "sqlite", "mariadb")
}

// migrated returns a new database with tables for models, and without those of the plugin. There are no foreign keys,
// because some tests distribute rows over several databases.
func migrated(t *testing.T, e testkit.Engine, models ...any) *testkit.Database {
	t.Helper()
	d := e.New(t)
	must(t, d.Open(t, &gorm.Config{DisableForeignKeyConstraintWhenMigrating: true}).AutoMigrate(models...))
	return d
}

// dialector returns a dialector for a further pool of a database.
func dialector(d *testkit.Database) gorm.Dialector { return d.Dialector(d.DSN()) }

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
func workers(t *testing.T, d *testkit.Database) map[string][]int64 {
	t.Helper()
	var nodes []struct {
		ID    int64  `gorm:"column:ID"`
		Table string `gorm:"column:TABLE_NAME"`
	}
	must(t, d.Open(t, nil).Raw("SELECT ID, TABLE_NAME FROM WORKER_NODE WHERE TABLE_NAME <> ''").Scan(&nodes).Error)
	byTable := map[string][]int64{}
	for _, n := range nodes {
		byTable[n.Table] = append(byTable[n.Table], n.ID)
	}
	return byTable
}

// oneWorkerEach checks that a database has exactly one worker id for each of the tables.
func oneWorkerEach(t *testing.T, d *testkit.Database, tables ...string) {
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
func untouched(t *testing.T, databases ...*testkit.Database) {
	t.Helper()
	for _, d := range databases {
		for _, table := range []string{"WORKER_NODE", "WORKER_SLOT", "WORKER_SESSION", "WORKER_REGISTRY"} {
			if d.Open(t, nil).Migrator().HasTable(table) {
				t.Errorf("%s is in %s, too", table, d.Schema)
			}
		}
	}
}

// count returns how many rows of a model a database has.
func count(t *testing.T, d *testkit.Database, model any) (n int64) {
	t.Helper()
	must(t, d.Open(t, nil).Model(model).Count(&n).Error)
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

// finds checks that Find returns the customer of a name.
func finds(t *testing.T, db *gorm.DB, id int64, want string) {
	t.Helper()
	if name, err := foundName(t, db, id); err != nil || name != want {
		t.Errorf("Find(%d) = %q, %v; want %q", id, name, err, want)
	}
}

// created creates a row, or several, and returns what the plugin has made of them.
func created[T any](t *testing.T, db *gorm.DB, rows T) T {
	t.Helper()
	must(t, db.Create(&rows).Error)
	return rows
}
