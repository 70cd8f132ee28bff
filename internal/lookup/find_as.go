package lookup

import (
	"context"
	"fmt"
	"reflect"
	"slices"

	"github.com/uidplugin/uidplugin/internal/model"
	"gorm.io/gorm"
)

// FindAs loads the rows of T whose primary keys are ids, in the order of ids. A missing row is nil.
func FindAs[T any](ctx context.Context, loc *Locator, db *gorm.DB, ids []int64) ([]*T, error) {
	if t := reflect.TypeFor[T](); t.Kind() != reflect.Struct { // GORM would accept pointers and slices of structs
		return nil, fmt.Errorf("%w: the type parameter T is %v, but it must be the struct of a model", model.ErrNoField, t)
	}
	p, _, err := loc.Catalog.KeyOf(db, new(T))
	if err != nil {
		return nil, err
	}
	if p.RowKey() == nil {
		return nil, fmt.Errorf("%w: no field of the primary key of %s is a uid field; query the table with a condition",
			ErrNotKey, p.Schema.Table)
	}
	f, found := &Finder{loc: loc, db: db, inOrder: true}, make(map[int64]any, len(ids))
	errs := f.findIn(ctx, p.Schema.Table, p, slices.Clone(ids), found)
	if others := withoutFailures(errs); len(others) > 0 {
		return nil, loc.joined(others)
	}
	reasons := map[int64]error{}
	for _, err := range errs {
		reasons[err.(*failure).id] = err
	}
	rows := make([]*T, len(ids))
	errs = nil
	for i, id := range ids {
		switch row, ok := found[id]; {
		case ok:
			rows[i] = row.(*T)
		case reasons[id] != nil:
			errs = append(errs, reasons[id])
		default:
			errs = append(errs, failuref(id, "uidplugin: find %d in %s: %w", id, p.Schema.Table, gorm.ErrRecordNotFound))
		}
	}
	return rows, loc.joined(errs)
}
