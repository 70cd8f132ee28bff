package uidplugin

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"

	"gorm.io/gorm"
)

// FindPublic loads the row whose [Public] key has the text, as [Plugin.Find] does for the id. A row whose key has another
// prefix than the text is not found.
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
	if err != nil {
		return nil, withoutNumber(text, err)
	}
	f.prefix = text[:strings.LastIndexByte(text, '_')]
	row, err := f.findPublic(ctx, loc, id)
	return row, withoutNumber(text, err)
}

// FindPublicAs loads the row of T whose [Public] key has the text, as [FindAs] does for an id: under the conditions of
// db, with one query in the table of T. Each error about the text wraps [ErrNoSuchID], so a handler answers it with 404:
//
//	order, err := uidplugin.FindPublicAs[Order](ctx, db.Where("tenant_id = ?", tenant), r.PathValue("id"))
//
// The error is that of [ParsePublic] or of FindAs, or wraps [ErrNotKey] if the key of T is not a Public[T].
func FindPublicAs[T PublicType](ctx context.Context, db *gorm.DB, text string) (*T, error) {
	s, err := From(db).initialized()
	if err != nil {
		return nil, err
	}
	p, _, err := s.catalog.keyOf(db, new(T))
	if err != nil {
		return nil, err
	}
	if key := p.rowKey(); key == nil || key.IndirectFieldType != reflect.TypeFor[Public[T]]() {
		return nil, fmt.Errorf("%w: the primary key of %s is not a %v", ErrNotKey, p.Schema.Table, reflect.TypeFor[Public[T]]())
	}
	id, err := ParsePublic[T](text)
	if err != nil {
		return nil, withoutNumber(text, err)
	}
	rows, err := FindAs[T](ctx, db, ID(id))
	if err != nil {
		return nil, withoutNumber(text, err)
	}
	return rows[0], nil
}

// findPublic loads the row with an id whose text has the prefix of the finder.
func (f *finder) findPublic(ctx context.Context, loc *locator, id ID) (any, error) {
	if _, err := loc.decode(id); !errors.Is(err, ErrNotDecodable) || loc.apart || loc.database != "" {
		return f.find(ctx, loc, id)
	}
	p := f.planOf(f.prefix)
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
	candidates = slices.DeleteFunc(candidates, func(p *plan) bool { return !p.hasPrefix(prefix) })
	if len(candidates) != 1 {
		return nil
	}
	return candidates[0]
}

// hasPrefix reports whether the texts of the model's keys have a prefix.
func (p *plan) hasPrefix(prefix string) bool {
	is, ok := p.publicPrefix()
	return ok && is == prefix
}

// withoutNumber returns an error with the text in place of the number, if it is about the id.
func withoutNumber(text string, err error) error {
	if errors.Is(err, ErrNoSuchID) {
		return &publicError{text, err}
	}
	return err
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
