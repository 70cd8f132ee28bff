package uidplugin_test

import (
	"database/sql/driver"
	"errors"
	"testing"

	"github.com/DATA-DOG/go-sqlmock"
	"github.com/uidplugin/uidplugin"
	"github.com/uidplugin/uidplugin/internal/testkit"
	"gorm.io/gorm"
	"gorm.io/gorm/clause"
)

// A slogan can exist already, under another key.
type slogan struct {
	ID   int64  `gorm:"primaryKey;autoIncrement:false;uid"`
	Text string `gorm:"size:50;uniqueIndex"`
	Uses int
}

var (
	doNothing = clause.OnConflict{DoNothing: true}
	doUpdate  = clause.OnConflict{Columns: []clause.Column{{Name: "text"}}, DoUpdates: clause.AssignmentColumns([]string{"uses"})}
)

const insertSlogan = "INSERT INTO `slogans` (`id`,`text`,`uses`) VALUES (?,?,?)"

func TestUpsert_AnUpsertOfOneRowOnMySQLTakesTheKeyFromLastInsertID(t *testing.T) {
	t.Parallel()

	ours := at(t, 7, 0)
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

			db, mock := testkit.Mock(t, dialects[0].dial)
			use(t, db, uidplugin.WithWorkerID(7), uidplugin.WithClock(atNoon))
			mock.ExpectBegin()
			mock.ExpectExec(tt.sql).WithArgs(ours, "a", 3).WillReturnResult(tt.result)
			mock.ExpectCommit()
			r := slogan{Text: "a", Uses: 3}
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

			db, mock := testkit.Mock(t, dialects[0].dial)
			use(t, db, uidplugin.WithWorkerID(7), uidplugin.WithClock(atNoon))
			mock.ExpectBegin()
			mock.ExpectExec(insert).WillReturnResult(tt.result)
			want := map[int64]bool{0: tt.there == nil, 1: tt.there == nil}
			if tt.there != nil {
				rows := sqlmock.NewRows([]string{"id", "id"})
				for _, s := range tt.there {
					rows.AddRow(at(t, 7, s), at(t, 7, s))
					want[s] = true
				}
				mock.ExpectQuery("SELECT `id`,`id` FROM `slogans` WHERE `id` IN (?,?)").WithArgs(at(t, 7, 0), at(t, 7, 1)).WillReturnRows(rows)
			}
			mock.ExpectCommit()
			list := []slogan{{Text: "a"}, {Text: "b"}}
			must(t, db.Clauses(doNothing).Create(&list).Error)
			for i, r := range list {
				if ours := at(t, 7, int64(i)); want[int64(i)] && r.ID != ours || !want[int64(i)] && r.ID != 0 {
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
		{"update, no conflict", doUpdate, insert + ` ON CONFLICT ("text") DO UPDATE SET "uses"="excluded"."uses" RETURNING "id"`, []int64{at(t, 7, 0)}, at(t, 7, 0)},
		{"update, conflict", doUpdate, insert + ` ON CONFLICT ("text") DO UPDATE SET "uses"="excluded"."uses" RETURNING "id"`, []int64{5}, 5},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()

			db, mock := testkit.Mock(t, dialects[1].dial)
			use(t, db, uidplugin.WithWorkerID(7), uidplugin.WithClock(atNoon))
			mock.ExpectBegin()
			rows := sqlmock.NewRows([]string{"id"})
			for _, id := range tt.there {
				rows.AddRow(id)
			}
			mock.ExpectQuery(tt.sql).WithArgs(at(t, 7, 0), "a", 3).WillReturnRows(rows)
			mock.ExpectCommit()
			r := slogan{Text: "a", Uses: 3}
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
		db, mock := testkit.Mock(t, dialects[1].dial)
		use(t, db, uidplugin.WithWorkerID(7), uidplugin.WithClock(atNoon))
		mock.ExpectBegin()
		mock.ExpectExec(`INSERT INTO "slogans" ("id","text","uses") VALUES ($1,$2,$3),($4,$5,$6) ON CONFLICT DO NOTHING`).
			WillReturnResult(sqlmock.NewResult(0, inserted))
		if inserted < 2 {
			mock.ExpectQuery(`SELECT "id","id" FROM "slogans" WHERE "id" IN ($1,$2)`).WithArgs(at(t, 7, 0), at(t, 7, 1)).
				WillReturnRows(sqlmock.NewRows([]string{"id", "id"}).AddRow(at(t, 7, 0), at(t, 7, 0)))
		}
		mock.ExpectCommit()
		list := []slogan{{Text: "a"}, {Text: "b"}}
		must(t, db.Clauses(doNothing).Create(&list).Error)
		if list[0].ID != at(t, 7, 0) || (list[1].ID == 0) != (inserted < 2) {
			t.Errorf("%d inserted: %v", inserted, list)
		}
	}
}

// An upsert that changes nothing has no key if the database does not report the existing one.
func TestUpsert_AnUpsertThatIsLeftAloneHasNoKey(t *testing.T) {
	t.Parallel()

	db := open(t)
	migrate(t, db, &slogan{})
	old := slogan{Text: "a"}
	must(t, db.Create(&old).Error)
	one := slogan{Text: "a"}
	must(t, db.Clauses(doNothing).Create(&one).Error)
	list := []slogan{{Text: "b"}, {Text: "a"}, {Text: "c"}}
	must(t, db.Clauses(doNothing).Create(&list).Error)
	preset := slogan{ID: 44, Text: "a"}
	must(t, db.Clauses(doNothing).Create(&preset).Error)
	if one.ID != 0 || list[1].ID != 0 || list[0].ID == 0 || list[2].ID == 0 {
		t.Errorf("the keys are %d and %v", one.ID, list)
	}
	if preset.ID != 44 {
		t.Errorf("a key that the plugin did not set became %d", preset.ID)
	}
	if n := count(t, db, "slogans", "id IN ?", []int64{old.ID, list[0].ID, list[2].ID}); n != 3 || count(t, db, "slogans") != 3 {
		t.Errorf("%d rows", n)
	}
}

// If reading back fails, the create returns an error, and the transaction is rolled back.
func TestUpsert_AReadBackThatFailsIsAnError(t *testing.T) {
	t.Parallel()

	db, mock := testkit.Mock(t, dialects[0].dial)
	use(t, db, uidplugin.WithWorkerID(7), uidplugin.WithClock(atNoon))
	mock.ExpectBegin()
	mock.ExpectExec("INSERT INTO `slogans` (`id`,`text`,`uses`) VALUES (?,?,?),(?,?,?) ON DUPLICATE KEY UPDATE `id`=IF(LAST_INSERT_ID(1)=0,`id`,`id`)").
		WillReturnResult(sqlmock.NewResult(1, 1))
	mock.ExpectQuery("SELECT `id`,`id` FROM `slogans` WHERE `id` IN (?,?)").WillReturnError(errBroken)
	mock.ExpectRollback()
	err := db.Clauses(doNothing).Create(&[]slogan{{Text: "a"}, {Text: "b"}}).Error
	if !errors.Is(err, errBroken) {
		t.Fatal(err)
	}
	saysAll(t, err.Error(), "uidplugin: read back the ids of slogans")
}

// The caller may use the clauses of an upsert again, so they must not change.
func TestUpsert_AnUpsertDoesNotChangeTheCallersClauses(t *testing.T) {
	t.Parallel()

	db, _ := testkit.Mock(t, dialects[0].dial)
	use(t, db, uidplugin.WithWorkerID(7), uidplugin.WithClock(atNoon))
	base := db.Session(&gorm.Session{DryRun: true, SkipDefaultTransaction: true}).Clauses(doUpdate).Session(&gorm.Session{})
	for range 2 {
		sql := base.Create(&slogan{Text: "a"}).Statement.SQL.String()
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

	db := open(t, uidplugin.WithWorkerID(1))
	migrate(t, db, &slogan{})
	for _, insert := range []clause.Clause{
		{Expression: clause.Insert{}, BeforeExpression: inStatement{}},
		{Expression: clause.Insert{}, AfterNameExpression: inStatement{}},
	} {
		tx := db.Model(&slogan{})
		insert.Name = "INSERT"
		tx.Statement.Clauses["INSERT"] = insert
		must(t, tx.Create(&slogan{Text: testkit.SQLitePath(t)}).Error)
	}
}
