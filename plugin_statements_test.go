package uidplugin_test

import (
	"context"
	"database/sql/driver"
	"errors"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/DATA-DOG/go-sqlmock"
	"github.com/uidplugin/uidplugin"
	"github.com/uidplugin/uidplugin/generator"
	"github.com/uidplugin/uidplugin/internal/testkit"
	"github.com/uidplugin/uidplugin/migrations"
	"github.com/uidplugin/uidplugin/workernode"
	"gorm.io/gorm"
)

// invoice and article are models of mocked databases.
type invoice struct {
	ID    int64 `gorm:"primaryKey;autoIncrement:false;uid"`
	Total int
}

type article struct {
	ID   uidplugin.ID `gorm:"primaryKey;uid"`
	Name string
}

// fresh has the statements that db.Use sends to an empty database.
func fresh(t *testing.T, dialect string, sql func(string) string) (steps []step) {
	t.Helper()
	all := probes(sql)[1+len(modes(sql)):]
	again, version, probed, next := all[0], all[1], all[2:], 0
	absent := again
	absent.err, version.rows = errors.New("no such table"), columns("SCHEMA_VERSION") // and no row
	steps = append(append([]step{absentTables(sql)}, modes(sql)...), absent)
	for _, create := range creates(t, dialect) {
		if strings.HasPrefix(create, "CREATE TABLE") {
			probed[next].err = errors.New("no such table")
			steps = append(steps, probed[next])
			next++
		}
		if next == 1 && strings.HasPrefix(create, "CREATE TABLE") { // what refuses the start comes before the first change
			steps = append(append(steps, connections(sql)[1:]...), absent)
		}
		steps = append(steps, step{do: "exec", sql: creating(dialect, create)})
	}
	return append(append(append(steps, again, version), connections(sql)...),
		step{sql: reading(sql), args: registry(sql, "").args},
		step{sql: sql(anySlot), args: []driver.Value{"default"}, rows: columns("any").AddRow(false)},
		step{sql: sql(largestNode), args: []driver.Value{generator.DefaultLayout().MaxWorkerID()}, rows: columns("largest").AddRow(0)},
		taken(sql),
		step{do: "exec", sql: sql(beginRegistry), args: []driver.Value{"default", sqlmock.AnyArg(), fewLayout, leadTicks, 1025, 1, workernode.SchemaVersion, 1, 0, 1025}, n: 1},
		registry(sql, fewLayout),
	)
}

// absentTables is the query for the schema of tables that do not exist.
func absentTables(sql func(string) string) step {
	s := located(sql)
	if sql("?") != "?" {
		s.rows = columns("p, a, b, c, d, e").AddRow(`["public"]`, "public", false, "", "", false)
	}
	return s
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

	onDialects(t, func(t *testing.T, d dialect, db *gorm.DB, mock sqlmock.Sqlmock) {
		expect(mock, fresh(t, d.name, d.sql)...)
		use(t, db, onMock...)
	})
}

func TestPluginInitialize_OnAMigratedDatabaseOnlyReads(t *testing.T) {
	t.Parallel()

	for _, d := range dialects {
		for _, variant := range []struct {
			name    string
			options []uidplugin.Option
			steps   []step
		}{
			{"migration", nil, migrated(d.sql)},
			{"without migration", []uidplugin.Option{uidplugin.WithoutMigration()}, checked(d.sql)},
		} {
			t.Run(d.name+"/"+variant.name, func(t *testing.T) {
				t.Parallel()

				db, mock := testkit.Mock(t, d.dial)
				expect(mock, variant.steps...)
				use(t, db, append(variant.options, onMock...)...)
			})
		}
	}
}

// With a low number it only looks whether there is a registry that gives out low numbers.
func TestPluginInitialize_WithWorkerIDOnlyLooksForARegistry(t *testing.T) {
	t.Parallel()

	onDialects(t, func(t *testing.T, d dialect, db *gorm.DB, mock sqlmock.Sqlmock) {
		expect(mock, d.withoutRegistry()...)
		use(t, db, uidplugin.WithWorkerID(7), uidplugin.WithModels(&invoice{}, &article{}))
	})
}

func TestPluginInitialize_TakesWorkerIDsForAllModelsInOneStatement(t *testing.T) {
	t.Parallel()

	onDialects(t, func(t *testing.T, d dialect, db *gorm.DB, mock sqlmock.Sqlmock) {
		expect(mock, migrated(d.sql)...)
		asks := process{sql: d.sql, slot: 7}
		expect(mock, asks.adds(58, "articles", "invoices")...)
		use(t, db, append(onMock, uidplugin.WithModels(&invoice{}, &article{}))...)

		tables := uidplugin.From(db).Stats().Tables
		if len(tables) != 2 || tables[0].Table != "articles" || tables[0].WorkerIDs[0] != 58 || tables[1].WorkerIDs[0] != 59 {
			t.Errorf("the tables are %+v", tables)
		}
	})
}

// unregistered checks that a failed db.Use has left nothing behind.
func unregistered(t *testing.T, db *gorm.DB) {
	t.Helper()
	if len(db.Plugins) != 0 {
		t.Errorf("registered: %v", db.Plugins)
	}
	create := db.Callback().Create()
	for _, name := range []string{"uidplugin:fill", "uidplugin:refill", "uidplugin:before_insert", "uidplugin:after_insert"} {
		if create.Get(name) != nil {
			t.Errorf("the callback %s is there", name)
		}
	}
	if db.Callback().Update().Get("uidplugin:prepare") != nil {
		t.Error("the callback of updates is there")
	}
}

// How many statements a start takes does not depend on the number of tables: neither the first start nor one that
// reclaims a slot.
func TestPluginInitialize_SendsAsManyStatementsForAllTablesAsForOne(t *testing.T) {
	t.Parallel()

	starts := func(models ...any) (sent []int) {
		name, clock := fileOf(t, bare(t)), testkit.NewClock(noon)
		must(t, migrations.Up(t.Context(), file(t, name, nil)))
		for range 3 {
			n, db := 0, file(t, name, nil)
			var mu sync.Mutex
			tapped(db, func(context.Context, string) error {
				mu.Lock()
				defer mu.Unlock()
				n++
				return nil
			})
			p := use(t, db, uidplugin.WithClock(clock.Now), uidplugin.WithModels(models...))
			if tables := p.Stats().Tables; len(tables) != len(models) {
				t.Errorf("%d tables, want %d", len(tables), len(models))
			}
			mu.Lock()
			sent = append(sent, n)
			mu.Unlock()
			must(t, p.Close(t.Context()))
			clock.Add(time.Hour)
		}
		return sent
	}
	one, many := starts(&part{}), starts(&part{}, &counter{}, &article{}, &invoice{}, &parcel{}, &slogan{}, &twinless{})
	if !slices.Equal(one, many) || one[1] >= one[0] || one[1] != one[2] {
		t.Errorf("statements of the first start and the next two: %d with one table, %d with seven", one, many)
	}
}

// twinless is one more table.
type twinless struct {
	ID int64 `gorm:"primaryKey;autoIncrement:false;uid"`
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
	return errBroken
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
		db, f := bare(t), &faults{n: n}
		tapped(db, f.before)
		p := uidplugin.New(uidplugin.WithLogger(nil), uidplugin.WithModels(&part{}, &article{}))
		err := db.Use(p)
		failed := f.end()
		// A probe that fails means that the table is missing. What creates an index is tried again.
		harmless := strings.Contains(failed, "pragma_table_info") || strings.HasPrefix(failed, "CREATE INDEX")
		switch {
		case err == nil && failed != "" && !harmless:
			t.Errorf("no error, although this failed: %s", failed)
		case err != nil:
			refused++
			if !errors.Is(err, errBroken) {
				t.Fatalf("%s: %v", failed, err)
			}
			saysAll(t, err.Error(), "uidplugin: ")
			unregistered(t, db)
			if err := p.Register(t.Context(), &part{}); !errors.Is(err, uidplugin.ErrNotRegistered) {
				t.Errorf("a plugin that db.Use has refused: %v", err)
			}
			must(t, db.Use(p))
		}
		if db.Callback().Create().Get("uidplugin:fill") == nil {
			t.Errorf("%s: db.Use has registered nothing", failed)
		}
		migrate(t, db, &part{})
		r := part{}
		must(t, db.Create(&r).Error)
		isOurs(t, db, "parts", r.ID)
		must(t, p.Close(t.Context()))
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
		db, f := bare(t), &faults{n: 1 << 30}
		tapped(db, f.before)
		use(t, db)
		migrate(t, db, &part{})
		f.mu.Lock()
		f.n = n
		f.mu.Unlock()
		r := part{}
		err := db.Create(&r).Error
		failed := f.end()
		switch {
		case err == nil && failed != "":
			t.Errorf("no error, although this failed: %s", failed)
		case err != nil:
			refused++
			if !errors.Is(err, errBroken) {
				t.Fatalf("%s: %v", failed, err)
			}
			saysAll(t, err.Error(), "uidplugin: no worker id for parts")
			if r.ID != 0 || count(t, db, "parts") != 0 {
				t.Errorf("%s: the key is %d, %d rows", failed, r.ID, count(t, db, "parts"))
			}
			must(t, db.Create(&r).Error)
		}
		isOurs(t, db, "parts", r.ID)
		if failed == "" {
			break
		}
	}
	if refused < 15 {
		t.Errorf("only %d statements were broken", refused)
	}
}

func TestPluginInitialize_ReportsOtherLayoutOfTheDatabase(t *testing.T) {
	t.Parallel()

	db, mock := testkit.Mock(t, dialects[0].dial)
	expect(mock, migrated(dialects[0].sql)...) // it comes no further than the registry
	l := generator.SnowflakeLayout()
	err := db.Use(uidplugin.New(uidplugin.WithLayout(l), uidplugin.WithClock(atNoon)))
	if !errors.Is(err, workernode.ErrLayoutMismatch) {
		t.Fatalf("db.Use: %v", err)
	}
	saysAll(t, err.Error(), "uidplugin: ", l.String(), fewLayout)
	unregistered(t, db)
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
		d := dialects[tt.dialect]
		db, mock := testkit.Mock(t, d.dial)
		steps := migrated(d.sql)
		for i := range steps {
			if asked := settings(d.sql); steps[i].sql == asked.sql {
				steps[i].rows.AddRow(tt.name, tt.value)
			}
		}
		expect(mock, steps...)
		j := &journal{}
		must(t, db.Use(uidplugin.New(append(onMock, j.option())...)))
		warnings := strings.Join(j.Lines("two rows could get the same id"), "")
		if n := strings.Count(warnings, " loses "); n != len(tt.says) {
			t.Errorf("%s = %s: %d warnings: %s", tt.name, tt.value, n, warnings)
		}
		saysAll(t, warnings, tt.says...)
	}
}
