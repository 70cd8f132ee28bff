package upsert

import (
	"math"
	"reflect"
	"testing"

	"github.com/uidplugin/uidplugin/internal/model"
	"github.com/uidplugin/uidplugin/internal/testkit"
	"gorm.io/gorm"
	"gorm.io/gorm/callbacks"
	"gorm.io/gorm/clause"
)

// Order has its key from the plugin, Invoice from the database, and both have a second id.
type (
	Order struct {
		ID     int64   `gorm:"primaryKey;autoIncrement:false;uid"`
		Trace  int64   `gorm:"uid"`
		No     string  `gorm:"uniqueIndex"`
		Tenant *string `gorm:"uniqueIndex:both"`
		Place  int     `gorm:"uniqueIndex:both"`
	}
	Invoice struct {
		ID    int64 `gorm:"primaryKey"`
		Trace int64 `gorm:"uid"`
		No    string
	}
)

// statement returns the statement of a create of dest on db, with clauses, its model, and a Tracker of its uid fields.
func statement(tb testing.TB, db *gorm.DB, dest any, clauses ...clause.Interface) (
	*gorm.Statement, *model.Model, *Tracker,
) {
	tb.Helper()
	stmt := db.Session(&gorm.Session{NewDB: true}).Model(dest).Statement
	stmt.Dest, stmt.ReflectValue = dest, reflect.Indirect(reflect.ValueOf(dest))
	testkit.Must(tb, stmt.Parse(dest))
	stmt.BuildClauses = []string{"INSERT", "VALUES", "ON CONFLICT", "RETURNING"}
	for _, c := range clauses {
		stmt.AddClause(c)
	}
	m, err := model.New(db, stmt.Schema, model.Target{Largest: math.MaxInt64, Dialect: db.Dialector.Name()})
	testkit.Must(tb, err)
	t := Track(stmt.DB)
	t.fields, t.ids = m.Fields, make([][]int64, len(m.Fields))
	t.conflict, _ = stmt.Clauses[model.OnConflict].Expression.(clause.OnConflict)
	return stmt, m, t
}

// sentNow returns the rows of a statement that was not sent.
func sentNow(stmt *gorm.Statement) []sentRow {
	stmt.AddClause(callbacks.ConvertToCreateValues(stmt))
	return sentRows(stmt, stmt.Schema)
}

// lite returns a handle on SQLite.
func lite(tb testing.TB) *gorm.DB { return testkit.SQLite{}.Open(tb) }

// mysql returns a handle on a mock.
func mysql(tb testing.TB) *gorm.DB {
	db, _ := testkit.Mock(tb, testkit.OnMySQL)
	return db
}

func TestConflicts_TellsStatementsThatMayFindRows(t *testing.T) {
	t.Parallel()

	for _, tt := range []struct {
		clauses []clause.Interface
		want    bool
	}{
		{nil, false},
		{[]clause.Interface{clause.Returning{}}, false},
		{[]clause.Interface{clause.OnConflict{}}, true},
		{[]clause.Interface{clause.OnConflict{DoNothing: true}, clause.Returning{}}, true},
		{[]clause.Interface{clause.Insert{Modifier: "ignore"}}, true},
		{[]clause.Interface{clause.Insert{Modifier: "LOW_PRIORITY IGNORE"}}, true},
		{[]clause.Interface{clause.Insert{Modifier: "LOW_PRIORITY"}}, false},
		{[]clause.Interface{clause.Insert{}}, false},
	} {
		stmt, _, _ := statement(t, lite(t), &Order{}, tt.clauses...)
		if got := Conflicts(stmt); got != tt.want {
			t.Errorf("%v: %t", tt.clauses, got)
		}
	}
}

// The ids of one field are not those of another, and 0 is none.
func TestTrackerNote_IsForOneField(t *testing.T) {
	t.Parallel()

	_, m, tracker := statement(t, lite(t), &Order{})
	id, trace := m.Fields[0], m.Fields[1]
	*tracker = Tracker{}
	for _, n := range []int64{3, 5, 9} {
		tracker.Note(id, n)
	}
	if tracker.tracks(trace.Field) || !tracker.tracks(id.Field) {
		t.Error("a field is tracked before it was set")
	}
	tracker.Note(trace, 7)
	for n := range int64(11) {
		if a, b := tracker.has(id, n), tracker.has(trace, n); a != (n == 3 || n == 5 || n == 9) || b != (n == 7) {
			t.Errorf("%d: %t, %t", n, a, b)
		}
	}
	none := Tracker{fields: m.Fields, ids: [][]int64{{0}, {0}}}
	if none.has(id, 0) {
		t.Error("0 is an id")
	}
}

func TestTrackerKey_IsTheOnlyKey(t *testing.T) {
	t.Parallel()

	type Part struct {
		ID    int64 `gorm:"primaryKey;autoIncrement:false;uid"`
		Place int64 `gorm:"primaryKey;autoIncrement:false"`
	}
	for _, tt := range []struct {
		model any
		want  string
	}{
		{&Order{}, "ID"}, {&Invoice{}, ""}, {&Part{}, ""},
	} {
		stmt, _, tracker := statement(t, lite(t), tt.model)
		name := ""
		if key := tracker.key(stmt.Schema); key != nil {
			name = key.Name
		}
		if name != tt.want {
			t.Errorf("%T: %q", tt.model, name)
		}
	}
}

// The callback after the hooks goes on with what the one before them has noted.
func TestTrackerOf_IsThatOfTheStatement(t *testing.T) {
	t.Parallel()

	db := lite(t)
	stmt, _, tracker := statement(t, db, &Order{})
	if TrackerOf(stmt.DB) != tracker || Track(stmt.DB) == tracker {
		t.Error("TrackerOf makes another one, or Track none")
	}
	other := db.Model(&Order{})
	if first := TrackerOf(other); first == tracker || first != TrackerOf(other) {
		t.Error("another statement has no Tracker of its own")
	}
}
