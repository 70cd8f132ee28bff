package lookup

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"math"
	"reflect"
	"slices"
	"strings"

	"github.com/uidplugin/uidplugin/internal/catalog"
	"github.com/uidplugin/uidplugin/internal/follow"
	"github.com/uidplugin/uidplugin/internal/model"
	"gorm.io/gorm"
	"gorm.io/gorm/clause"
)

// A Followable is a model whose rows can be followed.
type Followable struct {
	plan *catalog.Plan
	key  *catalog.Field
}

// Followable returns the model of value. The error wraps [model.ErrNoField], [ErrNotKey] or [ErrNotDecodable], or is the
// error of a create.
func (loc *Locator) Followable(db *gorm.DB, value any) (Followable, error) {
	p, _, err := loc.Catalog.KeyOf(db, value)
	if err != nil {
		return Followable{}, err
	}
	key := p.RowKey()
	switch {
	case key == nil:
		err = fmt.Errorf("%w: no field of the primary key of %s is a uid field, so its rows cannot be followed", ErrNotKey, p.Schema.Table)
	case key.Source.Foreign && loc.Test == nil:
		err = fmt.Errorf("%w: the ids of %s.%s have no time, so its rows cannot be followed", ErrNotDecodable, p.Schema.Table, key.DBName)
	case key.Text:
		err = fmt.Errorf("%w: %s.%s holds texts, which do not sort like numbers, so its rows cannot be followed", ErrNotKey, p.Schema.Table, key.DBName)
	}
	return Followable{p, key}, err
}

// Table returns the table and the column of the ids.
func (f Followable) Table() (table, key string) { return f.plan.Schema.Table, f.key.DBName }

// ID returns the id of a row, a pointer to a struct of the model.
func (f Followable) ID(row any) int64 {
	return model.Row{Struct: reflect.ValueOf(row).Elem()}.ID(context.Background(), f.key.Field)
}

// Highest returns the id above the largest in the table, or 0 if the table is empty.
func (f Followable) Highest(ctx context.Context, db *gorm.DB) (above int64, err error) {
	var largest sql.NullInt64
	column := clause.Column{Table: clause.CurrentTable, Name: f.key.DBName}
	err = db.WithContext(ctx).Unscoped().Model(f.plan.NewRow()).Select("MAX(?)", column).Scan(&largest).Error
	if err == nil && largest.Valid {
		above = largest.Int64 + 1
	}
	return above, err
}

// RowsAfter returns read, which loads rows of T for [follow.Rows], and isOwn, which reports whether a row that read has
// loaded is of this region. The conditions of db apply as for [FindAs]. With locked, it waits for transactions that
// have rows below the mark, even if they have lost the lock of the gate.
func RowsAfter[T any](loc *Locator, db *gorm.DB, f Followable, m *follow.Mark, locked bool) (read follow.Reader[*T], isOwn func(*T) bool) {
	r := &rowReader[T]{loc: loc, db: db, f: f, mark: m, locked: locked, regions: loc.newRegionFilter()}
	return r.read, func(row *T) bool { return r.regions.isOwn(f.ID(row)) }
}

// A rowReader reads rows for one follower.
type rowReader[T any] struct {
	loc     *Locator
	db      *gorm.DB
	f       Followable
	mark    *follow.Mark
	locked  bool
	regions *regionFilter
	bad     int64 // the last row that could not be read
}

// read is a [follow.Reader]. If one of the rows cannot be read, it returns those before it, and an error with its id.
func (r *rowReader[T]) read(ctx context.Context, cursor follow.Cursor, limit int) (rows []*T, published int64, err error) {
	rows, published, err = r.chunk(ctx, cursor, limit)
	if err != nil && !errors.Is(err, ErrClause) {
		rows, published, err = r.before(ctx, cursor, limit, err)
	}
	if err != nil {
		err = fmt.Errorf("uidplugin: follow %s: %w", r.f.plan.Schema.Table, err)
	}
	return rows, published, err
}

// before reads the rows before the one that cannot be read, in smaller and smaller chunks, after a chunk failed with
// err. If not even the next id can be read, the reason is not a row, and err remains.
func (r *rowReader[T]) before(ctx context.Context, cursor follow.Cursor, limit int, err error) (rows []*T, published int64, _ error) {
	for size := limit; len(rows) < limit; {
		if err != nil {
			id, failed := r.next(ctx, cursor)
			switch {
			case failed != nil || id == 0:
				return rows, published, err
			case size == 1:
				r.bad = id
				return rows, published, fmt.Errorf("the row %d cannot be read, so followers stop before it: %w", id, err)
			case id == r.bad:
				size = 1
			default:
				size /= 2
			}
		}
		n := min(size, limit-len(rows))
		var chunk []*T
		if chunk, published, err = r.chunk(ctx, cursor, n); err != nil {
			continue
		}
		if rows = append(rows, chunk...); len(chunk) < n {
			break
		}
		cursor.Last = r.f.ID(chunk[n-1])
	}
	return rows, published, nil
}

// chunk reads rows in a transaction.
func (r *rowReader[T]) chunk(ctx context.Context, cursor follow.Cursor, limit int) (rows []*T, published int64, err error) {
	err = r.query(ctx, cursor, limit, func(tx, query *gorm.DB, mark int64) error {
		if published = mark; query == nil {
			return nil
		}
		if err := query.Find(&rows).Error; err != nil {
			return err
		}
		if err := r.f.check(rows, cursor, published); err != nil {
			return err
		}
		ids := make([]int64, len(rows))
		for i, row := range rows {
			ids[i] = r.f.ID(row)
		}
		return r.regions.learn(ctx, tx, ids)
	})
	if err != nil {
		rows = nil
	}
	return rows, published, err
}

// next returns the id of the next row without reading its other columns into the model, or 0 if there is none.
func (r *rowReader[T]) next(ctx context.Context, cursor follow.Cursor) (id int64, err error) {
	err = r.query(ctx, cursor, 1, func(_, query *gorm.DB, _ int64) error {
		if query == nil {
			return nil
		}
		query = query.Clauses()                  // begins the statement
		query.Statement.Dest = r.f.plan.NewRow() // its model
		rows, err := query.Rows()
		if err != nil {
			return err
		}
		defer func() { _ = rows.Close() }()
		names, err := rows.Columns()
		if err != nil || !rows.Next() {
			return errors.Join(err, rows.Err())
		}
		values := make([]any, len(names))
		key := slices.IndexFunc(names, func(name string) bool { // MySQL's driver may put the table before the name
			return strings.EqualFold(name[strings.LastIndexByte(name, '.')+1:], r.f.key.DBName)
		})
		for i := range values {
			if values[i] = new(any); i == key {
				values[i] = &id
			}
		}
		return rows.Scan(values...)
	})
	return id, err
}

// query calls f in a transaction, with the published mark and a query for the rows after the cursor. The query is nil
// if there can be none.
func (r *rowReader[T]) query(ctx context.Context, cursor follow.Cursor, limit int, f func(tx, query *gorm.DB, published int64) error) error {
	var isolation sql.TxOptions
	if r.locked { // at other levels InnoDB also locks the gaps between rows, so that writers would wait
		isolation.Isolation = sql.LevelReadCommitted
	}
	return r.db.WithContext(ctx).Transaction(func(tx *gorm.DB) (err error) {
		published := int64(math.MaxInt64)
		if r.loc.Test == nil {
			published, err = r.mark.Published(ctx, tx.Statement.ConnPool)
		}
		if err != nil {
			return err
		}
		above, below, any := cursor.Bounds(published)
		if !any {
			return f(tx, nil, published)
		}
		column, value := columnOf(r.f.key), r.f.key.Value
		more := []clause.Interface{clause.OrderBy{Columns: []clause.OrderByColumn{{Column: column}}}, clause.Limit{Limit: &limit}}
		if place := from(r.mark.Place()); r.loc.Test == nil && place != "" {
			more = append(more, place)
		}
		if r.locked {
			more = append(more, clause.Locking{Strength: "SHARE"})
		}
		finder := &Finder{loc: r.loc, db: tx, inOrder: true}
		between := clause.And(clause.Gt{Column: column, Value: value(above)}, clause.Lt{Column: column, Value: value(below)})
		return f(tx, finder.where(ctx, r.f.plan, between, more...), published)
	}, &isolation)
}

// A from makes a statement read the quoted table, which is the model's own in its schema.
type from string

func (f from) ModifyStatement(stmt *gorm.Statement) { stmt.TableExpr = &clause.Expr{SQL: string(f)} }
func (f from) Name() string                         { return "FROM" }
func (f from) Build(clause.Builder)                 {}
func (f from) MergeClause(*clause.Clause)           {}

// check returns an error if the rows are not in ascending order between the cursor and the mark, for example because
// they came without their keys.
func (f Followable) check(rows any, cursor follow.Cursor, published int64) error {
	last := cursor.Last
	for _, row := range reflect.ValueOf(rows).Seq2() {
		id := f.ID(row.Interface())
		if id <= last || id >= published {
			return fmt.Errorf("%w: a row came with the key %d after %d: let Select and Omit of the handle leave %s in,"+
				" and leave out joins that repeat rows", ErrClause, id, last, f.key.DBName)
		}
		last = id
	}
	return nil
}
