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

// On MySQL the key of one row comes from LAST_INSERT_ID, on PostgreSQL from RETURNING. A batch is read back on the
// connection of its transaction: on MySQL always, because a trigger may hide a conflict, on PostgreSQL if rows were left
// alone. Rows that exist under another key get no key in their structs.
func TestUpsert_TakesKeysFromWhatTheDatabaseReports(t *testing.T) {
	t.Parallel()

	const (
		mysql, postgres = 0, 1
		keep            = "=IF(LAST_INSERT_ID(IF(`id` BETWEEN 2 AND 9223372036854775807,`id`,1))=0,"
		nothing         = insertSlogan + " ON DUPLICATE KEY UPDATE `id`" + keep + "`id`,`id`)"
		update          = insertSlogan + " ON DUPLICATE KEY UPDATE `uses`" + keep + "VALUES(`uses`),VALUES(`uses`)),`uses`=VALUES(`uses`)"
		batch           = insertSlogan + ",(?,?,?) ON DUPLICATE KEY UPDATE `id`=IF(LAST_INSERT_ID(1)=0,`id`,`id`)"
		returning       = `INSERT INTO "slogans" ("id","text","uses") VALUES ($1,$2,$3) ON CONFLICT ("text") DO UPDATE SET "uses"="excluded"."uses" RETURNING "id"`
		twoRows         = `INSERT INTO "slogans" ("id","text","uses") VALUES ($1,$2,$3),($4,$5,$6) ON CONFLICT DO NOTHING`
	)
	readBack := [...]string{"SELECT `id`,`id` FROM `slogans` WHERE `id` IN (?,?)", `SELECT "id","id" FROM "slogans" WHERE "id" IN ($1,$2)`}
	first, second := plugintest.At(t, 7, 0), plugintest.At(t, 7, 1)
	for _, tt := range []struct {
		name     string
		dialect  int
		conflict clause.OnConflict
		sql      string
		answer   driver.Result
		returned int64   // instead of answer
		there    []int64 // the keys that are read back; nil: there is no SELECT
		want     []int64 // in the structs
	}{
		{"MySQL, nothing, no conflict", mysql, doNothing, nothing, sqlmock.NewResult(0, 1), 0, nil, []int64{first}},
		{"MySQL, nothing, conflict", mysql, doNothing, nothing, sqlmock.NewResult(5, 0), 0, nil, []int64{5}},
		{"MySQL, update, no conflict", mysql, doUpdate, update, sqlmock.NewResult(0, 1), 0, nil, []int64{first}},
		{"MySQL, update, conflict", mysql, doUpdate, update, sqlmock.NewResult(5, 2), 0, nil, []int64{5}},
		{"MySQL, batch, no conflict", mysql, doNothing, batch, sqlmock.NewResult(0, 2), 0, []int64{first, second}, []int64{first, second}},
		{"MySQL, batch, conflict of the first", mysql, doNothing, batch, sqlmock.NewResult(1, 1), 0, []int64{second}, []int64{0, second}},
		{"MySQL, batch, conflict of both", mysql, doNothing, batch, sqlmock.NewResult(1, 0), 0, []int64{}, []int64{0, 0}},
		{"PostgreSQL, update, no conflict", postgres, doUpdate, returning, nil, first, nil, []int64{first}},
		{"PostgreSQL, update, conflict", postgres, doUpdate, returning, nil, 5, nil, []int64{5}},
		{"PostgreSQL, batch, no conflict", postgres, doNothing, twoRows, sqlmock.NewResult(0, 2), 0, nil, []int64{first, second}},
		{"PostgreSQL, batch, conflict of the second", postgres, doNothing, twoRows, sqlmock.NewResult(0, 1), 0, []int64{first}, []int64{first, 0}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()

			db, mock := testkit.Mock(t, plugintest.Dialects[tt.dialect].Dial)
			plugintest.Use(t, db, uidplugin.WithWorkerID(7), uidplugin.WithClock(plugintest.AtNoon))
			rows := []plugintest.Slogan{{Text: "a", Uses: 3}, {Text: "b", Uses: 3}}[:len(tt.want)]
			args := []driver.Value{first, "a", 3, second, "b", 3}[:3*len(rows)]
			mock.ExpectBegin()
			if tt.answer == nil {
				mock.ExpectQuery(tt.sql).WithArgs(args...).WillReturnRows(sqlmock.NewRows([]string{"id"}).AddRow(tt.returned))
			} else {
				mock.ExpectExec(tt.sql).WithArgs(args...).WillReturnResult(tt.answer)
			}
			if tt.there != nil {
				there := sqlmock.NewRows([]string{"id", "id"})
				for _, id := range tt.there {
					there.AddRow(id, id)
				}
				mock.ExpectQuery(readBack[tt.dialect]).WithArgs(first, second).WillReturnRows(there)
			}
			mock.ExpectCommit()
			if len(rows) == 1 {
				must(t, db.Clauses(tt.conflict).Create(&rows[0]).Error)
			} else {
				must(t, db.Clauses(tt.conflict).Create(&rows).Error)
			}
			for i, want := range tt.want {
				if rows[i].ID != want {
					t.Errorf("row %d has the key %d, want %d", i, rows[i].ID, want)
				}
			}
		})
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
	plugintest.Rows(t, 3, db, "slogans", "id IN ?", []int64{old.ID, list[0].ID, list[2].ID})
	plugintest.Rows(t, 3, db, "slogans")
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
