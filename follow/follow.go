// Package follow yields the rows of a table in the order of their ids, each once, and misses none. It is for an outbox,
// a search index, or whatever else has to handle each new row:
//
//	err := follow.Enable(ctx, db, &Event{}) // in a migration, or at each start
//
//	for event, err := range follow.Rows[Event](ctx, db, cursor) { ... }
//
// [Consume] also stores how far it is, so that each row takes effect once.
//
// A query for ids above the last one misses rows, because a transaction that made its ids earlier may commit later. A
// trigger of the table therefore refuses rows that come too late, and [Rows] waits for older transactions;
// docs/following.md has the costs and limits.
//
// The handle db needs the plugin of package uidplugin. Without the plugin, the functions return
// [uidplugin.ErrNotRegistered].
package follow

import (
	"context"
	"fmt"
	"iter"
	"reflect"
	"strings"
	"sync"
	"time"

	"github.com/uidplugin/uidplugin"
	"github.com/uidplugin/uidplugin/internal/core"
	engine "github.com/uidplugin/uidplugin/internal/follow"
	"github.com/uidplugin/uidplugin/internal/inspect"
	"github.com/uidplugin/uidplugin/internal/sqldb"
	"gorm.io/gorm"
)

// Enable gives the table of a model the trigger that [Rows] needs. It also creates the tables UID_FOLLOW and
// UID_CURSOR, UID_FOLLOW_GATE (not on PostgreSQL), and on PostgreSQL and MariaDB a sequence. Then the table refuses
// rows whose ids are older than the slack; see [WithSlack] and [ErrTooLate]. Call Enable once, as in a migration,
// or at each start: on an enabled table it only updates the slack.
//
// Call Enable again after a tool such as gh-ost has replaced the table by a new one, because the trigger stays with the
// old table. Enable then drops that trigger.
//
// Enable waits for transactions that have inserted rows into the table. Meanwhile new transactions may have to wait
// for Enable, so Enable gives up after a moment and tries again, until the context ends.
//
// The error wraps [uidplugin.ErrNoField], [uidplugin.ErrField], [uidplugin.ErrNotKey], [uidplugin.ErrNotDecodable],
// [uidplugin.ErrOption] or [uidplugin.ErrNotRegistered], or comes from the database.
func Enable(ctx context.Context, db *gorm.DB, model any, options ...EnableOption) error {
	t, err := tableOf(db, model)
	if err != nil {
		return err
	}
	if t.Slack, err = slackOf(t.core.Layout.Tick, options); err != nil || t.core.Test != nil {
		return err
	}
	if err := engine.Enable(ctx, t.db, t.Table); err != nil {
		return err
	}
	t.warnNumbered(ctx, db)
	return nil
}

// warned has the names of the tables about which warnNumbered has warned.
type warned struct{ sync.Map }

// warnNumbered warns once if the database numbers the key of the table.
func (t *table) warnNumbered(ctx context.Context, db *gorm.DB) {
	columns, err := inspect.Columns(ctx, t.db, sqldb.Quoted(db.Dialector, t.Name))
	if err != nil {
		return // the table can be followed without the warning
	}
	for _, column := range columns {
		if !column.Auto || !strings.EqualFold(column.Name, t.Key) {
			continue
		}
		if _, before := core.Value[warned](t.core).LoadOrStore(t.Name, true); !before {
			t.core.Log.Warn("uidplugin: the database numbers the key of this followed table: a row that is inserted without the plugin is usually refused,"+
				" because its number is below the mark; let all programs that insert rows use the plugin", "table", t.Name, "column", t.Key)
		}
	}
}

// Disable removes what [Enable] has installed for a model's table, or for an earlier table of that name. Only the
// tables UID_* stay. Followers then get errors that wrap [ErrNotEnabled].
func Disable(ctx context.Context, db *gorm.DB, model any) error {
	t, err := tableOf(db, model)
	if err != nil || t.core.Test != nil {
		return err
	}
	return engine.Disable(ctx, t.db, t.Table)
}

// Settled returns an id below which the table of a model is complete: each row with a smaller id is visible, or will
// never exist. It is for queries of your own:
//
//	settled, err := follow.Settled(ctx, db, &Event{})
//	err = db.Where("id > ? AND id < ?", last, settled).Order("id").Find(&events).Error
//
// Read the rows after Settled has returned, with a new snapshot, and from the primary. Settled waits for transactions
// that have inserted rows into the table, unless another process is doing so already. It returns the errors of
// [Enable], or an error that wraps [ErrNotEnabled] or [uidplugin.ErrClock].
func Settled(ctx context.Context, db *gorm.DB, model any) (uidplugin.ID, error) {
	t, err := tableOf(db, model)
	if err != nil {
		return 0, err
	}
	return t.settled(ctx, db)
}

func (t *table) settled(ctx context.Context, db *gorm.DB) (uidplugin.ID, error) {
	if t.core.Test != nil {
		id, err := t.highest(ctx, db)
		return uidplugin.ID(id), err
	}
	id, err := t.mark.Advance(ctx)
	return uidplugin.ID(id), err
}

// begin returns an id at which a follower may begin now. Rows that are older than the slack have lower ids.
func (t *table) begin(ctx context.Context, db *gorm.DB) (int64, error) {
	if t.core.Test != nil {
		return t.highest(ctx, db)
	}
	return t.mark.Begin(ctx)
}

// Rows returns the rows of T whose ids are above cursor, in the order of their ids, each once, and misses none: first
// those that exist, then new ones, until the context ends or the caller leaves the loop. [Enable] must have been called
// for the model, by any process.
//
//	for event, err := range follow.Rows[Event](ctx, db, cursor) {
//		if err != nil {
//			log.Print(err) // Rows tries again
//			continue
//		}
//		... // handle the event, and store event.ID as the cursor in the same transaction
//	}
//
// Rows yields a row once its transaction has ended and its id is older than the slack. Rows that do not match the
// conditions of db are skipped; see [uidplugin.FindAs] for the clauses that db may have. db must not be a transaction.
// A row is not yielded again when it is updated.
//
// An error about the model or the cursor ends the loop. After others, Rows tries again in a second if the caller
// continues. Errors come from the database, or wrap [ErrNotEnabled], [uidplugin.ErrClause], [uidplugin.ErrClock],
// [uidplugin.ErrFutureID], [uidplugin.ErrNegativeID], or an error of Enable. Rows also refuses servers on which
// rows could be missed, such as replicas and nodes of Galera. When the context has ended, its cause comes last.
//
// All followers of a table in a process share one goroutine and, while it waits for transactions, one connection.
func Rows[T any](ctx context.Context, db *gorm.DB, cursor uidplugin.ID, options ...RowsOption) iter.Seq2[*T, error] {
	return func(yield func(*T, error) bool) {
		t, err := tableAs[T](db)
		if err == nil {
			err = t.checkCursor(cursor)
		}
		if err != nil {
			yield(nil, err)
			return
		}
		o := rowsOptionsOf(options)
		r := newReader[T](t, db, o.locked)
		begin := engine.Cursor{Last: int64(cursor)}
		settings := engine.Options[*T]{Limit: chunk, Rewind: o.rewind, IsOwn: r.isOwn, ID: r.id}
		if t.core.Test != nil {
			engine.Poll(ctx, begin, settings, r.read)(yield)
			return
		}
		engine.Rows(ctx, t.mark, begin, settings, r.read)(yield)
	}
}

// chunk is the number of rows that Rows reads at a time.
const chunk = 500

// timeout is the least time that a statement is given, because some statements wait two seconds for transactions.
const timeout = 10 * time.Second

// A table is a table that can be followed.
type table struct {
	engine.Table
	core  *core.Core
	model *core.Model
	db    *sqldb.DB
	mark  *engine.Mark
}

// tableOf returns the table of a model, or an error if its rows cannot be followed.
func tableOf(db *gorm.DB, model any) (*table, error) {
	c, err := core.Of(db)
	if err != nil {
		return nil, err
	}
	m, err := c.Model(db, model)
	if err != nil {
		return nil, err
	}
	switch {
	case m.Key == nil:
		return nil, fmt.Errorf("%w: no field of the primary key of %s is a uid field, so its rows cannot be followed",
			uidplugin.ErrNotKey, m.Table)
	case m.Key.Source.Foreign && c.Test == nil:
		return nil, fmt.Errorf("%w: the ids of %s.%s have no time, so its rows cannot be followed",
			uidplugin.ErrNotDecodable, m.Table, m.Key.DBName)
	case m.Key.Text:
		return nil, fmt.Errorf("%w: %s.%s holds texts, which do not sort like numbers, so its rows cannot be followed",
			uidplugin.ErrNotKey, m.Table, m.Key.DBName)
	}
	statements, err := c.Statements(db, timeout)
	if err != nil {
		return nil, fmt.Errorf("uidplugin: follow: %w", err)
	}
	t := &table{core: c, model: m, db: statements}
	t.Name, t.Key, t.Regional = m.Table, m.Key.DBName, engine.IsRegional(c.Region())
	t.mark = core.Value[engine.Followed](c).Mark(t.Table, func() *engine.Mark {
		mark := engine.NewMark(statements, t.Table, c.Layout, c.Clock)
		mark.SetHost(c.DetectHost())
		mark.SetLogger(c.Log)
		return mark
	})
	return t, nil
}

// checkCursor returns an error for a cursor that no row can have.
func (t *table) checkCursor(after uidplugin.ID) error {
	if after < 0 {
		return &uidplugin.IDError{ID: after, Err: fmt.Errorf("%w: the cursor %d; 0 is before the first row",
			uidplugin.ErrNegativeID, after)}
	}
	if t.core.Test != nil {
		return nil
	}
	parts, err := t.core.Layout.Decompose(int64(after))
	if latest := t.core.Clock().Add(engine.MaxSlack); err == nil && parts.Time.After(latest) {
		return &uidplugin.IDError{ID: after, Err: fmt.Errorf("%w: the cursor %d has the time %s, so it was computed or stored wrongly",
			uidplugin.ErrFutureID, after, parts.Time.UTC().Format(time.DateTime))}
	}
	return err
}

func tableAs[T any](db *gorm.DB) (*table, error) {
	if t := reflect.TypeFor[T](); t.Kind() != reflect.Struct { // GORM would accept pointers and slices of structs
		return nil, fmt.Errorf("%w: the type parameter T is %v, but it must be the struct of a model", uidplugin.ErrNoField, t)
	}
	return tableOf(db, new(T))
}
