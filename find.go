package uidplugin

import (
	"context"

	"github.com/uidplugin/uidplugin/internal/lookup"
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
// The error is the same as for Locate, or wraps [ErrNoModel], [ErrNotKey], [ErrOtherDatabase], [ErrClause] or
// [gorm.ErrRecordNotFound]. The last error means that the row does not exist, is deleted, or does not meet the
// conditions of the handle. Find does not check the session. So for an id that no process made, but with a known
// worker id, Find returns [gorm.ErrRecordNotFound] although Locate returns [ErrUnknownID].
//
// If the table was renamed after the id was made, and a model of the new name has the row, the error names "uid tables
// rename" and does not wrap [ErrNoSuchID], because the row exists.
//
// Except on SQLite, the database may number the rows that other programs insert, and such a number may contain the
// worker id of another table. So if the row is missing, Find also looks in the table of the nearest id below the
// number; docs/from-auto-increment.md describes the limits.
func (p *Plugin) Find(ctx context.Context, id ID, options ...FindOption) (any, error) {
	f, err := p.finder(options)
	if err != nil {
		return nil, err
	}
	return f.Find(ctx, int64(id))
}

// FindAll loads the rows whose primary keys are ids, as Find does. It sends one query for each 1,000 ids of a table.
// The clauses of the handle apply to each query. The map holds all rows found, even if other ids fail.
//
// If a row is missing from a known table, or does not meet the conditions, its id is in neither the map nor the error.
// All other failures have an [IDError], in the order of ids; the text of the error lists the first 20. If a query
// fails, only errors of queries are returned. So an error that is [ErrNoSuchID] means that no query failed, and
// callers that expect missing ids may ignore it.
func (p *Plugin) FindAll(ctx context.Context, ids []ID, options ...FindOption) (map[ID]any, error) {
	f, err := p.finder(options)
	if err != nil {
		return nil, err
	}
	rows, err := f.FindAll(ctx, int64s(ids))
	found := make(map[ID]any, len(rows))
	for id, row := range rows {
		found[ID(id)] = row
	}
	return found, err
}

// FindAs loads the rows of T whose primary keys are ids. It returns one element per id, in the order of ids, and nil
// for a missing row. It reads only the table of T, with one query per 1,000 ids. db needs the plugin, but T need not be
// listed by [WithModels]. Repeated ids share one row.
//
// The clauses of db apply as for [Plugin.Find], except Order, which fails with [ErrClause].
//
// The error has an [IDError] for each id without a row. It wraps [ErrNoSuchID], and either [gorm.ErrRecordNotFound] or,
// if several rows have the id in their key, [ErrNotKey]. So callers that expect missing rows should ignore errors that
// are ErrNoSuchID. The id 0 is always missing. All other errors are returned without rows. They come from the
// database, or wrap [ErrNotRegistered], [ErrNoField], [ErrField], [ErrNotKey] or [ErrClause].
func FindAs[T any](ctx context.Context, db *gorm.DB, ids ...ID) ([]*T, error) {
	loc, err := From(db).located()
	if err != nil {
		return nil, err
	}
	return lookup.FindAs[T](ctx, loc, db, int64s(ids))
}

func int64s(ids []ID) []int64 {
	numbers := make([]int64, len(ids))
	for i, id := range ids {
		numbers[i] = int64(id)
	}
	return numbers
}

func (p *Plugin) finder(options []FindOption) (*lookup.Finder, error) {
	loc, err := p.located()
	if err != nil {
		return nil, err
	}
	return loc.Finder(p.db, options...)
}
