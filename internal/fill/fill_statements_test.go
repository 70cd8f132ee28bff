package fill_test

import (
	"database/sql/driver"
	"testing"

	"github.com/DATA-DOG/go-sqlmock"
	"github.com/uidplugin/uidplugin"
	"github.com/uidplugin/uidplugin/internal/plugintest"
	"github.com/uidplugin/uidplugin/internal/testkit"
	"gorm.io/gorm"
)

// inserted is the INSERT of invoices in a transaction of its own.
func inserted(sql func(string) string, values string, args ...driver.Value) []plugintest.Step {
	return []plugintest.Step{
		plugintest.Begin,
		{Do: "exec", SQL: sql(`INSERT INTO "invoices" ("id","total") VALUES ` + values), Args: args, N: int64(len(args) / 2)},
		plugintest.Commit,
	}
}

func TestCreate_FirstCreateGetsTheWorkerIDBeforeItsTransactionBegins(t *testing.T) {
	t.Parallel()

	plugintest.OnDialects(t, func(t *testing.T, d plugintest.Dialect, db *gorm.DB, mock sqlmock.Sqlmock) {
		plugintest.Expect(mock, plugintest.Migrated(d.SQL)...)
		plugintest.Use(t, db, plugintest.OnMock...)

		asks := plugintest.Process{SQL: d.SQL, Slot: 7}
		plugintest.Expect(mock, asks.Adds(58, "invoices")...)
		plugintest.Expect(mock, inserted(d.SQL, "(?,?)", plugintest.At(t, 58, 0), 1)...)
		must(t, db.Create(&plugintest.Invoice{Total: 1}).Error)

		plugintest.Expect(mock, inserted(d.SQL, "(?,?)", plugintest.At(t, 58, 1), 2)...)
		must(t, db.Create(&plugintest.Invoice{Total: 2}).Error)
	})
}

func TestCreate_OfASliceIsOneInsertWithAscendingKeys(t *testing.T) {
	t.Parallel()

	plugintest.OnDialects(t, func(t *testing.T, d plugintest.Dialect, db *gorm.DB, mock sqlmock.Sqlmock) {
		plugintest.Use(t, db, uidplugin.WithClock(plugintest.AtNoon), uidplugin.WithWorkerID(7))
		plugintest.Expect(mock, inserted(d.SQL, "(?,?),(?,?),(?,?)", plugintest.At(t, 7, 0), 1, plugintest.At(t, 7, 1), 2, plugintest.At(t, 7, 2), 3)...)
		rows := []plugintest.Invoice{{Total: 1}, {Total: 2}, {Total: 3}}
		must(t, db.Create(&rows).Error)
		if rows[0].ID != plugintest.At(t, 7, 0) || rows[2].ID != plugintest.At(t, 7, 2) {
			t.Errorf("the rows are %v", rows)
		}
	})
}

// For models without a uid, the plugin sends no statement of its own, even on the first create.
func TestCreate_WithoutTagSendsWhatGORMSends(t *testing.T) {
	t.Parallel()

	type note struct {
		ID   int64
		Text string
	}
	db, mock := plugintest.MockedUse(t)
	plugintest.Expect(mock, plugintest.Begin,
		plugintest.Step{Do: "exec", SQL: "INSERT INTO `notes` (`text`) VALUES (?)", Args: []driver.Value{"a"}, N: 1}, plugintest.Commit)
	must(t, db.Create(&note{Text: "a"}).Error)
}

// If the INSERT fails, the worker id stays in use, and the row keeps its id for the next attempt.
func TestCreate_FailsWhereTheInsertFails(t *testing.T) {
	t.Parallel()

	sql := plugintest.Dialects[0].SQL
	for i, name := range []string{"begin", "insert", "commit"} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()

			db, mock := plugintest.MockedUse(t)
			asks := plugintest.Process{SQL: sql, Slot: 7}
			plugintest.Expect(mock, asks.Adds(58, "invoices")...)
			steps := inserted(sql, "(?,?)", plugintest.At(t, 58, 0), 1)
			steps[i].Err = plugintest.ErrBroken
			plugintest.Expect(mock, steps[:i+1]...)
			if name == "insert" {
				plugintest.Expect(mock, plugintest.Rollback)
			}
			row := plugintest.Invoice{Total: 1}
			testkit.IsError(t, db.Create(&row).Error, plugintest.ErrBroken)

			plugintest.Expect(mock, inserted(sql, "(?,?)", plugintest.At(t, 58, 0), 1)...)
			must(t, db.Create(&row).Error)
		})
	}
}
