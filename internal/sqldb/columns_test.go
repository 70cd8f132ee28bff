package sqldb_test

import (
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/DATA-DOG/go-sqlmock"
	"github.com/uidplugin/uidplugin/internal/sqldb"
	"github.com/uidplugin/uidplugin/internal/testkit"
)

const (
	mysqlColumns = "SELECT table_schema, table_schema = DATABASE(), table_name, column_name, column_type, extra, is_nullable = 'YES'," +
		" COALESCE(column_default, ''), column_comment, @@sql_mode FROM information_schema.columns" +
		" WHERE table_schema = DATABASE() AND table_name = ? OR table_schema = ? AND table_name = ?"
	postgresColumns = "SELECT n.i, a.attname, CASE y.typtype WHEN 'd' THEN format_type(y.typbasetype, y.typtypmod)" +
		" ELSE format_type(a.atttypid, a.atttypmod) END, a.attidentity <> '', a.attidentity = 'a', COALESCE(pg_get_expr(f.adbin, f.adrelid), '')" +
		" FROM unnest(ARRAY[$1, $2]::text[]) WITH ORDINALITY AS n(name, i)" +
		" JOIN pg_attribute a ON a.attrelid = to_regclass(n.name) AND a.attnum > 0 AND NOT a.attisdropped" +
		" JOIN pg_type y ON y.oid = a.atttypid LEFT JOIN pg_attrdef f ON f.adrelid = a.attrelid AND f.adnum = a.attnum"
)

// A key that the database numbers is one that the application is warned of.
func TestDBColumnsOf_TellsWhichTheDatabaseNumbers(t *testing.T) {
	t.Parallel()

	mysql, mock := testkit.Mock(t, testkit.OnMySQL)
	mock.ExpectQuery(mysqlColumns).WithArgs("a", "shop", "b").WillReturnRows(sqlmock.NewRows(strings.Split("schema current t c type extra null default comment mode", " ")).
		AddRow("here", true, "A", "id", "bigint unsigned", "AUTO_INCREMENT", false, "", "", "STRICT_TRANS_TABLES,ANSI_QUOTES").
		AddRow("shop", false, "b", "at", "datetime", "DEFAULT_GENERATED", true, "now()", "when", "ANSI_QUOTES"))
	got, err := open(t, mysql).ColumnsOf(t.Context(), "`a`", "`shop`.`b`")
	must(t, err)
	want := []sqldb.Column{{Table: "`a`", Name: "id", Type: "bigint unsigned", Auto: true},
		{Table: "`shop`.`b`", Name: "at", Type: "datetime", Nullable: true, Default: "now()", Comment: "when", Lenient: true}}
	if !slices.Equal(got, want) {
		t.Errorf("MySQL: %+v", got)
	}

	postgres, mock := testkit.Mock(t, testkit.OnPostgres)
	mock.ExpectQuery(postgresColumns).WithArgs(`"a"`, `"s"."B c"`).WillReturnRows(sqlmock.NewRows([]string{"i", "c", "t", "d", "a", "e"}).
		AddRow(2, "id", "bigint", false, false, "nextval('b_id_seq'::regclass)").
		AddRow(2, "nr", "bigint", true, true, "").AddRow(2, "no", "bigint", false, false, "lastval()").AddRow(1, "x", "text", false, false, ""))
	got, err = open(t, postgres).ColumnsOf(t.Context(), "A AS x", `s."B c"`)
	must(t, err)
	want = []sqldb.Column{{Table: `s."B c"`, Name: "id", Type: "bigint", Auto: true}, {Table: `s."B c"`, Name: "nr", Type: "bigint", Auto: true, Identity: true, Always: true},
		{Table: `s."B c"`, Name: "no", Type: "bigint"}, {Table: "A", Name: "x", Type: "text"}}
	if !slices.Equal(got, want) {
		t.Errorf("PostgreSQL: %+v", got)
	}

	sqlite := testkit.SQLite{}.Open(t)
	must(t, sqlite.Exec("CREATE TABLE a (id REAL)").Error)
	got, err = open(t, sqlite).ColumnsOf(t.Context(), "`a`", `main."a"`, "`none`")
	must(t, err)
	if want = []sqldb.Column{{Table: "`a`", Name: "id", Type: "REAL", Lenient: true}, {Table: `main."a"`, Name: "id", Type: "REAL", Lenient: true}}; !slices.Equal(got, want) {
		t.Errorf("SQLite: %+v", got)
	}
}

// Without a table, or with an invalid name, nothing is sent, because the mock expects no statement.
func TestDBColumnsOf_AsksOnlyForNames(t *testing.T) {
	t.Parallel()

	for _, names := range [][]string{nil, {""}, {"(SELECT 1) x"}, {"a.b.c.d"}} {
		if got, err := mocked(t, testkit.OnMySQL).ColumnsOf(t.Context(), names...); err != nil || got != nil {
			t.Errorf("%q: %v, %v", names, got, err)
		}
	}
	broken := errors.New("broken")
	db, mock := testkit.Mock(t, testkit.OnMySQL)
	mock.ExpectQuery(mysqlColumns).WillReturnError(broken)
	if got, err := open(t, db).ColumnsOf(t.Context(), "a", "b.c"); !errors.Is(err, broken) || got != nil {
		t.Errorf("%v, %v", got, err)
	}
}

// With columnsWithAlias=true MySQL's driver puts the table before each name.
func TestDBColumns_AreWithoutTheirTable(t *testing.T) {
	t.Parallel()

	db, mock := testkit.Mock(t, testkit.OnMySQL)
	mock.ExpectQuery("SELECT * FROM `WORKER_NODE` WHERE 1 = 0").
		WillReturnRows(sqlmock.NewRows([]string{"WORKER_NODE.ID", "PORT"}))
	got, err := open(t, db).Columns(t.Context(), "WORKER_NODE")
	must(t, err)
	if want := []sqldb.Column{{Table: "`WORKER_NODE`", Name: "ID"}, {Table: "`WORKER_NODE`", Name: "PORT"}}; !slices.Equal(got, want) {
		t.Errorf("columns %+v", got)
	}
	_, err = open(t, testkit.SQLite{}.Open(t)).Columns(t.Context(), "NO_SUCH")
	testkit.IsError(t, err, nil, "no such table: NO_SUCH")
}

func TestDBHasIndex_KnowsPostgreSQLAndSQLite(t *testing.T) {
	t.Parallel()

	lite := testkit.SQLite{}.Open(t)
	run(t, lite, `CREATE TABLE "T" ("A" INT)`)
	run(t, lite, `CREATE INDEX "IDX_A" ON "T" ("A")`)
	postgres, mock := testkit.Mock(t, testkit.OnPostgres)
	const query = `SELECT 1 FROM pg_indexes WHERE indexname = $1 AND schemaname = ANY (current_schemas(false))`
	mock.ExpectQuery(query).WithArgs("IDX_A").WillReturnRows(sqlmock.NewRows([]string{"1"}).AddRow(1))
	mock.ExpectQuery(query).WithArgs("IDX_B").WillReturnRows(sqlmock.NewRows([]string{"1"}))
	for _, tt := range []struct {
		db    *sqldb.DB
		index string
		want  bool
	}{
		{open(t, lite), "IDX_A", true}, {open(t, lite), "IDX_B", false}, {open(t, lite), "T", false},
		{open(t, postgres), "IDX_A", true}, {open(t, postgres), "IDX_B", false},
		{mocked(t, testkit.OnMySQL), "IDX_B", true},
	} {
		if got, err := tt.db.HasIndex(t.Context(), tt.index); err != nil || got != tt.want {
			t.Errorf("%s, %s: %t, %v", tt.db.Dialect(), tt.index, got, err)
		}
	}
}

// Columns returns the present columns, although a connection may remember old ones: SQLite's driver reports the names
// before SQLite checks whether they are still valid.
func TestDBColumns_AreThoseThatTheTableHasNow(t *testing.T) {
	t.Parallel()

	s := testkit.SQLite{Path: testkit.SQLitePath(t)}
	first, second := s.Open(t), s.Open(t)
	run(t, first, `CREATE TABLE "WORKER_NODE" ("ID" INTEGER)`)
	columns := func() (names []string) {
		all, err := open(t, first).Columns(t.Context(), "WORKER_NODE")
		must(t, err)
		for _, c := range all {
			names = append(names, c.Name)
		}
		return names
	}
	columns()
	run(t, second, `ALTER TABLE "WORKER_NODE" ADD COLUMN "FENCE" BIGINT`)
	if names := columns(); !slices.Equal(names, []string{"ID", "FENCE"}) {
		t.Errorf("columns %q", names)
	}
}

// In a transaction the catalog would take the snapshot. So it is not read if the columns are wide, and a TEMPORARY
// table is not in it.
func TestDBColumnsFor_ReadsWideAndNarrowColumns(t *testing.T) {
	t.Parallel()
	testkit.Each(t, func(t *testing.T, d *testkit.Database) {
		handle := d.Open(t, nil)
		db := open(t, handle)
		must(t, handle.Exec("CREATE TABLE wide (id BIGINT, nr INT)").Error)
		must(t, handle.Exec("CREATE TABLE narrow (id INT)").Error)
		for table, names := range map[string]map[string]bool{"wide": {"ID": true, "nr": false}, "narrow": {"id": true}} {
			columns, err := db.ColumnsFor(t.Context(), table, names)
			must(t, err)
			if len(columns) != len(names) {
				t.Fatalf("%s: %+v", table, columns)
			}
			if big := strings.HasPrefix(strings.ToLower(columns[0].Type), "bigint"); columns[0].Name != "id" || big != (table == "wide") {
				t.Errorf("%s: %+v", table, columns[0])
			}
		}
	})
}

// LastOf reads the sequences of a column, and 0 if it has none.
func TestDBLastOf_ReadsTheSequence(t *testing.T) {
	t.Parallel()
	testkit.Each(t, func(t *testing.T, d *testkit.Database) {
		handle := d.Open(t, nil)
		must(t, handle.Exec("CREATE TABLE a (id BIGSERIAL, nr BIGINT)").Error)
		for range 3 {
			must(t, handle.Exec("INSERT INTO a (nr) VALUES (9)").Error)
		}
		for column, want := range map[string]int64{"id": 3, "nr": 0} {
			if last, err := open(t, handle).LastOf(t.Context(), "a", column); err != nil || last != want {
				t.Errorf("%s: %d, %v; want %d", column, last, err, want)
			}
		}
	}, "postgres")
}
