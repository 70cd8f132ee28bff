package follow

import (
	"cmp"
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"
	"sync"

	"github.com/uidplugin/uidplugin"
	engine "github.com/uidplugin/uidplugin/internal/follow"
	"github.com/uidplugin/uidplugin/internal/sqldb"
	"gorm.io/gorm"
	"gorm.io/gorm/clause"
)

// highest returns the next number after the largest id in the table, or 0 if the table is empty.
func (t *table) highest(ctx context.Context, db *gorm.DB) (next int64, err error) {
	var largest sql.NullInt64
	err = db.WithContext(ctx).Unscoped().Model(t.model.New()).Select("MAX(?)", t.model.Column()).Scan(&largest).Error
	if err == nil && largest.Valid {
		next = largest.Int64 + 1
	}
	return next, err
}

// A reader reads rows of T for one follower. The conditions of the handle apply as for [uidplugin.FindAs].
type reader[T any] struct {
	*table
	handle  *gorm.DB
	locked  bool // [WithRowLocks]: read with locks that wait for prepared transactions
	regions *engine.Regions
	foreign sync.Once // logs one row of another region
	bad     int64     // the last row that could not be read

	hooks engine.FetchHooks // of Consume; empty for Rows
}

func newReader[T any](t *table, db *gorm.DB, locked bool) *reader[T] {
	return &reader[T]{table: t, handle: db, locked: locked, regions: engine.NewRegions(t.core.Region(), t.core.WorkerOf)}
}

func (r *reader[T]) id(row *T) int64 { return r.model.ID(row) }

// isOwn reports whether a row is of this region. It logs the first row of another region: if a process of that
// region has written the row to this database, no follower handles it.
func (r *reader[T]) isOwn(row *T) bool {
	own := r.regions.IsOwn(r.id(row))
	if !own {
		r.foreign.Do(func() {
			r.core.Log.Info("uidplugin: followers leave out the rows of other regions; no other region may write to this database",
				"table", r.Name, "id", r.id(row))
		})
	}
	return own
}

// read is an [engine.Reader]. If a row cannot be read, read returns the rows before it, and an error with its id.
func (r *reader[T]) read(ctx context.Context, cursor engine.Cursor, limit int) (rows []*T, published int64, err error) {
	rows, published, err = r.chunk(ctx, cursor, limit)
	if err != nil && !errors.Is(err, uidplugin.ErrClause) && !errors.Is(err, engine.ErrMoved) {
		rows, published, err = r.before(ctx, cursor, limit, err)
	}
	if err != nil {
		err = fmt.Errorf("uidplugin: follow %s: %w", r.Name, err)
	}
	return rows, published, err
}

// before reads the rows before the one that cannot be read, after a chunk has failed with err. It reads smaller and
// smaller chunks. If not even the next id can be read, no row is to blame, and the result is err.
func (r *reader[T]) before(ctx context.Context, cursor engine.Cursor, limit int, err error) (rows []*T, published int64, _ error) {
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
		cursor.Last = r.id(chunk[n-1])
	}
	return rows, published, nil
}

func (r *reader[T]) chunk(ctx context.Context, cursor engine.Cursor, limit int) (rows []*T, published int64, err error) {
	err = r.query(ctx, cursor, limit, func(tx, query *gorm.DB, mark int64) error {
		if rows, published = nil, mark; query == nil {
			return nil
		}
		if err := query.Find(&rows).Error; err != nil {
			return err
		}
		if err := r.check(rows, cursor, published); err != nil {
			return err
		}
		ids := make([]int64, len(rows))
		for i, row := range rows {
			ids[i] = r.id(row)
		}
		return r.regions.Learn(ctx, r.core.WorkersFor(tx), ids)
	})
	if err != nil {
		rows = nil
	}
	return rows, published, err
}

// next returns the id of the next row without reading its other columns into the model, or 0 if there is no next row.
func (r *reader[T]) next(ctx context.Context, cursor engine.Cursor) (id int64, err error) {
	err = r.query(ctx, cursor, 1, func(_, query *gorm.DB, _ int64) error {
		if query == nil {
			return nil
		}
		query = query.Clauses()              // starts a new Statement
		query.Statement.Dest = r.model.New() // tells GORM the model
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
			return strings.EqualFold(name[strings.LastIndexByte(name, '.')+1:], r.Key)
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

// query calls f in a transaction, with the published mark, below which the table is complete, and a query for the
// rows between the cursor and the mark. The query is nil if there can be no such rows.
func (r *reader[T]) query(ctx context.Context, cursor engine.Cursor, limit int, f func(tx, query *gorm.DB, published int64) error) error {
	var isolation sql.TxOptions
	if r.locked { // at a higher level InnoDB also locks the gaps between rows, for which writers would wait
		isolation.Isolation = sql.LevelReadCommitted
	}
	err := r.transaction(ctx, &isolation, func(tx *gorm.DB) (err error) {
		published := int64(math.MaxInt64)
		if r.hooks.Before != nil {
			var restore func() error
			restore, err = r.hooks.Before(ctx, tx.Statement.ConnPool)
			defer func() { err = errors.Join(err, restore()) }()
		}
		if err == nil && r.core.Test == nil {
			published, err = r.mark.Published(ctx, tx.Statement.ConnPool)
		}
		if err != nil {
			return err
		}
		above, below, any := cursor.Bounds(published)
		if !any {
			return f(tx, nil, published)
		}
		column, value := r.model.Column(), r.model.Key.Value
		more := []clause.Interface{clause.OrderBy{Columns: []clause.OrderByColumn{{Column: column}}}, clause.Limit{Limit: &limit}}
		if place := from(r.mark.Place()); r.core.Test == nil && place != "" {
			more = append(more, place)
		}
		if r.locked {
			more = append(more, clause.Locking{Strength: "SHARE"})
		}
		between := clause.And(clause.Gt{Column: column, Value: value(above)}, clause.Lt{Column: column, Value: value(below)})
		return f(tx, r.model.Where(ctx, tx, between, more...), published)
	})
	if err == nil && r.hooks.Committed != nil {
		r.hooks.Committed()
	}
	return err
}

// transaction calls f in a transaction, in which BEGIN, COMMIT and ROLLBACK wait for a limited time. It closes the
// connection if COMMIT or ROLLBACK fails, except on SQLite if RolledBack makes the connection usable again.
// If a pool that another plugin has wrapped hands out no connection, GORM begins the transaction. BEGIN does not
// get ctx, because when ctx ends, database/sql would close the connection, and so delete a database in memory.
func (r *reader[T]) transaction(ctx context.Context, isolation *sql.TxOptions, f func(tx *gorm.DB) error) error {
	if !r.db.HandsOut() {
		return r.handle.WithContext(ctx).Transaction(f, isolation)
	}
	var failed error // an error after which the connection can be used again
	err := r.db.Together(ctx, func(ctx context.Context, conn *sqldb.DB) error {
		tx, err := sqldb.Begin(context.WithoutCancel(ctx), conn.Pool(), engine.TransactionLimit, isolation)
		if err != nil {
			return err
		}
		defer tx.Close()
		handle := r.handle.WithContext(ctx)
		handle.Statement.ConnPool = tx
		if failed = f(handle); failed == nil {
			err = tx.Commit()
		} else {
			err = tx.Rollback()
		}
		switch {
		case errors.Is(failed, driver.ErrBadConn):
			return failed
		case err != nil && !conn.RolledBack(ctx, err):
			return cmp.Or(failed, err)
		}
		failed = cmp.Or(failed, err)
		return nil
	})
	return cmp.Or(err, failed)
}

func (r *reader[T]) after(id int64) clause.Expression {
	return clause.Gt{Column: r.model.Column(), Value: r.model.Key.Value(id)}
}

// The type from is the quoted name, with the schema, of the table that a query reads: the one that has the mark.
type from string

func (f from) ModifyStatement(stmt *gorm.Statement) { stmt.TableExpr = &clause.Expr{SQL: string(f)} }
func (f from) Name() string                         { return "FROM" }
func (f from) Build(clause.Builder)                 {}
func (f from) MergeClause(*clause.Clause)           {}

// check returns an error if the rows are not in ascending order between the cursor and the mark, for example because
// they came without their keys.
func (r *reader[T]) check(rows []*T, cursor engine.Cursor, published int64) error {
	last := cursor.Last
	for _, row := range rows {
		id := r.id(row)
		if id <= last || id >= published {
			return fmt.Errorf("%w: the row %d came after the row %d: let Select and Omit of the handle keep the column %s,"+
				" and remove joins that repeat rows", uidplugin.ErrClause, id, last, r.Key)
		}
		last = id
	}
	return nil
}
