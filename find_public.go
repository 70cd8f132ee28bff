package uidplugin

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"gorm.io/gorm"
)

// FindPublic loads the row whose [Public] key has the text, as [Plugin.Find] does for the id.
//
// Keys from before the plugin, and those of segments, do not say of which table they are, but their prefix does. Such a
// row is found if exactly one model has the prefix: of [OnlyModels], or else of those that are listed. In an id space
// of several databases ([WithRegistry], [WithDatabaseName]) it is not, as other databases may have the same key.
//
// Errors about the id wrap [ErrNoSuchID], and their text has the text and not the number. They are those of Find and of
// [ParsePublicID].
func (p *Plugin) FindPublic(ctx context.Context, text string, options ...FindOption) (any, error) {
	loc, f, err := p.startFind(options)
	if err != nil {
		return nil, err
	}
	id, err := ParsePublicID(text)
	var row any
	if err == nil {
		row, err = f.findPublic(ctx, loc, id, text)
	}
	if errors.Is(err, ErrNoSuchID) {
		return nil, &publicError{text, err}
	}
	return row, err
}

// findPublic loads the row with an id whose text is known.
func (f *finder) findPublic(ctx context.Context, loc *locator, id ID, text string) (any, error) {
	if _, err := loc.decode(id); !errors.Is(err, ErrNotDecodable) || loc.apart || loc.database != "" {
		return f.find(ctx, loc, id)
	}
	p := f.planOf(text[:strings.LastIndexByte(text, '_')])
	if p == nil {
		return nil, idErrorf(id, "%w: %d is too small for the layout, and no model, or more than one, has its prefix", ErrNotDecodable, id)
	}
	found, table := map[ID]any{}, p.Schema.Table
	if errs := f.findIn(ctx, table, p, []ID{id}, found); len(errs) > 0 {
		return nil, joinIDErrors(errs)
	}
	row, ok := found[id]
	if !ok {
		return nil, idErrorf(id, "uidplugin: find %d in %s: %w", id, table, gorm.ErrRecordNotFound)
	}
	return row, nil
}

// planOf returns the only model whose keys have a prefix; nil if none has it, or several have.
func (f *finder) planOf(prefix string) *plan {
	candidates := slices.Collect(maps.Values(f.only))
	if f.only == nil {
		candidates = f.shared.catalog.listedModels()
	}
	candidates = slices.DeleteFunc(candidates, func(p *plan) bool { is, ok := p.publicPrefix(); return !ok || is != prefix })
	if len(candidates) != 1 {
		return nil
	}
	return candidates[0]
}

// A publicError is an error about an id, without the number.
type publicError struct {
	text string
	err  error
}

// Error quotes the text.
func (e *publicError) Error() string {
	return fmt.Sprintf("uidplugin: find %.80q: %v", e.text, ErrNoSuchID)
}

// Unwrap returns the error of the id.
func (e *publicError) Unwrap() error { return e.err }
