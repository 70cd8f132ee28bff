package lookup_test

import (
	"context"
	"errors"
	"maps"
	"slices"
	"sync"
	"testing"

	"github.com/uidplugin/uidplugin"
	"github.com/uidplugin/uidplugin/internal/plugintest"
	"github.com/uidplugin/uidplugin/internal/testkit"
	"gorm.io/gorm"
	"gorm.io/gorm/clause"
)

// Every condition of the handle holds. Formerly they were ignored, so a tenant got the rows of another one.
func TestPluginFind_HonoursTheConditionsOfTheHandle(t *testing.T) {
	t.Parallel()

	db, mine, theirs := crates(t)
	own := func(db *gorm.DB) *gorm.DB { return db.Where("tenant = ?", 1) }
	for name, handle := range map[string]*gorm.DB{
		"Where":               db.Where("tenant = ?", 1),
		"Where with a struct": db.Where(&crate{Tenant: 1}),
		"Where with a map":    db.Where(map[string]any{"tenant": 1}),
		"Not":                 db.Not("tenant = ?", 2),
		"Where, Or":           db.Where("tenant = ?", 1).Or("tenant = ?", 7),
		"Or":                  db.Or("tenant = ?", 1),
		"Or, Or":              db.Or("tenant = ?", 1).Or("tenant = ?", 7),
		"an or in SQL":        db.Where("tenant = 7\nor tenant = 1"),
		"a group":             db.Where(db.Where("tenant = ?", 7).Or("tenant = ?", 1)),
		"Clauses":             db.Clauses(clause.Eq{Column: "tenant", Value: 1}),
		"Scopes":              db.Scopes(own),
		"Scopes inside of Scopes": db.Scopes(func(db *gorm.DB) *gorm.DB {
			return db.Scopes(func(db *gorm.DB) *gorm.DB { return db.Scopes(own) })
		}),
		"Or in Scopes": db.Scopes(func(db *gorm.DB) *gorm.DB { return db.Or("tenant = ?", 1) }),
		"Or in Scopes inside of Scopes": db.Scopes(func(db *gorm.DB) *gorm.DB {
			return db.Scopes(func(db *gorm.DB) *gorm.DB { return db.Or("tenant = ?", 1) })
		}),
		"Joins":         db.Joins("JOIN slips ON slips.crate_id = crates.id AND slips.tenant = ?", 1),
		"Session":       own(db).Session(&gorm.Session{}),
		"a transaction": own(own(db).Session(&gorm.Session{SkipDefaultTransaction: true})),
		"CreatedBetween and Where": own(db).Scopes(uidplugin.From(db).CreatedBetween(
			uidplugin.From(db).Layout().Epoch, uidplugin.From(db).Layout().Expires())),
	} {
		read := 0
		ctx := context.WithValue(t.Context(), loadedKey{}, &read)
		p := uidplugin.From(handle)
		for range 2 { // the handle stays as it is
			if row, err := p.Find(ctx, uidplugin.ID(mine.ID)); err != nil || row.(*crate).Name != "mine" {
				t.Errorf("%s: Find of a row that meets it: %v, %v", name, row, err)
			}
			if row, err := p.Find(ctx, uidplugin.ID(theirs.ID)); !errors.Is(err, gorm.ErrRecordNotFound) {
				t.Errorf("%s: Find of a row that does not: %v, %v", name, row, err)
			}
		}
		if read != 2 {
			t.Errorf("%s: %d rows were read for two of the same", name, read)
		}
		rows, err := p.FindAll(ctx, []uidplugin.ID{uidplugin.ID(theirs.ID), uidplugin.ID(mine.ID)})
		if err != nil || !slices.Equal(slices.Collect(maps.Keys(rows)), uidplugin.IDs(mine.ID)) {
			t.Errorf("%s: FindAll: %v, %v", name, rows, err)
		}
	}
}

// Formerly other clauses of the handle were ignored, too.
func TestPluginFind_HonoursTheHandle(t *testing.T) {
	t.Parallel()

	db, mine, _ := crates(t)
	gone := crate{Name: "gone"}
	must(t, db.Create(&gone).Error)
	must(t, db.Delete(&gone).Error)
	for _, tt := range []struct {
		name   string
		handle *gorm.DB
		id     int64
		ok     func(p *crate) bool
	}{
		{"Select", db.Select("id", "tenant"), mine.ID, func(p *crate) bool { return p.Tenant == 1 && p.Name == "" }},
		{"Select of all", db.Select("*"), mine.ID, func(p *crate) bool { return p.Tenant == 1 && p.Name == "mine" }},
		{"Omit", db.Omit("name"), mine.ID, func(p *crate) bool { return p.Tenant == 1 && p.Name == "" }},
		{"Preload", db.Preload("Slips"), mine.ID, func(p *crate) bool { return len(p.Slips) == 1 && p.Slips[0] == mine.Slips[0] }},
		{"Unscoped", db.Unscoped(), gone.ID, func(p *crate) bool { return p.Name == "gone" }},
		{"Set", db.Set("mark", "!"), mine.ID, func(p *crate) bool { return p.Name == "mine!" }},
		{"Session", db.Set("mark", "!").Session(&gorm.Session{SkipHooks: true}), mine.ID, func(p *crate) bool { return p.Name == "mine" }},
		{"Model", db.Model(&crate{ID: 5}), mine.ID, func(p *crate) bool { return p.Name == "mine" }},
		{"Table", db.Table("crates"), mine.ID, func(p *crate) bool { return p.Name == "mine" }},
		{"Order", db.Order("name"), mine.ID, func(p *crate) bool { return p.Name == "mine" }},
		{"no Limit", db.Limit(5).Limit(-1).Offset(-1), mine.ID, func(p *crate) bool { return p.Name == "mine" }},
		{"a join with many rows", db.Joins("JOIN slips"), mine.ID, func(p *crate) bool { return p.Name == "mine" }},
	} {
		if row, err := uidplugin.From(tt.handle).Find(t.Context(), uidplugin.ID(tt.id)); err != nil || !tt.ok(row.(*crate)) {
			t.Errorf("%s: %+v, %v", tt.name, row, err)
		}
	}
}

// Clauses that Find cannot apply are refused by name, with advice. Formerly they were ignored.
func TestPluginFind_RefusesClausesOfTheHandle(t *testing.T) {
	t.Parallel()

	db, mine, _ := crates(t)
	used := db.Where("tenant = ?", 1)
	must(t, used.Find(&[]slip{}).Error)
	built := db.Where("tenant = ?", 1)
	where := built.Statement.Clauses["WHERE"]
	where.Builder = func(clause.Clause, clause.Builder) {}
	built.Statement.Clauses["WHERE"] = where
	for _, tt := range []struct {
		handle *gorm.DB
		says   []string
	}{
		{db.Limit(1), []string{"Limit", "leave it out"}},
		{db.Offset(1), []string{"Offset", "leave it out"}},
		{db.Scopes(func(db *gorm.DB) *gorm.DB { return db.Limit(0) }), []string{"Limit", "leave it out"}},
		{db.Group("name"), []string{"Group", "Where"}},
		{db.Having("name = ?", "a"), []string{"Having", "Where"}},
		{db.Distinct(), []string{"Distinct", "leave it out"}},
		{db.Distinct("id"), []string{"Distinct", "leave it out"}},
		{db.Raw("SELECT 1"), []string{"Raw", "Where"}},
		{db.Table("slips"), []string{`Table("slips")`, "crates", "query that table yourself"}},
		{db.Table("crates p"), []string{`Table("p")`, "crates"}},
		{db.Table("(?) as crates", db.Model(&slip{})), []string{"Table", "crates"}},
		{db.Model(&slip{}), []string{"Model(*lookup_test.slip)", "lookup_test.crate", "crates"}},
		{used, []string{`Table("slips")`, "crates"}},
		{db.Clauses(clause.From{Tables: []clause.Table{{Name: "slips"}}}), []string{"FROM", "crates"}},
		{db.Clauses(clause.Select{Columns: []clause.Column{{Name: "id"}}}), []string{"Select", "names of fields"}},
		{db.Select("id, ? AS name", "x"), []string{"Select", "names of fields"}},
		{db.Select("name"), []string{"Select", "crates.id"}},
		{db.Select("tenant AS id"), []string{"Select", "crates.id"}},
		{db.Omit("ID"), []string{"Omit", "crates.id"}},
		{built, []string{"WHERE", "Where"}},
	} {
		_, err := uidplugin.From(tt.handle).Find(t.Context(), uidplugin.ID(mine.ID))
		testkit.IsError(t, err, uidplugin.ErrClause, append(tt.says, "find in crates")...)
	}
}

// A session with NewDB has no conditions. GORM gives one to hooks, on the statement that they are called for.
func TestPluginFind_LeavesOutWhatANewSessionHasDropped(t *testing.T) {
	t.Parallel()

	db, mine, theirs := crates(t)
	p := uidplugin.From(db.Where("tenant = ?", 1).Session(&gorm.Session{NewDB: true}))
	findsCrate(t, p, theirs.ID, "theirs")
	must(t, db.Callback().Query().After("gorm:query").Register("look", func(db *gorm.DB) {
		if _, ok := db.Statement.Dest.(*[]slip); !ok {
			return
		}
		p := uidplugin.From(db.Session(&gorm.Session{NewDB: true}))
		findsCrate(t, p, mine.ID, "mine")
	}))
	must(t, db.Where("tenant = ?", 2).Limit(1).Find(&[]slip{}).Error)
}

// The handle is only read. GORM sorts the expressions of a WHERE clause in place when it builds them.
func TestPluginFind_SharesTheHandleWithOthers(t *testing.T) {
	t.Parallel()

	db, mine, theirs := crates(t)
	p := uidplugin.From(db.Or("tenant = ?", 1).Where("name <> ?", "x"))
	var group sync.WaitGroup
	for range 4 {
		group.Go(func() {
			for range 20 {
				findsCrate(t, p, mine.ID, "mine")
				_, err := p.Find(t.Context(), uidplugin.ID(theirs.ID))
				testkit.IsError(t, err, gorm.ErrRecordNotFound)
			}
		})
	}
	group.Wait()
}

// An id is looked up in the primary key only. Formerly, if a client had written the id of another row into a second uid
// field of its own row, Find returned the client's row for that id.
func TestPluginFind_LooksUpThePrimaryKeyOnly(t *testing.T) {
	t.Parallel()

	type account struct {
		ID     int64 `gorm:"primaryKey;autoIncrement:false;uid"`
		Public int64 `gorm:"uid"`
		Name   string
	}
	db := plugintest.Open(t)
	p := uidplugin.From(db)
	must(t, p.AutoMigrate(&account{}))
	victim := account{Name: "victim"}
	must(t, db.Create(&victim).Error)
	forged := account{Public: victim.ID, Name: "forged"}
	must(t, db.Create(&forged).Error)
	finds(t, p, victim.ID, victim)
	must(t, db.Delete(&victim).Error)
	plugintest.Only(t, plugintest.Second(p.Find(t.Context(), uidplugin.ID(victim.ID))), gorm.ErrRecordNotFound)
	plugintest.Only(t, plugintest.Second(p.Find(t.Context(), uidplugin.ID(victim.Public))), gorm.ErrRecordNotFound)
}

// With a key of several columns, two rows can have one id, and a client that sets its key can make them so. Formerly
// chance decided which one Find returned.
func TestPluginFind_RefusesAnIDThatSeveralRowsShare(t *testing.T) {
	t.Parallel()

	db := plugintest.Open(t)
	p := uidplugin.From(db)
	must(t, p.AutoMigrate(&plugintest.Composite{}))
	rows := []plugintest.Composite{{Tenant: 1, Name: "a"}, {Tenant: 1, Name: "b"}}
	must(t, db.Create(&rows).Error)
	finds(t, p, rows[0].ID, rows[0])
	for tenant := range int64(3) {
		must(t, db.Create(&plugintest.Composite{Tenant: 2 + tenant, ID: rows[0].ID, Name: "forged"}).Error)
	}
	found, err := p.FindAll(t.Context(), []uidplugin.ID{uidplugin.ID(rows[0].ID), uidplugin.ID(rows[1].ID)})
	var id *uidplugin.IDError
	if !errors.Is(err, uidplugin.ErrNotKey) || !errors.As(err, &id) || int64(id.ID) != rows[0].ID || len(found) != 1 {
		t.Fatalf("FindAll: %v, %v", found, err)
	}
	saysAll(t, err.Error(), "composites", uidplugin.ID(rows[0].ID).String(), "Where")
	finds(t, uidplugin.From(db.Where("tenant = ?", 1)), rows[0].ID, rows[0])
}
