package upsert

import (
	"reflect"
	"strings"
	"testing"

	"github.com/uidplugin/uidplugin/internal/model"
	"github.com/uidplugin/uidplugin/internal/testkit"
	"gorm.io/gorm/clause"
	"gorm.io/gorm/schema"
)

// on returns an ON CONFLICT about columns.
func on(columns ...string) clause.OnConflict {
	var c clause.OnConflict
	for _, name := range columns {
		c.Columns = append(c.Columns, clause.Column{Name: name})
	}
	return c
}

// A row that is found by anything else than what the conflict was about is another row, and its id a wrong one.
func TestTrackerConflictKey_IsWhatTheStatementNames(t *testing.T) {
	t.Parallel()

	raw := on("no")
	raw.Columns[0].Raw = true
	constraint := on("no")
	constraint.OnConstraint = "uni_no"
	for _, tt := range []struct {
		name     string
		model    any
		conflict clause.OnConflict
		want     string // "": not known
	}{
		{"a column", &Order{}, on("no"), "no"},
		{"columns", &Order{}, on("tenant", "place"), "tenant place"},
		{"an unknown column", &Order{}, on("no", "nosuch"), ""},
		{"SQL", &Order{}, raw, ""},
		{"a constraint", &Order{}, constraint, ""},
		{"an id that was made", &Order{}, on("trace"), ""},
		{"the key, made", &Order{}, on(), ""},
		{"the key, not made", &Invoice{}, on(), "id"},
		{"the key by GORM's name", &Invoice{}, on(clause.PrimaryKey), "id"},
	} {
		stmt, _, tracker := statement(t, lite(t), tt.model, tt.conflict)
		var names []string
		for _, f := range tracker.conflictKey(stmt.Schema) {
			names = append(names, f.DBName)
		}
		if got := strings.Join(names, " "); got != tt.want {
			t.Errorf("%s: %q", tt.name, got)
		}
	}
}

// On MySQL any unique index makes a conflict, whatever columns the statement names.
func TestTrackerAmbiguous_IfAnotherIndexMayHaveMadeTheConflict(t *testing.T) {
	t.Parallel()

	tenant := "t"
	stmt, m, tracker := statement(t, mysql(t), &Order{})
	field := func(name string) *schema.Field { return stmt.Schema.FieldsByDBName[name] }
	no, both := []*schema.Field{field("no")}, []*schema.Field{field("place"), field("tenant")}
	for _, tt := range []struct {
		name    string
		row     Order
		by      []*schema.Field
		uniques [][]*schema.Field
		want    bool
	}{
		{"no other index is known", Order{Tenant: &tenant}, no, nil, false},
		{"another index", Order{Tenant: &tenant}, no, m.Uniques(), true},
		{"another index, in which the row is NULL", Order{}, no, m.Uniques(), false},
		{"the index itself, in another order", Order{Tenant: &tenant}, both, [][]*schema.Field{{both[1], both[0]}}, false},
		{"a part of another index", Order{Tenant: &tenant}, both[:1], m.Uniques(), true},
	} {
		tracker.uniques = tt.uniques
		row := model.Row{Struct: reflect.ValueOf(&tt.row).Elem()}
		if got := tracker.ambiguous(t.Context(), row, tt.by); got != tt.want {
			t.Errorf("%s: %t", tt.name, got)
		}
	}
}

// Only what was made for the statement is corrected: an id that the application has set is its own affair.
func TestTrackerCorrect_LeavesIDsOfTheApplication(t *testing.T) {
	t.Parallel()

	for _, tt := range []struct {
		row  Order
		want Order
	}{
		{Order{ID: 5, Trace: 6}, Order{ID: 50, Trace: 60}},
		{Order{ID: 4, Trace: 6}, Order{ID: 4, Trace: 60}},
		{Order{ID: 6, Trace: 5}, Order{ID: 6, Trace: 5}}, // made, but for the other field
		{Order{}, Order{}},
	} {
		_, m, tracker := statement(t, lite(t), &tt.row)
		tracker.ids = [][]int64{{5}, {6}}
		row := model.Row{Struct: reflect.ValueOf(&tt.row).Elem()}
		testkit.Must(t, tracker.correct(t.Context(), row, m.Fields, []int64{50, 60}))
		if tt.row != tt.want {
			t.Errorf("%+v, want %+v", tt.row, tt.want)
		}
	}
}

// The table has the orders a and b, whose structs get the ids of the rows. The order c is not there and gets none.
func TestTrackerReadBack_GivesStructsTheIDsOfTheirRows(t *testing.T) {
	t.Parallel()

	db := lite(t)
	testkit.Must(t, db.AutoMigrate(&Order{}))
	testkit.Must(t, db.Create(&[]Order{{ID: 1, Trace: 2, No: "a"}, {ID: 3, Trace: 4, No: "b", Place: 1}}).Error)
	rows := []Order{{ID: 1, Trace: 12, No: "a"}, {ID: 13, Trace: 14, No: "b"}, {ID: 15, Trace: 16, No: "c"}}
	stmt, _, tracker := statement(t, db, &rows, on("no"))
	tracker.ids = [][]int64{{1, 13, 15}, {12, 14, 16}}
	stmt.ConnPool = db.ConnPool
	testkit.Must(t, tracker.readBack(stmt.DB, sentNow(stmt)))
	want := []Order{{ID: 1, Trace: 2, No: "a"}, {ID: 3, Trace: 4, No: "b"}, {No: "c"}}
	if !reflect.DeepEqual(rows, want) {
		t.Errorf("%+v", rows)
	}
}
