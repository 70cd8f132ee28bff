package lookup

import (
	"context"
	"fmt"
	"maps"
	"slices"

	"github.com/uidplugin/uidplugin/workernode"
	"gorm.io/gorm"
)

// renamed returns an error if a table does not exist, but the table of another model has a row with one of these
// ids, and the caller may see that row. Then the table was probably renamed, and WORKER_NODE has the old name.
// The error does not wrap ErrNoSuchID, because callers would answer ErrNoSuchID with a 404.
func (f *Finder) renamed(ctx context.Context, table string, ids []int64) (errs []error) {
	db := f.db.Session(&gorm.Session{NewDB: true, SkipHooks: true, Context: ctx})
	if table == "" || db.Migrator().HasTable(table) {
		return nil
	}
	keys := &Finder{db: db.Unscoped(), loc: f.loc} // the handle's conditions are usually not meant for these tables
	for _, p := range f.accepted() {
		now := p.Schema.Table
		if !db.Migrator().HasTable(now) { // a failed query would break a transaction of PostgreSQL
			continue
		}
		exist, visible := map[int64]any{}, map[int64]any{}
		errs = append(errs, withoutFailures(keys.findIn(ctx, now, p, slices.Clone(ids), exist))...)
		if len(exist) == 0 {
			continue
		}
		errs = append(errs, withoutFailures(f.findIn(ctx, now, p, slices.Collect(maps.Keys(exist)), visible))...)
		if len(visible) > 0 {
			errs = append(errs, fmt.Errorf("uidplugin: find %d: its row is in %q, but %s has the table %q, which does not exist: "+
				"if it was renamed, run \"uid tables rename %s %s\" (docs/looking-up.md)", slices.Min(slices.Collect(maps.Keys(visible))),
				now, workernode.NodeTable, table, f.loc.tableNamed(table), f.loc.tableNamed(now)))
		}
	}
	return errs
}

// tableNamed returns the name of a table as the command uid takes it.
func (loc *Locator) tableNamed(name string) string {
	return workernode.Table{Database: loc.TablesDatabase, Name: name}.String()
}
