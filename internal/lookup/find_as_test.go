package lookup_test

import (
	"errors"
	"math"
	"slices"
	"testing"

	"github.com/uidplugin/uidplugin"
	"github.com/uidplugin/uidplugin/internal/plugintest"
	"gorm.io/gorm"
)

func TestFindAs_ReturnsRowsInTheOrderOfTheIDs(t *testing.T) {
	t.Parallel()

	db, mine, theirs := plugintest.Crates(t)
	a, b := uidplugin.ID(mine.ID), uidplugin.ID(theirs.ID)
	slip := uidplugin.ID(mine.Slips[0].ID)
	rows, err := uidplugin.FindAs[plugintest.Crate](t.Context(), db.Preload("Slips"), b, slip, a, b, 0, -1)
	if len(rows) != 6 || rows[0].Name != "theirs" || rows[1] != nil || rows[2].Name != "mine" || rows[3] != rows[0] || rows[4] != nil || rows[5] != nil {
		t.Fatalf("rows: %v", rows)
	}
	if len(rows[0].Slips) != 1 {
		t.Errorf("the handle's Preload was not honoured: %+v", rows[0])
	}
	if !errors.Is(err, uidplugin.ErrNoSuchID) || !errors.Is(err, gorm.ErrRecordNotFound) {
		t.Errorf("the error of rows that do not exist: %v", err)
	}
	var missing []uidplugin.ID
	for _, err := range plugintest.Unwrapped(t, err) {
		missing = append(missing, err.(*uidplugin.IDError).ID)
	}
	if want := []uidplugin.ID{slip, 0, -1}; !slices.Equal(missing, want) {
		t.Errorf("missing: %v, want %v", missing, want)
	}
	if rows, err := uidplugin.FindAs[plugintest.Crate](t.Context(), db); len(rows) != 0 || err != nil {
		t.Errorf("no ids: %v, %v", rows, err)
	}
}

// The clauses of a handle hold, or are refused: a row that the handle excludes is a row that does not exist.
func TestFindAs_HonoursTheHandleOrRefusesIt(t *testing.T) {
	t.Parallel()

	db, mine, theirs := plugintest.Crates(t)
	a, b := uidplugin.ID(mine.ID), uidplugin.ID(theirs.ID)
	find := func(db *gorm.DB) ([]*plugintest.Crate, error) {
		return uidplugin.FindAs[plugintest.Crate](t.Context(), db, a, b)
	}
	must(t, db.Delete(&mine).Error)
	for name, c := range map[string]struct {
		handle *gorm.DB
		want   [2]bool
	}{
		"where":              {db.Where("tenant = ?", 2), [2]bool{false, true}},
		"where with an or":   {db.Where("tenant = 1").Or("tenant = 7"), [2]bool{}},
		"deleted":            {db, [2]bool{false, true}},
		"unscoped":           {db.Unscoped(), [2]bool{true, true}},
		"scopes":             {db.Unscoped().Scopes(func(db *gorm.DB) *gorm.DB { return db.Where("tenant = 1") }), [2]bool{true, false}},
		"model of the same":  {db.Model(&plugintest.Crate{}), [2]bool{false, true}},
		"columns":            {db.Select("id", "name"), [2]bool{false, true}},
		"a transaction":      {db.Begin(), [2]bool{false, true}},
		"joins":              {db.Joins("JOIN slips ON slips.crate_id = crates.id").Where("slips.tenant = 2"), [2]bool{false, true}},
		"an earlier session": {db.Where("tenant = 1").Session(&gorm.Session{NewDB: true}), [2]bool{false, true}},
	} {
		rows, err := find(c.handle)
		if len(rows) != 2 || (rows[0] != nil) != c.want[0] || (rows[1] != nil) != c.want[1] || (err != nil) != (c.want != [2]bool{true, true}) {
			t.Errorf("%s: %v, %v", name, rows, err)
		}
		if tx, ok := c.handle.Statement.ConnPool.(gorm.TxCommitter); ok {
			_ = tx.Rollback()
		}
	}
	for name, handle := range map[string]*gorm.DB{
		"Order": db.Order("id"), "Limit": db.Limit(1), "Offset": db.Offset(1), "Group": db.Group("id"), "Distinct": db.Distinct(),
		"Raw": db.Raw("SELECT 1"), `Table("slips")`: db.Table("slips"), "Model(*plugintest.Slip)": db.Model(&plugintest.Slip{}),
		"DryRun": db.Session(&gorm.Session{DryRun: true}), "Order of a scope": db.Scopes(func(db *gorm.DB) *gorm.DB { return db.Order("id") }),
	} {
		if rows, err := find(handle); rows != nil || !errors.Is(err, uidplugin.ErrClause) {
			t.Errorf("%s: %v, %v", name, rows, err)
		}
	}
}

func TestFindAs_RefusesWhatHasNoUIDKey(t *testing.T) {
	t.Parallel()

	db := plugintest.Open(t)
	if _, err := uidplugin.FindAs[struct{ Name string }](t.Context(), db, 1); !errors.Is(err, uidplugin.ErrNoField) {
		t.Errorf("no uid field: %v", err)
	}
	type line struct {
		Number int64 `gorm:"primaryKey;autoIncrement:false"`
		Row    int64 `gorm:"uid"`
	}
	if _, err := uidplugin.FindAs[line](t.Context(), db, 1); !errors.Is(err, uidplugin.ErrNotKey) {
		t.Errorf("a uid field that is no key: %v", err)
	}
	if _, err := uidplugin.FindAs[int](t.Context(), db, 1); err == nil {
		t.Error("int is no model")
	}
	// GORM takes these for crate, or panics.
	plugintest.Migrate(t, db, &plugintest.Crate{})
	row := plugintest.Crate{Name: "of no tenant"}
	must(t, db.Create(&row).Error)
	for name, err := range map[string]error{
		"a pointer":    plugintest.Second(uidplugin.FindAs[*plugintest.Crate](t.Context(), db, uidplugin.ID(row.ID))),
		"a slice":      plugintest.Second(uidplugin.FindAs[[]plugintest.Crate](t.Context(), db, uidplugin.ID(row.ID))),
		"an interface": plugintest.Second(uidplugin.FindAs[any](t.Context(), db, uidplugin.ID(row.ID))),
	} {
		if !errors.Is(err, uidplugin.ErrNoField) || errors.Is(err, uidplugin.ErrNoSuchID) {
			t.Errorf("%s: %v", name, err)
		}
	}
	for _, db := range []*gorm.DB{nil, plugintest.Bare(t)} {
		if _, err := uidplugin.FindAs[plugintest.Crate](t.Context(), db, 1); !errors.Is(err, uidplugin.ErrNotRegistered) {
			t.Errorf("no plugin: %v", err)
		}
	}
	if _, err := uidplugin.FindAs[plugintest.Slip](t.Context(), db, 1); err == nil || errors.Is(err, uidplugin.ErrNoSuchID) {
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
	if !errors.Is(err, uidplugin.ErrNoSuchID) || !errors.Is(err, uidplugin.ErrNotKey) || !errors.Is(err, gorm.ErrRecordNotFound) {
		t.Error(err)
	}
	if all := plugintest.Unwrapped(t, err); len(all) != 2 {
		t.Errorf("%d errors: %v", len(all), err)
	}
}

// A Select that leaves the key out returned some row for the id 0, which a user may send.
func TestFindAs_ZeroIsTheIDOfNoRow(t *testing.T) {
	t.Parallel()

	db, mine, _ := plugintest.Crates(t)
	rows, err := uidplugin.FindAs[plugintest.Crate](t.Context(), db.Select("name"), 0, uidplugin.ID(mine.ID))
	if rows != nil || !errors.Is(err, uidplugin.ErrClause) {
		t.Errorf("without the key: %v, %v", rows, err)
	}
	rows, err = uidplugin.FindAs[plugintest.Crate](t.Context(), db, 0)
	if len(rows) != 1 || rows[0] != nil || !errors.Is(err, uidplugin.ErrNoSuchID) {
		t.Errorf("0: %v, %v", rows, err)
	}
}

// A negative id failed with an error of package database/sql for the whole query, where it is just missing.
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
