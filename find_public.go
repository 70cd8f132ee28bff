package uidplugin

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"

	"github.com/uidplugin/uidplugin/internal/catalog"
	"gorm.io/gorm"
)

// FindPublic loads the row whose [Public] key has the given text, like [Plugin.Find]. Rows of models with another
// prefix are not found.
//
// Keys from before the plugin, and ids of segments, do not contain their table, but the prefix identifies it. Such a
// row is found if exactly one model of [OnlyModels], or by default of the listed models, has the prefix. It is never
// found if several databases share the id space ([WithRegistry], [WithDatabaseName]), because others may have the same
// key.
//
// Errors about the id wrap [ErrNoSuchID], and contain the text instead of the number. They are the errors of Find and
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

// FindPublicAs loads the row of T whose [Public] key has the given text. Like [FindAs] it sends one query to the table
// of T, under the conditions of db. All errors about the text wrap [ErrNoSuchID], so a handler should answer them with
// 404:
//
//	order, err := uidplugin.FindPublicAs[Order](ctx, db.Where("tenant_id = ?", tenant), r.PathValue("id"))
//
// The error comes from [ParsePublic] or FindAs, or wraps [ErrNotKey] if the key of T is not a Public[T].
func FindPublicAs[T PublicType](ctx context.Context, db *gorm.DB, text string) (*T, error) {
	s, err := From(db).initialized()
	if err != nil {
		return nil, err
	}
	p, _, err := s.catalog.KeyOf(db, new(T))
	if err != nil {
		return nil, err
	}
	if key := p.RowKey(); key == nil || key.IndirectFieldType != reflect.TypeFor[Public[T]]() {
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

// findPublic loads the row of id, whose text had the finder's prefix.
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

// planOf returns the only model whose keys have the prefix, or nil.
func (f *finder) planOf(prefix string) *catalog.Plan {
	candidates := slices.Collect(maps.Values(f.only))
	if f.only == nil {
		candidates = f.shared.catalog.Listed()
	}
	candidates = slices.DeleteFunc(candidates, func(p *catalog.Plan) bool { return !f.shared.catalog.HasPrefix(p, prefix) })
	if len(candidates) != 1 {
		return nil
	}
	return candidates[0]
}

// wants reports whether keys of a model have the prefix of the text, if a text is looked up.
func (f *finder) wants(p *catalog.Plan) bool {
	return f.prefix == "" || f.shared.catalog.HasPrefix(p, f.prefix)
}

func withoutNumber(text string, err error) error {
	if errors.Is(err, ErrNoSuchID) {
		return &publicError{text, err}
	}
	return err
}

// A publicError is an error about an id that shows the text instead of the number.
type publicError struct {
	text string
	err  error
}

func (e *publicError) Error() string {
	return fmt.Sprintf("uidplugin: find %.80q: %v", e.text, ErrNoSuchID)
}

func (e *publicError) Unwrap() error { return e.err }
