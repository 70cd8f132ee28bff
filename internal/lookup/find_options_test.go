package lookup_test

import (
	"errors"
	"testing"

	"github.com/uidplugin/uidplugin"
	"github.com/uidplugin/uidplugin/internal/plugintest"
	"github.com/uidplugin/uidplugin/internal/testkit"
	"gorm.io/gorm"
)

func TestOnlyModels_ExcludesAllOthers(t *testing.T) {
	t.Parallel()

	db, mine, _ := crates(t)
	p := uidplugin.From(db)
	id, other := uidplugin.ID(mine.ID), uidplugin.ID(mine.Slips[0].ID)
	row, err := p.Find(t.Context(), id, uidplugin.OnlyModels(&crate{}, &plugintest.Part{}))
	if c, ok := row.(*crate); !ok || c.Name != "mine" || err != nil {
		t.Errorf("a listed model: %v, %v", row, err)
	}
	for name, options := range map[string][]uidplugin.FindOption{
		"another model": {uidplugin.OnlyModels(&crate{})},
		"no models":     {uidplugin.OnlyModels()},
		"nil":           {nil, uidplugin.OnlyModels(&crate{})},
	} {
		row, err := p.Find(t.Context(), other, options...)
		if row != nil || !errors.Is(err, uidplugin.ErrNoSuchID) || !errors.Is(err, uidplugin.ErrNoModel) {
			t.Errorf("%s: %v, %v", name, row, err)
		}
	}
	rows, err := p.FindAll(t.Context(), []uidplugin.ID{id, other}, uidplugin.OnlyModels(&crate{}))
	if len(rows) != 1 || rows[id] == nil || !errors.Is(err, uidplugin.ErrNoModel) {
		t.Errorf("FindAll: %v, %v", rows, err)
	}
}

// box has the columns of a crate that the public may see.
type box struct {
	ID   int64 `gorm:"primaryKey;autoIncrement:false;uid"`
	Name string
}

func (box) TableName() string { return "crates" }

func TestOnlyModels_DecideTheTypeOfRows(t *testing.T) {
	t.Parallel()

	db, mine, _ := crates(t)
	row, err := uidplugin.From(db).Find(t.Context(), uidplugin.ID(mine.ID), uidplugin.OnlyModels(&box{}))
	if b, ok := row.(*box); !ok || b.Name != "mine" || err != nil {
		t.Errorf("%T, %v", row, err)
	}
	for want, options := range map[error][]uidplugin.FindOption{
		uidplugin.ErrOption:  {uidplugin.OnlyModels(&box{}), uidplugin.OnlyModels(&crate{})},
		uidplugin.ErrNoField: {uidplugin.OnlyModels(&struct{ Name string }{})},
	} {
		_, err := uidplugin.From(db).Find(t.Context(), uidplugin.ID(mine.ID), options...)
		testkit.IsError(t, err, want)
	}
	if _, err := uidplugin.From(db).Find(t.Context(), uidplugin.ID(mine.ID), uidplugin.OnlyModels(17)); err == nil || errors.Is(err, uidplugin.ErrNoSuchID) {
		t.Errorf("17 is no model: %v", err)
	}
}

func ofTenant(tenant int) uidplugin.FindOption {
	return uidplugin.Scoped(func(db *gorm.DB, model any) *gorm.DB {
		switch model.(type) {
		case *crate:
			return db.Where("crates.tenant = ?", tenant)
		case *slip:
			return db.Scopes(func(db *gorm.DB) *gorm.DB { return db.Where(&slip{Tenant: tenant}) })
		}
		return db.Where("1 = 0")
	})
}

// An Or binds weaker than all other conditions. It must not let a row through that the scope, the handle or the id
// excludes, wherever it is written.
func TestScoped_IsNotWidenedByAnOr(t *testing.T) {
	t.Parallel()

	db, mine, theirs := crates(t)
	either := func(db *gorm.DB) *gorm.DB { return db.Or("1 = 1") }
	later := func(db *gorm.DB) *gorm.DB { return db.Scopes(either) }
	want, other := uidplugin.ID(mine.ID), uidplugin.ID(theirs.ID)
	for name, handle := range map[string]*gorm.DB{
		"an or":                      db.Where("name = 'mine'").Or("name = 'theirs'"),
		"an or first":                db.Or("1 = 1"),
		"a scope":                    db.Where("name <> ''").Scopes(either),
		"a scope that adds a scope":  db.Where("name <> ''").Scopes(later),
		"scopes that add and follow": db.Scopes(later, either).Where("name <> ''"),
	} {
		rows, err := uidplugin.From(handle).FindAll(t.Context(), []uidplugin.ID{want, other}, ofTenant(1))
		if err != nil || len(rows) != 1 || rows[want] == nil {
			t.Errorf("%s of the handle: %v, %v", name, rows, err)
		}
	}
	for name, scope := range map[string]func(*gorm.DB) *gorm.DB{
		"an or":   func(db *gorm.DB) *gorm.DB { return db.Where("tenant = 1").Or("tenant = 2") },
		"a scope": func(db *gorm.DB) *gorm.DB { return db.Where("tenant = 1").Scopes(later) },
	} {
		scoped := uidplugin.Scoped(func(db *gorm.DB, _ any) *gorm.DB { return scope(db) })
		rows, err := uidplugin.From(db.Where("name = 'mine'")).FindAll(t.Context(), []uidplugin.ID{want, other}, scoped)
		if err != nil || len(rows) != 1 || rows[want] == nil {
			t.Errorf("%s in the scope, and a condition of the handle: %v, %v", name, rows, err)
		}
		rows, err = uidplugin.From(db).FindAll(t.Context(), []uidplugin.ID{want}, scoped)
		if err != nil || len(rows) != 1 {
			t.Errorf("%s in the scope let other ids through: %v, %v", name, rows, err)
		}
	}
}

// A waybill is for a crate, which has its tenant.
type waybill struct {
	ID      uidplugin.ID
	CrateID int64
	Crate   *crate
}

// GORM joins an association once. Formerly, if the handle had joined it, the condition in the scope's join was left
// out, and the rows of all tenants were found. The LEFT JOIN of an association keeps all rows, but counted as a
// condition.
func TestScoped_HoldsIfItJoinsAnAssociation(t *testing.T) {
	t.Parallel()

	db, mine, theirs := crates(t)
	must(t, uidplugin.From(db).AutoMigrate(&waybill{}))
	a, b := waybill{CrateID: mine.ID}, waybill{CrateID: theirs.ID}
	must(t, db.Create(&a).Error)
	must(t, db.Create(&b).Error)
	tenant := db.Where("tenant = 1")
	inner := uidplugin.Scoped(func(tx *gorm.DB, _ any) *gorm.DB { return tx.InnerJoins("Crate", tenant) })
	rows, err := uidplugin.From(db).FindAll(t.Context(), []uidplugin.ID{a.ID, b.ID}, inner)
	if err != nil || len(rows) != 1 || rows[a.ID] == nil {
		t.Errorf("%v, %v", rows, err)
	}
	for name, handle := range map[string]*gorm.DB{"the same": db.Joins("Crate"), "through it": db.Joins("Crate.Slips")} {
		if row, err := uidplugin.From(handle).Find(t.Context(), b.ID, inner); row != nil || !errors.Is(err, uidplugin.ErrClause) {
			t.Errorf("%s: %v, %v", name, row, err)
		}
	}
	left := uidplugin.Scoped(func(tx *gorm.DB, _ any) *gorm.DB { return tx.Joins("Crate", tenant) })
	if row, err := uidplugin.From(db).Find(t.Context(), b.ID, left); row != nil || !errors.Is(err, uidplugin.ErrClause) {
		t.Errorf("a left join: %v, %v", row, err)
	}
}

func TestScoped_RefusesScopesThatCannotHold(t *testing.T) {
	t.Parallel()

	db, mine, _ := crates(t)
	p := uidplugin.From(db)
	for name, scope := range map[string]func(*gorm.DB, any) *gorm.DB{
		"nil":            func(*gorm.DB, any) *gorm.DB { return nil },
		"another handle": func(*gorm.DB, any) *gorm.DB { return db.Where("tenant = 1") },
		"a new session":  func(tx *gorm.DB, _ any) *gorm.DB { return tx.Session(&gorm.Session{NewDB: true}).Where("tenant = 1") },
		"a limit":        func(tx *gorm.DB, _ any) *gorm.DB { return tx.Limit(1) },
		"another table":  func(tx *gorm.DB, _ any) *gorm.DB { return tx.Table("slips") },
		"deleted rows":   func(tx *gorm.DB, _ any) *gorm.DB { return tx.Where("tenant = 1").Unscoped() },
		"no condition":   func(tx *gorm.DB, _ any) *gorm.DB { return tx },
		"a zero struct":  func(tx *gorm.DB, _ any) *gorm.DB { return tx.Where(&crate{Tenant: 0}) },
		"a left join":    func(tx *gorm.DB, _ any) *gorm.DB { return tx.Joins("LEFT JOIN slips ON slips.crate_id = crates.id") },
	} {
		if row, err := p.Find(t.Context(), uidplugin.ID(mine.ID), uidplugin.Scoped(scope)); row != nil || !errors.Is(err, uidplugin.ErrClause) {
			t.Errorf("%s: %v, %v", name, row, err)
		}
	}
	for name, scope := range map[string]func(*gorm.DB, any) *gorm.DB{
		"all rows": func(tx *gorm.DB, _ any) *gorm.DB { return tx.Where("1 = 1") },
		"a join":   func(tx *gorm.DB, _ any) *gorm.DB { return tx.Joins("JOIN slips ON slips.crate_id = crates.id") },
		"a scope later": func(tx *gorm.DB, _ any) *gorm.DB {
			return tx.Scopes(func(tx *gorm.DB) *gorm.DB { return tx.Where("1 = 1") })
		},
	} {
		_, err := p.Find(t.Context(), uidplugin.ID(mine.ID), uidplugin.Scoped(scope))
		t.Run(name, func(t *testing.T) { must(t, err) })
	}
	denied := errors.New("denied")
	deny := uidplugin.Scoped(func(tx *gorm.DB, _ any) *gorm.DB { _ = tx.AddError(denied); return tx })
	if row, err := p.Find(t.Context(), uidplugin.ID(mine.ID), deny); row != nil || !errors.Is(err, denied) || errors.Is(err, uidplugin.ErrNoSuchID) {
		t.Errorf("an error of the scope: %v, %v", row, err)
	}
	for _, options := range [][]uidplugin.FindOption{{uidplugin.Scoped(nil)}, {ofTenant(1), ofTenant(1)}} {
		_, err := p.Find(t.Context(), uidplugin.ID(mine.ID), options...)
		testkit.IsError(t, err, uidplugin.ErrOption)
	}
}
