package sqldb_test

import (
	"slices"
	"testing"

	"github.com/DATA-DOG/go-sqlmock"
	"github.com/uidplugin/uidplugin/internal/sqldb"
	"github.com/uidplugin/uidplugin/internal/testkit"
)

// With columnsWithAlias=true MySQL's driver puts the table before each name.
func TestDBColumns_AreWithoutTheirTable(t *testing.T) {
	t.Parallel()

	db, mock := testkit.Mock(t, testkit.OnMySQL)
	mock.ExpectQuery("SELECT * FROM `WORKER_NODE` WHERE 1 = 0").
		WillReturnRows(sqlmock.NewRows([]string{"WORKER_NODE.ID", "PORT"}))
	got, err := open(t, db).Columns(t.Context(), "WORKER_NODE")
	must(t, err)
	if want := []sqldb.Column{{Name: "ID"}, {Name: "PORT"}}; !slices.Equal(got, want) {
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
