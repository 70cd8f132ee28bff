package uidplugin

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"reflect"
	"slices"

	"github.com/uidplugin/uidplugin/internal/catalog"
	"github.com/uidplugin/uidplugin/internal/model"
	"github.com/uidplugin/uidplugin/internal/supply"
	"github.com/uidplugin/uidplugin/publicid"
	"gorm.io/gorm"
)

// Find loads the row whose primary key is id. It returns a pointer to the model that WithModels, Register or
// AutoMigrate listed for the table.
//
// The query uses the handle given to [From]: its conditions, scopes, Select, Omit, Preload, Joins, Unscoped, locking
// and so on. Find fails with [ErrClause] for Limit, Offset, Group, Having, Distinct, Raw and DryRun. It also fails for
// Select with an expression or without the key, and for another Table or Model. For ids that users send, see
// [OnlyModels] and [Scoped].
//
// The error is the same as for Locate, or wraps [ErrNoModel], [ErrNotKey], [ErrClause] or [gorm.ErrRecordNotFound]. The
// last one means that the row does not exist, is deleted, or does not meet the handle's conditions. Find does not check
// the session. So for an id that no process made it returns [gorm.ErrRecordNotFound], where Locate returns
// [ErrUnknownID].
//
// On MySQL and PostgreSQL the database may have numbered a row of another program, and its number may contain another
// table's worker id. So if the row is missing, Find also tries the table of the id before the number;
// docs/from-auto-increment.md describes the limits.
func (p *Plugin) Find(ctx context.Context, id ID, options ...FindOption) (any, error) {
	loc, f, err := p.startFind(options)
	if err != nil {
		return nil, err
	}
	return f.find(ctx, loc, id)
}

func (p *Plugin) startFind(options []FindOption) (*locator, *finder, error) {
	loc, err := p.located()
	if err != nil {
		return nil, nil, err
	}
	f, err := p.finder(options)
	return loc, f, err
}

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

// FindAll loads the rows whose primary keys are ids, as Find does. It sends one query per table and 1,000 ids. The
// clauses of the handle apply to each query. The map holds all rows found, even if other ids fail.
//
// If a row is missing from a known table, or does not meet the conditions, its id is in neither the map nor the error.
// All other failures have an [IDError], in the order of ids; the text of the error lists the first 20. If a query
// fails, only errors of queries are returned. So callers that expect missing ids should ignore errors that are
// [ErrNoSuchID].
func (p *Plugin) FindAll(ctx context.Context, ids []ID, options ...FindOption) (map[ID]any, error) {
	loc, f, err := p.startFind(options)
	if err != nil {
		return nil, err
	}
	return f.findAll(ctx, loc, ids)
}

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
	if len(future) > 0 { // because it explains more than other errors of these ids
		errs = slices.DeleteFunc(errs, func(e error) bool { other, ok := e.(*IDError); return ok && future[other.ID] != nil })
		for id, err := range future {
			if _, ok := found[id]; !ok {
				errs = append(errs, err)
			}
		}
	}
	return found, joinErrors(errs, ids)
}

// findNumbered adds rows of other programs that the database numbered. It looks for each in the table of the id before
// its number. It returns errs without the errors of ids that were found.
func (f *finder) findNumbered(ctx context.Context, loc *locator, ids []ID, found map[ID]any, errs []error) []error {
	if loc.Fixed || f.db.Dialector.Name() == "sqlite" || len(withoutIDs(errs)) > 0 {
		return errs // ids do not have gaps there, or a query has failed
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
		p := f.plan(l.Table)
		if p != nil && p.RowKey() != nil && !p.RowKey().Text && f.wants(p) && l.Database == loc.database {
			byTable[l.Table] = append(byTable[l.Table], numbers[l.ID]...)
		}
	})
	errs = append(errs, withoutIDs(failed)...)
	// Look for the keys alone first, because the handle's conditions are usually not meant for these tables.
	keys := &finder{db: f.db.Session(&gorm.Session{NewDB: true, SkipHooks: true}).Unscoped(), shared: f.shared}
	for _, table := range slices.Sorted(maps.Keys(byTable)) {
		rows := map[ID]any{}
		_ = keys.findIn(ctx, table, f.plan(table), byTable[table], rows)
		errs = append(errs, f.findIn(ctx, table, f.plan(table), slices.Collect(maps.Keys(rows)), found)...)
	}
	return slices.DeleteFunc(errs, func(err error) bool {
		of, ok := err.(*IDError)
		return ok && found[of.ID] != nil
	})
}

// FindAs loads the rows of T whose primary keys are ids. It returns one element per id, in the order of ids, and nil
// for a missing row. It reads only the table of T, with one query per 1,000 ids. db needs the plugin, but T need not be
// listed by [WithModels]. Repeated ids share one row.
//
// The clauses of db apply as for [Plugin.Find], except Order, which fails with [ErrClause].
//
// The error has an [IDError] for each id without a row. It wraps [ErrNoSuchID], and either [gorm.ErrRecordNotFound] or,
// if several rows have the id in their key, [ErrNotKey]. So callers that expect missing rows should ignore errors that
// are ErrNoSuchID. The id 0 is always missing. Other errors return no rows. They come from the database, or wrap
// [ErrNotRegistered], [ErrNoField], [ErrField], [ErrNotKey] or [ErrClause].
func FindAs[T any](ctx context.Context, db *gorm.DB, ids ...ID) ([]*T, error) {
	plugin := From(db)
	s, err := plugin.initialized()
	if err != nil {
		return nil, err
	}
	if t := reflect.TypeFor[T](); t.Kind() != reflect.Struct { // GORM would accept pointers and slices of structs
		return nil, fmt.Errorf("%w: FindAs: %v is no struct; T is the struct of the model", ErrNoField, t)
	}
	p, _, err := s.catalog.KeyOf(db, new(T))
	if err != nil {
		return nil, err
	}
	if p.RowKey() == nil {
		return nil, fmt.Errorf("%w: no field of the primary key of %s is a uid field; query the table with a condition", ErrNotKey, p.Schema.Table)
	}
	f, found := &finder{db: db, shared: s, inOrder: true}, make(map[ID]any, len(ids))
	errs := f.findIn(ctx, p.Schema.Table, p, slices.Clone(ids), found)
	if others := withoutIDs(errs); len(others) > 0 {
		return nil, joinIDErrors(others)
	}
	why := map[ID]error{}
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

// findIn adds the rows of one table to found. p is the plan of its model, or nil. findIn modifies ids.
func (f *finder) findIn(ctx context.Context, table string, p *catalog.Plan, ids []ID, found map[ID]any) (errs []error) {
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
	case p.RowKey() == nil:
		return errorForEach(ids, "%w: no field of the primary key of %s is a uid field, and Find looks up nothing else:"+
			" query the table for %d", ErrNotKey, table)
	case !f.wants(p):
		return errorForEach(ids, "%w: the public ids of %s do not begin with %s_, as the text of %d does",
			publicid.ErrInvalid, table, f.prefix)
	}
	ids = slices.DeleteFunc(ids, func(id ID) bool { return id == 0 }) // because a row loaded without its key would match 0
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

// errorForEach returns an [IDError] for each of ids. The last verb of format formats the id.
func errorForEach(ids []ID, format string, args ...any) (errs []error) {
	for _, id := range ids {
		errs = append(errs, idErrorf(id, format, append(slices.Clip(args), id)...))
	}
	return errs
}

// joinErrors joins errors of ids in the order of ids. If there are errors of queries it joins only those, because they
// may explain missing ids.
func joinErrors(errs []error, ids []ID) error {
	if others := withoutIDs(errs); len(others) > 0 {
		return joinIDErrors(others)
	}
	if len(errs) < 2 {
		return joinIDErrors(errs)
	}
	index := make(map[ID]int, len(ids))
	for i, id := range slices.Backward(ids) { // backward, so the first of equal ids wins
		index[id] = i
	}
	slices.SortStableFunc(errs, func(a, b error) int { return cmp.Compare(index[a.(*IDError).ID], index[b.(*IDError).ID]) })
	return joinIDErrors(errs)
}

func withoutIDs(errs []error) []error {
	return slices.DeleteFunc(slices.Clone(errs), func(err error) bool { _, ok := err.(*IDError); return ok })
}

func (f *finder) load(ctx context.Context, p *catalog.Plan, ids []ID, found map[ID]any) (errs []error) {
	rows, key := reflect.New(reflect.SliceOf(reflect.PointerTo(p.Schema.ModelType))), p.RowKey()
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
			// The database ignored spaces at the end of a text, so this is another key.
			if _, zero := r.Value(ctx, key.Field.Field); key.Text && !zero {
				continue
			}
			return []error{fmt.Errorf("%w: a row came without its key: let Select and Omit of the handle leave"+
				" %s.%s in", ErrClause, p.Schema.Table, key.DBName)}
		}
		if other, ok := found[id]; ok && !p.SameKey(ctx, r, model.Row{Struct: reflect.ValueOf(other).Elem()}) {
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
