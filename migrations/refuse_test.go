package migrations_test

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/DATA-DOG/go-sqlmock"
	"github.com/uidplugin/uidplugin/internal/testkit"
	"github.com/uidplugin/uidplugin/migrations"
	"github.com/uidplugin/uidplugin/workernode"
	"gorm.io/gorm"
)

func TestUp_RefusesATableOfAnotherKind(t *testing.T) {
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
		db, d, p := open(t)
		must(t, db.Exec(tt.create).Error)
		before := shape(t, db)
		err := migrations.Up(t.Context(), d)
		testkit.IsError(t, err, workernode.ErrTable, append(tt.says, "migrations: WORKER_NODE", "rename")...)
		if !slices.Equal(shape(t, db), before) || slices.ContainsFunc(p.list, func(s string) bool { return !strings.HasPrefix(s, "SELECT") }) {
			t.Errorf("statements %q", p.list)
		}
	}
}

// Names of columns are compared without case, as MySQL and SQLite do.
func TestUp_ComparesColumnsWithoutTheirCase(t *testing.T) {
	t.Parallel()

	db, d, _ := open(t)
	must(t, db.Exec(`CREATE TABLE worker_node (id integer primary key, host_name text, port text, type int, launch_date date, modified text, created text, table_name text)`).Error)
	must(t, migrations.Up(t.Context(), d))
	if err := migrations.Check(t.Context(), d); err != nil {
		t.Error(err)
	}
}

func TestUp_RefusesARegistryOfAnotherKind(t *testing.T) {
	t.Parallel()

	db, d, _ := open(t)
	must(t, db.Exec(`CREATE TABLE "WORKER_REGISTRY" (EMPLOYEE text, WAGE int)`).Error)
	err := migrations.Up(t.Context(), d)
	testkit.IsError(t, err, workernode.ErrTable, "migrations: WORKER_REGISTRY", "NAME", "LAYOUT", "NEXT_ID", "EMPLOYEE", "rename")
}

func columns(names ...string) *sqlmock.Rows { return sqlmock.NewRows(slices.Clone(names)) } // Columns writes into it

var (
	sevenColumns = []string{"ID", "HOST_NAME", "PORT", "TYPE", "LAUNCH_DATE", "MODIFIED", "CREATED"}
	slotColumns  = []string{"ID", "LAYOUT", "REUSABLE", "FENCE", "VERSION", "HOLDER", "SEEN_TICK", "APPLICATION", "HOST_NAME", "PORT", "MODIFIED", "REGION"}

	sessionColumns  = []string{"SLOT", "START_TICK", "BEFORE_TICK", "APPLICATION", "HOST_NAME", "PORT", "TYPE", "LAUNCHED", "HOLDER"}
	registryColumns = []string{"NAME", "ID_SPACE", "LAYOUT", "LEAD_TICKS", "NEXT_ID", "NEXT_SLOT", "FLOOR_TICK", "SCHEMA_VERSION", "STRIDE", "REMAINDER", "FIRST_ID"}

	allColumns = append(sevenColumns[:7:7], "SLOT", "DATABASE_NAME", "TABLE_NAME", "LAYOUT", "START_TICK")
)

// onMySQL answers the queries for the database of the tables, and for modes in which the plugin cannot work. onPostgres
// answers that for their schema.
func onMySQL(mock sqlmock.Sqlmock) {
	mock.ExpectQuery("SELECT COALESCE(DATABASE(), ''), VERSION(), @@lower_case_table_names").
		WillReturnRows(columns("a", "b", "c").AddRow("shop", "8.4.0", 1))
	mock.ExpectQuery("SELECT @@sql_mode").WillReturnRows(columns("mode").AddRow("STRICT_TRANS_TABLES"))
}

func onPostgres(mock sqlmock.Sqlmock) {
	mock.ExpectQuery(`SELECT array_to_json(current_schemas(false))::text, COALESCE(current_schema(), ''), EXISTS (SELECT FROM pg_catalog.pg_namespace WHERE nspname = $1), COALESCE(nspname, ''),` +
		` COALESCE(relname, ''), COALESCE(pg_catalog.pg_table_is_visible(t.oid), false) FROM (SELECT 1) AS one LEFT JOIN` +
		` (pg_catalog.pg_class t JOIN pg_catalog.pg_namespace n ON n.oid = relnamespace` +
		` JOIN pg_catalog.pg_attribute a ON attrelid = t.oid AND attnum > 0 AND NOT attisdropped)` +
		` ON (lower(relname), lower(attname)) IN (('worker_registry', 'id_space'), ('worker_node', 'launch_date'))` +
		` AND relkind IN ('r', 'p', 'v', 'f') AND nspname !~ '^pg_' ORDER BY nspname, relname`).
		WillReturnRows(columns("p", "a", "b", "c", "d", "e").AddRow(`["public"]`, "public", false, "public", "WORKER_REGISTRY", true))
}

// If the application has a table WORKER_REGISTRY of its own, Up changes nothing. MySQL would otherwise add columns to
// it without a default.
func TestUp_AltersNoForeignRegistry(t *testing.T) {
	t.Parallel()

	d, mock := testkit.Mock(t, testkit.OnMySQL)
	onMySQL(mock)
	mock.ExpectQuery("SELECT * FROM `shop`.`WORKER_REGISTRY` WHERE 1 = 0").WillReturnRows(columns("EMPLOYEE", "WAGE"))
	mock.ExpectQuery("SELECT * FROM `shop`.`WORKER_NODE` WHERE 1 = 0").WillReturnRows(columns(allColumns...))
	mock.ExpectQuery("SELECT * FROM `shop`.`WORKER_SLOT` WHERE 1 = 0").WillReturnRows(columns(slotColumns...))
	mock.ExpectQuery("SELECT * FROM `shop`.`WORKER_SESSION` WHERE 1 = 0").WillReturnRows(columns(sessionColumns...))
	mock.ExpectQuery("SELECT * FROM `shop`.`WORKER_REGISTRY` WHERE 1 = 0").WillReturnRows(columns("EMPLOYEE", "WAGE"))
	err := migrations.Up(t.Context(), d)
	if !errors.Is(err, workernode.ErrTable) || strings.Contains(err.Error(), "ALTER") {
		t.Error(err)
	}
}

func TestUp_ExtendsInOneStatementWhereTheDialectCan(t *testing.T) {
	t.Parallel()

	text, err := migrations.Files.ReadFile("mysql_uidgenerator.sql")
	must(t, err)
	alter := strings.Replace(string(text[strings.Index(string(text), "ALTER TABLE"):]), "`WORKER_NODE`", "`shop`.`WORKER_NODE`", 1)
	d, mock := testkit.Mock(t, testkit.OnMySQL)
	onMySQL(mock)
	mock.ExpectQuery("SELECT * FROM `shop`.`WORKER_REGISTRY` WHERE 1 = 0").WillReturnRows(columns(registryColumns...))
	mock.ExpectQuery("SELECT `SCHEMA_VERSION` FROM `shop`.`WORKER_REGISTRY` WHERE `NAME` = 'default'").WillReturnRows(columns("SCHEMA_VERSION").AddRow(1))
	mock.ExpectQuery("SELECT * FROM `shop`.`WORKER_NODE` WHERE 1 = 0").WillReturnRows(columns(sevenColumns...))
	mock.ExpectExec(strings.TrimSuffix(strings.TrimSpace(alter), ";")).WillReturnResult(sqlmock.NewResult(0, 0))
	mock.ExpectQuery("SELECT * FROM `shop`.`WORKER_NODE` WHERE 1 = 0").WillReturnRows(columns(allColumns...))
	mock.ExpectQuery("SELECT * FROM `shop`.`WORKER_SLOT` WHERE 1 = 0").WillReturnRows(columns(slotColumns...))
	mock.ExpectQuery("SELECT * FROM `shop`.`WORKER_SESSION` WHERE 1 = 0").WillReturnRows(columns(sessionColumns...))
	mock.ExpectQuery("SELECT * FROM `shop`.`WORKER_REGISTRY` WHERE 1 = 0").WillReturnRows(columns(registryColumns...))
	must(t, migrations.Up(t.Context(), d))

	d, mock = testkit.Mock(t, testkit.OnPostgres)
	onPostgres(mock)
	mock.ExpectQuery(`SELECT * FROM "public"."WORKER_REGISTRY" WHERE 1 = 0`).WillReturnRows(columns(registryColumns...))
	mock.ExpectQuery(`SELECT "SCHEMA_VERSION" FROM "public"."WORKER_REGISTRY" WHERE "NAME" = 'default'`).WillReturnRows(columns("SCHEMA_VERSION").AddRow(1))
	mock.ExpectQuery(`SELECT * FROM "public"."WORKER_NODE" WHERE 1 = 0`).WillReturnRows(columns(allColumns[:10]...))
	mock.ExpectExec(`ALTER TABLE "public"."WORKER_NODE" ADD COLUMN "LAYOUT" VARCHAR(64) NOT NULL DEFAULT '', ADD COLUMN "START_TICK" BIGINT NOT NULL DEFAULT 0`).
		WillReturnResult(sqlmock.NewResult(0, 0))
	mock.ExpectExec(`CREATE INDEX IF NOT EXISTS "IDX_WORKER_NODE_SLOT" ON "public"."WORKER_NODE" ("SLOT")`).WillReturnResult(sqlmock.NewResult(0, 0))
	mock.ExpectQuery(`SELECT * FROM "public"."WORKER_NODE" WHERE 1 = 0`).WillReturnRows(columns(allColumns...))
	mock.ExpectQuery(`SELECT 1 FROM pg_indexes WHERE indexname = $1 AND schemaname = $2`).
		WithArgs("IDX_WORKER_NODE_SLOT", "public").WillReturnRows(columns("1").AddRow(1))
	mock.ExpectQuery(`SELECT * FROM "public"."WORKER_SLOT" WHERE 1 = 0`).WillReturnRows(columns(slotColumns...))
	mock.ExpectQuery(`SELECT * FROM "public"."WORKER_SESSION" WHERE 1 = 0`).WillReturnRows(columns(sessionColumns...))
	mock.ExpectQuery(`SELECT * FROM "public"."WORKER_REGISTRY" WHERE 1 = 0`).WillReturnRows(columns(registryColumns...))
	must(t, migrations.Up(t.Context(), d))
}

func TestUp_SaysWhatIsMissingWhenItMayNotAddIt(t *testing.T) {
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
	testkit.IsError(t, err, workernode.ErrTable)
	testkit.IsError(t, err, denied, "migrations: WORKER_NODE", "SLOT, DATABASE_NAME, TABLE_NAME, LAYOUT, START_TICK")
	if alters > 20 {
		t.Errorf("%d attempts", alters)
	}
}

func TestCheck_NamesTheFileAndTheColumns(t *testing.T) {
	t.Parallel()

	db, d, _ := open(t)
	check := func(says ...string) {
		t.Helper()
		before := shape(t, db)
		testkit.IsError(t, migrations.Check(t.Context(), d), workernode.ErrTable, append(says, "migrations: ")...)
		if !slices.Equal(shape(t, db), before) {
			t.Error("Check has changed something")
		}
	}
	check("WORKER_NODE", "sqlite.sql", "no such table")
	uidGenerator(t, db)
	check("WORKER_NODE", "sqlite.sql", "SLOT, DATABASE_NAME, TABLE_NAME, LAYOUT, START_TICK")
	must(t, db.Exec(`DROP TABLE "WORKER_NODE"`).Error)
	byHand(t, db)
	must(t, migrations.Check(t.Context(), d))
	must(t, db.Exec(`ALTER TABLE "WORKER_REGISTRY" DROP COLUMN "FLOOR_TICK"`).Error)
	check("WORKER_REGISTRY", "ALTER TABLE `main`.`WORKER_REGISTRY` ADD COLUMN \"FLOOR_TICK\" BIGINT NOT NULL DEFAULT 0;")
	must(t, db.Exec(`DROP TABLE "WORKER_REGISTRY"`).Error)
	check("WORKER_REGISTRY", "sqlite.sql", "no such table")
}

// mysql.sql changes nothing in an existing table, so the error has the statement that extends UidGenerator's.
func TestCheck_PrintsTheStatementThatExtendsTheTable(t *testing.T) {
	t.Parallel()

	text, err := migrations.Files.ReadFile("mysql_uidgenerator.sql")
	must(t, err)
	alter := strings.Join(strings.Fields(string(text[strings.Index(string(text), "ALTER TABLE"):])), " ")
	alter = strings.Replace(alter, "`WORKER_NODE`", "`shop`.`WORKER_NODE`", 1)
	d, mock := testkit.Mock(t, testkit.OnMySQL)
	onMySQL(mock)
	mock.ExpectQuery("SELECT * FROM `shop`.`WORKER_REGISTRY` WHERE 1 = 0").WillReturnError(errors.New("no such table"))
	mock.ExpectQuery("SELECT * FROM `shop`.`WORKER_NODE` WHERE 1 = 0").WillReturnRows(columns(sevenColumns...))
	mock.ExpectQuery("SELECT * FROM `shop`.`WORKER_SLOT` WHERE 1 = 0").WillReturnError(errors.New("no such table"))
	err = migrations.Check(t.Context(), d)
	testkit.IsError(t, err, workernode.ErrTable, "TABLE_NAME", alter, "WORKER_SLOT cannot be read", "mysql.sql creates it")
}

// Check must accept what the driver's parameter columnsWithAlias=true makes of column names, or no process
// starts with it.
func TestCheck_AcceptsColumnsWithAlias(t *testing.T) {
	t.Parallel()

	d, mock := testkit.Mock(t, testkit.OnMySQL)
	onMySQL(mock)
	names := []string{"WORKER_NODE", "WORKER_SLOT", "WORKER_SESSION", "WORKER_REGISTRY"}
	for i, list := range [][]string{allColumns, slotColumns, sessionColumns, registryColumns} {
		var with []string
		for _, c := range list {
			with = append(with, names[i]+"."+c)
		}
		mock.ExpectQuery("SELECT * FROM `shop`.`" + names[i] + "` WHERE 1 = 0").WillReturnRows(columns(with...))
	}
	must(t, migrations.Check(t.Context(), d))
}

// The tables of a version before slots cannot be continued: its worker ids have no slot. Adding columns to them
// would let both versions stamp with one worker id.
func TestUp_RefusesTheTablesOfAnEarlierVersion(t *testing.T) {
	t.Parallel()

	const registry = `CREATE TABLE "WORKER_REGISTRY" (NAME text, LAYOUT text, NEXT_ID int, FLOOR_SECOND int)`
	for name, create := range map[string]string{
		"WORKER_NODE": `CREATE TABLE "WORKER_NODE" (ID integer, HOST_NAME text, PORT text, TYPE int, LAUNCH_DATE date, MODIFIED text, CREATED text,
			TABLE_NAME text, LAYOUT text, REUSABLE int, START_SECOND int, HELD_SECOND int, FENCE int, HOLDER text); ` + registry,
		"WORKER_REGISTRY": registry,
	} {
		db, d, p := open(t)
		must(t, db.Exec(create).Error)
		before := shape(t, db)
		for _, do := range []func(context.Context, *gorm.DB, ...migrations.Option) error{migrations.Up, migrations.Check} {
			err := do(t.Context(), d)
			testkit.IsError(t, err, workernode.ErrTable, "migrations: "+name, "created by an unreleased version of uidplugin", "_SECOND", "use another database")
		}
		if name == "WORKER_NODE" && !slices.Equal(shape(t, db), before) {
			t.Errorf("the tables were changed: %q", p.list)
		}
	}
}

// A table that cannot be read is missing, or this user has no right to it: the error says what to do in both cases.
func TestCheck_SaysWhatToDoWithoutARight(t *testing.T) {
	t.Parallel()

	d, mock := testkit.Mock(t, testkit.OnMySQL)
	onMySQL(mock)
	mock.ExpectQuery("SELECT * FROM `shop`.`WORKER_NODE` WHERE 1 = 0").WillReturnError(errors.New("SELECT command denied"))
	err := migrations.Check(t.Context(), d)
	testkit.IsError(t, err, workernode.ErrTable, "WORKER_NODE", "SELECT command denied", "mysql.sql", "grant this user the rights")
}
