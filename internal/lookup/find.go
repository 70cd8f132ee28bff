package lookup

import (
	"context"
	"maps"
	"slices"
	"strconv"

	"github.com/uidplugin/uidplugin/internal/model"
	"gorm.io/gorm"
)

// Find loads the row of id.
func (f *Finder) Find(ctx context.Context, id int64) (any, error) {
	rows, err := f.FindAll(ctx, []int64{id})
	if err != nil {
		return nil, err
	}
	row, ok := rows[id]
	if !ok {
		return nil, f.loc.errorOf(failuref(id, "uidplugin: find %d: %w", id, gorm.ErrRecordNotFound))
	}
	return row, nil
}

// FindAll loads the rows that have these ids, with one query for up to 1,000 ids of a table.
func (f *Finder) FindAll(ctx context.Context, ids []int64) (map[int64]any, error) {
	loc := f.loc
	byTable, future := map[string][]int64{}, map[int64]error{}
	var elsewhere []error
	errs := loc.locate(ctx, loc.WorkersFor(f.db), slices.Compact(slices.Sorted(slices.Values(ids))), func(l *Place, err error) {
		if err != nil {
			future[l.ID] = err
		}
		if l.Table != "" && l.Database != loc.TablesDatabase {
			elsewhere = append(elsewhere, failuref(l.ID, "%w: %d is of %s, and this handle is of %s",
				ErrOtherDatabase, l.ID, named(l.Database), named(loc.TablesDatabase)))
			return
		}
		byTable[l.Table] = append(byTable[l.Table], l.ID)
	})
	errs = append(errs, elsewhere...)
	found := make(map[int64]any, min(len(ids), model.QueryChunk))
	for _, table := range slices.Sorted(maps.Keys(byTable)) {
		if f.plan(table) == nil {
			errs = append(errs, f.renamed(ctx, table, byTable[table])...)
		}
		errs = append(errs, f.findIn(ctx, table, f.plan(table), byTable[table], found)...)
	}
	errs = f.findNumbered(ctx, ids, found, errs)
	if len(future) > 0 { // errors in future replace others of the same ids, because they explain more
		errs = slices.DeleteFunc(errs, func(e error) bool { other, ok := e.(*failure); return ok && future[other.id] != nil })
		for id, err := range future {
			if _, ok := found[id]; !ok {
				errs = append(errs, err)
			}
		}
	}
	return found, loc.errorsOf(errs, ids)
}

// findNumbered adds rows of other programs that the database numbered. If ids has such a number, it is in the gap after
// an id of the plugin, and is looked up in that id's table. It returns errs without the errors of ids that it found.
func (f *Finder) findNumbered(ctx context.Context, ids []int64, found map[int64]any, errs []error) []error {
	loc := f.loc
	if loc.Before == nil || loc.Fixed || f.db.Dialector.Name() == "sqlite" || len(withoutFailures(errs)) > 0 {
		return errs // there are no such numbers, or a query has failed
	}
	numbers := map[int64][]int64{}
	for _, id := range ids {
		if _, ok := found[id]; ok || id < 0 {
			continue
		}
		if before, ok := loc.Before(loc.Layout, id); ok {
			numbers[before] = append(numbers[before], id)
		}
	}
	if len(numbers) == 0 {
		return errs
	}
	byTable := map[string][]int64{}
	failed := loc.locate(ctx, loc.WorkersFor(f.db), slices.Collect(maps.Keys(numbers)), func(l *Place, _ error) {
		p := f.plan(l.Table)
		if p != nil && p.RowKey() != nil && !p.RowKey().Text && f.accept(p) == nil && l.Database == loc.TablesDatabase {
			byTable[l.Table] = append(byTable[l.Table], numbers[l.ID]...)
		}
	})
	errs = append(errs, withoutFailures(failed)...)
	// First look without the handle's conditions, because they may fail on a table that has none of the keys.
	keys := &Finder{db: f.db.Session(&gorm.Session{NewDB: true, SkipHooks: true}).Unscoped(), loc: loc}
	for _, table := range slices.Sorted(maps.Keys(byTable)) {
		rows := map[int64]any{}
		_ = keys.findIn(ctx, table, f.plan(table), byTable[table], rows)
		errs = append(errs, f.findIn(ctx, table, f.plan(table), slices.Collect(maps.Keys(rows)), found)...)
	}
	return slices.DeleteFunc(errs, func(err error) bool {
		failed, ok := err.(*failure)
		return ok && found[failed.id] != nil
	})
}

func named(database string) string {
	if database == "" {
		return "the database that has WORKER_NODE"
	}
	return "the database " + strconv.Quote(database)
}
