package lookup_test

import (
	"errors"
	"math"
	"slices"
	"testing"

	"github.com/uidplugin/uidplugin"
	"github.com/uidplugin/uidplugin/internal/plugintest"
	"github.com/uidplugin/uidplugin/internal/testkit"
	"gorm.io/gorm"
)

func TestFindAs_ReturnsRowsInTheOrderOfTheIDs(t *testing.T) {
	t.Parallel()

	db, mine, theirs := crates(t)
	a, b := uidplugin.ID(mine.ID), uidplugin.ID(theirs.ID)
	slip := uidplugin.ID(mine.Slips[0].ID)
	rows, err := uidplugin.FindAs[crate](t.Context(), db.Preload("Slips"), b, slip, a, b, 0, -1)
	if len(rows) != 6 || rows[0].Name != "theirs" || rows[1] != nil || rows[2].Name != "mine" || rows[3] != rows[0] || rows[4] != nil || rows[5] != nil {
		t.Fatalf("rows: %v", rows)
	}
	if len(rows[0].Slips) != 1 {
		t.Errorf("the handle's Preload was not honoured: %+v", rows[0])
	}
	testkit.IsError(t, err, uidplugin.ErrNoSuchID)
	testkit.IsError(t, err, gorm.ErrRecordNotFound)
	var missing []uidplugin.ID
	for _, err := range unwrapped(t, err) {
		missing = append(missing, err.(*uidplugin.IDError).ID)
	}
	if want := []uidplugin.ID{slip, 0, -1}; !slices.Equal(missing, want) {
		t.Errorf("missing: %v, want %v", missing, want)
	}
	if rows, err := uidplugin.FindAs[crate](t.Context(), db); len(rows) != 0 || err != nil {
		t.Errorf("no ids: %v, %v", rows, err)
	}
}

// TestFind_FindsTheRowsOfTheHandlesOwnQuery of integration/paths has the clauses that hold. Formerly a Select that
// leaves the key out returned some row for the id 0, which a user may send.
func TestFindAs_RefusesClausesOfTheHandle(t *testing.T) {
	t.Parallel()

	db, mine, theirs := crates(t)
	for name, handle := range map[string]*gorm.DB{
		"Order": db.Order("id"), "Limit": db.Limit(1), "Offset": db.Offset(1), "Group": db.Group("id"), "Distinct": db.Distinct(),
		"Raw": db.Raw("SELECT 1"), `Table("slips")`: db.Table("slips"), "Model(*lookup_test.slip)": db.Model(&slip{}),
		"Select without the key": db.Select("name"),
		"DryRun":                 db.Session(&gorm.Session{DryRun: true}),
		"Order of a scope":       db.Scopes(func(db *gorm.DB) *gorm.DB { return db.Order("id") }),
	} {
		rows, err := uidplugin.FindAs[crate](t.Context(), handle, 0, uidplugin.ID(mine.ID), uidplugin.ID(theirs.ID))
		if rows != nil || !errors.Is(err, uidplugin.ErrClause) {
			t.Errorf("%s: %v, %v", name, rows, err)
		}
	}
}

func TestFindAs_RefusesWhatHasNoUIDKey(t *testing.T) {
	t.Parallel()

	db := plugintest.Open(t)
	testkit.IsError(t, plugintest.Second(uidplugin.FindAs[struct{ Name string }](t.Context(), db, 1)), uidplugin.ErrNoField)
	type line struct {
		Number int64 `gorm:"primaryKey;autoIncrement:false"`
		Row    int64 `gorm:"uid"`
	}
	testkit.IsError(t, plugintest.Second(uidplugin.FindAs[line](t.Context(), db, 1)), uidplugin.ErrNotKey)
	testkit.IsError(t, plugintest.Second(uidplugin.FindAs[int](t.Context(), db, 1)), nil)
	// GORM takes these for crate, or panics.
	plugintest.Migrate(t, db, &crate{})
	row := crate{Name: "of no tenant"}
	must(t, db.Create(&row).Error)
	for name, err := range map[string]error{
		"a pointer":    plugintest.Second(uidplugin.FindAs[*crate](t.Context(), db, uidplugin.ID(row.ID))),
		"a slice":      plugintest.Second(uidplugin.FindAs[[]crate](t.Context(), db, uidplugin.ID(row.ID))),
		"an interface": plugintest.Second(uidplugin.FindAs[any](t.Context(), db, uidplugin.ID(row.ID))),
	} {
		if !errors.Is(err, uidplugin.ErrNoField) || errors.Is(err, uidplugin.ErrNoSuchID) {
			t.Errorf("%s: %v", name, err)
		}
	}
	for _, db := range []*gorm.DB{nil, plugintest.Bare(t)} {
		testkit.IsError(t, plugintest.Second(uidplugin.FindAs[crate](t.Context(), db, 1)), uidplugin.ErrNotRegistered)
	}
	if _, err := uidplugin.FindAs[slip](t.Context(), db, 1); err == nil || errors.Is(err, uidplugin.ErrNoSuchID) {
		t.Errorf("without the table: %v", err)
	}
}

// Several rows have an id as a part of their keys. The other rows must not be lost, and a caller that ignores ErrNoSuchID
// must still get one element for each id.
func TestFindAs_KeepsTheRowsNextToAnAmbiguousID(t *testing.T) {
	t.Parallel()

	type shelf struct {
		ID    int64 `gorm:"primaryKey;autoIncrement:false;uid"`
		Level int   `gorm:"primaryKey;autoIncrement:false"`
	}
	db := plugintest.Open(t)
	plugintest.Migrate(t, db, &shelf{})
	one := shelf{Level: 1}
	must(t, db.Create(&one).Error)
	must(t, db.Create(&[]shelf{{ID: 7, Level: 1}, {ID: 7, Level: 2}}).Error)
	rows, err := uidplugin.FindAs[shelf](t.Context(), db, 7, uidplugin.ID(one.ID), 8)
	if len(rows) != 3 || rows[0] != nil || rows[1] == nil || rows[2] != nil {
		t.Errorf("%v", rows)
	}
	for _, want := range []error{uidplugin.ErrNoSuchID, uidplugin.ErrNotKey, gorm.ErrRecordNotFound} {
		testkit.IsError(t, err, want)
	}
	if all := unwrapped(t, err); len(all) != 2 {
		t.Errorf("%d errors: %v", len(all), err)
	}
}

// A negative id is just missing. Formerly the whole query failed with an error of package database/sql.
func TestFindAs_NegativeIDsOfUnsignedKeys(t *testing.T) {
	t.Parallel()

	type token struct {
		ID uint `gorm:"primaryKey;autoIncrement:false;uid"`
	}
	db := plugintest.Open(t)
	plugintest.Migrate(t, db, &token{})
	var row token
	must(t, db.Create(&row).Error)
	rows, err := uidplugin.FindAs[token](t.Context(), db, -1, uidplugin.ID(row.ID), math.MinInt64)
	if len(rows) != 3 || rows[0] != nil || rows[1] == nil || *rows[1] != row || rows[2] != nil || !errors.Is(err, uidplugin.ErrNoSuchID) {
		t.Errorf("%v, %v", rows, err)
	}
}
