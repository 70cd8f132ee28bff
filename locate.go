package uidplugin

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"time"

	"github.com/uidplugin/uidplugin/generator"
	"github.com/uidplugin/uidplugin/internal/config"
	"github.com/uidplugin/uidplugin/internal/rounded"
	"github.com/uidplugin/uidplugin/internal/sqldb"
	"github.com/uidplugin/uidplugin/internal/supply"
	"github.com/uidplugin/uidplugin/internal/workernode"
	"gorm.io/gorm"
)

// A Location describes the origin of an id. In JSON, unknown fields are left out.
type Location struct {
	ID       ID        `json:"id"`
	Time     time.Time `json:"time"`               // start of the id's tick
	Database string    `json:"database,omitempty"` // of the table, with WithRegistry or WithDatabaseName; empty for the database of WORKER_NODE
	Table    string    `json:"table,omitempty"`    // empty if the worker id serves all tables
	WorkerID int64     `json:"worker_id"`
	Sequence int64     `json:"sequence"`

	// Session is the process that made the id. It is zero with [WithWorkerID], because other processes may have had the
	// same worker id. It is also zero if "uid prune" removed the session; then nobody may have made the id.
	Session Session `json:"session"`
}

// String returns a line for logs and people. It quotes texts from the tables.
func (l Location) String() string {
	table := "a table"
	if l.Table != "" {
		table = strconv.Quote(l.Table)
	}
	if l.Database != "" {
		table += " of the database " + strconv.Quote(l.Database)
	}
	if l.Session == (Session{}) {
		return fmt.Sprintf("id %d of %s, made %s by a process that is not known", l.ID, table, supply.FormatTime(l.Time))
	}
	return fmt.Sprintf("id %d of %s, made %s by %q on %q, port %q", l.ID, table, supply.FormatTime(l.Time),
		l.Session.Application, l.Session.Host, l.Session.Port)
}

// A locator resolves ids to their origin. It is safe for concurrent use.
type locator struct {
	*config.Config
	sql     *sqldb.DB           // nil with a fixed worker id
	wdb     *workernode.DB      // nil with a fixed worker id
	manager *workernode.Manager // nil with a fixed worker id
	supply  *supply.Supply      // nil before db.Use
	time    func() time.Time    // the clock of the generators

	apart    bool   // the registry's pool is not the tables' pool
	database string // of the tables, as named in WORKER_NODE
}

// Decode splits an id by the plugin's layout. It sends no statement, so it cannot check that the id was ever made.
//
// The error wraps [ErrNegativeID], [generator.ErrLayout] for too many bits, or [ErrNotDecodable] for a number that is
// too small. With [WithWorkerID] small numbers are ids of the layout's first tick, unless the plugin also uses a source
// whose ids do not have the layout. For ids of another layout, use [generator.Layout.Decompose] instead.
func (p *Plugin) Decode(id ID) (generator.Parts, error) {
	if p == nil || p.shared == nil {
		return generator.Parts{}, fmt.Errorf("%w: a Plugin is made by New", ErrNotRegistered)
	}
	parts, err := p.shared.locator.Load().decode(id)
	if err != nil {
		return parts, &IDError{id, err}
	}
	return parts, nil
}

func (loc *locator) decode(id ID) (generator.Parts, error) {
	if id < 0 {
		return generator.Parts{}, fmt.Errorf("%w: %d", ErrNegativeID, id)
	}
	if loc.Test != nil && loc.Test.Table == nil {
		return generator.Parts{}, fmt.Errorf("%w: %d comes from %s, so it has no time, worker id or sequence",
			ErrNotDecodable, id, loc.Test.Name)
	}
	// Leased worker ids make no ids in the first tick, because their ticks begin after START_TICK.
	noFirstTick := loc.supply != nil && (!loc.Fixed || loc.Test != nil || loc.supply.AnyForeign())
	if noFirstTick && id>>(loc.Layout.WorkerBits+loc.Layout.SequenceBits) == 0 {
		return generator.Parts{}, fmt.Errorf("%w: %d is too small for the layout: it may be a key from before the plugin, as of AUTO_INCREMENT, or of a segment or another source",
			ErrNotDecodable, id)
	}
	return loc.Layout.Decompose(int64(id))
}

// Locate returns the table of an id, the process that made it, and its time. It queries the database once. With
// [WithWorkerID] it sends no statement and knows only the time. Use Find to check that the row exists.
//
// The error wraps [ErrNegativeID], [ErrFutureID], [ErrUnknownID], [ErrNotDecodable] or [ErrOtherLayout], or comes from
// the database. A number that JavaScript or a spreadsheet has rounded may be an id of another table, so you should read
// ids as text.
func (p *Plugin) Locate(ctx context.Context, id ID) (Location, error) {
	loc, err := p.located()
	if err != nil {
		return Location{}, err
	}
	l, err := loc.split(id)
	if err != nil {
		return Location{}, err
	}
	var n *workernode.Node
	var o workernode.Origin
	stamped := false
	if !loc.Fixed {
		n, o, stamped, err = loc.lookupOn(p.db).Trace(ctx, l.WorkerID, loc.Layout.TickAt(l.Time))
		if err != nil {
			return Location{}, fmt.Errorf("uidplugin: locate: %w", err)
		}
	}
	err = loc.place(&l, n)
	switch {
	case err != nil && !(stamped && l.Session.Slot != 0 && errors.Is(err, ErrFutureID)):
		return Location{}, &IDError{id, err} // a stamped id may be in the future if a clock was ahead
	case loc.Fixed && loc.Test == nil:
		return l, nil // any process that has had the worker id may have made it
	case loc.Fixed: // in a test only this process makes ids
		host := loc.DetectHost()
		l.Session.Application, l.Session.Host, l.Session.Port, l.Session.Kind = host.Application, host.Name, host.Port, host.Kind
		return l, nil
	case !stamped:
		return Location{}, idErrorf(id, "%w: %d is stamped %s, when no process could use its worker id %d, of slot %d, or the database has lost the commits of that time",
			ErrUnknownID, id, supply.FormatTime(l.Time), l.WorkerID, l.Session.Slot)
	}
	if o.Pruned() {
		l.Session = Session{}
		return l, nil
	}
	l.Session = loc.session(o)
	return l, nil
}

// lookupOn returns the database to read worker nodes from. We avoid the handle's transaction, because it may be older
// than a worker id, or on another database as with dbresolver. We use it only if it has the last connection.
func (loc *locator) lookupOn(db *gorm.DB) *workernode.DB {
	pool := db.Statement.ConnPool
	if loc.wdb == nil || loc.apart || !sqldb.HoldsConnection(pool) || loc.free() {
		return loc.wdb
	}
	return loc.wdb.On(pool)
}

func named(database string) string {
	if database == "" {
		return "the database that has WORKER_NODE"
	}
	return "the database " + strconv.Quote(database)
}

func (loc *locator) free() bool {
	stats, _ := loc.sql.Stats()
	return stats.MaxOpenConnections == 0 || stats.InUse < stats.MaxOpenConnections
}

// split returns the parts of a location that the id contains.
func (loc *locator) split(id ID) (Location, error) {
	parts, err := loc.decode(id)
	switch {
	case errors.Is(err, ErrNotDecodable), errors.Is(err, ErrNegativeID):
		return Location{}, &IDError{id, err}
	case err != nil:
		return Location{}, &IDError{id, fmt.Errorf("%w: %w", ErrUnknownID, err)}
	}
	return Location{ID: id, Time: parts.Time, WorkerID: parts.WorkerID, Sequence: parts.Sequence}, nil
}

// locate calls found for each id that has a location, without its session, and returns an error for each other id.
// future is set if the id seems to be in the future; it may be valid, because a clock may have been ahead. locate reads
// worker nodes each time, because remembered ones could be wrong after lost commits.
func (loc *locator) locate(ctx context.Context, db *workernode.DB, ids []ID, found func(l *Location, future error)) (errs []error) {
	nodes := map[int64]*workernode.Node{}
	for _, id := range ids {
		if l, err := loc.split(id); err == nil {
			nodes[l.WorkerID] = nil
		}
	}
	if !loc.Fixed {
		var err error
		if nodes, err = db.Lookup(ctx, slices.Sorted(maps.Keys(nodes))...); err != nil {
			return []error{fmt.Errorf("uidplugin: locate: %w", err)}
		}
	}
	for _, id := range ids {
		l, err := loc.split(id)
		if err == nil {
			if err = loc.place(&l, nodes[l.WorkerID]); err != nil {
				err = &IDError{id, err}
			}
		}
		if err == nil || errors.Is(err, ErrFutureID) && l.Session.Slot != 0 {
			found(&l, err)
			continue
		}
		errs = append(errs, err)
	}
	return errs
}

// maxAhead returns how far ahead of this process's clock an id may be stamped, plus a minute because clocks differ.
func (loc *locator) maxAhead() time.Duration {
	lead := loc.FixedLead()
	if loc.manager != nil {
		lead = time.Duration(loc.manager.Registry().LeadTicks) * loc.Layout.Tick
	}
	const century = 100 * 365 * 24 * time.Hour // longer durations would overflow
	return min(lead, century) + min(loc.Layout.Tick, century) + time.Minute
}

// place completes a location, except its session, from the node of its worker id, or nil for an unknown worker id.
func (loc *locator) place(l *Location, n *workernode.Node) error {
	switch {
	case loc.Test != nil:
		return loc.placeTest(l)
	case loc.Fixed:
		if l.WorkerID != loc.WorkerID && !(loc.Generator == Paired && l.WorkerID == loc.Layout.BackupWorker(loc.WorkerID)) {
			return fmt.Errorf("%w: %d has the worker id %d; this process knows only its own, %d, because of WithWorkerID",
				ErrUnknownID, l.ID, l.WorkerID, loc.WorkerID)
		}
		return loc.notYet(l, 0)
	}
	if n == nil {
		if err := loc.notYet(l, 0); err != nil {
			return err
		}
		return fmt.Errorf("%w: %d has the worker id %d, which %s does not have", ErrUnknownID, l.ID, l.WorkerID, workernode.NodeTable)
	}
	switch {
	case n.Layout == "" || n.Slot == 0:
		return fmt.Errorf("%w: %d has the worker id %d, which another program, such as UidGenerator, took on %s",
			ErrOtherLayout, l.ID, l.WorkerID, n.LaunchDate.Format(time.DateOnly))
	case n.Layout != loc.Layout.String():
		return fmt.Errorf("%w: %d has the worker id %d, whose ids have the layout %q, not %s",
			ErrOtherLayout, l.ID, l.WorkerID, n.Layout, loc.Layout)
	}
	future := loc.notYet(l, n.Start)
	if loc.Layout.TickAt(l.Time) <= n.Start {
		if future != nil {
			return future
		}
		return fmt.Errorf("%w: %d is stamped %s, and its worker id %d was in use only from %s on",
			ErrUnknownID, l.ID, supply.FormatTime(l.Time), l.WorkerID, supply.FormatTime(loc.timeOf(n.Start+1)))
	}
	if n.Table.Name == "" {
		return fmt.Errorf("%w: %d has the worker id %d, whose row in %s has no table", ErrUnknownID, l.ID, l.WorkerID, workernode.NodeTable)
	}
	l.Session.Slot = n.Slot
	l.Database, l.Table = n.Table.Database, n.Table.Name
	if l.Table == supply.AllTables {
		l.Table = "" // because the worker id serves all tables
	}
	return future
}

// notYet returns an error if the id is stamped later than a process may stamp now. The limit is maxAhead after the
// clock, or after the first tick of the worker id if that is later.
func (loc *locator) notYet(l *Location, start int64) error {
	latest := loc.time()
	if from := loc.timeOf(min(start, loc.Layout.MaxTick()) + 1); from.After(latest) {
		latest = from // as FLOOR_TICK requires
	}
	latest = latest.Add(loc.maxAhead())
	if l.Time.After(latest) {
		return fmt.Errorf("%w: %d is stamped %s, and the latest that a process would stamp now is %s",
			ErrFutureID, l.ID, supply.FormatTime(l.Time), supply.FormatTime(latest))
	}
	return nil
}

// An IDError is the reason why one id cannot be resolved.
type IDError struct {
	ID  ID
	Err error
}

// Error returns the text of Err, which contains the id. It adds a hint if the id looks rounded.
func (e *IDError) Error() string {
	if rounded.Looks(int64(e.ID)) {
		return e.Err.Error() + "; JavaScript or a spreadsheet may have rounded the number, so read ids as text"
	}
	return e.Err.Error()
}

// Unwrap returns Err.
func (e *IDError) Unwrap() error { return e.Err }

// Is reports whether target is [ErrNoSuchID], which every IDError wraps.
func (e *IDError) Is(target error) bool { return target == ErrNoSuchID }

const maxListed = 20

// idErrors are errors of many ids. The text lists the first, one per line, and counts the rest.
type idErrors []error

func (e idErrors) Error() string {
	if len(e) <= maxListed {
		return errors.Join(e...).Error()
	}
	return fmt.Sprintf("%v\nand %d more", errors.Join(e[:maxListed]...), len(e)-maxListed)
}

func (e idErrors) Unwrap() []error { return e }

func joinIDErrors(errs []error) error {
	if len(errs) == 0 {
		return nil
	}
	return idErrors(errs)
}

func idErrorf(id ID, format string, args ...any) error {
	return &IDError{id, fmt.Errorf(format, args...)}
}
