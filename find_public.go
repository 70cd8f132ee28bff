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

// FindPublic loads the row whose [Public] key has the text, as [Plugin.Find] does. If a model of [OnlyModels], or one that
// is listed, has such keys, its table is read, and no other: so it also finds rows from before the plugin. Otherwise the
// id says which table it is.
//
// Errors about the id wrap [ErrNoSuchID], and their text has the text and not the number. They are those of Find and of
// [ParsePublicID].
func (p *Plugin) FindPublic(ctx context.Context, text string, options ...FindOption) (any, error) {
	c, err := p.initialized()
	if err != nil {
		return nil, err
	}
	f, err := p.finder(options)
	if err != nil {
		return nil, err
	}
	id, err := ParsePublicID(text)
	var row any
	if err == nil {
		row, err = f.findPublic(ctx, c, id, text, options)
	}
	if errors.Is(err, ErrNoSuchID) {
		return nil, &publicError{text, err}
	}
	return row, err
}

// findPublic loads the row with an id whose text is known.
func (f *finder) findPublic(ctx context.Context, c *shared, id ID, text string, options []FindOption) (any, error) {
	candidates := slices.Collect(maps.Values(f.only))
	if f.only == nil {
		candidates = c.catalog.listedModels()
	}
	prefix := text[:strings.LastIndexByte(text, '_')]
	for _, plan := range candidates {
		if is, ok := plan.publicPrefix(); !ok || is != prefix {
			continue
		}
		found, table := map[ID]any{}, plan.Schema.Table
		if errs := f.findIn(ctx, table, plan, []ID{id}, found); len(errs) > 0 {
			return nil, joinIDErrors(errs)
		}
		if row, ok := found[id]; ok {
			return row, nil
		}
		return nil, idErrorf(id, "uidplugin: find %d in %s: %w", id, table, gorm.ErrRecordNotFound)
	}
	return (&Plugin{shared: c, db: f.db}).Find(ctx, id, options...)
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
