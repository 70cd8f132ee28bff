package inspect_test

import (
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/DATA-DOG/go-sqlmock"
	"github.com/uidplugin/uidplugin/internal/inspect"
	"github.com/uidplugin/uidplugin/internal/sqldb"
	"github.com/uidplugin/uidplugin/internal/testkit"
	"gorm.io/gorm"
)

var must = testkit.Must

// open returns a DB on the pool of db.
func open(tb testing.TB, db *gorm.DB) *sqldb.DB {
	tb.Helper()
	d, err := sqldb.Open(db, time.Minute)
	must(tb, err)
	return d
}

const (
	mysqlColumns = "SELECT table_schema, table_schema = DATABASE(), table_name, column_name, column_type, column_key = 'PRI', extra, is_nullable = 'YES'," +
		" COALESCE(column_default, ''), column_comment, @@sql_mode FROM information_schema.columns" +
		" WHERE table_schema = DATABASE() AND table_name = ? OR table_schema = ? AND table_name = ?"
	postgresColumns = "SELECT n.i, a.attname, CASE y.typtype WHEN 'd' THEN format_type(y.typbasetype, y.typtypmod)" +
		" ELSE format_type(a.atttypid, a.atttypmod) END, i.indrelid IS NOT NULL, a.attidentity <> '', a.attidentity = 'a', COALESCE(pg_get_expr(f.adbin, f.adrelid), '')" +
		" FROM unnest(ARRAY[$1, $2]::text[]) WITH ORDINALITY AS n(name, i)" +
		" JOIN pg_attribute a ON a.attrelid = to_regclass(n.name) AND a.attnum > 0 AND NOT a.attisdropped" +
		" JOIN pg_type y ON y.oid = a.atttypid LEFT JOIN pg_attrdef f ON f.adrelid = a.attrelid AND f.adnum = a.attnum" +
		" LEFT JOIN pg_index i ON i.indrelid = a.attrelid AND i.indisprimary AND a.attnum = ANY (i.indkey)"
)

// The application is warned of keys that the database numbers.
func TestColumns_TellsWhichTheDatabaseNumbers(t *testing.T) {
	t.Parallel()

	mysql, mock := testkit.Mock(t, testkit.OnMySQL)
	mock.ExpectQuery(mysqlColumns).WithArgs("a", "shop", "b").WillReturnRows(sqlmock.NewRows(strings.Split("schema current t c type key extra null default comment mode", " ")).
		AddRow("here", true, "A", "id", "bigint unsigned", true, "AUTO_INCREMENT", false, "", "", "STRICT_TRANS_TABLES,ANSI_QUOTES").
		AddRow("shop", false, "b", "at", "datetime", false, "DEFAULT_GENERATED", true, "now()", "when", "ANSI_QUOTES"))
	got, err := inspect.Columns(t.Context(), open(t, mysql), "`a`", "`shop`.`b`")
	must(t, err)
	want := []inspect.Column{{Table: "`a`", Name: "id", Type: "bigint unsigned", Key: true, Auto: true},
		{Table: "`shop`.`b`", Name: "at", Type: "datetime", Nullable: true, Default: "now()", Comment: "when", Lenient: true}}
	if !slices.Equal(got, want) {
		t.Errorf("MySQL: %+v", got)
	}

	postgres, mock := testkit.Mock(t, testkit.OnPostgres)
	mock.ExpectQuery(postgresColumns).WithArgs(`"a"`, `"s"."B c"`).WillReturnRows(sqlmock.NewRows([]string{"i", "c", "t", "k", "d", "a", "e"}).
		AddRow(2, "id", "bigint", true, false, false, "nextval('b_id_seq'::regclass)").
		AddRow(2, "nr", "bigint", false, true, true, "").AddRow(2, "no", "bigint", false, false, false, "lastval()").AddRow(1, "x", "text", false, false, false, ""))
	got, err = inspect.Columns(t.Context(), open(t, postgres), "A AS x", `s."B c"`)
	must(t, err)
	want = []inspect.Column{{Table: `s."B c"`, Name: "id", Type: "bigint", Key: true, Auto: true}, {Table: `s."B c"`, Name: "nr", Type: "bigint", Auto: true, Identity: true, Always: true},
		{Table: `s."B c"`, Name: "no", Type: "bigint"}, {Table: "A", Name: "x", Type: "text"}}
	if !slices.Equal(got, want) {
		t.Errorf("PostgreSQL: %+v", got)
	}

	sqlite := testkit.SQLite{}.Open(t)
	must(t, sqlite.Exec("CREATE TABLE a (id REAL PRIMARY KEY)").Error)
	got, err = inspect.Columns(t.Context(), open(t, sqlite), "`a`", `main."a"`, "`none`")
	must(t, err)
	if want = []inspect.Column{{Table: "`a`", Name: "id", Type: "REAL", Key: true, Lenient: true}, {Table: `main."a"`, Name: "id", Type: "REAL", Key: true, Lenient: true}}; !slices.Equal(got, want) {
		t.Errorf("SQLite: %+v", got)
	}
}

// Without a table, or with an invalid name, nothing is sent, because the mock expects no statement.
func TestColumns_AsksOnlyForNames(t *testing.T) {
	t.Parallel()

	for _, names := range [][]string{nil, {""}, {"(SELECT 1) x"}, {"a.b.c.d"}} {
		db, _ := testkit.Mock(t, testkit.OnMySQL)
		if got, err := inspect.Columns(t.Context(), open(t, db), names...); err != nil || got != nil {
			t.Errorf("%q: %v, %v", names, got, err)
		}
	}
	broken := errors.New("broken")
	db, mock := testkit.Mock(t, testkit.OnMySQL)
	mock.ExpectQuery(mysqlColumns).WillReturnError(broken)
	if got, err := inspect.Columns(t.Context(), open(t, db), "a", "b.c"); !errors.Is(err, broken) || got != nil {
		t.Errorf("%v, %v", got, err)
	}
}

// In a transaction the catalog would take the snapshot. So it is not read if the columns are wide, and a TEMPORARY
// table is not in it.
func TestColumnsFor_ReadsWideAndNarrowColumns(t *testing.T) {
	t.Parallel()
	testkit.Each(t, func(t *testing.T, d *testkit.Database) {
		handle := d.Open(t, nil)
		db := open(t, handle)
		must(t, handle.Exec("CREATE TABLE wide (id BIGINT, nr INT)").Error)
		must(t, handle.Exec("CREATE TABLE narrow (id INT)").Error)
		for table, names := range map[string]map[string]bool{"wide": {"ID": true, "nr": false}, "narrow": {"id": true}} {
			columns, err := inspect.ColumnsFor(t.Context(), db, table, names)
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

// LastNumber reads the sequences of a column, and 0 if it has none.
func TestLastNumber_ReadsTheSequence(t *testing.T) {
	t.Parallel()
	testkit.Each(t, func(t *testing.T, d *testkit.Database) {
		handle := d.Open(t, nil)
		must(t, handle.Exec("CREATE TABLE a (id BIGSERIAL, nr BIGINT)").Error)
		for range 3 {
			must(t, handle.Exec("INSERT INTO a (nr) VALUES (9)").Error)
		}
		for column, want := range map[string]int64{"id": 3, "nr": 0} {
			if last, err := inspect.LastNumber(t.Context(), open(t, handle), "a", column); err != nil || last != want {
				t.Errorf("%s: %d, %v; want %d", column, last, err, want)
			}
		}
	}, "postgres")
}

// MODIFY drops what it does not repeat.
func TestColumn_StatementsKeepWhatTheyDoNotChange(t *testing.T) {
	t.Parallel()
	key := inspect.Column{Name: "id", Type: "int unsigned", Auto: true, Invisible: true, Comment: `it's a \`}
	sequence := inspect.Column{Name: "id", Type: "int", Auto: true, Default: "nextval(`s`)"}
	text := inspect.Column{Name: "nr", Type: "varchar(9)", Nullable: true, Default: "x"}
	for want, got := range map[string]string{
		"ALTER TABLE a MODIFY `id` BIGINT UNSIGNED NOT NULL AUTO_INCREMENT INVISIBLE COMMENT 'it''s a \\\\'": key.WideStatement("mysql", "a", false),
		"ALTER TABLE a MODIFY `id` BIGINT UNSIGNED NOT NULL INVISIBLE COMMENT 'it''s a \\\\'":                key.PlainStatement("mysql", "a"),
		"ALTER TABLE a MODIFY `id` BIGINT NOT NULL DEFAULT nextval(`s`)":                                     sequence.WideStatement("mysql", "a", false),
		"ALTER TABLE a MODIFY `id` BIGINT NOT NULL":                                                          sequence.PlainStatement("mysql", "a"),
		"ALTER TABLE a MODIFY `id` int NOT NULL AUTO_INCREMENT":                                              sequence.NumberedStatement("a"),
		"ALTER TABLE a MODIFY `nr` VARCHAR(20) DEFAULT 'x'":                                                  text.WideStatement("mysql", "a", true),
		`ALTER TABLE a ALTER COLUMN "nr" TYPE VARCHAR(20)`:                                                   text.WideStatement("postgres", "a", true),
		`ALTER TABLE a ALTER COLUMN "id" DROP DEFAULT`:                                                       sequence.PlainStatement("postgres", "a"),
	} {
		if got != want {
			t.Errorf("%s, want %s", got, want)
		}
	}
}
