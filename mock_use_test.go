package uidplugin_test

import (
	"database/sql/driver"
	"errors"
	"strings"
	"testing"

	"github.com/DATA-DOG/go-sqlmock"
	"github.com/uidplugin/uidplugin"
	"github.com/uidplugin/uidplugin/generator"
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

// fresh is what db.Use asks of an empty database.
func fresh(t *testing.T, dialect string, sql func(string) string) (steps []step) {
	t.Helper()
	noTable := errors.New("no such table")
	steps = append(steps, step{sql: sql(probeNodes), err: noTable})
	for _, create := range creates(t, dialect) {
		if len(steps) == len(creates(t, dialect)) { // the last one
			steps = append(steps, step{sql: sql(probeRegistry), err: noTable})
		}
		steps = append(steps, step{do: "exec", sql: create})
	}
	layout := generator.DefaultLayout().String()
	return append(steps,
		step{sql: reading(sql), args: []driver.Value{"default"}},
		step{sql: sql(largestNode), args: []driver.Value{generator.DefaultLayout().MaxWorkerID()}, rows: sqlmock.NewRows([]string{"largest"}).AddRow(0)},
		step{do: "exec", sql: sql(beginRegistry), args: []driver.Value{"default", layout, 1}, n: 1},
		registry(sql, 1),
	)
}

func TestUseOnAnEmptyDatabaseCreatesTheTablesAndNothingMore(t *testing.T) {
	t.Parallel()

	for _, d := range dialects {
		t.Run(d.name, func(t *testing.T) {
			t.Parallel()

			db, mock := mocked(t, d.dial)
			expect(mock, fresh(t, d.name, d.sql)...)
			use(t, db, uidplugin.WithSpares(0), uidplugin.WithClock(atNoon))
		})
	}
}

func TestUseOnAMigratedDatabaseOnlyReads(t *testing.T) {
	t.Parallel()

	for _, d := range dialects {
		for _, variant := range []struct {
			name    string
			options []uidplugin.Option
			steps   []step
		}{
			{"migration", nil, migrated(d.sql, 58)},
			{"without migration", []uidplugin.Option{uidplugin.WithoutMigration()}, checked(d.sql, 58)},
		} {
			t.Run(d.name+"/"+variant.name, func(t *testing.T) {
				t.Parallel()

				db, mock := mocked(t, d.dial)
				expect(mock, variant.steps...)
				use(t, db, append(variant.options, uidplugin.WithSpares(0), uidplugin.WithClock(atNoon))...)
			})
		}
	}
}

func TestUseWithWorkerIDSendsNothing(t *testing.T) {
	t.Parallel()

	for _, d := range dialects {
		t.Run(d.name, func(t *testing.T) {
			t.Parallel()

			db, _ := mocked(t, d.dial)
			use(t, db, uidplugin.WithWorkerID(7), uidplugin.WithModels(&invoice{}, &article{}))
		})
	}
}

func TestUseTakesWorkerIDsForAllModelsInOneStatement(t *testing.T) {
	t.Parallel()

	for _, d := range dialects {
		t.Run(d.name, func(t *testing.T) {
			t.Parallel()

			db, mock := mocked(t, d.dial)
			expect(mock, migrated(d.sql, 58)...)
			expect(mock, reserved(d.sql, 58, "invoices", "articles")...)
			use(t, db, uidplugin.WithDisposable(), uidplugin.WithClock(atNoon), onWeb1, uidplugin.WithModels(&invoice{}, &article{}))

			tables := uidplugin.From(db).Stats().Tables
			if len(tables) != 2 || tables[0].Table != "articles" || tables[0].WorkerIDs[0] != 59 || tables[1].WorkerIDs[0] != 58 {
				t.Errorf("the tables are %+v", tables)
			}
		})
	}
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

// TestUseFailsAtEveryStatement breaks the database at each statement of a
// db.Use; afterwards the same plugin gets on with the same handle.
func TestUseFailsAtEveryStatement(t *testing.T) {
	t.Parallel()

	sql := dialects[0].sql
	// What errors must mention; a probe that fails means a table that is missing.
	says := []string{"", "WORKER_NODE", "", "WORKER_REGISTRY", "read the registry", "begin the registry", "begin the registry",
		"read the registry", "read the registry", "reserve worker ids", "insert worker nodes"}
	for i := range says {
		if says[i] == "" {
			continue
		}
		t.Run(says[i], func(t *testing.T) {
			t.Parallel()

			steps := append(fresh(t, "mysql", sql), reserved(sql, 1, "invoices", "articles")...)
			if len(says) != len(steps) {
				t.Fatalf("%d steps, %d expectations", len(steps), len(says))
			}
			s := steps[i]
			db, mock := mocked(t, dialects[0].dial)
			expect(mock, steps[:i]...)
			s.err = errBroken
			expect(mock, s)
			if s.do == "exec" && len(s.args) == 0 { // is the table there by now?
				expect(mock, step{sql: steps[i-1].sql, err: errBroken})
			}
			p := uidplugin.New(uidplugin.WithLogger(nil), uidplugin.WithDisposable(), uidplugin.WithClock(atNoon), onWeb1, uidplugin.WithModels(&invoice{}, &article{}))
			err := db.Use(p)
			if !errors.Is(err, errBroken) {
				t.Fatalf("db.Use: %v", err)
			}
			saysAll(t, err.Error(), "uidplugin: ", says[i])
			unregistered(t, db)
			if err := p.Register(t.Context(), &invoice{}); !errors.Is(err, uidplugin.ErrNotRegistered) {
				t.Errorf("a plugin that db.Use has refused: %v", err)
			}

			expect(mock, migrated(sql, 58)...)
			expect(mock, reserved(sql, 58, "invoices", "articles")...)
			must(t, db.Use(p))
			if db.Callback().Create().Get("uidplugin:fill") == nil {
				t.Error("the second db.Use has registered nothing")
			}
		})
	}
}

func TestUseReportsOtherLayoutOfTheDatabase(t *testing.T) {
	t.Parallel()

	db, mock := mocked(t, dialects[0].dial)
	steps := migrated(dialects[0].sql, 58)
	expect(mock, steps[:len(steps)-1]...) // it comes no further than the registry
	l := generator.SnowflakeLayout()
	err := db.Use(uidplugin.New(uidplugin.WithLayout(l)))
	if err == nil {
		t.Fatal("accepted")
	}
	saysAll(t, err.Error(), "uidplugin: ", l.String(), generator.DefaultLayout().String())
	unregistered(t, db)
}

// Whoever uses a database that may forget is told so, with what it is set to.
func TestUseWarnsOfADatabaseThatForgets(t *testing.T) {
	t.Parallel()

	for _, tt := range []struct {
		dialect int
		rows    [][2]string
		trusted bool
		says    []string
	}{
		{0, [][2]string{{"innodb_flush_log_at_trx_commit", "0"}, {"sync_binlog", "0"}}, false, []string{"innodb_flush_log_at_trx_commit = 0 loses"}},
		{0, [][2]string{{"innodb_flush_log_at_trx_commit", "2"}, {"sync_binlog", "0"}}, false, nil},
		{0, [][2]string{{"innodb_flush_log_at_trx_commit", "2"}, {"sync_binlog", "0"}, {"log_bin", "ON"}}, true, []string{"at_trx_commit = 2 loses", "sync_binlog = 0 loses"}},
		{0, [][2]string{{"innodb_flush_log_at_trx_commit", "1"}, {"sync_binlog", "0"}, {"log_bin", "OFF"}}, true, nil},
		{0, [][2]string{{"innodb_flush_log_at_trx_commit", "1"}, {"sync_binlog", "1"}}, true, nil},
		{1, [][2]string{{"synchronous_commit", "off"}, {"fsync", "off"}}, false, []string{"synchronous_commit = off loses"}},
		{1, [][2]string{{"synchronous_commit", "local"}, {"fsync", "off"}}, true, []string{"synchronous_commit = local loses", "fsync = off loses"}},
		{1, [][2]string{{"synchronous_commit", "on"}, {"fsync", "on"}}, true, nil},
	} {
		d := dialects[tt.dialect]
		db, mock := mocked(t, d.dial)
		steps := migrated(d.sql, 58)
		for _, row := range tt.rows {
			steps[len(steps)-1].rows.AddRow(row[0], row[1])
		}
		expect(mock, steps...)
		j := &journal{}
		options := []uidplugin.Option{j.option(), uidplugin.WithSpares(0), uidplugin.WithMaxClockSkew(0)}
		if tt.trusted {
			options = append(options, uidplugin.WithDurableDatabase())
		}
		must(t, db.Use(uidplugin.New(options...)))
		warnings := strings.Join(j.lines("two rows could get one id"), "")
		if n := strings.Count(warnings, " loses "); n != len(tt.says) {
			t.Errorf("%v, trusted %t: %d warnings: %s", tt.rows, tt.trusted, n, warnings)
		}
		saysAll(t, warnings, tt.says...)
	}
}
