package uidplugin_test

import (
	"context"
	"database/sql/driver"
	"errors"
	"testing"

	"github.com/DATA-DOG/go-sqlmock"
	"github.com/uidplugin/uidplugin"
	"github.com/uidplugin/uidplugin/internal/testkit"
	"gorm.io/gorm"
)

// inserted is the INSERT of invoices in a transaction of its own.
func inserted(sql func(string) string, values string, args ...driver.Value) []step {
	return []step{
		begin,
		{do: "exec", sql: sql(`INSERT INTO "invoices" ("id","total") VALUES ` + values), args: args, n: int64(len(args) / 2)},
		commit,
	}
}

func TestCreate_FirstCreateGetsTheWorkerIDBeforeItsTransactionBegins(t *testing.T) {
	t.Parallel()

	onDialects(t, func(t *testing.T, d dialect, db *gorm.DB, mock sqlmock.Sqlmock) {
		expect(mock, migrated(d.sql)...)
		use(t, db, onMock...)

		asks := process{sql: d.sql, slot: 7}
		expect(mock, asks.adds(58, "invoices")...)
		expect(mock, inserted(d.sql, "(?,?)", atFew(t, 58, 0), 1)...)
		must(t, db.Create(&invoice{Total: 1}).Error)

		expect(mock, inserted(d.sql, "(?,?)", atFew(t, 58, 1), 2)...)
		must(t, db.Create(&invoice{Total: 2}).Error)
	})
}

func TestCreate_WithWorkerIDSendsNothingButGORMsInsert(t *testing.T) {
	t.Parallel()

	onDialects(t, func(t *testing.T, d dialect, db *gorm.DB, mock sqlmock.Sqlmock) {
		use(t, db, uidplugin.WithClock(atNoon), uidplugin.WithWorkerID(7))
		expect(mock, inserted(d.sql, "(?,?)", at(t, 7, 0), 1)...)
		must(t, db.Create(&invoice{Total: 1}).Error)
	})
}

func TestCreate_OfASliceIsOneInsertWithAscendingKeys(t *testing.T) {
	t.Parallel()

	onDialects(t, func(t *testing.T, d dialect, db *gorm.DB, mock sqlmock.Sqlmock) {
		use(t, db, uidplugin.WithClock(atNoon), uidplugin.WithWorkerID(7))
		expect(mock, inserted(d.sql, "(?,?),(?,?),(?,?)", at(t, 7, 0), 1, at(t, 7, 1), 2, at(t, 7, 2), 3)...)
		rows := []invoice{{Total: 1}, {Total: 2}, {Total: 3}}
		must(t, db.Create(&rows).Error)
		if rows[0].ID != at(t, 7, 0) || rows[2].ID != at(t, 7, 2) {
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
	db, mock := mockedUse(t)
	expect(mock, begin,
		step{do: "exec", sql: "INSERT INTO `notes` (`text`) VALUES (?)", args: []driver.Value{"a"}, n: 1}, commit)
	must(t, db.Create(&note{Text: "a"}).Error)
}

func TestCreate_OnAnAutoIncrementKeyInsertsOurs(t *testing.T) {
	t.Parallel()

	type receipt struct {
		ID    int64 `gorm:"primaryKey;uid"`
		Total int
	}
	db, mock := testkit.Mock(t, dialects[0].dial)
	use(t, db, uidplugin.WithClock(atNoon), uidplugin.WithWorkerID(7))
	expect(mock, begin,
		step{do: "exec", sql: "INSERT INTO `receipts` (`total`,`id`) VALUES (?,?)", args: []driver.Value{1, at(t, 7, 0)}, n: 1}, commit)
	row := receipt{Total: 1}
	must(t, db.Create(&row).Error)
	if row.ID != at(t, 7, 0) {
		t.Errorf("the key is %d", row.ID)
	}
}

// If the INSERT fails, the worker id stays in use, and the row keeps its id for the next attempt.
func TestCreate_FailsWhereTheInsertFails(t *testing.T) {
	t.Parallel()

	sql := dialects[0].sql
	for i, name := range []string{"begin", "insert", "commit"} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()

			db, mock := mockedUse(t)
			asks := process{sql: sql, slot: 7}
			expect(mock, asks.adds(58, "invoices")...)
			steps := inserted(sql, "(?,?)", atFew(t, 58, 0), 1)
			steps[i].err = errBroken
			expect(mock, steps[:i+1]...)
			if name == "insert" {
				expect(mock, rollback)
			}
			row := invoice{Total: 1}
			if err := db.Create(&row).Error; !errors.Is(err, errBroken) {
				t.Fatalf("db.Create: %v", err)
			}

			expect(mock, inserted(sql, "(?,?)", atFew(t, 58, 0), 1)...)
			must(t, db.Create(&row).Error)
		})
	}
}

func TestCreate_WithACancelledContextInsertsNothing(t *testing.T) {
	t.Parallel()

	db, mock := testkit.Mock(t, dialects[0].dial)
	use(t, db, uidplugin.WithClock(atNoon), uidplugin.WithWorkerID(7))
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := db.WithContext(ctx).Create(&invoice{Total: 1}).Error; !errors.Is(err, context.Canceled) {
		t.Fatalf("db.Create: %v", err)
	}
	expect(mock, begin,
		step{do: "exec", sql: "INSERT INTO `invoices` (`id`,`total`) VALUES (?,?)", args: []driver.Value{anyID{}, 2}, n: 1}, commit)
	must(t, db.Create(&invoice{Total: 2}).Error)
}

// anyID is an argument that is a positive number.
type anyID struct{}

func (anyID) Match(v driver.Value) bool {
	n, ok := v.(int64)
	return ok && n > 0
}

func TestCreate_DryRunFillsTheKeyAndSendsNoInsert(t *testing.T) {
	t.Parallel()

	db, _ := testkit.Mock(t, dialects[0].dial)
	use(t, db, uidplugin.WithClock(atNoon), uidplugin.WithWorkerID(7))
	row := invoice{Total: 1}
	stmt := db.Session(&gorm.Session{DryRun: true, SkipDefaultTransaction: true}).Create(&row).Statement
	if sql := stmt.SQL.String(); sql != "INSERT INTO `invoices` (`id`,`total`) VALUES (?,?)" || row.ID != at(t, 7, 0) {
		t.Errorf("%s with the key %d", sql, row.ID)
	}
}
