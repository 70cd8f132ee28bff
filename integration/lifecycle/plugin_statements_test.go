package lifecycle_test

import (
	"context"
	"database/sql/driver"
	"errors"
	"regexp"
	"strings"
	"sync"
	"testing"

	"github.com/DATA-DOG/go-sqlmock"
	"github.com/uidplugin/uidplugin"
	"github.com/uidplugin/uidplugin/generator"
	"github.com/uidplugin/uidplugin/internal/plugintest"
	"github.com/uidplugin/uidplugin/internal/testkit"
	"github.com/uidplugin/uidplugin/workernode"
	"gorm.io/gorm"
)

// fresh has the statements that db.Use sends to an empty database.
func fresh(t *testing.T, dialect string, sql func(string) string) (steps []plugintest.Step) {
	t.Helper()
	all := plugintest.Probes(sql)[1+len(plugintest.Modes(sql)):]
	again, version, probed, next := all[0], all[1], all[2:], 0
	absent := again
	absent.Err, version.Rows = errors.New("no such table"), plugintest.Columns("SCHEMA_VERSION") // and no row
	steps = append(append([]plugintest.Step{plugintest.AbsentTables(sql)}, plugintest.Modes(sql)...), absent)
	for _, create := range plugintest.Creates(t, dialect) {
		if strings.HasPrefix(create, "CREATE TABLE") {
			probed[next].Err = errors.New("no such table")
			steps = append(steps, probed[next])
			next++
		}
		if next == 1 && strings.HasPrefix(create, "CREATE TABLE") { // what refuses the start comes before the first change
			steps = append(append(steps, plugintest.Connections(sql)[1:]...), absent)
		}
		steps = append(steps, plugintest.Step{Do: "exec", SQL: creating(dialect, create)})
	}
	return append(append(append(steps, again, version), plugintest.Connections(sql)...),
		plugintest.Step{SQL: plugintest.Reading(sql), Args: plugintest.Registry(sql, "").Args},
		plugintest.Step{SQL: sql(plugintest.AnySlot), Args: []driver.Value{"default"}, Rows: plugintest.Columns("any").AddRow(false)},
		plugintest.Step{SQL: sql(plugintest.LargestNode), Args: []driver.Value{generator.DefaultLayout().MaxWorkerID()}, Rows: plugintest.Columns("largest").AddRow(0)},
		plugintest.Taken(sql),
		plugintest.Step{Do: "exec", SQL: sql(plugintest.BeginRegistry), Args: []driver.Value{"default", sqlmock.AnyArg(), plugintest.FewLayout, plugintest.LeadTicks, 1025, 1, workernode.SchemaVersion, 1, 0, 1025}, N: 1},
		plugintest.Registry(sql, plugintest.FewLayout),
	)
}

// creating is a CREATE statement of the file in the schema of a mock. On PostgreSQL the registry is created if no other
// schema has one.
func creating(dialect, create string) string {
	quoted := regexp.MustCompile("[`\"]WORKER_[A-Z]+[`\"]")
	if dialect == "mysql" {
		return quoted.ReplaceAllString(create, "`shop`.$0")
	}
	create = quoted.ReplaceAllString(create, `"public".$0`)
	if !strings.Contains(create, "WORKER_REGISTRY") {
		return create
	}
	return `DO $$
DECLARE
  other text;
BEGIN
  PERFORM pg_catalog.pg_advisory_xact_lock(8460293374992187393);
  SELECT nspname INTO other FROM pg_catalog.pg_class c JOIN pg_catalog.pg_namespace n ON n.oid = relnamespace
    WHERE relname = 'WORKER_REGISTRY' AND relkind IN ('r', 'p', 'v', 'f') AND nspname !~ '^pg_' AND nspname <> 'public';
  IF FOUND THEN
    RAISE EXCEPTION 'another process has created WORKER_REGISTRY in the schema %', other;
  END IF;
  ` + create + `;
END $$`
}

func TestPluginInitialize_OnAnEmptyDatabaseCreatesTheTablesAndNothingMore(t *testing.T) {
	t.Parallel()

	plugintest.OnDialects(t, func(t *testing.T, d plugintest.Dialect, db *gorm.DB, mock sqlmock.Sqlmock) {
		plugintest.Expect(mock, fresh(t, d.Name, d.SQL)...)
		plugintest.Use(t, db, plugintest.OnMock...)
	})
}

func TestPluginInitialize_OnAMigratedDatabaseOnlyReads(t *testing.T) {
	t.Parallel()

	for _, d := range plugintest.Dialects {
		for _, variant := range []struct {
			name    string
			options []uidplugin.Option
			steps   []plugintest.Step
		}{
			{"migration", nil, plugintest.Migrated(d.SQL)},
			{"without migration", []uidplugin.Option{uidplugin.WithoutMigration()}, plugintest.Checked(d.SQL)},
		} {
			t.Run(d.Name+"/"+variant.name, func(t *testing.T) {
				t.Parallel()

				db, mock := testkit.Mock(t, d.Dial)
				plugintest.Expect(mock, variant.steps...)
				plugintest.Use(t, db, append(variant.options, plugintest.OnMock...)...)
			})
		}
	}
}

// With a low number it only looks whether there is a registry that gives out low numbers.
func TestPluginInitialize_WithWorkerIDOnlyLooksForARegistry(t *testing.T) {
	t.Parallel()

	plugintest.OnDialects(t, func(t *testing.T, d plugintest.Dialect, db *gorm.DB, mock sqlmock.Sqlmock) {
		plugintest.Expect(mock, d.WithoutRegistry()...)
		plugintest.Use(t, db, uidplugin.WithWorkerID(7), uidplugin.WithModels(&plugintest.Invoice{}, &plugintest.Article{}))
	})
}

func TestPluginInitialize_TakesWorkerIDsForAllModelsInOneStatement(t *testing.T) {
	t.Parallel()

	plugintest.OnDialects(t, func(t *testing.T, d plugintest.Dialect, db *gorm.DB, mock sqlmock.Sqlmock) {
		plugintest.Expect(mock, plugintest.Migrated(d.SQL)...)
		asks := plugintest.Process{SQL: d.SQL, Slot: 7}
		plugintest.Expect(mock, asks.Adds(58, "articles", "invoices")...)
		plugintest.Use(t, db, append(plugintest.OnMock, uidplugin.WithModels(&plugintest.Invoice{}, &plugintest.Article{}))...)

		tables := uidplugin.From(db).Stats().Tables
		if len(tables) != 2 || tables[0].Table != "articles" || tables[0].WorkerIDs[0] != 58 || tables[1].WorkerIDs[0] != 59 {
			t.Errorf("the tables are %+v", tables)
		}
	})
}

// faults fails the n-th statement, and only that, and notes which one it was.
type faults struct {
	mu     sync.Mutex
	n      int // how many statements pass before
	failed string
}

func (f *faults) before(_ context.Context, query string) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.n--; f.n != -1 {
		return nil
	}
	f.failed = query
	return plugintest.ErrBroken
}

// end returns the statement that failed, if one did. No other one fails from then on.
func (f *faults) end() string {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.n = -1
	return f.failed
}

// A db.Use fails at each of its statements in turn, and leaves nothing behind; then the same plugin gets on with the
// same handle.
func TestPluginInitialize_FailsAtEveryStatementAndCanBeRepeated(t *testing.T) {
	t.Parallel()

	refused := 0
	for n := 0; ; n++ {
		db, f := plugintest.Bare(t), &faults{n: n}
		plugintest.Tapped(db, f.before)
		p := uidplugin.New(uidplugin.WithLogger(nil), uidplugin.WithModels(&plugintest.Part{}, &plugintest.Article{}))
		err := db.Use(p)
		failed := f.end()
		// A probe that fails means that the table is missing. What creates an index is tried again.
		harmless := strings.Contains(failed, "pragma_table_info") || strings.HasPrefix(failed, "CREATE INDEX")
		switch {
		case err == nil && failed != "" && !harmless:
			t.Errorf("no error, although this failed: %s", failed)
		case err != nil:
			refused++
			testkit.IsError(t, err, plugintest.ErrBroken, "uidplugin: ")
			plugintest.Unregistered(t, db)
			testkit.IsError(t, p.Register(t.Context(), &plugintest.Part{}), uidplugin.ErrNotRegistered)
			must(t, db.Use(p))
		}
		if db.Callback().Create().Get("uidplugin:fill") == nil {
			t.Errorf("%s: db.Use has registered nothing", failed)
		}
		plugintest.Migrate(t, db, &plugintest.Part{})
		r := plugintest.Part{}
		must(t, db.Create(&r).Error)
		plugintest.IsOurs(t, db, "parts", r.ID)
		testkit.MustClose(t, p)
		if failed == "" {
			break
		}
	}
	if refused < 20 {
		t.Errorf("only %d statements were broken", refused)
	}
}

// The same for the first create of a table: the row stays as it was, and the next create works.
func TestCreate_FailsWhereTheStatementsForAWorkerIDFail(t *testing.T) {
	t.Parallel()

	refused := 0
	for n := 0; ; n++ {
		db, f := plugintest.Bare(t), &faults{n: 1 << 30}
		plugintest.Tapped(db, f.before)
		plugintest.Use(t, db)
		plugintest.Migrate(t, db, &plugintest.Part{})
		f.mu.Lock()
		f.n = n
		f.mu.Unlock()
		r := plugintest.Part{}
		err := db.Create(&r).Error
		failed := f.end()
		switch {
		case err == nil && failed != "":
			t.Errorf("no error, although this failed: %s", failed)
		case err != nil:
			refused++
			testkit.IsError(t, err, plugintest.ErrBroken, "uidplugin: no worker id for parts")
			if r.ID != 0 || plugintest.Count(t, db, "parts") != 0 {
				t.Errorf("%s: the key is %d, %d rows", failed, r.ID, plugintest.Count(t, db, "parts"))
			}
			must(t, db.Create(&r).Error)
		}
		plugintest.IsOurs(t, db, "parts", r.ID)
		if failed == "" {
			break
		}
	}
	if refused < 15 {
		t.Errorf("only %d statements were broken", refused)
	}
}

// An application on a database that may forget commits is told so, with what the database is set to.
func TestPluginInitialize_WarnsOfADatabaseThatForgets(t *testing.T) {
	t.Parallel()

	for _, tt := range []struct {
		dialect     int
		name, value string
		says        []string
	}{
		{0, "innodb_flush_log_at_trx_commit", "0", []string{"innodb_flush_log_at_trx_commit = 0 loses"}},
		{0, "innodb_flush_log_at_trx_commit", "2", nil},
		{0, "innodb_flush_log_at_trx_commit", "1", nil},
		{1, "synchronous_commit", "off", []string{"synchronous_commit = off loses"}},
		{1, "synchronous_commit", "local", nil},
		{1, "synchronous_commit", "on", nil},
	} {
		d := plugintest.Dialects[tt.dialect]
		db, mock := testkit.Mock(t, d.Dial)
		steps := plugintest.Migrated(d.SQL)
		for i := range steps {
			if asked := plugintest.Settings(d.SQL); steps[i].SQL == asked.SQL {
				steps[i].Rows.AddRow(tt.name, tt.value)
			}
		}
		plugintest.Expect(mock, steps...)
		j := &plugintest.Journal{}
		must(t, db.Use(uidplugin.New(append(plugintest.OnMock, j.Option())...)))
		warnings := strings.Join(j.Lines("two rows could get the same id"), "")
		if n := strings.Count(warnings, " loses "); n != len(tt.says) {
			t.Errorf("%s = %s: %d warnings: %s", tt.name, tt.value, n, warnings)
		}
		saysAll(t, warnings, tt.says...)
	}
}
