package harness

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/uidplugin/uidplugin/generator"
	"github.com/uidplugin/uidplugin/internal/sqldb"
	"github.com/uidplugin/uidplugin/internal/testkit"
	"github.com/uidplugin/uidplugin/migrations"
	"github.com/uidplugin/uidplugin/workernode"
	"gorm.io/gorm"
)

// Nodes returns all rows of WORKER_NODE.
func Nodes(t *testing.T, db *gorm.DB) []*workernode.Node {
	t.Helper()
	d, err := workernode.Open(db, time.Minute)
	testkit.Must(t, err)
	nodes, err := d.Nodes(context.Background(), 0, 10000)
	testkit.Must(t, err)
	return nodes
}

// Slots returns all rows of WORKER_SLOT.
func Slots(t *testing.T, db *gorm.DB) []workernode.Slot {
	t.Helper()
	d, err := workernode.Open(db, time.Minute)
	testkit.Must(t, err)
	r, err := d.Registry(context.Background())
	testkit.Must(t, err)
	layout, err := generator.ParseLayout(r.Layout)
	testkit.Must(t, err)
	all, err := d.Slots(context.Background(), layout, 0, 10000)
	testkit.Must(t, err)
	return all
}

// Exec runs a statement without the callbacks of GORM. Its names are in double quotes, on MySQL too.
func Exec(t *testing.T, db *gorm.DB, query string, args ...any) {
	t.Helper()
	d, err := sqldb.Open(db, time.Minute)
	testkit.Must(t, err)
	_, err = d.Exec(context.Background(), query, args...)
	testkit.Must(t, err)
}

// Columns describes the columns of a table as the engine reports them, sorted.
func Columns(t *testing.T, db *gorm.DB, table string) (all []string) {
	t.Helper()
	types, err := db.Migrator().ColumnTypes(table)
	testkit.Must(t, err)
	for _, c := range types {
		kind, _ := c.ColumnType()
		nullable, _ := c.Nullable()
		value, hasDefault := c.DefaultValue()
		all = append(all, fmt.Sprintf("%s %s null=%v default=%v %s", c.Name(), kind, nullable, hasDefault, value))
	}
	slices.Sort(all)
	return all
}

// Migrate runs a file of package migrations, one statement at a time.
func Migrate(t *testing.T, db *gorm.DB, file string) {
	t.Helper()
	text, err := migrations.Files.ReadFile(file)
	testkit.Must(t, err)
	for statement := range strings.SplitSeq(string(text), ";\n") {
		lines := strings.Split(strings.TrimSpace(statement), "\n")
		lines = slices.DeleteFunc(lines, func(l string) bool { return strings.HasPrefix(l, "--") || l == "" })
		if len(lines) == 0 {
			continue
		}
		if err := db.Exec(strings.Join(lines, "\n")).Error; err != nil {
			t.Fatalf("%s: %v", file, err)
		}
	}
}

// Tables lists the names of the plugin's own tables, without their prefix "WORKER_".
var Tables = []string{"NODE", "SLOT", "SESSION", "REGISTRY"}

// Snapshot copies the plugin's tables, and returns a function that restores them.
func Snapshot(t *testing.T, db *gorm.DB) (back func()) {
	t.Helper()
	for _, table := range Tables {
		Exec(t, db, `CREATE TABLE "COPY_`+table+`" AS SELECT * FROM "WORKER_`+table+`"`)
	}
	return func() {
		t.Helper()
		for _, table := range Tables {
			Exec(t, db, `DELETE FROM "WORKER_`+table+`"`)
			Exec(t, db, `INSERT INTO "WORKER_`+table+`" SELECT * FROM "COPY_`+table+`"`)
		}
	}
}

// Count returns the number of rows in a table.
func Count(t *testing.T, db *gorm.DB, table string) (n int64) {
	t.Helper()
	testkit.Must(t, db.Table(table).Count(&n).Error)
	return n
}
