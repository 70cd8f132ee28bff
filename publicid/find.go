package publicid

import (
	"context"
	"errors"
	"fmt"
	"reflect"

	"github.com/uidplugin/uidplugin/internal/core"
	"github.com/uidplugin/uidplugin/internal/lookup"
	"github.com/uidplugin/uidplugin/internal/model"
	"gorm.io/gorm"
)

// Find loads the row whose [ID] has the given text. It takes the options of Find of uidplugin.Plugin, and the clauses
// of db apply in the same way. Rows of models with another prefix are not found.
//
//	row, err := publicid.Find(ctx, db, text, uidplugin.OnlyModels(&Order{}, &Item{}))
//
// Keys from before the plugin, and ids of segments, do not contain their table, but the prefix identifies it. The
// row of such a key is found if exactly one model of uidplugin.OnlyModels, or by default of the listed models, has
// the prefix. It is never found if several databases share the id space (uidplugin.WithRegistry,
// uidplugin.WithDatabaseName), because the other databases may have the same key.
//
// Errors about the id wrap uidplugin.ErrNoSuchID, and contain the text instead of the number. They are the errors of
// Find of uidplugin.Plugin and of [ParseAny].
func Find(ctx context.Context, db *gorm.DB, text string, options ...lookup.FindOption) (any, error) {
	c, err := core.Of(db)
	if err != nil {
		return nil, err
	}
	f, err := c.Finder(db, options...)
	if err != nil {
		return nil, err
	}
	id, err := ParseAny(text)
	if err != nil {
		return nil, err
	}
	prefix := textPrefix(text)
	f.Accept = func(key reflect.Type) error {
		if model.KindOf(key).Texts == prefix+"_" {
			return nil
		}
		return fmt.Errorf("%w: the texts of %v do not begin with %s_", ErrInvalid, key, prefix)
	}
	row, err := find(ctx, c, f, id, prefix)
	return row, withoutNumber(text, err)
}

// find loads the row of id. The prefix identifies the model if the id does not contain its table.
func find(ctx context.Context, c *core.Core, f *lookup.Finder, id int64, prefix string) (any, error) {
	if _, err := c.Decode(id); !errors.Is(err, lookup.ErrNotDecodable) || c.Apart || c.TablesDatabase != "" {
		return f.Find(ctx, id)
	}
	if p := f.Accepted(); p != nil {
		return f.FindIn(ctx, p, id)
	}
	return nil, c.IDError(id, fmt.Errorf("%w: %d is too small for the layout, and no model, or more than one, has the prefix %s",
		lookup.ErrNotDecodable, id, prefix))
}

// FindAs loads the row of T whose [ID] has the given text. Like uidplugin.FindAs it sends one query to the table of T,
// under the conditions of db. All errors about the text wrap uidplugin.ErrNoSuchID, so a handler should answer them
// with 404:
//
//	order, err := publicid.FindAs[Order](ctx, db.Where("tenant_id = ?", tenant), r.PathValue("id"))
//
// The error comes from [Parse] or uidplugin.FindAs, or wraps uidplugin.ErrNotKey if the key of T is not an ID[T].
func FindAs[T Type](ctx context.Context, db *gorm.DB, text string) (*T, error) {
	c, err := core.Of(db)
	if err != nil {
		return nil, err
	}
	m, err := c.Model(db, new(T))
	if err != nil {
		return nil, err
	}
	if m.Key == nil || m.Key.IndirectFieldType != reflect.TypeFor[ID[T]]() {
		return nil, fmt.Errorf("%w: the primary key of %s is not a %v", lookup.ErrNotKey, m.Table, reflect.TypeFor[ID[T]]())
	}
	id, err := Parse[T](text)
	if err != nil {
		return nil, err
	}
	rows, err := lookup.FindAs[T](ctx, c.Locator, db, []int64{int64(id)})
	if err != nil {
		return nil, withoutNumber(text, err)
	}
	return rows[0], nil
}

func withoutNumber(text string, err error) error {
	if errors.Is(err, lookup.ErrNoSuchID) {
		return &textError{text, err}
	}
	return err
}

// A textError shows the text of an id instead of the number.
type textError struct {
	text string
	err  error
}

func (e *textError) Error() string {
	return fmt.Sprintf("publicid: find %.80q: %v", e.text, lookup.ErrNoSuchID)
}

func (e *textError) Unwrap() error { return e.err }
