package upsert

import (
	"fmt"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/uidplugin/uidplugin/internal/model"
	"github.com/uidplugin/uidplugin/internal/testkit"
	"gorm.io/gorm"
	"gorm.io/gorm/clause"
)

// on returns an ON CONFLICT about columns.
func on(columns ...string) clause.OnConflict {
	var c clause.OnConflict
	for _, name := range columns {
		c.Columns = append(c.Columns, clause.Column{Name: name})
	}
	return c
}

// A row that is found by other columns than those of the conflict may be another row, whose id is wrong.
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

// On MySQL any unique index without NULL may have made the conflict, whatever columns the statement names.
func TestTrackerLookups_AreOfAllIndexesThatMayHaveMadeTheConflict(t *testing.T) {
	t.Parallel()

	place := on("no")
	place.DoUpdates = clause.Set{{Column: clause.Column{Name: "place"}, Value: clause.Expr{SQL: "place + 1"}}}
	tenant := "t"
	full, null := Order{No: "a", Tenant: &tenant, Place: 1}, Order{No: "a", Place: 1}
	for _, tt := range []struct {
		name     string
		db       *gorm.DB
		row      Order
		conflict clause.OnConflict
		omit     string
		want     string
	}{
		{"the named index and another", mysql(t), full, on("no"), "", "no, tenant place"},
		{"the named index in another order", mysql(t), full, on("place", "tenant"), "", "place tenant, no"},
		{"a part of another index", mysql(t), full, on("place"), "", "place, no, tenant place"},
		{"NULL in the other index", mysql(t), null, on("no"), "", "no"},
		{"NULL in the named index", mysql(t), null, on("tenant", "place"), "", "no"},
		{"a value that is not sent", mysql(t), full, on("no"), "Place", ""},
		{"a value that the update part changes", mysql(t), full, place, "", ""},
		{"it changes one in an index with NULL", mysql(t), null, place, "", "no"},
		{"no columns", mysql(t), full, on(), "", ""},
		{"a dialect that respects the columns", lite(t), full, on("no"), "", "no"},
	} {
		stmt, m, tracker := statement(t, tt.db, &tt.row, tt.conflict)
		if tt.omit != "" {
			stmt.Omits = []string{tt.omit}
		}
		tracker.facts(stmt, m)
		var got []string
		for _, l := range tracker.lookups(t.Context(), tracker.keys(stmt.Schema), sentNow(stmt)) {
			var names []string
			for _, f := range l.fields {
				names = append(names, f.DBName)
			}
			got = append(got, strings.Join(names, " "))
		}
		if got := strings.Join(got, ", "); got != tt.want {
			t.Errorf("%s: %q", tt.name, got)
		}
	}
}

// A key that is not sent is in no conflict if the database numbers it, also if another row of the batch sends one. Nor
// is a column that is not sent if its default is NULL.
func TestTrackerLookups_LeaveOutValuesOfTheDatabase(t *testing.T) {
	t.Parallel()

	type Numbered struct {
		ID    int64  `gorm:"primaryKey"`
		Trace int64  `gorm:"uid"`
		No    string `gorm:"uniqueIndex"`
		Code  string `gorm:"uniqueIndex;default:null"`
		Place *int   `gorm:"uniqueIndex;default:(1+2)"`
	}
	place := 1
	rows := []Numbered{{No: "a", Place: &place}, {ID: 5, No: "b", Code: "c", Place: &place}, {No: "c"}}
	stmt, m, tracker := statement(t, mysql(t), &rows, on("no"))
	tracker.facts(stmt, m)
	sent := sentNow(stmt)
	rows[0].ID = 9 // as GORM guesses it
	var got []string
	for _, l := range tracker.lookups(t.Context(), tracker.keys(stmt.Schema), sent) {
		got = append(got, fmt.Sprint(l.row, " ", l.fields[0].DBName))
	}
	slices.Sort(got)
	if want := []string{"0 no", "0 place", "1 code", "1 id", "1 no", "1 place"}; !slices.Equal(got, want) {
		t.Errorf("%q", got)
	}
}

// A row is unknown if its unique indexes lead to several rows. If the statement moves unique values, each index must
// lead to the row.
func TestAgreed_IsTheOnlyRowThatWasFound(t *testing.T) {
	t.Parallel()

	lookups := []lookup{{row: 0, key: 0}, {row: 0, key: 1}}
	one, other := []int64{1}, []int64{2}
	for _, tt := range []struct {
		name       string
		found      map[int][]int64
		some, each []int64
	}{
		{"none", map[int][]int64{}, nil, nil},
		{"by one", map[int][]int64{0: one}, one, nil},
		{"by the other", map[int][]int64{1: one}, one, nil},
		{"by both", map[int][]int64{0: one, 1: one}, one, one},
		{"different rows", map[int][]int64{0: one, 1: other}, nil, nil},
		{"several by one", map[int][]int64{0: nil, 1: one}, nil, nil},
		{"several by the other", map[int][]int64{0: one, 1: nil}, nil, nil},
	} {
		some, each := agreed(lookups, tt.found, false)[0], agreed(lookups, tt.found, true)[0]
		if !slices.Equal(some, tt.some) || !slices.Equal(each, tt.each) {
			t.Errorf("%s: %v, %v", tt.name, some, each)
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
