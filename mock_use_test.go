package uidplugin_test

import (
	"database/sql/driver"
	"errors"
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
	expect(mock, migrated(dialects[0].sql, 58)...)
	l := generator.SnowflakeLayout()
	err := db.Use(uidplugin.New(uidplugin.WithLayout(l)))
	if err == nil {
		t.Fatal("accepted")
	}
	saysAll(t, err.Error(), "uidplugin: ", l.String(), generator.DefaultLayout().String())
	unregistered(t, db)
}
