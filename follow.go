package uidplugin

import (
	"context"
	"fmt"
	"iter"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/uidplugin/uidplugin/internal/follow"
	"github.com/uidplugin/uidplugin/internal/lookup"
	"github.com/uidplugin/uidplugin/internal/sqldb"
	"github.com/uidplugin/uidplugin/workernode"
	"gorm.io/gorm"
)

// EnableFollow installs the trigger that [Follow] needs in the table of a model, with the tables UID_FOLLOW and
// UID_FOLLOW_GATE and on PostgreSQL and MariaDB a sequence. From then on the table refuses rows whose ids are older than
// the slack; see [WithSlack] and [ErrTooLate]. Call it once, as in a migration, or at each start: it changes nothing but
// the slack if the table is enabled.
//
// Call it again after a change that renames the table, as with gh-ost, because the trigger stays with the renamed one. It
// then drops that trigger.
//
// EnableFollow waits for transactions that have inserted rows into the table, and while it waits, so do new ones. It
// therefore gives up each time after a moment and tries again, until the context ends.
//
// The error wraps [ErrNoField], [ErrField], [ErrNotKey], [ErrNotDecodable], [ErrOption] or [ErrNotRegistered], or comes
// from the database.
func (p *Plugin) EnableFollow(ctx context.Context, model any, options ...FollowOption) error {
	o, err := followOptionsOf("EnableFollow", options)
	if err != nil {
		return err
	}
	t, err := p.followed(model)
	if err != nil {
		return err
	}
	layout := t.loc.Layout
	switch least := max(20*time.Millisecond, layout.Tick); {
	case o.slack == 0:
		t.table.Slack = max(time.Second, layout.Tick)
	case o.slack < least || o.slack > maxSlack:
		return fmt.Errorf("%w: WithSlack(%v): it must be from %v to %v", ErrOption, o.slack, least, maxSlack)
	default:
		t.table.Slack = o.slack
	}
	if t.loc.Test != nil {
		return nil
	}
	if err := follow.Enable(ctx, t.db, t.table); err != nil {
		return err
	}
	p.shared.adopt.WarnFollowed(ctx, t.table.Name, t.table.Key)
	return nil
}

const maxSlack = time.Hour

// DisableFollow removes what EnableFollow has installed, except for the tables UID_FOLLOW and UID_FOLLOW_GATE, also from a
// table that had this name before. Followers then get errors that wrap [ErrNotFollowed].
func (p *Plugin) DisableFollow(ctx context.Context, model any) error {
	t, err := p.followed(model)
	if err != nil {
		return err
	}
	if t.loc.Test != nil {
		return nil
	}
	return follow.Disable(ctx, t.db, t.table)
}

// Settled returns an id below which the table of a model is complete: each row with a smaller id is visible, or will
// never exist. It is for queries of your own:
//
//	settled, err := uidplugin.From(db).Settled(ctx, &Event{})
//	err = db.Where("id > ? AND id < ?", last, settled).Order("id").Find(&events).Error
//
// Read the rows after Settled has returned, with a new snapshot, and from the primary. Settled waits for transactions
// that have inserted rows into the table, unless another process is doing so already. The error is that of
// EnableFollow, or wraps [ErrNotFollowed] or [ErrClock].
func (p *Plugin) Settled(ctx context.Context, model any) (ID, error) {
	t, err := p.followed(model)
	if err != nil {
		return 0, err
	}
	if t.loc.Test != nil {
		id, err := t.model.Highest(ctx, p.db)
		return ID(id), err
	}
	id, err := t.mark.Advance(ctx)
	return ID(id), err
}

// Follow returns the rows of T whose ids are above after, in the order of their ids, each once, and misses none: first
// those that exist, then those that come, until the context ends or the caller leaves the loop. [Plugin.EnableFollow]
// must have been called for the model, by any process.
//
//	for event, err := range uidplugin.Follow[Event](ctx, db, cursor) {
//		if err != nil {
//			log.Print(err) // Follow tries again
//			continue
//		}
//		... // handle the event, and store event.ID as the cursor in the same transaction
//	}
//
// A row comes when its transaction has ended and its id is older than the slack. A row that the conditions of db exclude
// does not come; see [FindAs] for the clauses that db may have. db must not be a transaction. Rows that are updated do
// not come again.
//
// An error does not end the loop. A caller that continues makes Follow try again after a second. Errors come from the
// database, or wrap [ErrNotFollowed], [ErrClock], [ErrFutureID] for a cursor in the future, [ErrNegativeID], or those of
// EnableFollow. Follow also refuses servers on which rows could be missed, such as replicas and nodes of Galera. When the
// context has ended, its cause is the last error.
//
// All followers of a table in a process share one goroutine and, while it waits for transactions, one connection.
func Follow[T any](ctx context.Context, db *gorm.DB, after ID, options ...FollowOption) iter.Seq2[*T, error] {
	return func(yield func(*T, error) bool) {
		o, err := followOptionsOf("Follow", options)
		if err != nil {
			yield(nil, err)
			return
		}
		t, err := From(db).followed(new(T))
		if err == nil {
			err = t.checkCursor(after)
		}
		if err != nil {
			yield(nil, err)
			return
		}
		read, isOwn := lookup.RowsAfter[T](t.loc, db, t.model, t.mark, o.locked)
		cursor := follow.Cursor{Last: int64(after)}
		settings := follow.Options[*T]{Limit: followChunk, Rewind: o.rewind, IsOwn: isOwn, ID: func(row *T) int64 { return t.model.ID(row) }}
		if t.loc.Test != nil {
			follow.Poll(ctx, cursor, settings, read)(yield)
			return
		}
		follow.Rows(ctx, t.mark, cursor, settings, read)(yield)
	}
}

// followChunk is the number of rows that Follow reads at a time.
const followChunk = 500

// A followed is a table that can be followed.
type followed struct {
	loc   *lookup.Locator
	db    *sqldb.DB
	model lookup.Followable
	table follow.Table
	mark  *follow.Mark
}

func (p *Plugin) followed(model any) (*followed, error) {
	loc, err := p.located()
	if err != nil {
		return nil, err
	}
	m, err := loc.Followable(p.db, model)
	if err != nil {
		return nil, err
	}
	db, err := sqldb.Open(p.db, max(p.shared.Timeout, followTimeout))
	if err != nil {
		return nil, fmt.Errorf("uidplugin: follow: %w", err)
	}
	if home := p.shared.home; home != nil {
		db = db.HomeOf(home)
	}
	f := &followed{loc: loc, db: db, model: m}
	f.table.Name, f.table.Key = m.Table()
	f.table.Regional = loc.Manager != nil && loc.Manager.Registry().Region != workernode.Whole
	mark, ok := p.shared.marks.Load(f.table)
	if !ok {
		m := follow.NewMark(db, f.table, loc.Layout, loc.Clock)
		m.SetLogger(p.shared.Log)
		mark, _ = p.shared.marks.LoadOrStore(f.table, m)
	}
	f.mark = mark.(*follow.Mark)
	return f, nil
}

// followTimeout is the least time for a statement, because those that wait for transactions take two seconds.
const followTimeout = 10 * time.Second

// checkCursor returns an error for a cursor that no row can have.
func (f *followed) checkCursor(after ID) error {
	if after < 0 {
		return newIDError(int64(after), fmt.Errorf("%w: the cursor %d; 0 is before the first row", ErrNegativeID, after))
	}
	if f.loc.Test != nil {
		return nil
	}
	parts, err := f.loc.Layout.Decompose(int64(after))
	if latest := f.loc.Clock().Add(maxSlack); err == nil && parts.Time.After(latest) {
		err = newIDError(int64(after), fmt.Errorf("%w: the cursor %d is of %s, so it has been computed or stored wrongly", ErrFutureID, after, parts.Time.UTC().Format(time.DateTime)))
	}
	return err
}

// followStats returns the states of tables that are followed here, or that have refused rows, by their names.
func (s *shared) followStats(now time.Time) []FollowStats {
	tables := map[string]FollowStats{}
	for table, n := range s.catalog.TooLate() {
		tables[table] = FollowStats{Table: table, TooLate: n}
	}
	for key, value := range s.marks.Range {
		followers, settled, err := value.(*follow.Mark).State()
		if followers == 0 {
			continue
		}
		name := key.(follow.Table).Name
		t := FollowStats{Table: name, TooLate: tables[name].TooLate, Followers: followers, Settled: ID(settled), LastError: err}
		if parts, err := s.Layout.Decompose(settled); err == nil && settled > 0 {
			t.Delay = max(now.Sub(parts.Time), 0)
		}
		tables[name] = t
	}
	return slices.SortedFunc(maps.Values(tables), func(a, b FollowStats) int { return strings.Compare(a.Table, b.Table) })
}
