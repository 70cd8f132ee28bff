package upsert

import (
	"database/sql"
	"database/sql/driver"
	"reflect"
	"testing"

	"github.com/DATA-DOG/go-sqlmock"
	"github.com/uidplugin/uidplugin/internal/testkit"
	"gorm.io/gorm"
	"gorm.io/gorm/clause"
)

func TestIsNull_IsWhatTheDatabaseGets(t *testing.T) {
	t.Parallel()

	n := 0
	for _, tt := range []struct {
		v    any
		want bool
	}{
		{nil, true}, {(*int)(nil), true}, {(*sql.NullString)(nil), true}, {sql.NullString{}, true}, {sql.NullInt64{}, true},
		{0, false}, {"", false}, {&n, false}, {sql.NullString{Valid: true}, false}, {[]byte{}, false},
	} {
		if got := isNull(tt.v); got != tt.want {
			t.Errorf("%#v: %t", tt.v, got)
		}
	}
}

// At REPEATABLE READ MySQL shows a row that is younger than the transaction only to a SELECT that locks it. Any of its
// unique indexes may have made a conflict.
func TestTrackerReadRows_AsksForEachRowInOneStatement(t *testing.T) {
	t.Parallel()

	tenant := "t"
	for _, tt := range []struct {
		dial func(gorm.ConnPool) gorm.Dialector
		sql  string
		args []driver.Value
	}{
		{testkit.OnMySQL, "(SELECT 0,`id`,`trace` FROM `orders` WHERE `no` = ? FOR UPDATE)" +
			" UNION ALL (SELECT 2,`id`,`trace` FROM `orders` WHERE `no` = ? FOR UPDATE)" +
			" UNION ALL (SELECT 3,`id`,`trace` FROM `orders` WHERE `tenant` = ? AND `place` = ? FOR UPDATE)",
			[]driver.Value{"a", "c", "t", int64(0)}},
		{testkit.OnPostgres, `SELECT 0,"id","trace" FROM "orders" WHERE "no" = $1` +
			` UNION ALL SELECT 2,"id","trace" FROM "orders" WHERE "no" = $2`, []driver.Value{"a", "c"}},
	} {
		db, mock := testkit.Mock(t, tt.dial)
		rows := []Order{{No: "a"}, {No: "b"}, {No: "c", Tenant: &tenant}}
		stmt, m, tracker := statement(t, db, &rows, on("no"))
		stmt.ConnPool = db.ConnPool
		tracker.facts(stmt, m)
		mock.ExpectQuery(tt.sql).WithArgs(tt.args...).WillReturnRows(sqlmock.NewRows([]string{"0", "id", "trace"}).
			AddRow("0", 5, 6).AddRow("2", 7, 8).AddRow("2", 9, 10))
		got := map[int][]int64{1: {11, 12}}
		lookups := tracker.lookups(t.Context(), tracker.keys(stmt.Schema), sentNow(stmt))
		testkit.Must(t, tracker.readRows(stmt.DB, lookups, comparisons{}, m.Fields, got))
		if want := map[int][]int64{0: {5, 6}, 1: {11, 12}, 2: nil}; !reflect.DeepEqual(got, want) {
			t.Errorf("%v", got)
		}
	}
}

// A row that is NULL where the conflict was is equal to nothing, and needs no statement: the mock expects none.
func TestTrackerReadRows_SendsNothingForNULL(t *testing.T) {
	t.Parallel()

	row := Order{No: "a"}
	stmt, m, tracker := statement(t, mysql(t), &row, on("tenant", "place"))
	got := map[int][]int64{}
	err := tracker.readRows(stmt.DB, tracker.lookups(t.Context(), tracker.keys(stmt.Schema), sentNow(stmt)), comparisons{}, m.Fields, got)
	if err != nil || len(got) != 0 {
		t.Errorf("%v, %v", got, err)
	}
}

// The WHERE of a partial index is a part of what makes rows the same; it may have an OR.
func TestTrackerReadRows_RespectsTheTargetOfAPartialIndex(t *testing.T) {
	t.Parallel()

	db, mock := testkit.Mock(t, testkit.OnPostgres)
	conflict := on("no")
	one, two := clause.Eq{Column: "place", Value: 1}, clause.Eq{Column: "place", Value: 2}
	conflict.TargetWhere = clause.Where{Exprs: []clause.Expression{one, clause.Or(two)}}
	stmt, m, tracker := statement(t, db, &Order{No: "a"}, conflict)
	stmt.ConnPool = db.ConnPool
	mock.ExpectQuery(`SELECT 0,"id","trace" FROM "orders" WHERE ("place" = $1 OR "place" = $2) AND "no" = $3`).
		WithArgs(1, 2, "a").WillReturnRows(sqlmock.NewRows([]string{"0", "id", "trace"}))
	got := map[int][]int64{}
	err := tracker.readRows(stmt.DB, tracker.lookups(t.Context(), tracker.keys(stmt.Schema), sentNow(stmt)), comparisons{}, m.Fields, got)
	if err != nil || len(got) != 0 {
		t.Errorf("%v, %v", got, err)
	}
}

// Columns of CHAR and DECIMAL return an id with blanks or places, which is the same id.
func TestSelectByID_KnowsIDsHoweverTheyAreWritten(t *testing.T) {
	t.Parallel()

	db, mock := testkit.Mock(t, testkit.OnMySQL)
	rows := []Order{{ID: 5}, {}, {ID: 6}}
	stmt, m, _ := statement(t, db, &rows)
	stmt.ConnPool = db.ConnPool
	mock.ExpectQuery("SELECT `id`,`id`,`trace` FROM `orders` WHERE `id` IN (?,?)").WithArgs(5, 6).
		WillReturnRows(sqlmock.NewRows([]string{"id", "id", "trace"}).AddRow("5  ", "5.00", "7 ").AddRow([]byte("6"), 6, nil))
	got, err := selectByID(stmt.DB, m.Fields[0], m.Fields, sentNow(stmt))
	testkit.Must(t, err)
	if want := map[string][]int64{"5": {5, 7}, "6": {6, 0}}; !reflect.DeepEqual(got, want) {
		t.Errorf("%v", got)
	}
}
