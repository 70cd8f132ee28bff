package lookup

import (
	"context"
	"errors"
	"maps"
	"slices"

	"github.com/uidplugin/uidplugin/internal/catalog"
	"gorm.io/gorm"
)

// FindPublic loads the row of id, which a text with the given prefix contained.
func (f *Finder) FindPublic(ctx context.Context, prefix string, id int64) (any, error) {
	f.prefix = prefix
	loc := f.loc
	if _, err := loc.Decode(id); !errors.Is(err, ErrNotDecodable) || loc.Apart || loc.TablesDatabase != "" {
		return f.Find(ctx, id)
	}
	p := f.planOf(prefix)
	if p == nil {
		return nil, loc.errorOf(failuref(id, "%w: %d is too small for the layout, and no model, or more than one, has its prefix", ErrNotDecodable, id))
	}
	found, table := map[int64]any{}, p.Schema.Table
	if errs := f.findIn(ctx, table, p, []int64{id}, found); len(errs) > 0 {
		return nil, loc.joined(errs)
	}
	row, ok := found[id]
	if !ok {
		return nil, loc.errorOf(failuref(id, "uidplugin: find %d in %s: %w", id, table, gorm.ErrRecordNotFound))
	}
	return row, nil
}

// planOf returns the only model whose keys have the prefix, or nil.
func (f *Finder) planOf(prefix string) *catalog.Plan {
	candidates := slices.Collect(maps.Values(f.only))
	if f.only == nil {
		candidates = f.loc.Catalog.Listed()
	}
	candidates = slices.DeleteFunc(candidates, func(p *catalog.Plan) bool { return !f.loc.Catalog.HasPrefix(p, prefix) })
	if len(candidates) != 1 {
		return nil
	}
	return candidates[0]
}
