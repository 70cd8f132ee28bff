package lookup

import (
	"context"
	"fmt"
	"reflect"
	"slices"

	"github.com/uidplugin/uidplugin/internal/catalog"
	"github.com/uidplugin/uidplugin/internal/model"
)

// findIn adds the rows of one table to found. p is the plan of its model, or nil. findIn modifies ids.
func (f *Finder) findIn(ctx context.Context, table string, p *catalog.Plan, ids []int64, found map[int64]any) (errs []error) {
	if table == "" {
		return failureForEach(ids, "%w: the worker id of %d serves all tables, so the id does not resolve to one table",
			ErrNoModel)
	}
	switch {
	case p == nil && f.only != nil:
		return failureForEach(ids, "%w %q of the id %d among the models of OnlyModels; add the model, or leave the id out",
			ErrNoModel, table)
	case p == nil:
		return failureForEach(ids, "%w %q of the id %[4]d; write uidplugin.New(uidplugin.WithModels(&%[3]s{}))",
			ErrNoModel, table, f.loc.Catalog.NameFor(table))
	case p.RowKey() == nil:
		return failureForEach(ids, "%w: no field of the primary key of %s is a uid field, and Find looks up only such fields:"+
			" query the table for %d", ErrNotKey, table)
	}
	if err := f.accept(p); err != nil {
		for _, id := range ids {
			errs = append(errs, &failure{id, err})
		}
		return errs
	}
	// Leave out 0, because a row that was loaded without its key seems to have the id 0.
	ids = slices.DeleteFunc(ids, func(id int64) bool { return id == 0 })
	slices.Sort(ids)
	for chunk := range slices.Chunk(slices.Compact(ids), model.QueryChunk) {
		for _, err := range f.load(ctx, p, chunk, found) {
			if _, ok := err.(*failure); !ok {
				err = fmt.Errorf("uidplugin: find in %s: %w", table, err)
			}
			errs = append(errs, err)
		}
	}
	return errs
}

func (f *Finder) load(ctx context.Context, p *catalog.Plan, ids []int64, found map[int64]any) (errs []error) {
	rows, key := reflect.New(reflect.SliceOf(reflect.PointerTo(p.Schema.ModelType))), p.RowKey()
	if err := f.query(ctx, p, ids).Find(rows.Interface()).Error; err != nil {
		return []error{err}
	}
	wanted := make(map[int64]bool, len(ids))
	for _, id := range ids {
		wanted[id] = true
	}
	ambiguous := map[int64]bool{}
	for _, loaded := range rows.Elem().Seq2() {
		r := model.Row{Struct: loaded.Elem()}
		id := r.ID(ctx, key.Field)
		if !wanted[id] {
			// Some databases ignore spaces at the end of a text, so this row may have a key that was not asked for.
			if _, zero := r.Value(ctx, key.Field.Field); key.Text && !zero {
				continue
			}
			return []error{fmt.Errorf("%w: a row came without its key: Select and Omit of the handle must not"+
				" leave out %s.%s", ErrClause, p.Schema.Table, key.DBName)}
		}
		if other, ok := found[id]; ok && !p.SameKey(ctx, r, model.Row{Struct: reflect.ValueOf(other).Elem()}) {
			ambiguous[id] = true
			continue
		}
		found[id] = loaded.Interface()
	}
	for id := range ambiguous {
		delete(found, id)
		errs = append(errs, failuref(id, "%w: several rows of %s have %d in their key;"+
			" add a condition on the rest of the key, as in From(db.Where(...))", ErrNotKey,
			p.Schema.Table, id))
	}
	return errs
}
