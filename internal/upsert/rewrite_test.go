package upsert

import (
	"reflect"
	"slices"
	"testing"

	"github.com/uidplugin/uidplugin/internal/model"
	"github.com/uidplugin/uidplugin/internal/testkit"
	"gorm.io/gorm"
	"gorm.io/gorm/clause"
)

func TestConcerns_TellsStatementsThatAreToBeRewritten(t *testing.T) {
	t.Parallel()

	plain, _, _ := statement(t, lite(t), &Order{})
	upsert, _, _ := statement(t, lite(t), &Order{}, clause.OnConflict{})
	maps, _, _ := statement(t, lite(t), &Order{})
	maps.Dest = []map[string]any{{}}
	own, _, _ := statement(t, lite(t), &Order{})
	own.Schema.CreateClauses = []clause.Interface{clause.OnConflict{}} // each handle has schemas of its own
	if Concerns(plain) || !Concerns(upsert) || !Concerns(maps) || !Concerns(own) {
		t.Error(Concerns(plain), Concerns(upsert), Concerns(maps), Concerns(own))
	}
}

func TestTrackerSurelyUpdates_UnlessNothingMayBeUpdated(t *testing.T) {
	t.Parallel()

	type Bare struct {
		ID    int64 `gorm:"primaryKey;autoIncrement:false;uid"`
		Trace int64 `gorm:"uid"`
	}
	all := clause.OnConflict{UpdateAll: true}
	for _, tt := range []struct {
		name     string
		model    any
		conflict clause.OnConflict
		change   func(*gorm.Statement)
		want     bool
	}{
		{"nothing", &Order{}, clause.OnConflict{DoNothing: true}, nil, false},
		{"nothing, although there is what to do", &Order{}, clause.OnConflict{DoNothing: true, UpdateAll: true}, nil, false},
		{"some columns", &Order{}, clause.OnConflict{DoUpdates: clause.AssignmentColumns([]string{"no"})}, nil, true},
		{"all columns", &Order{}, all, nil, true},
		{"all columns of nothing but ids", &Bare{}, all, nil, false},
		{"only an id", &Order{}, all, func(s *gorm.Statement) { s.Selects = []string{"Trace"} }, false},
		{"one that is selected", &Order{}, all, func(s *gorm.Statement) { s.Selects = []string{"No"} }, true},
		{"all but what is omitted", &Order{}, all,
			func(s *gorm.Statement) { s.Omits = []string{"No", "Tenant", "Place"} }, false},
	} {
		stmt, _, tracker := statement(t, lite(t), tt.model, tt.conflict)
		if tt.change != nil {
			tt.change(stmt)
		}
		if got := tracker.surelyUpdates(stmt); got != tt.want {
			t.Errorf("%s: %t", tt.name, got)
		}
	}
}

// names returns the columns of a RETURNING; nil if there is none.
func names(stmt *gorm.Statement) (names []string) {
	r, ok := stmt.Clauses["RETURNING"].Expression.(clause.Returning)
	for _, c := range r.Columns {
		names = append(names, c.Name)
	}
	if ok && names == nil {
		return []string{}
	}
	return names
}

func TestTrackerReturning_GetsIDsOrLosesThem(t *testing.T) {
	t.Parallel()

	returning := func(names ...string) clause.Interface {
		var r clause.Returning
		for _, name := range names {
			r.Columns = append(r.Columns, clause.Column{Name: name})
		}
		return r
	}
	for _, tt := range []struct {
		name           string
		model          any
		clauses        []clause.Interface
		added, dropped []string
	}{
		{"none", &Order{}, nil, []string{"id", "trace"}, nil},
		{"what GORM reads back", &Invoice{}, nil, []string{"id", "trace"}, nil},
		{"the application's", &Order{}, []clause.Interface{returning("no", "id")},
			[]string{"no", "id", "trace"}, []string{"no"}},
		{"a key of the database's", &Invoice{}, []clause.Interface{returning("no", "id")},
			[]string{"no", "id", "trace"}, []string{"no"}},
		{"only ids", &Order{}, []clause.Interface{returning("id")}, []string{"id", "trace"}, nil},
		{"all", &Order{}, []clause.Interface{returning()}, []string{}, []string{"no", "tenant", "place"}},
		{"a star", &Order{}, []clause.Interface{returning("*")}, []string{"*"}, []string{"no", "tenant", "place"}},
	} {
		added, m, tracker := statement(t, lite(t), tt.model, tt.clauses...)
		before := names(added)
		model.Change(added, func() { tracker.addReturning(added, m) })
		if got := names(added); !reflect.DeepEqual(got, tt.added) {
			t.Errorf("%s: with ids it is %#v", tt.name, got)
		}
		model.Undo(added)
		if got := names(added); !reflect.DeepEqual(got, before) {
			t.Errorf("%s: afterwards it is %#v", tt.name, got)
		}
		dropped, _, tracker := statement(t, lite(t), tt.model, tt.clauses...)
		tracker.dropReturning(dropped)
		if got := names(dropped); !reflect.DeepEqual(got, tt.dropped) {
			t.Errorf("%s: without ids it is %#v", tt.name, got)
		}
	}
}

// The application may use its clauses again, so the slice that its columns are in must not be written to.
func TestTrackerAddReturning_LeavesTheColumnsOfTheApplication(t *testing.T) {
	t.Parallel()

	columns := make([]clause.Column, 1, 4)
	columns[0] = clause.Column{Name: "no"}
	stmt, m, tracker := statement(t, lite(t), &Order{}, clause.Returning{Columns: columns})
	stmt.Clauses["RETURNING"] = clause.Clause{Name: "RETURNING", Expression: clause.Returning{Columns: columns}}
	tracker.addReturning(stmt, m)
	if other := columns[:2][1]; other.Name != "" || len(names(stmt)) != 3 {
		t.Errorf("the application's slice got %q, RETURNING is %q", other.Name, names(stmt))
	}
}

// A last insert id that the application, or GORM, reads must stay what it is.
func TestTrackerLastInsertFree_UnlessAnybodyElseUsesIt(t *testing.T) {
	t.Parallel()

	set := func(sql string) clause.OnConflict {
		return clause.OnConflict{DoUpdates: clause.Set{{Column: clause.Column{Name: "no"}, Value: clause.Expr{SQL: sql}}}}
	}
	type Bare struct {
		Trace int64 `gorm:"uid"`
	}
	for _, tt := range []struct {
		name     string
		model    any
		conflict clause.OnConflict
		want     bool
	}{
		{"a key of the plugin's", &Order{}, clause.OnConflict{DoNothing: true}, true},
		{"an expression", &Order{}, set("UPPER(no)"), true},
		{"the function", &Order{}, set("last_insert_id(id)"), false},
		{"a key that the database numbers", &Invoice{}, clause.OnConflict{DoNothing: true}, false},
		{"no key", &Bare{}, clause.OnConflict{DoNothing: true}, false},
	} {
		stmt, _, tracker := statement(t, mysql(t), tt.model, tt.conflict)
		if got := tracker.lastInsertFree(stmt, tt.conflict); got != tt.want {
			t.Errorf("%s: %t", tt.name, got)
		}
	}
}

// The application may use its clauses again, so the slice that its assignments are in must not be written to.
func TestTrackerAddLastInsertID_LeavesTheAssignmentsOfTheApplication(t *testing.T) {
	t.Parallel()

	updates := make(clause.Set, 1, 4)
	updates[0] = clause.Assignment{Column: clause.Column{Name: "no"}, Value: "x"}
	conflict := clause.OnConflict{DoUpdates: updates}
	stmt, _, tracker := statement(t, mysql(t), &Order{}, conflict)
	model.Change(stmt, func() { tracker.addLastInsertID(stmt, conflict, tracker.lastInsertID(stmt, facts{})) })
	stmt.Build(clause.OnConflict{}.Name())
	const want = "ON DUPLICATE KEY UPDATE `no`=?,`no`=IF(LAST_INSERT_ID(1)=0,`no`,`no`)"
	if got := stmt.SQL.String(); got != want || stmt.Result == nil {
		t.Errorf("%s, %v", got, stmt.Result)
	}
	if other := updates[:2][1]; other.Value != nil {
		t.Errorf("the application's slice got %+v", other)
	}
	if model.Undo(stmt); stmt.Result != nil {
		t.Error("the result stays")
	}
}

// A value that the application gives is written, and one that was made for a new row is not.
func TestTrackerKeepExistingUnlessGiven_ComparesWithTheIDsThatWereMade(t *testing.T) {
	t.Parallel()

	for _, tt := range []struct {
		db   *gorm.DB
		made []int64
		want string
	}{
		{lite(t), []int64{4, 5, 6},
			"CASE WHEN `excluded`.`trace` BETWEEN ? AND ? THEN `orders`.`trace` ELSE `excluded`.`trace` END"},
		{lite(t), []int64{4, 6}, "CASE WHEN `excluded`.`trace` IN (?,?) THEN `orders`.`trace` ELSE `excluded`.`trace` END"},
		{mysql(t), []int64{4}, "CASE WHEN VALUES(`trace`) BETWEEN ? AND ? THEN `orders`.`trace` ELSE VALUES(`trace`) END"},
	} {
		stmt, m, tracker := statement(t, tt.db, &Order{}, clause.OnConflict{})
		tracker.keepExistingUnlessGiven(stmt, m.Fields[1], tt.made)
		updates := stmt.Clauses["ON CONFLICT"].Expression.(clause.OnConflict).DoUpdates
		if len(updates) != 1 || len(tracker.conflict.DoUpdates) != 1 || updates[0].Column.Name != "trace" {
			t.Fatalf("%+v", updates)
		}
		updates[0].Value.(clause.Expr).Build(stmt)
		ends := []any{tt.made[0], tt.made[len(tt.made)-1]}
		if got := stmt.SQL.String(); got != tt.want || !slices.Equal(stmt.Vars, ends) {
			t.Errorf("%s with %v", got, stmt.Vars)
		}
	}
}

// Reconcile leaves the statement as the application made it, for a handle that is used again.
func TestRewrite_IsUndoneByReconcile(t *testing.T) {
	t.Parallel()

	conflict := clause.OnConflict{UpdateAll: true}
	stmt, m, tracker := statement(t, lite(t), &Order{No: "a"}, conflict)
	for i, f := range m.Fields {
		tracker.ids[i] = []int64{int64(7 + i)}
		testkit.Must(t, f.Field.Set(t.Context(), stmt.ReflectValue, 7+i))
	}
	before := stmt.Schema
	model.Change(stmt, func() { Rewrite(stmt, m) })
	if stmt.Schema == before || !slices.Equal(names(stmt), []string{"id", "trace"}) {
		t.Errorf("RETURNING %v", names(stmt))
	}
	stmt.DryRun = true
	Reconcile(stmt.DB, nil)
	got := stmt.Clauses["ON CONFLICT"].Expression.(clause.OnConflict)
	if stmt.Schema != before || names(stmt) != nil || !got.UpdateAll || got.DoUpdates != nil {
		t.Errorf("RETURNING %v, %+v", names(stmt), got)
	}
	if trackerIn(stmt) != nil {
		t.Error("the next statement has the ids of this one")
	}
}
