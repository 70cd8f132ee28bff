package uidplugin

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"strings"

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
	f, err := p.finder(options)
	if err != nil {
		return nil, err
	}
	id, err := ParsePublicID(text)
	if err != nil {
		return nil, err
	}
	row, err := f.FindPublic(ctx, text[:strings.LastIndexByte(text, '_')], int64(id))
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
		return nil, err
	}
	rows, err := FindAs[T](ctx, db, ID(id))
	if err != nil {
		return nil, withoutNumber(text, err)
	}
	return rows[0], nil
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
