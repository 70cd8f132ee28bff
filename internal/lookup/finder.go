package lookup

import (
	"fmt"

	"github.com/uidplugin/uidplugin/internal/catalog"
	"github.com/uidplugin/uidplugin/internal/supply"
	"gorm.io/gorm"
)

// A Finder loads rows by their ids, with the conditions of a handle. It serves one call.
type Finder struct {
	loc   *Locator
	db    *gorm.DB
	only  map[string]*catalog.Plan // by table; nil allows all listed models
	scope func(db *gorm.DB, model any) *gorm.DB

	inOrder bool   // rows are returned in the order of ids
	prefix  string // of the public id; empty for a number
}

// Finder returns a Finder that queries db.
func (loc *Locator) Finder(db *gorm.DB) *Finder {
	return &Finder{loc: loc, db: db}
}

func (f *Finder) plan(table string) *catalog.Plan {
	if f.only != nil {
		return f.only[table]
	}
	return f.loc.Catalog.ListedFor(table)
}

// OnlyModels restricts the rows to these models.
func (f *Finder) OnlyModels(models []any) error {
	if f.only == nil {
		f.only = map[string]*catalog.Plan{}
	}
	for _, m := range models {
		p, _, err := f.loc.Catalog.KeyOf(f.db, m)
		if err != nil {
			return fmt.Errorf("%w; it is given to OnlyModels", err)
		}
		table := p.Schema.Table
		if other := f.only[table]; other != nil && other != p {
			return fmt.Errorf("%w: OnlyModels: %s and %s are models of one table, %s; leave one out",
				supply.ErrOption, other.Schema.ModelType, p.Schema.ModelType, table)
		}
		f.only[table] = p
	}
	return nil
}

// Scoped restricts the rows to those that meet the conditions of scope.
func (f *Finder) Scoped(scope func(db *gorm.DB, model any) *gorm.DB) error {
	switch {
	case scope == nil:
		return fmt.Errorf("%w: Scoped: the scope is nil; leave the option out", supply.ErrOption)
	case f.scope != nil:
		return fmt.Errorf("%w: Scoped is given twice; combine the scopes in one function", supply.ErrOption)
	}
	f.scope = scope
	return nil
}

// wants reports whether keys of a model have the prefix of the text, if a text is looked up.
func (f *Finder) wants(p *catalog.Plan) bool {
	return f.prefix == "" || f.loc.Catalog.HasPrefix(p, f.prefix)
}
