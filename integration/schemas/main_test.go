// Package schemas_test tests in which schema, or database, the plugin looks for its tables.
package schemas_test

import (
	"context"
	"slices"
	"strings"
	"testing"

	"github.com/uidplugin/uidplugin"
	"github.com/uidplugin/uidplugin/integration/internal/harness"
	"github.com/uidplugin/uidplugin/internal/testkit"
	"gorm.io/gorm"
)

func TestMain(m *testing.M) { harness.Main(m, nil) }

// letter has keys of the plugin, and ticket those of a segment.
type letter struct {
	ID   uidplugin.ID `gorm:"primaryKey;uid"`
	Town string
}

type ticket struct {
	ID int64 `gorm:"primaryKey;autoIncrement:false;uid:segment"`
}

// start opens a plugin on a pool of its own, like a process. It returns the error of db.Use.
func start(t *testing.T, d *testkit.Database, path string, options ...uidplugin.Option) (*gorm.DB, error) {
	t.Helper()
	var params []string
	if path != "" {
		params = append(params, "search_path="+path)
	}
	db := d.Open(t, nil, params...)
	p := uidplugin.New(append([]uidplugin.Option{harness.Quiet}, options...)...)
	err := db.Use(p)
	t.Cleanup(func() { _ = p.Close(context.Background()) })
	return db, err
}

// started is start of a process that is not refused.
func started(t *testing.T, d *testkit.Database, path string, options ...uidplugin.Option) (*gorm.DB, *uidplugin.Plugin) {
	t.Helper()
	db, err := start(t, d, path, options...)
	testkit.Must(t, err)
	return db, uidplugin.From(db)
}

// tables returns the plugin's tables with their schemas, in any spelling.
func tables(t *testing.T, d *testkit.Database) (list []string) {
	t.Helper()
	query := "SELECT CONCAT(table_schema, '.', table_name) FROM information_schema.tables WHERE table_schema = DATABASE()" +
		" AND LOWER(table_name) LIKE 'worker%'"
	if d.Name == "postgres" {
		query = "SELECT table_schema || '.' || table_name FROM information_schema.tables WHERE lower(table_name) LIKE 'worker%'"
	} else if d.Name == "sqlite" {
		query = "SELECT name FROM sqlite_master WHERE name LIKE 'worker%'"
	}
	testkit.Must(t, d.Open(t, nil).Raw(query).Scan(&list).Error)
	slices.Sort(list)
	return list
}

// space returns the ID_SPACE of the registry in a schema, or in the database.
func space(t *testing.T, d *testkit.Database, schema string) (name string) {
	t.Helper()
	q := "`"
	if d.Name == "postgres" {
		q = `"`
	}
	table := q + "WORKER_REGISTRY" + q
	if schema != "" {
		table = q + strings.ReplaceAll(schema, q, q+q) + q + "." + table
	}
	var names []string
	testkit.Must(t, d.Open(t, nil).Raw("SELECT "+q+"ID_SPACE"+q+" FROM "+table).Scan(&names).Error)
	if len(names) != 1 {
		t.Fatalf("%s has %d rows", table, len(names))
	}
	return names[0]
}
