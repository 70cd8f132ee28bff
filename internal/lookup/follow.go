package lookup

import (
	"context"
	"database/sql"
	"fmt"
	"math"
	"reflect"

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
// loaded is of this region. The conditions of db apply as for [FindAs]. With locked, it waits for transactions that have rows below
// the mark, even if they have lost the lock of the gate.
func RowsAfter[T any](loc *Locator, db *gorm.DB, f Followable, m *follow.Mark, locked bool) (read follow.Reader[*T], isOwn func(*T) bool) {
	regions := loc.newRegionFilter()
	var isolation sql.TxOptions
	if locked { // at other levels InnoDB also locks the gaps between rows, so that writers would wait
		isolation.Isolation = sql.LevelReadCommitted
	}
	order := clause.OrderBy{Columns: []clause.OrderByColumn{{Column: columnOf(f.key)}}}
	read = func(ctx context.Context, cursor follow.Cursor, limit int) (rows []*T, published int64, err error) {
		err = db.WithContext(ctx).Transaction(func(tx *gorm.DB) (err error) {
			if published = math.MaxInt64; loc.Test == nil {
				published, err = m.Published(ctx, tx.Statement.ConnPool)
			}
			if err != nil {
				return err
			}
			above, below, any := cursor.Bounds(published)
			if !any {
				return nil
			}
			more := []clause.Interface{order, clause.Limit{Limit: &limit}}
			if place := from(m.Place()); loc.Test == nil && place != "" {
				more = append(more, place)
			}
			if locked {
				more = append(more, clause.Locking{Strength: "SHARE"})
			}
			finder := &Finder{loc: loc, db: tx, inOrder: true}
			between := clause.And(clause.Gt{Column: columnOf(f.key), Value: f.key.Value(above)}, clause.Lt{Column: columnOf(f.key), Value: f.key.Value(below)})
			if err := finder.where(ctx, f.plan, between, more...).Find(&rows).Error; err != nil {
				return err
			}
			if err := f.check(rows, cursor, published); err != nil {
				return err
			}
			ids := make([]int64, len(rows))
			for i, row := range rows {
				ids[i] = f.ID(row)
			}
			return regions.learn(ctx, tx, ids)
		}, &isolation)
		if err != nil {
			rows, err = nil, fmt.Errorf("uidplugin: follow %s: %w", f.plan.Schema.Table, err)
		}
		return rows, published, err
	}
	return read, func(row *T) bool { return regions.isOwn(f.ID(row)) }
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
