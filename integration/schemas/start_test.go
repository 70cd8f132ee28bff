package schemas_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/uidplugin/uidplugin"
	"github.com/uidplugin/uidplugin/generator"
	"github.com/uidplugin/uidplugin/integration/internal/harness"
	"github.com/uidplugin/uidplugin/internal/plugintest"
	"github.com/uidplugin/uidplugin/internal/testkit"
	"github.com/uidplugin/uidplugin/migrations"
	"github.com/uidplugin/uidplugin/segment"
	"github.com/uidplugin/uidplugin/workernode"
	"gorm.io/gorm"
)

// Formerly a process whose search path did not lead to the registry began a second one, which made the same ids. The
// first process used the second registry at its next start, too.
func TestUse_RefusesASecondRegistryOfADatabase(t *testing.T) {
	t.Parallel()
	testkit.Each(t, func(t *testing.T, d *testkit.Database) {
		tenant := d.Beside(t)
		started(t, d, "public")
		before, first := tables(t, d), space(t, d, "public")
		started(t, d, tenant+",public") // the path leads to it
		for range 2 {
			_, err := start(t, d, tenant)
			testkit.IsError(t, err, uidplugin.ErrTable, `"`+tenant+`"`, `"public"`, "WithSchema", "search path")
			testkit.IsError(t, migrations.Up(t.Context(), d.Open(t, nil, "search_path="+tenant)), uidplugin.ErrTable, "migrations.In", `"public"`)
		}
		started(t, d, tenant+",public")
		if after := tables(t, d); !slices.Equal(after, before) || space(t, d, "public") != first {
			t.Errorf("the tables were %q and are %q", before, after)
		}
		started(t, d, tenant, uidplugin.WithSchema("public"))
		if after := tables(t, d); !slices.Equal(after, before) {
			t.Errorf("the tables were %q and are %q", before, after)
		}
	}, "postgres")
}

// With WithWorkerID no registry tells where the segment table is. Formerly a process whose search path did not lead to it
// made a second one: of 100 numbers 50 were there twice.
func TestUse_RefusesASecondSegmentTableOfADatabase(t *testing.T) {
	t.Parallel()
	testkit.Each(t, func(t *testing.T, d *testkit.Database) {
		tenant, other := d.Beside(t), d.Beside(t)
		open := func(path string, options ...uidplugin.Option) error {
			_, err := start(t, d, path, append(options, uidplugin.WithWorkerID(640), uidplugin.WithModels(&ticket{}))...)
			return err
		}
		testkit.Must(t, d.Open(t, nil, "search_path="+other).Exec("CREATE TABLE leaf_alloc (leaf int)").Error) // of another program
		testkit.Must(t, open(tenant+",public"))
		testkit.IsError(t, open("public"), uidplugin.ErrTable, "leaf_alloc", `"public"`, `segment.Config{Schema: "`+tenant+`"}`)
		testkit.Must(t, open(tenant))
		testkit.Must(t, open("public", uidplugin.WithSegments(segment.Config{Schema: tenant})))
		testkit.Must(t, open("public", uidplugin.WithSegments(segment.Config{Schema: "public"})))
		testkit.Must(t, open("public"))
	}, "postgres")
}

// Processes that start at once in an empty schema, with one search path, all use the segment table that one of them makes.
func TestUse_ProcessesThatStartAtOnceShareTheSegmentTable(t *testing.T) {
	t.Parallel()
	testkit.Each(t, func(t *testing.T, d *testkit.Database) {
		for range 5 {
			schema := d.Beside(t)
			var starts sync.WaitGroup
			for range 6 {
				db := d.Open(t, nil, "search_path="+schema)
				starts.Go(func() {
					g, err := segment.Open(t.Context(), db, "orders", segment.Config{Log: slog.New(slog.DiscardHandler)})
					if err != nil {
						t.Error(err)
						return
					}
					g.Close()
				})
			}
			starts.Wait()
			testkit.Must(t, d.Open(t, nil, "search_path="+schema).Exec("DROP TABLE leaf_alloc").Error)
		}
	}, "postgres")
}

// Services that each have a schema say so, and then no process uses one of them by chance.
func TestWithSchema_NamesTheTables(t *testing.T) {
	t.Parallel()
	testkit.Each(t, func(t *testing.T, d *testkit.Database) {
		for _, name := range []string{d.Beside(t), `it's "one" of.a?`, `WORKER_SLOT`} {
			quoted := `"` + strings.ReplaceAll(name, `"`, `""`) + `"`
			admin := d.Open(t, nil)
			testkit.Must(t, admin.Exec("CREATE SCHEMA IF NOT EXISTS "+quoted).Error)
			db, p := started(t, d, "", uidplugin.WithSchema(name), uidplugin.WithModels(&letter{}, &ticket{}))
			testkit.Must(t, db.AutoMigrate(&letter{}, &ticket{}))
			row := letter{Town: "Ulm"}
			testkit.Must(t, db.Create(&row).Error)
			testkit.Must(t, db.Create(&ticket{}).Error)
			if l, err := p.Locate(t.Context(), row.ID); err != nil || l.Table != "letters" {
				t.Errorf("%s: %+v, %v", name, l, err)
			}
			if found, err := p.Find(t.Context(), row.ID); err != nil || found.(*letter).Town != "Ulm" {
				t.Errorf("%s: %+v, %v", name, found, err)
			}
			testkit.Must(t, migrations.CreateFunctions(t.Context(), admin, migrations.In(name)))
			harness.Close(t, p)
			testkit.Must(t, db.Migrator().DropTable(&letter{}, &ticket{}))
			space(t, d, name)
		}
		_, err := start(t, d, "")
		testkit.IsError(t, err, uidplugin.ErrTable, "WithSchema", `"public"`)
		_, err = start(t, d, "", uidplugin.WithSchema("missing"))
		testkit.IsError(t, err, uidplugin.ErrOption, `"missing"`, "CREATE SCHEMA")
	}, "postgres")
}

// A process with WithSchema may begin a second id space next to processes without the option, which run on and make the
// same ids: of 40,000 ids 19,955 were there twice. It is not refused, because services that each have a schema do so on
// purpose. But the log says so, which it formerly did not.
func TestWithSchema_TellsThatItBeginsAnotherIDSpaceOfTheDatabase(t *testing.T) {
	t.Parallel()
	testkit.Each(t, func(t *testing.T, d *testkit.Database) {
		const line = "has begun an id space in this schema"
		one, two := d.Beside(t), d.Beside(t)
		var log testkit.Log
		begin := func(schema string, lines int) {
			t.Helper()
			started(t, d, "public", uidplugin.WithSchema(schema), uidplugin.WithLogger(log.Logger()))
			if got := log.Lines(line); len(got) != lines {
				t.Errorf("with the schema %s: %q", schema, got)
			}
		}
		begin(one, 0) // the only one
		begin(one, 0)
		testkit.Must(t, migrations.Up(t.Context(), d.Open(t, nil), migrations.In(two))) // a job creates the tables
		begin(two, 1)
		log.SaysOnce(t, "schema="+two+" other_schema="+one)
		begin(two, 1)
		begin(one, 1)
	}, "postgres")
}

func TestWithSchema_IsForPostgreSQL(t *testing.T) {
	t.Parallel()
	testkit.Each(t, func(t *testing.T, d *testkit.Database) {
		_, err := start(t, d, "", uidplugin.WithSchema("shop"))
		testkit.IsError(t, err, uidplugin.ErrOption, "WithSchema", "PostgreSQL")
		if left := tables(t, d); len(left) > 0 {
			t.Errorf("%q are there", left)
		}
	}, "sqlite", "mariadb", "mysql")
}

// Processes of an empty database that start at once, with different search paths, begin one registry.
func TestUse_ProcessesThatStartAtOnceBeginOneRegistry(t *testing.T) {
	t.Parallel()
	testkit.Each(t, func(t *testing.T, d *testkit.Database) {
		var starts sync.WaitGroup
		var mu sync.Mutex
		began := map[string]int{}
		for range 6 {
			schema := d.Beside(t)
			for range 2 {
				db := d.Open(t, nil, "search_path="+schema)
				p := uidplugin.New(harness.Quiet)
				t.Cleanup(func() { _ = p.Close(context.Background()) })
				starts.Go(func() {
					err := db.Use(p)
					if err != nil && !errors.Is(err, uidplugin.ErrTable) {
						t.Error(err)
					}
					mu.Lock()
					defer mu.Unlock()
					if err == nil {
						began[schema]++
					}
				})
			}
		}
		starts.Wait()
		if len(began) != 1 {
			t.Errorf("registries began in %v", began)
		}
		registries := slices.DeleteFunc(tables(t, d), func(name string) bool { return !strings.HasSuffix(name, ".WORKER_REGISTRY") })
		if len(registries) != 1 {
			t.Errorf("%q are there", registries)
		}
	}, "postgres")
}

// A dump of a MySQL server with lower_case_table_names = 1, or a tool that does not quote names, makes tables in lower
// case. Formerly a second id space began next to them.
func TestUse_RefusesTablesInAnotherSpelling(t *testing.T) {
	t.Parallel()
	testkit.Each(t, func(t *testing.T, d *testkit.Database) {
		db, _ := started(t, d, "", uidplugin.WithModels(&letter{}))
		testkit.Must(t, db.AutoMigrate(&letter{}))
		row := letter{}
		testkit.Must(t, db.Create(&row).Error)
		harness.Close(t, uidplugin.From(db))
		for _, table := range []string{"WORKER_NODE", "WORKER_SLOT", "WORKER_SESSION", "WORKER_REGISTRY"} {
			testkit.Must(t, db.Migrator().RenameTable(table, strings.ToLower(table)))
		}
		before := tables(t, d)
		_, err := start(t, d, "")
		testkit.IsError(t, err, uidplugin.ErrTable, "worker_", "upper case", "RENAME TO")
		if after := tables(t, d); !slices.Equal(after, before) {
			t.Errorf("%q are there", after)
		}
		// The statement of the error is for one table, and is the same for the others.
		statement := err.Error()[strings.Index(err.Error(), "ALTER TABLE"):]
		for _, table := range []string{"NODE", "SLOT", "SESSION", "REGISTRY"} {
			each := statement
			for _, named := range []string{"NODE", "REGISTRY"} {
				each = strings.ReplaceAll(strings.ReplaceAll(each, "WORKER_"+named, "WORKER_"+table),
					"worker_"+strings.ToLower(named), "worker_"+strings.ToLower(table))
			}
			testkit.Must(t, db.Exec(each).Error)
		}
		_, again := started(t, d, "")
		if l, err := again.Locate(t.Context(), row.ID); err != nil || l.Table != "letters" {
			t.Errorf("%+v, %v", l, err)
		}
	}, "mariadb", "mysql", "postgres")
}

// An application may have tables with such names for its own workers.
func TestUse_AcceptsOtherTablesInLowerCase(t *testing.T) {
	t.Parallel()
	testkit.Each(t, func(t *testing.T, d *testkit.Database) {
		for _, table := range []string{"worker_node", "worker_slot", "worker_session", "worker_registry"} {
			testkit.Must(t, d.Open(t, nil).Exec("CREATE TABLE "+table+" (id int, name varchar(9))").Error)
		}
		started(t, d, "")
	}, "mariadb", "mysql", "postgres")
}

// A refused start must not create anything, because the next process would find it.
func TestUse_CreatesNothingIfItIsRefused(t *testing.T) {
	t.Parallel()
	testkit.Each(t, func(t *testing.T, d *testkit.Database) {
		refused := map[string][]uidplugin.Option{
			"an option": {uidplugin.WithLead(time.Nanosecond)},
		}
		if d.Name != "sqlite" { // it has no clock of its own
			refused["the clock"] = []uidplugin.Option{uidplugin.WithClock(func() time.Time { return time.Now().Add(time.Hour) }),
				plugintest.WithMaxSkew(time.Minute)}
		}
		for name, options := range refused {
			if _, err := start(t, d, "", options...); err == nil {
				t.Errorf("%s: no error", name)
			}
		}
		if d.IsMySQL() {
			db := d.Open(t, nil, "autocommit=0")
			if err := db.Use(uidplugin.New(harness.Quiet)); err == nil || !strings.Contains(err.Error(), "autocommit") {
				t.Errorf("autocommit: %v", err)
			}
		}
		if left := tables(t, d); len(left) > 0 {
			t.Errorf("%q are there", left)
		}
		// Tables of an earlier version are not extended by a process with another layout.
		started(t, d, "")
		db := d.Open(t, nil)
		testkit.Must(t, db.Exec(strings.NewReplacer("~", map[bool]string{true: "`", false: `"`}[d.IsMySQL()]).
			Replace("ALTER TABLE ~WORKER_REGISTRY~ DROP COLUMN ~STRIDE~")).Error)
		_, err := start(t, d, "", uidplugin.WithLayout(generator.JSSafeLayout()))
		testkit.IsError(t, err, workernode.ErrLayoutMismatch)
		if db.Migrator().HasColumn(&registry{}, "STRIDE") {
			t.Error("the tables were extended")
		}
	})
}

type registry struct{}

func (registry) TableName() string { return "WORKER_REGISTRY" }

// A database may be dumped and restored under another name, and a schema may be renamed: nothing in the rows names it.
func TestUse_FindsTablesUnderAnotherName(t *testing.T) {
	t.Parallel()
	testkit.Each(t, func(t *testing.T, d *testkit.Database) {
		from, to := d.Beside(t), fmt.Sprint("renamed_", d.Schema)
		home := &testkit.Database{Engine: d.Engine, Schema: from}
		if d.Name == "postgres" {
			home = &testkit.Database{Engine: d.Engine, Schema: d.Schema, Path: from}
		}
		db, _ := started(t, home, "", uidplugin.WithLead(300*time.Millisecond), uidplugin.WithModels(&letter{}))
		testkit.Must(t, db.AutoMigrate(&letter{}))
		row := letter{}
		testkit.Must(t, db.Create(&row).Error)
		before := space(t, d, from)
		moved := rename(t, d, db, from, to)
		testkit.Eventually(t, "the process notices", time.Minute, func() bool {
			err := uidplugin.From(db).Health()
			return err != nil && strings.Contains(err.Error(), "restart the process") && strings.Contains(err.Error(), from)
		})
		_, again := started(t, moved, "")
		if l, err := again.Locate(t.Context(), row.ID); err != nil || l.Table != "letters" || space(t, d, to) != before {
			t.Errorf("%+v, %v", l, err)
		}
	}, "mariadb", "mysql", "postgres")
}

// rename gives a schema, or the tables of a database, another name.
func rename(t *testing.T, d *testkit.Database, db *gorm.DB, from, to string) *testkit.Database {
	t.Helper()
	admin := d.Open(t, nil)
	if d.Name == "postgres" {
		testkit.Must(t, admin.Exec("ALTER SCHEMA "+from+" RENAME TO "+to).Error)
		return &testkit.Database{Engine: d.Engine, Schema: d.Schema, Path: to}
	}
	testkit.Must(t, admin.Exec("CREATE DATABASE "+to).Error)
	t.Cleanup(func() { admin.Exec("DROP DATABASE " + to) })
	for _, table := range []string{"WORKER_NODE", "WORKER_SLOT", "WORKER_SESSION", "WORKER_REGISTRY", "letters"} {
		testkit.Must(t, admin.Exec("RENAME TABLE "+from+"."+table+" TO "+to+"."+table).Error)
	}
	return &testkit.Database{Engine: d.Engine, Schema: to}
}

// Plugins with one handle of WithRegistry share the tables that were found on it.
func TestWithSchema_OfASharedRegistry(t *testing.T) {
	t.Parallel()
	testkit.Each(t, func(t *testing.T, d *testkit.Database) {
		schema := d.Beside(t)
		shared, other := d.Open(t, nil), d.New(t)
		_, err := start(t, d, "") // another id space of the database
		testkit.Must(t, err)
		of := func(options ...uidplugin.Option) error {
			_, err := start(t, other, "", append(options, uidplugin.WithRegistry(shared))...)
			return err
		}
		testkit.Must(t, of(uidplugin.WithSchema(schema)))
		testkit.Must(t, of(uidplugin.WithSchema(schema)))
		testkit.IsError(t, of(), uidplugin.ErrOption, "WithSchema", `"`+schema+`"`)
		if left := tables(t, other); len(left) > 0 {
			t.Errorf("%q are in the database of the handle", left)
		}
	}, "postgres")
}

// Formerly a process of a region that was refused because of UidGenerator had begun the divided registry.
func TestWithRegion_LeavesUidGeneratorsTableAsItIs(t *testing.T) {
	t.Parallel()
	testkit.Each(t, func(t *testing.T, d *testkit.Database) {
		testkit.Must(t, d.Open(t, nil).Exec("CREATE TABLE WORKER_NODE (ID BIGINT NOT NULL AUTO_INCREMENT PRIMARY KEY, HOST_NAME VARCHAR(64) NOT NULL,"+
			" PORT VARCHAR(64) NOT NULL, TYPE INT NOT NULL, LAUNCH_DATE DATE NOT NULL, MODIFIED TIMESTAMP NOT NULL DEFAULT CURRENT_TIMESTAMP,"+
			" CREATED TIMESTAMP NOT NULL DEFAULT CURRENT_TIMESTAMP)").Error)
		before := tables(t, d)
		_, err := start(t, d, "", uidplugin.WithRegion(0, 2))
		testkit.IsError(t, err, uidplugin.ErrRegion, "UidGenerator")
		if after := tables(t, d); !slices.Equal(after, before) {
			t.Errorf("%q are there", after)
		}
		started(t, d, "")
	}, "mariadb", "mysql")
}
