package follow

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"path/filepath"
	"strings"

	"github.com/uidplugin/uidplugin"
	"github.com/uidplugin/uidplugin/internal/core"
	engine "github.com/uidplugin/uidplugin/internal/follow"
	"github.com/uidplugin/uidplugin/internal/sqldb"
	"gorm.io/gorm"
)

// Consume calls handle for each row of T, in the order of their ids, until the context ends. The transaction tx
// contains what handle writes and the new cursor of the consumer, so each row takes effect once. Call [Enable] for the
// model first.
//
//	err := follow.Consume(ctx, db, "invoices", func(tx *gorm.DB, e *Event) error {
//		return tx.Create(&Invoice{EventID: e.ID}).Error
//	})
//
// Any number of processes may run a consumer of the same name. One process works. If it ends or hangs, another process
// takes over within seconds. The cursor is a row of UID_CURSOR, a table that [Enable] creates. A new consumer begins
// with the oldest row, unless you pass [FromNow] or [From].
//
// Consume leaves out rows that do not match the conditions of db, as [Rows] does. A row may have changed since it was
// read. To see the present state of a row, load the row with a lock in handle.
//
// If handle returns an error, Consume rolls back and calls handle with the row again: first after a second, later after
// up to a minute. It handles no other row until handle succeeds or returns [Skip]. After ErrTooLate, and after
// conflicts in the database such as deadlocks, it calls handle again at once. If handle panics, Consume rolls back and
// panics as well.
//
// If a statement of Consume itself fails, Consume logs the error and tries again. When the context ends, Consume
// finishes the present transaction and returns the context's cause: with signal.NotifyContext, the signal. Consume
// also ends if [Enable] rejects the model, if [Rows] rejects the conditions of db or the id of [From], if commits
// were lost, or if the pool was closed. Other errors wrap [ErrNotEnabled], [ErrRemoved] or [uidplugin.ErrOption].
//
// # What handle must not do
//
//   - Write by another handle than tx. The write would not be part of the transaction, so it would take effect again
//     if the row is handled again. In a pool of one connection the write would wait forever for the connection of tx.
//   - End the transaction: commit, roll back, or create or alter tables, which commits on MySQL and MariaDB. tx refuses
//     most of these statements.
//   - Use tx in two goroutines at once, or after handle has returned, because tx is one connection.
//   - Run for 30 seconds without a statement. The server then ends the transaction, and the row is handled again. So
//     send e-mails and the like by short calls. A call may happen twice, so pass the row's id to the receiver as a key.
//   - Insert into a followed table, if that can be avoided. Followers of that table wait until the transaction ends.
//
// On SQLite, other writers wait while handle runs. With dbresolver, rows are read from the primary, and handle writes
// to it. The isolation level must be the default of the database or a higher one.
func Consume[T any](ctx context.Context, db *gorm.DB, name string, handle func(tx *gorm.DB, row *T) error, options ...ConsumeOption) error {
	if handle == nil {
		return errNoHandler
	}
	return consume(ctx, db, name, 1, func(tx *gorm.DB, rows []*T) error { return handle(tx, rows[0]) }, options)
}

// ConsumeBatch is [Consume] for up to size rows in a transaction, which is faster. handle gets at least one row. If it
// fails or returns [Skip] for several rows, it gets these rows again one by one. A row is skipped only if handle
// returns Skip for this row alone.
func ConsumeBatch[T any](ctx context.Context, db *gorm.DB, name string, size int, handle func(tx *gorm.DB, rows []*T) error, options ...ConsumeOption) error {
	if handle == nil {
		return errNoHandler
	}
	return consume(ctx, db, name, size, handle, options)
}

var errNoHandler = fmt.Errorf("%w: the handler of the consumer is nil", uidplugin.ErrOption)

func consume[T any](ctx context.Context, db *gorm.DB, name string, size int, handle func(tx *gorm.DB, rows []*T) error, options []ConsumeOption) error {
	o, err := optionsOf(name, size, options)
	if err != nil {
		return err
	}
	t, err := tableAs[T](db)
	if err != nil {
		return err
	}
	if err := t.checkCursor(o.after); err != nil {
		return err
	}
	r := newReader[T](t, db, o.locked)
	s := engine.ConsumerSettings[*T]{
		Key: engine.ConsumerKey{Consumer: name, Table: t.Name}, Host: t.core.DetectHost(), Size: size, Cursors: t.db, Effects: db, Log: t.core.Log,
		Limit: max(chunk, size), ID: r.id, IsOwn: r.isOwn, Rewind: o.rewind, Poll: t.core.Test != nil, Handle: handle,
		Start: func(ctx context.Context) (int64, error) {
			begin, err := t.begin(ctx, db) // called even without FromNow, to check that the table is followed
			if !o.fromNow {
				return int64(o.after), err
			}
			return max(begin-1, 0), err
		},
		Read: func(ctx context.Context, cursor engine.Cursor, limit int, hooks engine.FetchHooks) ([]*T, int64, error) {
			r.hooks = hooks
			return r.read(ctx, cursor, limit)
		},
	}
	if s.Conditions, err = r.conditions(ctx); err != nil {
		return err
	}
	if o.into {
		if s.Cursors, err = cursorsIn(o.effects, t); err == nil {
			s.Effects, s.Space = o.effects, t.space
		} else {
			return fmt.Errorf("uidplugin: follow: the database of Into: %w", err)
		}
	}
	s.Fatal = func(err error) bool {
		return errors.Is(err, uidplugin.ErrClause) ||
			sqldb.IsPoolClosed(err) && (t.db.PoolError() != nil || s.Cursors.PoolError() != nil)
	}
	return engine.Consume(ctx, core.Value[engine.Followed](t.core), t.mark, s)
}

// cursorsIn returns a DB for statements about cursors in the database of effects.
func cursorsIn(effects *gorm.DB, t *table) (*sqldb.DB, error) {
	if c, err := core.Of(effects); err == nil {
		return c.Statements(effects, timeout)
	}
	return sqldb.Open(effects, max(t.core.Timeout, timeout))
}

// space returns the name of the table's database, cut to the 128 characters of the column SPACE. On PostgreSQL, a
// dot and any schema but public follow, because schemas of tenants may have tables of the same name.
func (t *table) space(ctx context.Context) (string, error) {
	name, err := engine.DatabaseName(ctx, t.db)
	switch {
	case err != nil:
		return "", err
	case name != "" && t.db.Dialect() == "sqlite":
		name = filepath.Base(name)
	case t.db.Dialect() == "postgres":
		schema, err := t.mark.Schema(ctx)
		if err != nil {
			return "", err
		} else if schema != "" && schema != "public" {
			name += "." + schema
		}
	}
	characters := []rune(strings.ToValidUTF8(name, ""))
	return cmp.Or(string(characters[:min(len(characters), 128)]), "main"), nil
}

// conditions returns a hash of the statement that reads rows, or an error if followers do not allow a clause in it.
func (r *reader[T]) conditions(ctx context.Context) (string, error) {
	var rows []*T
	handle := r.handle.WithContext(ctx) // a copy, because the clause dry sets DryRun
	query := r.model.Where(ctx, handle, r.after(0), dry{}).Find(&rows)
	if errors.Is(query.Error, uidplugin.ErrClause) {
		return "", query.Error
	}
	sum := sha256.Sum256([]byte(query.Dialector.Explain(query.Statement.SQL.String(), query.Statement.Vars...)))
	return hex.EncodeToString(sum[:8]), nil
}

// A dry clause makes a query build its statement without sending it.
type dry struct{ from }

func (dry) ModifyStatement(stmt *gorm.Statement) { stmt.DB.DryRun = true }
