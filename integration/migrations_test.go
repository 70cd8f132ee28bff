package integration_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/uidplugin/uidplugin"
	"github.com/uidplugin/uidplugin/migrations"
	"gorm.io/gorm"
)

// columns describes the columns of a table as the engine sees them, sorted.
func columns(t *testing.T, db *gorm.DB, table string) (all []string) {
	t.Helper()
	types, err := db.Migrator().ColumnTypes(table)
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range types {
		kind, _ := c.ColumnType()
		nullable, _ := c.Nullable()
		value, hasDefault := c.DefaultValue()
		all = append(all, fmt.Sprintf("%s %s null=%v default=%v %s", c.Name(), kind, nullable, hasDefault, value))
	}
	slices.Sort(all)
	return all
}

// byHand runs a file of package migrations statement by statement.
func byHand(t *testing.T, db *gorm.DB, file string) {
	t.Helper()
	text, err := migrations.Files.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
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

func (d *database) file() string {
	if d.isMySQL() {
		return "mysql.sql"
	}
	return d.name + ".sql"
}

// Who migrates manually gets what the plugin would have made, and the plugin then
// works without the right to migrate.
func TestMigrationByHand(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, d *database) {
		other := fresh(t, d.engine)
		hand, plugin := open(t, d), open(t, other)
		byHand(t, hand, d.file())
		use(t, plugin)
		for _, table := range []string{"WORKER_NODE", "WORKER_SLOT", "WORKER_SESSION", "WORKER_REGISTRY"} {
			a, b := columns(t, hand, table), columns(t, plugin, table)
			if len(a) == 0 || !slices.Equal(a, b) {
				t.Errorf("%s manually:\n%s\nby the plugin:\n%s", table, strings.Join(a, "\n"), strings.Join(b, "\n"))
			}
		}
		byHand(t, hand, d.file()) // again: nothing to do
		p := use(t, hand, uidplugin.WithoutMigration(), uidplugin.WithModels(&T1{}))
		if len(p.Stats().Tables) != 1 {
			t.Errorf("%+v", p.Stats())
		}
	})
}

// The two ways to extend UidGenerator's table have the same columns, and those of
// a new table, but for what UidGenerator itself has said of its seven.
func TestExtensionByHand(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, d *database) {
		create := strings.ReplaceAll(uidGeneratorTable, "TIMESTAMP NOT NULL", "TIMESTAMP NOT NULL DEFAULT CURRENT_TIMESTAMP")
		other, third := fresh(t, d.engine), fresh(t, d.engine)
		hand, plugin, new := open(t, d), open(t, other), open(t, third)
		for _, db := range []*gorm.DB{hand, plugin} {
			if err := db.Exec(create).Error; err != nil {
				t.Fatal(err)
			}
		}
		byHand(t, hand, "mysql_uidgenerator.sql")
		use(t, plugin)
		use(t, new)
		a, b, c := columns(t, hand, "WORKER_NODE"), columns(t, plugin, "WORKER_NODE"), columns(t, new, "WORKER_NODE")
		if !slices.Equal(a, b) || !slices.Equal(a, c) {
			t.Errorf("manually:\n%s\nby the plugin:\n%s\nnew:\n%s", strings.Join(a, "\n"), strings.Join(b, "\n"), strings.Join(c, "\n"))
		}
		for _, db := range []*gorm.DB{hand, plugin} {
			if !db.Migrator().HasIndex("WORKER_NODE", "IDX_WORKER_NODE_SLOT") {
				t.Error("no index on SLOT")
			}
		}
	}, "mariadb", "mysql")
}

// Many migrate one database at once: an empty one, and one of UidGenerator's.
func TestMigrationsAtOnce(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, d *database) {
		for round := range 6 {
			d := fresh(t, d.engine)
			if round%2 == 1 && d.isMySQL() {
				create := strings.ReplaceAll(uidGeneratorTable, "TIMESTAMP NOT NULL", "TIMESTAMP NOT NULL DEFAULT CURRENT_TIMESTAMP")
				if err := open(t, d).Exec(create).Error; err != nil {
					t.Fatal(err)
				}
			}
			var wg sync.WaitGroup
			for range 8 {
				wg.Go(func() {
					db, err := d.connect(nil)
					if err != nil {
						t.Error(err)
						return
					}
					p := uidplugin.New(quiet, uidplugin.WithModels(&T1{}))
					if err := db.Use(p); err != nil {
						t.Error(err)
					}
					_ = p.Close(context.Background())
					pool, _ := db.DB()
					_ = pool.Close()
				})
			}
			wg.Wait()
		}
	})
}
