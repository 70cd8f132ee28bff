package fill_test

import (
	"database/sql/driver"
	"testing"

	"github.com/DATA-DOG/go-sqlmock"
	"github.com/uidplugin/uidplugin"
	"github.com/uidplugin/uidplugin/internal/plugintest"
	"github.com/uidplugin/uidplugin/internal/testkit"
	"gorm.io/gorm"
	"gorm.io/gorm/clause"
)

var (
	doNothing = clause.OnConflict{DoNothing: true}
	doUpdate  = clause.OnConflict{Columns: []clause.Column{{Name: "text"}}, DoUpdates: clause.AssignmentColumns([]string{"uses"})}
)

const insertSlogan = "INSERT INTO `slogans` (`id`,`text`,`uses`) VALUES (?,?,?)"

func TestUpsert_AnUpsertOfOneRowOnMySQLTakesTheKeyFromLastInsertID(t *testing.T) {
	t.Parallel()

	ours := plugintest.At(t, 7, 0)
	for _, tt := range []struct {
		name     string
		conflict clause.OnConflict
		sql      string
		result   driver.Result
		want     int64
	}{
		{"nothing, no conflict", doNothing, insertSlogan + " ON DUPLICATE KEY UPDATE `id`=IF(LAST_INSERT_ID(IF(`id` BETWEEN 2 AND 9223372036854775807,`id`,1))=0,`id`,`id`)", sqlmock.NewResult(0, 1), ours},
		{"nothing, conflict", doNothing, insertSlogan + " ON DUPLICATE KEY UPDATE `id`=IF(LAST_INSERT_ID(IF(`id` BETWEEN 2 AND 9223372036854775807,`id`,1))=0,`id`,`id`)", sqlmock.NewResult(5, 0), 5},
		{"update, no conflict", doUpdate, insertSlogan + " ON DUPLICATE KEY UPDATE `uses`=IF(LAST_INSERT_ID(IF(`id` BETWEEN 2 AND 9223372036854775807,`id`,1))=0,VALUES(`uses`),VALUES(`uses`)),`uses`=VALUES(`uses`)", sqlmock.NewResult(0, 1), ours},
		{"update, conflict", doUpdate, insertSlogan + " ON DUPLICATE KEY UPDATE `uses`=IF(LAST_INSERT_ID(IF(`id` BETWEEN 2 AND 9223372036854775807,`id`,1))=0,VALUES(`uses`),VALUES(`uses`)),`uses`=VALUES(`uses`)", sqlmock.NewResult(5, 2), 5},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()

			db, mock := testkit.Mock(t, plugintest.Dialects[0].Dial)
			plugintest.Use(t, db, uidplugin.WithWorkerID(7), uidplugin.WithClock(plugintest.AtNoon))
			mock.ExpectBegin()
			mock.ExpectExec(tt.sql).WithArgs(ours, "a", 3).WillReturnResult(tt.result)
			mock.ExpectCommit()
			r := plugintest.Slogan{Text: "a", Uses: 3}
			must(t, db.Clauses(tt.conflict).Create(&r).Error)
			if r.ID != tt.want {
				t.Errorf("the key is %d, want %d", r.ID, tt.want)
			}
		})
	}
}

// A batch on MySQL is read back only after a conflict, on the connection of its transaction. Rows that exist under
// another key get no key in their structs.
func TestUpsert_ABatchOnMySQLIsReadBackOnlyAfterAConflict(t *testing.T) {
	t.Parallel()

	const insert = "INSERT INTO `slogans` (`id`,`text`,`uses`) VALUES (?,?,?),(?,?,?) ON DUPLICATE KEY UPDATE `id`=IF(LAST_INSERT_ID(1)=0,`id`,`id`)"
	for _, tt := range []struct {
		name   string
		result driver.Result
		there  []int64 // sequences of the rows that a SELECT finds; nil is no SELECT
	}{
		{"no conflict", sqlmock.NewResult(0, 2), nil},
		{"conflict of the first", sqlmock.NewResult(1, 1), []int64{1}},
		{"conflict of both", sqlmock.NewResult(1, 0), []int64{}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()

			db, mock := testkit.Mock(t, plugintest.Dialects[0].Dial)
			plugintest.Use(t, db, uidplugin.WithWorkerID(7), uidplugin.WithClock(plugintest.AtNoon))
			mock.ExpectBegin()
			mock.ExpectExec(insert).WillReturnResult(tt.result)
			want := map[int64]bool{0: tt.there == nil, 1: tt.there == nil}
			if tt.there != nil {
				rows := sqlmock.NewRows([]string{"id", "id"})
				for _, s := range tt.there {
					rows.AddRow(plugintest.At(t, 7, s), plugintest.At(t, 7, s))
					want[s] = true
				}
				mock.ExpectQuery("SELECT `id`,`id` FROM `slogans` WHERE `id` IN (?,?)").WithArgs(plugintest.At(t, 7, 0), plugintest.At(t, 7, 1)).WillReturnRows(rows)
			}
			mock.ExpectCommit()
			list := []plugintest.Slogan{{Text: "a"}, {Text: "b"}}
			must(t, db.Clauses(doNothing).Create(&list).Error)
			for i, r := range list {
				if ours := plugintest.At(t, 7, int64(i)); want[int64(i)] && r.ID != ours || !want[int64(i)] && r.ID != 0 {
					t.Errorf("row %d has the key %d", i, r.ID)
				}
			}
		})
	}
}

func TestUpsert_AnUpsertOnPostgreSQLTakesTheKeyFromReturning(t *testing.T) {
	t.Parallel()

	const insert = `INSERT INTO "slogans" ("id","text","uses") VALUES ($1,$2,$3)`
	for _, tt := range []struct {
		name     string
		conflict clause.OnConflict
		sql      string
		there    []int64 // what RETURNING says
		want     int64
	}{
		{"update, no conflict", doUpdate, insert + ` ON CONFLICT ("text") DO UPDATE SET "uses"="excluded"."uses" RETURNING "id"`, []int64{plugintest.At(t, 7, 0)}, plugintest.At(t, 7, 0)},
		{"update, conflict", doUpdate, insert + ` ON CONFLICT ("text") DO UPDATE SET "uses"="excluded"."uses" RETURNING "id"`, []int64{5}, 5},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()

			db, mock := testkit.Mock(t, plugintest.Dialects[1].Dial)
			plugintest.Use(t, db, uidplugin.WithWorkerID(7), uidplugin.WithClock(plugintest.AtNoon))
			mock.ExpectBegin()
			rows := sqlmock.NewRows([]string{"id"})
			for _, id := range tt.there {
				rows.AddRow(id)
			}
			mock.ExpectQuery(tt.sql).WithArgs(plugintest.At(t, 7, 0), "a", 3).WillReturnRows(rows)
			mock.ExpectCommit()
			r := plugintest.Slogan{Text: "a", Uses: 3}
			must(t, db.Clauses(tt.conflict).Create(&r).Error)
			if r.ID != tt.want {
				t.Errorf("the key is %d, want %d", r.ID, tt.want)
			}
		})
	}
}

func TestUpsert_ABatchOnPostgreSQLIsReadBackOnlyIfRowsWereLeftAlone(t *testing.T) {
	t.Parallel()

	for _, inserted := range []int64{2, 1} {
		db, mock := testkit.Mock(t, plugintest.Dialects[1].Dial)
		plugintest.Use(t, db, uidplugin.WithWorkerID(7), uidplugin.WithClock(plugintest.AtNoon))
		mock.ExpectBegin()
		mock.ExpectExec(`INSERT INTO "slogans" ("id","text","uses") VALUES ($1,$2,$3),($4,$5,$6) ON CONFLICT DO NOTHING`).
			WillReturnResult(sqlmock.NewResult(0, inserted))
		if inserted < 2 {
			mock.ExpectQuery(`SELECT "id","id" FROM "slogans" WHERE "id" IN ($1,$2)`).WithArgs(plugintest.At(t, 7, 0), plugintest.At(t, 7, 1)).
				WillReturnRows(sqlmock.NewRows([]string{"id", "id"}).AddRow(plugintest.At(t, 7, 0), plugintest.At(t, 7, 0)))
		}
		mock.ExpectCommit()
		list := []plugintest.Slogan{{Text: "a"}, {Text: "b"}}
		must(t, db.Clauses(doNothing).Create(&list).Error)
		if list[0].ID != plugintest.At(t, 7, 0) || (list[1].ID == 0) != (inserted < 2) {
			t.Errorf("%d inserted: %v", inserted, list)
		}
	}
}

// An upsert that changes nothing has no key if the database does not report the existing one.
func TestUpsert_AnUpsertThatIsLeftAloneHasNoKey(t *testing.T) {
	t.Parallel()

	db := plugintest.Open(t)
	plugintest.Migrate(t, db, &plugintest.Slogan{})
	old := plugintest.Slogan{Text: "a"}
	must(t, db.Create(&old).Error)
	one := plugintest.Slogan{Text: "a"}
	must(t, db.Clauses(doNothing).Create(&one).Error)
	list := []plugintest.Slogan{{Text: "b"}, {Text: "a"}, {Text: "c"}}
	must(t, db.Clauses(doNothing).Create(&list).Error)
	preset := plugintest.Slogan{ID: 44, Text: "a"}
	must(t, db.Clauses(doNothing).Create(&preset).Error)
	if one.ID != 0 || list[1].ID != 0 || list[0].ID == 0 || list[2].ID == 0 {
		t.Errorf("the keys are %d and %v", one.ID, list)
	}
	if preset.ID != 44 {
		t.Errorf("a key that the plugin did not set became %d", preset.ID)
	}
	if n := plugintest.Count(t, db, "slogans", "id IN ?", []int64{old.ID, list[0].ID, list[2].ID}); n != 3 || plugintest.Count(t, db, "slogans") != 3 {
		t.Errorf("%d rows", n)
	}
}

// If reading back fails, the create returns an error, and the transaction is rolled back.
func TestUpsert_AReadBackThatFailsIsAnError(t *testing.T) {
	t.Parallel()

	db, mock := testkit.Mock(t, plugintest.Dialects[0].Dial)
	plugintest.Use(t, db, uidplugin.WithWorkerID(7), uidplugin.WithClock(plugintest.AtNoon))
	mock.ExpectBegin()
	mock.ExpectExec("INSERT INTO `slogans` (`id`,`text`,`uses`) VALUES (?,?,?),(?,?,?) ON DUPLICATE KEY UPDATE `id`=IF(LAST_INSERT_ID(1)=0,`id`,`id`)").
		WillReturnResult(sqlmock.NewResult(1, 1))
	mock.ExpectQuery("SELECT `id`,`id` FROM `slogans` WHERE `id` IN (?,?)").WillReturnError(plugintest.ErrBroken)
	mock.ExpectRollback()
	err := db.Clauses(doNothing).Create(&[]plugintest.Slogan{{Text: "a"}, {Text: "b"}}).Error
	testkit.IsError(t, err, plugintest.ErrBroken, "uidplugin: read back the ids of slogans")
}

// The caller may use the clauses of an upsert again, so they must not change.
func TestUpsert_AnUpsertDoesNotChangeTheCallersClauses(t *testing.T) {
	t.Parallel()

	db, _ := testkit.Mock(t, plugintest.Dialects[0].Dial)
	plugintest.Use(t, db, uidplugin.WithWorkerID(7), uidplugin.WithClock(plugintest.AtNoon))
	base := db.Session(&gorm.Session{DryRun: true, SkipDefaultTransaction: true}).Clauses(doUpdate).Session(&gorm.Session{})
	for range 2 {
		sql := base.Create(&plugintest.Slogan{Text: "a"}).Statement.SQL.String()
		if want := insertSlogan + " ON DUPLICATE KEY UPDATE `uses`=IF(LAST_INSERT_ID(IF(`id` BETWEEN 2 AND 9223372036854775807,`id`,1))=0,VALUES(`uses`),VALUES(`uses`)),`uses`=VALUES(`uses`)"; sql != want {
			t.Errorf("%s", sql)
		}
	}
}

// An inStatement is an expression that needs GORM's statement, as many of applications do.
type inStatement struct{}

func (inStatement) Build(b clause.Builder) {
	stmt := b.(*gorm.Statement)
	_, _ = stmt.WriteString("/* " + stmt.Schema.Table + " */")
}

func TestUpsert_AnExpressionInAnotherClauseGetsGORMsStatement(t *testing.T) {
	t.Parallel()

	db := plugintest.Open(t, uidplugin.WithWorkerID(1))
	plugintest.Migrate(t, db, &plugintest.Slogan{})
	for _, insert := range []clause.Clause{
		{Expression: clause.Insert{}, BeforeExpression: inStatement{}},
		{Expression: clause.Insert{}, AfterNameExpression: inStatement{}},
	} {
		tx := db.Model(&plugintest.Slogan{})
		insert.Name = "INSERT"
		tx.Statement.Clauses["INSERT"] = insert
		must(t, tx.Create(&plugintest.Slogan{Text: testkit.SQLitePath(t)}).Error)
	}
}
