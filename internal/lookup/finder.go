package lookup

import (
	"context"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"

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

	inOrder bool // rows are returned in the order of ids

	// Accept returns the reason why rows with a key of this type are left out, or nil. A nil function accepts all.
	Accept func(key reflect.Type) error
}

// A FindOption restricts the rows of a Finder. The root package documents it.
type FindOption func(*Finder) error

// Finder returns a Finder that queries db.
func (loc *Locator) Finder(db *gorm.DB, options ...FindOption) (*Finder, error) {
	f := &Finder{loc: loc, db: db}
	for _, option := range options {
		if option == nil {
			continue
		}
		if err := option(f); err != nil {
			return nil, err
		}
	}
	return f, nil
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
			return fmt.Errorf("%w; the model was given to OnlyModels", err)
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

// accept returns why the Finder leaves out the rows of a model, or nil. The model must have a key.
func (f *Finder) accept(p *catalog.Plan) error {
	if f.Accept == nil {
		return nil
	}
	return f.Accept(p.RowKey().IndirectFieldType)
}

// accepted returns the models whose rows are found, ordered by table.
func (f *Finder) accepted() []*catalog.Plan {
	models := f.loc.Catalog.Listed()
	if f.only != nil {
		models = slices.SortedFunc(maps.Values(f.only), func(a, b *catalog.Plan) int { return strings.Compare(a.Schema.Table, b.Schema.Table) })
	}
	return slices.DeleteFunc(models, func(p *catalog.Plan) bool { return p.RowKey() == nil || f.accept(p) != nil })
}

// Accepted returns the only model whose rows are found, or nil if there are several or none.
func (f *Finder) Accepted() *catalog.Plan {
	if models := f.accepted(); len(models) == 1 {
		return models[0]
	}
	return nil
}

// FindIn loads the row of id from the table of a model, even if the id does not resolve to that table.
func (f *Finder) FindIn(ctx context.Context, p *catalog.Plan, id int64) (any, error) {
	found, table := map[int64]any{}, p.Schema.Table
	if errs := f.findIn(ctx, table, p, []int64{id}, found); len(errs) > 0 {
		return nil, f.loc.joined(errs)
	}
	row, ok := found[id]
	if !ok {
		return nil, f.loc.errorOf(failuref(id, "uidplugin: find %d in %s: %w", id, table, gorm.ErrRecordNotFound))
	}
	return row, nil
}
