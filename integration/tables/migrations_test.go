package tables_test

import (
	"context"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/uidplugin/uidplugin"
	"github.com/uidplugin/uidplugin/integration/internal/harness"
	"github.com/uidplugin/uidplugin/internal/testkit"
	"github.com/uidplugin/uidplugin/migrations"
	"github.com/uidplugin/uidplugin/segment"
	"github.com/uidplugin/uidplugin/workernode"
	"gorm.io/gorm"
)

// Manual migrations create the same tables as the plugin. Then the plugin works without the right to create tables.
func TestMigrations_MigrationByHand(t *testing.T) {
	t.Parallel()
	testkit.Each(t, func(t *testing.T, d *testkit.Database) {
		other := d.New(t)
		hand, plugin := d.Open(t, nil), other.Open(t, nil)
		harness.Migrate(t, hand, d.SQLFile())
		harness.Use(t, plugin)
		for _, table := range []string{"WORKER_NODE", "WORKER_SLOT", "WORKER_SESSION", "WORKER_REGISTRY"} {
			a, b := harness.Columns(t, hand, table), harness.Columns(t, plugin, table)
			if len(a) == 0 || !slices.Equal(a, b) {
				t.Errorf("%s manually:\n%s\nby the plugin:\n%s", table, strings.Join(a, "\n"), strings.Join(b, "\n"))
			}
		}
		harness.Migrate(t, hand, d.SQLFile()) // again: nothing to do
		p := harness.Use(t, hand, uidplugin.WithoutMigration(), uidplugin.WithModels(&harness.T1{}))
		if len(p.Stats().Tables) != 1 {
			t.Errorf("%+v", p.Stats())
		}
	})
}

// Both ways to extend UidGenerator's table add the same columns, equal to those of a new table. UidGenerator's own
// seven columns keep their types.
func TestMigrations_ExtensionByHand(t *testing.T) {
	t.Parallel()
	testkit.Each(t, func(t *testing.T, d *testkit.Database) {
		create := strings.ReplaceAll(uidGeneratorTable, "TIMESTAMP NOT NULL", "TIMESTAMP NOT NULL DEFAULT CURRENT_TIMESTAMP")
		other, third := d.New(t), d.New(t)
		hand, plugin, new := d.Open(t, nil), other.Open(t, nil), third.Open(t, nil)
		for _, db := range []*gorm.DB{hand, plugin} {
			testkit.Must(t, db.Exec(create).Error)
		}
		harness.Migrate(t, hand, "mysql_uidgenerator.sql")
		harness.Use(t, plugin)
		harness.Use(t, new)
		a, b, c := harness.Columns(t, hand, "WORKER_NODE"), harness.Columns(t, plugin, "WORKER_NODE"), harness.Columns(t, new, "WORKER_NODE")
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

// Many migrate one database at once: an empty one, one of UidGenerator's, and one without a version.
func TestMigrations_AtOnce(t *testing.T) {
	t.Parallel()
	testkit.Each(t, func(t *testing.T, d *testkit.Database) {
		for round := range 6 {
			d := d.New(t)
			if round%3 == 1 && d.IsMySQL() {
				create := strings.ReplaceAll(uidGeneratorTable, "TIMESTAMP NOT NULL", "TIMESTAMP NOT NULL DEFAULT CURRENT_TIMESTAMP")
				testkit.Must(t, d.Open(t, nil).Exec(create).Error)
			}
			if round%3 == 2 {
				restore(t, d.Open(t, nil), filepath.Join(dumps, "0.0.0", d.Name+".sql"))
			}
			var wg sync.WaitGroup
			for range 8 {
				wg.Go(func() {
					db, err := d.Connect(nil)
					if err != nil {
						t.Error(err)
						return
					}
					p := uidplugin.New(harness.Quiet, uidplugin.WithModels(&harness.T1{}))
					if err := db.Use(p); err != nil {
						t.Error(err)
					}
					_ = p.Close(context.Background())
					pool, _ := db.DB()
					_ = pool.Close()
				})
			}
			wg.Wait()
			if version := versionOf(t, d.Open(t, nil)); version != workernode.SchemaVersion {
				t.Errorf("round %d: the tables have version %d", round, version)
			}
		}
	})
}

// MySQL without strict mode stores another number in a column that is too narrow. A FENCE, or the end of a range, that is
// not the one that was acknowledged lets two processes make the same ids.
func TestMigrations_RefuseNarrowColumns(t *testing.T) {
	t.Parallel()
	testkit.Each(t, func(t *testing.T, d *testkit.Database) {
		db := d.Open(t, nil)
		testkit.Must(t, migrations.Up(t.Context(), db))
		alter, table := "ALTER TABLE WORKER_SLOT MODIFY FENCE INT NOT NULL", "CREATE TABLE leaf_alloc (biz_tag VARCHAR(128) PRIMARY KEY, max_id INT, step INT, description VARCHAR(256), update_time TIMESTAMP)"
		if d.Name == "postgres" {
			alter = `ALTER TABLE "WORKER_SLOT" ALTER COLUMN "FENCE" TYPE INT`
		}
		testkit.Must(t, db.Exec(alter).Error)
		for _, err := range []error{migrations.Up(t.Context(), db), migrations.Check(t.Context(), db), db.Use(uidplugin.New(harness.Quiet))} {
			testkit.IsError(t, err, workernode.ErrTable, "WORKER_SLOT", "FENCE", "BIGINT")
		}
		testkit.Must(t, db.Exec(table).Error)
		_, err := segment.Open(t.Context(), db, "orders", segment.Config{})
		testkit.IsError(t, err, workernode.ErrTable, "max_id", "BIGINT")
	}, "mariadb", "mysql", "postgres")
}
