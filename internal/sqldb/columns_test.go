package sqldb_test

import (
	"errors"
	"slices"
	"testing"

	"github.com/DATA-DOG/go-sqlmock"
	"github.com/uidplugin/uidplugin/internal/sqldb"
	"github.com/uidplugin/uidplugin/internal/testkit"
)

const (
	mysqlColumns = "SELECT table_name, column_name, column_type, extra FROM information_schema.columns" +
		" WHERE table_schema = DATABASE() AND table_name IN (?, ?)"
	postgresColumns = "SELECT table_name, column_name, data_type, CASE is_identity WHEN 'YES' THEN 'identity' ELSE COALESCE(column_default, '') END" +
		" FROM information_schema.columns WHERE table_schema = ANY (current_schemas(false)) AND table_name IN ($1, $2)"
)

// A key that the database numbers is one that the application is warned of.
func TestDBColumnsOf_TellsWhichTheDatabaseNumbers(t *testing.T) {
	t.Parallel()

	mysql, mock := testkit.Mock(t, testkit.OnMySQL)
	mock.ExpectQuery(mysqlColumns).WithArgs("a", "b").WillReturnRows(sqlmock.NewRows([]string{"t", "c", "d", "e"}).
		AddRow("a", "id", "bigint unsigned", "AUTO_INCREMENT").AddRow("a", "at", "datetime", "DEFAULT_GENERATED"))
	got, err := open(t, mysql).ColumnsOf(t.Context(), "a", "b")
	must(t, err)
	want := []sqldb.Column{{"a", "id", "bigint unsigned", true, false}, {"a", "at", "datetime", false, false}}
	if !slices.Equal(got, want) {
		t.Errorf("MySQL: %+v", got)
	}

	postgres, mock := testkit.Mock(t, testkit.OnPostgres)
	mock.ExpectQuery(postgresColumns).WithArgs("a", "b").WillReturnRows(sqlmock.NewRows([]string{"t", "c", "d", "e"}).
		AddRow("b", "id", "bigint", "nextval('b_id_seq'::regclass)").
		AddRow("b", "nr", "bigint", "identity").AddRow("b", "no", "bigint", "lastval()").AddRow("b", "x", "text", ""))
	got, err = open(t, postgres).ColumnsOf(t.Context(), "a", "b")
	must(t, err)
	want = []sqldb.Column{{"b", "id", "bigint", true, false}, {"b", "nr", "bigint", true, true}, {"b", "no", "bigint", false, false},
		{"b", "x", "text", false, false}}
	if !slices.Equal(got, want) {
		t.Errorf("PostgreSQL: %+v", got)
	}
}

// Without tables, and where it knows no catalog, it must send nothing: the mock expects no statement.
func TestDBColumnsOf_AsksOnlyWhereItKnowsHow(t *testing.T) {
	t.Parallel()

	for _, d := range []*sqldb.DB{mocked(t, testkit.OnMySQL), open(t, tables(t))} {
		tables := []string{"WORKER_NODE"}
		if d.Dialect() == "mysql" {
			tables = nil
		}
		if got, err := d.ColumnsOf(t.Context(), tables...); err != nil || got != nil {
			t.Errorf("%s: %v, %v", d.Dialect(), got, err)
		}
	}
	broken := errors.New("broken")
	db, mock := testkit.Mock(t, testkit.OnMySQL)
	mock.ExpectQuery(mysqlColumns).WillReturnError(broken)
	if got, err := open(t, db).ColumnsOf(t.Context(), "a", "b"); !errors.Is(err, broken) || got != nil {
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
	if !slices.Equal(got, []string{"ID", "PORT"}) {
		t.Errorf("columns %q", got)
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

// TestDBColumns_AreThoseThatTheTableHasNow: whatever a connection remembers of it:
// SQLite's driver tells names before SQLite looks whether they still hold.
func TestDBColumns_AreThoseThatTheTableHasNow(t *testing.T) {
	t.Parallel()

	s := testkit.SQLite{Path: testkit.SQLitePath(t)}
	first, second := s.Open(t), s.Open(t)
	run(t, first, `CREATE TABLE "WORKER_NODE" ("ID" INTEGER)`)
	columns := func() []string {
		names, err := open(t, first).Columns(t.Context(), "WORKER_NODE")
		must(t, err)
		return names
	}
	columns()
	run(t, second, `ALTER TABLE "WORKER_NODE" ADD COLUMN "FENCE" BIGINT`)
	if names := columns(); !slices.Equal(names, []string{"ID", "FENCE"}) {
		t.Errorf("columns %q", names)
	}
}
