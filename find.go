package uidplugin

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"reflect"
	"slices"

	"github.com/uidplugin/uidplugin/internal/model"
	"github.com/uidplugin/uidplugin/internal/supply"
	"github.com/uidplugin/uidplugin/publicid"
	"gorm.io/gorm"
	"gorm.io/gorm/schema"
)

// Find loads the row whose primary key is id. It returns a pointer to a struct of the model that WithModels, Register
// or AutoMigrate listed for the table.
//
// The handle given to [From] takes part in the query: conditions, scopes, Select, Omit, Preload, Joins, Unscoped,
// locking and the like. Clauses that have no meaning there fail with [ErrClause]: Limit, Offset, Group, Having,
// Distinct, Raw, DryRun, Select with an expression or without the key, and Table or Model of another table. For ids
// that users send, see [OnlyModels] and [Scoped].
//
// The error is that of Locate, or wraps [ErrNoModel], [ErrNotKey], [ErrClause] or [gorm.ErrRecordNotFound]. The last
// one means that no row has the key, that the row is deleted, or that it does not meet the handle's conditions. Find
// does not look at the session. So for an id that no process made it returns [gorm.ErrRecordNotFound], where Locate
// returns [ErrUnknownID].
//
// On MySQL and PostgreSQL the database may have numbered the row of another program, and its number may have the worker
// id of another table. So if there is no row, Find also looks in the table of the id that the number follows;
// docs/from-auto-increment.md says for how many such rows that is right.
func (p *Plugin) Find(ctx context.Context, id ID, options ...FindOption) (any, error) {
	loc, f, err := p.startFind(options)
	if err != nil {
		return nil, err
	}
	return f.find(ctx, loc, id)
}

// startFind returns the locator and the finder of a plugin that is in use.
func (p *Plugin) startFind(options []FindOption) (*locator, *finder, error) {
	loc, err := p.located()
	if err != nil {
		return nil, nil, err
	}
	f, err := p.finder(options)
	return loc, f, err
}

// find does what [Plugin.Find] does.
func (f *finder) find(ctx context.Context, loc *locator, id ID) (any, error) {
	rows, err := f.findAll(ctx, loc, []ID{id})
	if err != nil {
		return nil, err
	}
	row, ok := rows[id]
	if !ok {
		return nil, idErrorf(id, "uidplugin: find %d: %w", id, gorm.ErrRecordNotFound)
	}
	return row, nil
}

// FindAll loads the rows whose primary keys are ids, as Find does. It sends one query for each table and each 1,000 of
// its ids. The clauses of the handle apply to each query. The map has each row that was found, even if other ids fail.
//
// An id whose table is known, but which has no row there that meets the conditions, is in neither the map nor the
// error. Each other id that fails has an [IDError], in the order of ids; the text of the error has the first 20. If a
// query fails, the error has only the errors of queries. So callers for whom ids may be missing ignore errors that are
// [ErrNoSuchID].
func (p *Plugin) FindAll(ctx context.Context, ids []ID, options ...FindOption) (map[ID]any, error) {
	loc, f, err := p.startFind(options)
	if err != nil {
		return nil, err
	}
	return f.findAll(ctx, loc, ids)
}

// findAll does what [Plugin.FindAll] does.
func (f *finder) findAll(ctx context.Context, loc *locator, ids []ID) (map[ID]any, error) {
	byTable, future := map[string][]ID{}, map[ID]error{}
	var elsewhere []error
	errs := loc.locate(ctx, loc.lookupOn(f.db), slices.Compact(slices.Sorted(slices.Values(ids))), func(l *Location, err error) {
		if err != nil {
			future[l.ID] = err
		}
		if l.Table != "" && l.Database != loc.database {
			elsewhere = append(elsewhere, idErrorf(l.ID, "%w: %d is of %s, and this handle is of %s",
				ErrOtherDatabase, l.ID, named(l.Database), named(loc.database)))
			return
		}
		byTable[l.Table] = append(byTable[l.Table], l.ID)
	})
	errs = append(errs, elsewhere...)
	found := make(map[ID]any, min(len(ids), model.QueryChunk))
	for _, table := range slices.Sorted(maps.Keys(byTable)) {
		errs = append(errs, f.findIn(ctx, table, f.plan(table), byTable[table], found)...)
	}
	errs = f.findNumbered(ctx, loc, ids, found, errs)
	if len(future) > 0 { // that explains more than other errors of these ids
		errs = slices.DeleteFunc(errs, func(e error) bool { other, ok := e.(*IDError); return ok && future[other.ID] != nil })
		for id, err := range future {
			if _, ok := found[id]; !ok {
				errs = append(errs, err)
			}
		}
	}
	return found, joinErrors(errs, ids)
}

// findNumbered adds rows of other programs, which the database numbered and their numbers do not lead to: they are in the
// table of the id that the number follows. It returns errs without those of ids that it has found.
func (f *finder) findNumbered(ctx context.Context, loc *locator, ids []ID, found map[ID]any, errs []error) []error {
	if loc.Fixed || f.db.Dialector.Name() == "sqlite" || len(withoutIDs(errs)) > 0 {
		return errs // ids have no gaps there; or a query has failed
	}
	numbers := map[ID][]ID{}
	for _, id := range ids {
		if _, ok := found[id]; ok || id < 0 {
			continue
		}
		if before, ok := supply.Before(loc.Layout, int64(id)); ok {
			numbers[ID(before)] = append(numbers[ID(before)], id)
		}
	}
	if len(numbers) == 0 {
		return errs
	}
	byTable := map[string][]ID{}
	failed := loc.locate(ctx, loc.lookupOn(f.db), slices.Collect(maps.Keys(numbers)), func(l *Location, _ error) {
		if p := f.plan(l.Table); p != nil && p.rowKey() != nil && !p.rowKey().Text && l.Database == loc.database {
			byTable[l.Table] = append(byTable[l.Table], numbers[l.ID]...)
		}
	})
	errs = append(errs, withoutIDs(failed)...)
	for _, table := range slices.Sorted(maps.Keys(byTable)) {
		errs = append(errs, f.findIn(ctx, table, f.plan(table), byTable[table], found)...)
	}
	return slices.DeleteFunc(errs, func(err error) bool {
		of, ok := err.(*IDError)
		return ok && found[of.ID] != nil
	})
}

// FindAs loads the rows of T whose primary keys are ids. It returns one element for each id, in the order of ids: nil
// for one that has no row. It reads the table of T and nothing else, with one query for each 1,000 ids. db needs the
// plugin, and T need not be listed by [WithModels]. A row that two ids of the list name is loaded once.
//
// The clauses of db hold as they do for [Plugin.Find]. Order fails with [ErrClause] too.
//
// The error has an [IDError] for each id without a row, which wraps [ErrNoSuchID], and [gorm.ErrRecordNotFound] or
// [ErrNotKey]: the latter if several rows have the id in their key. So callers for whom rows may be missing ignore
// errors that are ErrNoSuchID. No row has the id 0. With any other error there are no rows: it is the database's, or
// wraps [ErrNotRegistered], [ErrNoField], [ErrField], [ErrNotKey] or [ErrClause].
func FindAs[T any](ctx context.Context, db *gorm.DB, ids ...ID) ([]*T, error) {
	plugin := From(db)
	s, err := plugin.initialized()
	if err != nil {
		return nil, err
	}
	if t := reflect.TypeFor[T](); t.Kind() != reflect.Struct { // GORM takes pointers and slices for what they are of
		return nil, fmt.Errorf("%w: FindAs: %v is no struct; T is the struct of the model", ErrNoField, t)
	}
	p, _, err := s.catalog.keyOf(db, new(T))
	if err != nil {
		return nil, err
	}
	if p.rowKey() == nil {
		return nil, fmt.Errorf("%w: no field of the primary key of %s is a uid field; query the table with a condition", ErrNotKey, p.Schema.Table)
	}
	f, found := &finder{db: db, shared: s, inOrder: true}, make(map[ID]any, len(ids))
	errs := f.findIn(ctx, p.Schema.Table, p, slices.Clone(ids), found)
	if others := withoutIDs(errs); len(others) > 0 {
		return nil, joinIDErrors(others)
	}
	why := map[ID]error{} // several rows have the id
	for _, err := range errs {
		why[err.(*IDError).ID] = err
	}
	rows := make([]*T, len(ids))
	errs = nil
	for i, id := range ids {
		switch row, ok := found[id]; {
		case ok:
			rows[i] = row.(*T)
		case why[id] != nil:
			errs = append(errs, why[id])
		default:
			errs = append(errs, idErrorf(id, "uidplugin: find %d in %s: %w", id, p.Schema.Table, gorm.ErrRecordNotFound))
		}
	}
	return rows, joinIDErrors(errs)
}

// findIn adds the rows of one table to found. plan is that of the model, or nil. It changes ids.
func (f *finder) findIn(ctx context.Context, table string, p *plan, ids []ID, found map[ID]any) (errs []error) {
	if table == "" {
		return errorForEach(ids, "%w: the worker id of %d serves all tables, so the id does not resolve to one",
			ErrNoModel)
	}
	switch {
	case p == nil && f.only != nil:
		return errorForEach(ids, "%w: %q, which %d is an id of, is the table of none of the models of OnlyModels", ErrNoModel, table)
	case p == nil:
		return errorForEach(ids, "%w: %q, which %d is an id of; give its model to WithModels, Register"+
			" or the AutoMigrate of the plugin", ErrNoModel, table)
	case p.rowKey() == nil:
		return errorForEach(ids, "%w: no field of the primary key of %s is a uid field, and Find looks up nothing else:"+
			" query the table for %d", ErrNotKey, table)
	case f.prefix != "" && !p.hasPrefix(f.prefix):
		return errorForEach(ids, "%w: the public ids of %s do not begin with %s_, as the text of %d does",
			publicid.ErrInvalid, table, f.prefix)
	}
	ids = slices.DeleteFunc(ids, func(id ID) bool { return id == 0 }) // a row that came without its key would be that of 0
	slices.Sort(ids)
	for chunk := range slices.Chunk(slices.Compact(ids), model.QueryChunk) {
		for _, err := range f.load(ctx, p, chunk, found) {
			if _, ok := err.(*IDError); !ok {
				err = fmt.Errorf("uidplugin: find in %s: %w", table, err)
			}
			errs = append(errs, err)
		}
	}
	return errs
}

// rowKey returns the uid field that is a primary key, which rows are looked up by; nil if the model has none.
func (p *plan) rowKey() *field {
	if f := p.key(); f != nil && f.PrimaryKey {
		return f
	}
	return nil
}

// errorForEach returns an [IDError] for each of ids. The last verb of format is for the id.
func errorForEach(ids []ID, format string, args ...any) (errs []error) {
	for _, id := range ids {
		errs = append(errs, idErrorf(id, format, append(slices.Clip(args), id)...))
	}
	return errs
}

// joinErrors joins errors of ids in the order of ids. If there are others, it joins only these: they may be why ids are
// missing.
func joinErrors(errs []error, ids []ID) error {
	if others := withoutIDs(errs); len(others) > 0 {
		return joinIDErrors(others)
	}
	if len(errs) < 2 {
		return joinIDErrors(errs)
	}
	index := make(map[ID]int, len(ids))
	for i, id := range slices.Backward(ids) { // so that the first of equal ids counts
		index[id] = i
	}
	slices.SortStableFunc(errs, func(a, b error) int { return cmp.Compare(index[a.(*IDError).ID], index[b.(*IDError).ID]) })
	return joinIDErrors(errs)
}

// withoutIDs returns those of errs that are not of one id.
func withoutIDs(errs []error) []error {
	return slices.DeleteFunc(slices.Clone(errs), func(err error) bool { _, ok := err.(*IDError); return ok })
}

// load adds the rows whose key is one of ids to found.
func (f *finder) load(ctx context.Context, p *plan, ids []ID, found map[ID]any) (errs []error) {
	rows, key := reflect.New(reflect.SliceOf(reflect.PointerTo(p.Schema.ModelType))), p.rowKey()
	if err := f.query(ctx, p, ids).Find(rows.Interface()).Error; err != nil {
		return []error{err}
	}
	wanted := make(map[ID]bool, len(ids))
	for _, id := range ids {
		wanted[id] = true
	}
	ambiguous := map[ID]bool{}
	for _, loaded := range rows.Elem().Seq2() {
		r := model.Row{Struct: loaded.Elem()}
		id := ID(r.ID(ctx, key.Field))
		if !wanted[id] {
			// A text that the database takes for equal, because of spaces at its end, is another key.
			if _, zero := r.Value(ctx, key.Field.Field); key.Text && !zero {
				continue
			}
			return []error{fmt.Errorf("%w: a row came without its key: let Select and Omit of the handle leave"+
				" %s.%s in", ErrClause, p.Schema.Table, key.DBName)}
		}
		if other, ok := found[id]; ok && !p.sameKey(ctx, r, model.Row{Struct: reflect.ValueOf(other).Elem()}) {
			ambiguous[id] = true
			continue
		}
		found[id] = loaded.Interface()
	}
	for id := range ambiguous {
		delete(found, id)
		errs = append(errs, idErrorf(id, "%w: several rows of %s have %d in their key;"+
			" add a condition on the rest of the key, as in From(db.Where(...))", ErrNotKey,
			p.Schema.Table, id))
	}
	return errs
}

// newRow returns a pointer to a zero struct of the model.
func (p *plan) newRow() any { return reflect.New(p.Schema.ModelType).Interface() }

// sameKey reports whether two rows have the same primary key. That is the case if a join returns one row twice.
func (p *plan) sameKey(ctx context.Context, a, b model.Row) bool {
	return !slices.ContainsFunc(p.Schema.PrimaryFields, func(f *schema.Field) bool {
		x, _ := f.ValueOf(ctx, a.Struct)
		y, _ := f.ValueOf(ctx, b.Struct)
		return !reflect.DeepEqual(x, y)
	})
}
