package migrations_test

import (
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/DATA-DOG/go-sqlmock"
	"github.com/uidplugin/uidplugin/migrations"
	"github.com/uidplugin/uidplugin/workernode"
	"gorm.io/driver/mysql"
	"gorm.io/driver/postgres"
	"gorm.io/gorm"
	"gorm.io/gorm/logger"
)

func TestUpRefusesATableOfAnotherKind(t *testing.T) {
	t.Parallel()

	for _, tt := range []struct {
		name, create string
		says         []string
	}{
		{"other columns", `CREATE TABLE "WORKER_NODE" (ID integer, COLOUR text)`, []string{"HOST_NAME, PORT, TYPE, LAUNCH_DATE, MODIFIED, CREATED", "ID, COLOUR"}},
		{"one column less", `CREATE TABLE "WORKER_NODE" (ID integer, HOST_NAME text, PORT text, TYPE int, LAUNCH_DATE date, CREATED text)`,
			[]string{"the columns MODIFIED "}},
		{"a view", `CREATE VIEW "WORKER_NODE" AS SELECT 1 AS ID, 2 AS COLOUR`, []string{"HOST_NAME", "COLOUR"}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()

			db, d, p := open(t)
			must(t, db.Exec(tt.create).Error)
			before := shape(t, db)
			err := migrations.Up(t.Context(), d)
			if !errors.Is(err, workernode.ErrTable) {
				t.Fatal(err)
			}
			saysAll(t, err.Error(), append(tt.says, "migrations: WORKER_NODE", "rename")...)
			if !slices.Equal(shape(t, db), before) || slices.ContainsFunc(p.list, func(s string) bool { return !strings.HasPrefix(s, "SELECT") }) {
				t.Errorf("statements %q", p.list)
			}
		})
	}
}

// TestColumnsAreComparedWithoutTheirCase, as MySQL and SQLite do.
func TestColumnsAreComparedWithoutTheirCase(t *testing.T) {
	t.Parallel()

	db, d, _ := open(t)
	must(t, db.Exec(`CREATE TABLE worker_node (id integer primary key, host_name text, port text, type int, launch_date date, modified text, created text, table_name text)`).Error)
	must(t, migrations.Up(t.Context(), d))
	if err := migrations.Check(t.Context(), d); err != nil {
		t.Error(err)
	}
}

func TestUpRefusesARegistryOfAnotherKind(t *testing.T) {
	t.Parallel()

	db, d, _ := open(t)
	must(t, db.Exec(`CREATE TABLE "WORKER_REGISTRY" (EMPLOYEE text, WAGE int)`).Error)
	err := migrations.Up(t.Context(), d)
	if !errors.Is(err, workernode.ErrTable) {
		t.Fatal(err)
	}
	saysAll(t, err.Error(), "migrations: WORKER_REGISTRY", "NAME", "LAYOUT", "NEXT_ID", "EMPLOYEE", "rename")
}

// mocked returns a handle on a mock whose WORKER_NODE is as it should be.
func mocked(t *testing.T, dial func(gorm.ConnPool) gorm.Dialector) (*workernode.DB, sqlmock.Sqlmock) {
	t.Helper()
	conns, mock, err := sqlmock.New(sqlmock.QueryMatcherOption(sqlmock.QueryMatcherEqual))
	must(t, err)
	db, err := gorm.Open(dial(conns), &gorm.Config{Logger: logger.Discard})
	must(t, err)
	t.Cleanup(func() {
		if err := mock.ExpectationsWereMet(); err != nil {
			t.Error(err)
		}
		mock.ExpectClose()
		_ = conns.Close()
	})
	d, err := workernode.Open(db, time.Minute)
	must(t, err)
	return d, mock
}

func onMySQL(conns gorm.ConnPool) gorm.Dialector {
	return mysql.New(mysql.Config{Conn: conns, SkipInitializeWithVersion: true})
}

func onPostgres(conns gorm.ConnPool) gorm.Dialector {
	return postgres.New(postgres.Config{Conn: conns})
}

func columns(names ...string) *sqlmock.Rows { return sqlmock.NewRows(names) }

var (
	sevenColumns = []string{"ID", "HOST_NAME", "PORT", "TYPE", "LAUNCH_DATE", "MODIFIED", "CREATED"}
	allColumns   = append(sevenColumns[:7:7], "TABLE_NAME", "LAYOUT", "REUSABLE", "START_SECOND", "HELD_SECOND", "FENCE", "HOLDER")
)

// TestUpAltersNoForeignRegistry: what the application calls WORKER_REGISTRY is
// its own. MySQL would add columns to it without a default.
func TestUpAltersNoForeignRegistry(t *testing.T) {
	t.Parallel()

	d, mock := mocked(t, onMySQL)
	mock.ExpectQuery("SELECT * FROM `WORKER_NODE` WHERE 1 = 0").WillReturnRows(columns(allColumns...))
	mock.ExpectQuery("SELECT * FROM `WORKER_REGISTRY` WHERE 1 = 0").WillReturnRows(columns("EMPLOYEE", "WAGE"))
	err := migrations.Up(t.Context(), d)
	if !errors.Is(err, workernode.ErrTable) || strings.Contains(err.Error(), "ALTER") {
		t.Error(err)
	}
}

func TestUpExtendsInOneStatementWhereTheDialectCan(t *testing.T) {
	t.Parallel()

	text, err := migrations.Files.ReadFile("mysql_uidgenerator.sql")
	must(t, err)
	alter := string(text[strings.Index(string(text), "ALTER TABLE"):])
	d, mock := mocked(t, onMySQL)
	mock.ExpectQuery("SELECT * FROM `WORKER_NODE` WHERE 1 = 0").WillReturnRows(columns(sevenColumns...))
	mock.ExpectExec(strings.TrimSuffix(strings.TrimSpace(alter), ";")).WillReturnResult(sqlmock.NewResult(0, 0))
	mock.ExpectQuery("SELECT * FROM `WORKER_NODE` WHERE 1 = 0").WillReturnRows(columns(allColumns...))
	mock.ExpectQuery("SELECT * FROM `WORKER_REGISTRY` WHERE 1 = 0").WillReturnRows(columns("NAME", "LAYOUT", "NEXT_ID", "FLOOR_SECOND"))
	must(t, migrations.Up(t.Context(), d))

	d, mock = mocked(t, onPostgres)
	mock.ExpectQuery(`SELECT * FROM "WORKER_NODE" WHERE 1 = 0`).WillReturnRows(columns(allColumns[:11]...))
	mock.ExpectExec(`ALTER TABLE "WORKER_NODE" ADD COLUMN "HELD_SECOND" BIGINT NOT NULL DEFAULT 0, ADD COLUMN "FENCE" BIGINT NOT NULL DEFAULT 0, ADD COLUMN "HOLDER" VARCHAR(36) NOT NULL DEFAULT ''`).
		WillReturnResult(sqlmock.NewResult(0, 0))
	mock.ExpectExec(`CREATE INDEX IF NOT EXISTS "IDX_WORKER_NODE_TABLE" ON "WORKER_NODE" ("TABLE_NAME", "FENCE")`).WillReturnResult(sqlmock.NewResult(0, 0))
	mock.ExpectQuery(`SELECT * FROM "WORKER_NODE" WHERE 1 = 0`).WillReturnRows(columns(allColumns...))
	mock.ExpectQuery(`SELECT 1 FROM pg_indexes WHERE indexname = $1 AND schemaname = ANY (current_schemas(false))`).
		WithArgs("IDX_WORKER_NODE_TABLE").WillReturnRows(columns("1").AddRow(1))
	mock.ExpectQuery(`SELECT * FROM "WORKER_REGISTRY" WHERE 1 = 0`).WillReturnRows(columns("NAME", "LAYOUT", "NEXT_ID", "FLOOR_SECOND"))
	must(t, migrations.Up(t.Context(), d))
}

func TestAnAlterThatIsRefusedSaysWhatIsMissing(t *testing.T) {
	t.Parallel()

	db, d, p := open(t)
	uidGenerator(t, db)
	denied, alters := errors.New("ALTER command denied to user 'shop'"), 0
	p.fail = func(s string) error {
		if strings.HasPrefix(s, "ALTER") {
			alters++
			return denied
		}
		return nil
	}
	err := migrations.Up(t.Context(), d)
	if !errors.Is(err, workernode.ErrTable) || !errors.Is(err, denied) {
		t.Fatal(err)
	}
	saysAll(t, err.Error(), "migrations: WORKER_NODE", "TABLE_NAME, LAYOUT, REUSABLE, START_SECOND, HELD_SECOND, FENCE, HOLDER")
	if alters > 20 {
		t.Errorf("%d attempts", alters)
	}
}

func TestCheckNamesTheFileAndTheColumns(t *testing.T) {
	t.Parallel()

	db, d, _ := open(t)
	check := func(says ...string) {
		t.Helper()
		before := shape(t, db)
		err := migrations.Check(t.Context(), d)
		if !errors.Is(err, workernode.ErrTable) {
			t.Fatal(err)
		}
		saysAll(t, err.Error(), append(says, "migrations: ")...)
		if !slices.Equal(shape(t, db), before) {
			t.Error("Check has changed something")
		}
	}
	check("WORKER_NODE", "sqlite.sql", "no such table")
	uidGenerator(t, db)
	check("WORKER_NODE", "sqlite.sql", "TABLE_NAME, LAYOUT, REUSABLE, START_SECOND, HELD_SECOND, FENCE, HOLDER")
	must(t, db.Exec(`DROP TABLE "WORKER_NODE"`).Error)
	byHand(t, db)
	must(t, migrations.Check(t.Context(), d))
	must(t, db.Exec(`ALTER TABLE "WORKER_REGISTRY" DROP COLUMN "FLOOR_SECOND"`).Error)
	check("WORKER_REGISTRY", "sqlite.sql", "FLOOR_SECOND")
	must(t, db.Exec(`DROP TABLE "WORKER_REGISTRY"`).Error)
	check("WORKER_REGISTRY", "sqlite.sql", "no such table")
}

// TestCheckNamesTheFileThatExtendsTheTable: mysql.sql would do nothing to a table
// that is there.
func TestCheckNamesTheFileThatExtendsTheTable(t *testing.T) {
	t.Parallel()

	d, mock := mocked(t, onMySQL)
	mock.ExpectQuery("SELECT * FROM `WORKER_NODE` WHERE 1 = 0").WillReturnRows(columns(sevenColumns...))
	err := migrations.Check(t.Context(), d)
	if !errors.Is(err, workernode.ErrTable) {
		t.Fatal(err)
	}
	saysAll(t, err.Error(), "TABLE_NAME", "mysql_uidgenerator.sql")
}
