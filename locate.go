package uidplugin

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"
	"time"

	"github.com/uidplugin/uidplugin/generator"
	"github.com/uidplugin/uidplugin/workernode"
	"gorm.io/gorm"
	"gorm.io/gorm/clause"
)

// A Location says where an id came from.
type Location struct {
	ID       ID
	Time     time.Time // start of the tick that the id is stamped with
	WorkerID int64
	Sequence int64

	Table string // empty if the worker id serves all tables

	// The process that made the id, and when it got the worker id, to some seconds:
	// zero if another process has taken the worker id over since.
	Host     string
	Port     string
	Kind     workernode.Kind
	Launched time.Time
}

// Decode splits an id by the plugin's layout. It asks no database, so it cannot
// tell whether the id was ever made. The error wraps [ErrNegativeID], or
// [generator.ErrLayout] for a number with too many bits, or, if the plugin also gives out
// ids that are not of the layout, [ErrNotDecodable] for one that is too small for it.
//
// For ids of another layout there is [generator.Layout.Decompose].
func (p *Plugin) Decode(id int64) (generator.Parts, error) {
	if p == nil || p.core == nil {
		return generator.Parts{}, fmt.Errorf("%w: a Plugin is made by New", ErrNotRegistered)
	}
	return p.core.decode(id)
}

func (c *core) decode(id int64) (generator.Parts, error) {
	if id < 0 {
		return generator.Parts{}, fmt.Errorf("%w: %d", ErrNegativeID, id)
	}
	if c.opens.Load() && id>>(c.layout.WorkerBits+c.layout.SequenceBits) == 0 {
		return generator.Parts{}, fmt.Errorf("%w: %d bears the first tick of the layout, %s, if anything; it may be of a segment or another source, or of AUTO_INCREMENT",
			ErrNotDecodable, id, format(c.layout.Epoch))
	}
	return c.layout.Decompose(id)
}

// Locate tells which table an id is a key of, which process made it, and when. It
// asks WORKER_NODE once for each worker id and then remembers.
//
// The error wraps [ErrNegativeID], [ErrFutureID], [ErrUnknownID], [ErrNotDecodable] or
// [ErrOtherLayout], which tell apart the numbers that are no ids of this
// database, or is the database's. Whether there is a row with this id only Find
// can tell.
func (p *Plugin) Locate(ctx context.Context, id int64) (Location, error) {
	c, err := p.ready()
	if err != nil {
		return Location{}, err
	}
	located, future, errs := c.locate(ctx, p.lookup(), id)
	if err := future[id]; err != nil {
		return Location{}, err
	}
	return located[id], errors.Join(errs...)
}

// lookup returns where to read worker nodes. A transaction may be on another
// database, as dbresolver can begin one, and may be older than a worker id, so
// they are read beside it, unless it has the last connection.
func (p *Plugin) lookup() *workernode.DB {
	pool := p.db.Statement.ConnPool
	if p.core.wdb == nil || !holdsConnection(pool) || p.core.free() {
		return p.core.wdb
	}
	return p.core.wdb.On(pool)
}

// free tells whether the pool has a connection left.
func (c *core) free() bool {
	stats, _ := c.wdb.Stats()
	return stats.MaxOpenConnections == 0 || stats.InUse < stats.MaxOpenConnections
}

// locate returns the locations of those ids that have one, and an error for each
// of the others. Ids that seem to be of the future are in both located and future:
// a clock that was ahead may have made them all the same.
func (c *core) locate(ctx context.Context, db *workernode.DB, ids ...int64) (located map[int64]Location, future map[int64]error, errs []error) {
	located, future = make(map[int64]Location, len(ids)), map[int64]error{}
	var unknown []int64
	for _, id := range ids {
		parts, err := c.decode(id)
		switch {
		case errors.Is(err, ErrNotDecodable):
			errs = append(errs, &IDError{id, err})
		case err != nil && !errors.Is(err, ErrNegativeID):
			errs = append(errs, &IDError{id, fmt.Errorf("%w: %w", ErrUnknownID, err)})
		case err != nil:
			errs = append(errs, &IDError{id, err})
		default:
			located[id] = Location{ID: ID(id), Time: parts.Time, WorkerID: parts.WorkerID, Sequence: parts.Sequence}
			if !c.knows(parts.WorkerID, parts.Time) && !slices.Contains(unknown, parts.WorkerID) {
				unknown = append(unknown, parts.WorkerID)
			}
		}
	}
	nodes, err := c.lookup(ctx, db, unknown)
	if err != nil {
		return nil, nil, append(errs, err)
	}
	for id, l := range located {
		err := c.place(&l, nodes[l.WorkerID])
		if err == nil || errors.Is(err, ErrFutureID) && l.Table != "" {
			located[id] = l
			if err != nil {
				future[id] = &IDError{id, err}
			}
			continue
		}
		errs = append(errs, &IDError{id, err})
		delete(located, id)
	}
	return located, future, errs
}

// lead is how far ahead of this process's clock an id may be stamped: what a
// process may borrow, and a minute for clocks that differ.
func (c *core) lead() time.Duration {
	borrow := c.maxBorrow
	if borrow == 0 {
		borrow = max(generator.DefaultMaxBorrow, c.layout.Tick)
	}
	const century = 100 * 365 * 24 * time.Hour // more would overflow
	return min(borrow, century) + min(c.layout.Tick, century) + time.Minute
}

// knows tells whether what is remembered of a worker node will do for an id of a
// time: a fence that was read may have been moved since.
func (c *core) knows(worker int64, t time.Time) bool {
	n, ok := c.nodes.Load(worker)
	return ok && c.layout.TickAt(t) <= n.(*workernode.Node).Fence
}

// lookup asks the database for worker nodes, and remembers those that there are, but
// for spares, which are yet to become what they will be.
func (c *core) lookup(ctx context.Context, db *workernode.DB, workers []int64) (map[int64]*workernode.Node, error) {
	if c.fixed || len(workers) == 0 {
		return nil, nil
	}
	nodes, err := db.Lookup(ctx, workers...)
	if err != nil {
		return nil, fmt.Errorf("uidplugin: locate: %w", err)
	}
	for _, n := range nodes {
		if n.Table != "" || n.Layout != c.layout.String() {
			c.nodes.Store(n.WorkerID, n)
		}
	}
	return nodes, nil
}

// place completes a location from the worker node that was looked up just now, or if n is
// nil from what is remembered.
func (c *core) place(l *Location, n *workernode.Node) error {
	if c.fixed {
		if l.WorkerID != c.workerID && !(c.generator == Paired && l.WorkerID == c.layout.BackupWorker(c.workerID)) {
			return fmt.Errorf("%w: %d has the worker id %d; this process knows only its own, %d, because of WithWorkerID",
				ErrUnknownID, l.ID, l.WorkerID, c.workerID)
		}
		if err := c.notYet(l, 0); err != nil {
			return err
		}
		host := c.detectHost()
		l.Host, l.Port, l.Kind = host.Name, host.Port, host.Kind
		return nil
	}
	if v, ok := c.nodes.Load(l.WorkerID); ok && n == nil {
		n = v.(*workernode.Node)
	}
	if n == nil {
		if err := c.notYet(l, 0); err != nil {
			return err
		}
		return fmt.Errorf("%w: %d has the worker id %d, which %s does not have", ErrUnknownID, l.ID, l.WorkerID, workernode.NodeTable)
	}
	switch {
	case n.Layout == "":
		return fmt.Errorf("%w: %d has the worker id %d, which another program, such as UidGenerator, took on %s",
			ErrOtherLayout, l.ID, l.WorkerID, n.LaunchDate.Format(time.DateOnly))
	case n.Layout != c.layout.String():
		return fmt.Errorf("%w: %d has the worker id %d, whose ids have the layout %s, not %s",
			ErrOtherLayout, l.ID, l.WorkerID, n.Layout, c.layout)
	}
	future := c.notYet(l, n.Start)
	if tick := c.layout.TickAt(l.Time); tick <= n.Start || tick > n.Fence {
		if future != nil {
			return future
		}
		return fmt.Errorf("%w: %d is stamped %s, but its worker id %d was in use only after %s and until %s",
			ErrUnknownID, l.ID, format(l.Time), l.WorkerID, format(c.layout.TimeOf(n.Start+1)), format(c.layout.TimeOf(n.Fence+1)))
	}
	l.Table = n.Table
	if l.Table == "" && c.leased != nil {
		l.Table = c.leased.TableOf(l.WorkerID, c.layout.TickAt(l.Time)) // a spare one, whose table is not written down yet
	}
	if l.Table == "" {
		return fmt.Errorf("%w: %d has the worker id %d, whose table is not written down: its process has not come to it yet, or has ended before", ErrUnknownID, l.ID, l.WorkerID)
	}
	if l.Table == allTables {
		l.Table = "" // the worker id is of the process, not of a table
	}
	if c.layout.TickAt(l.Time) > n.Held {
		l.Host, l.Port, l.Kind = n.Host, n.Port, n.Kind
		l.Launched = c.layout.TimeOf(n.Held + 1)
	}
	return future
}

// notYet returns an error if the id is stamped later than any can be: ahead of
// the clock, or of the tick start after which its worker began, by more than a
// process may borrow.
func (c *core) notYet(l *Location, start int64) error {
	latest := c.now()
	if from := c.layout.TimeOf(start + 1); from.After(latest) {
		latest = from // by FLOOR_SECOND
	}
	if latest = latest.Add(c.lead()); l.Time.After(latest) {
		return fmt.Errorf("%w: %d is stamped %s, and the latest that a process would stamp now is %s",
			ErrFutureID, l.ID, format(l.Time), format(latest))
	}
	return nil
}

// Find loads the row that an id is the key of, as a pointer to a struct of the
// model that was registered, or else seen first, for its table. The error is that
// of Locate, or wraps [ErrNoModel], or [gorm.ErrRecordNotFound] if there is no
// such row, or it is deleted.
func (p *Plugin) Find(ctx context.Context, id int64) (any, error) {
	rows, err := p.FindAll(ctx, id)
	if err != nil {
		return nil, err
	}
	row, ok := rows[id]
	if !ok {
		return nil, fmt.Errorf("uidplugin: find %d: %w", id, gorm.ErrRecordNotFound)
	}
	return row, nil
}

// FindAll loads the rows that ids are keys of, with one query for each table (for
// each 1,000 of its ids). The map has a row for each id that it found one for,
// whatever the others are. Ids that lead to no table or no model are in the
// error, each as an [IDError], in the order of ids; errors of queries come after
// them (errors.Join put them together). An id that does lead to a table, where
// there is no such row, is in neither.
func (p *Plugin) FindAll(ctx context.Context, ids ...int64) (map[int64]any, error) {
	c, err := p.ready()
	if err != nil {
		return nil, err
	}
	located, future, errs := c.locate(ctx, p.lookup(), ids...)
	byTable := map[string][]int64{}
	for id, l := range located {
		byTable[l.Table] = append(byTable[l.Table], id)
	}
	found := make(map[int64]any, len(located))
	for _, table := range slices.Sorted(maps.Keys(byTable)) {
		ids := byTable[table]
		c.mu.Lock()
		plan := c.models[table]
		c.mu.Unlock()
		switch {
		case table == "" || table == allTables:
			for _, id := range ids {
				errs = append(errs, idErrorf(id, "%w: the worker id of %d serves all tables, so the id does not lead to one", ErrNoModel, id))
			}
		case plan == nil:
			for _, id := range ids {
				errs = append(errs, idErrorf(id, "%w: %s, which %d is a key of; give its model to WithModels or Register", ErrNoModel, table, id))
			}
		default:
			if err := p.load(ctx, plan, ids, found); err != nil {
				errs = append(errs, err)
			}
		}
	}
	for id, err := range future {
		if _, ok := found[id]; !ok {
			errs = append(errs, err)
		}
	}
	sortErrors(errs, ids)
	return found, errors.Join(errs...)
}

// sortErrors puts errors of ids into the order of ids, and before all others,
// which keep theirs.
func sortErrors(errs []error, ids []int64) {
	if len(errs) < 2 {
		return
	}
	index := make(map[int64]int, len(ids))
	for i, id := range slices.Backward(ids) { // so that the first of equal ids counts
		index[id] = i
	}
	position := func(err error) int {
		if e, ok := err.(*IDError); ok {
			return index[e.ID]
		}
		return len(ids)
	}
	slices.SortStableFunc(errs, func(a, b error) int { return cmp.Compare(position(a), position(b)) })
}

// query returns a handle for a query of our own: on the connection of p.db, with
// what it says of all queries (Unscoped, settings, a resolver's hints), and without
// the conditions of the query that it may be part of.
func (p *Plugin) query(ctx context.Context) *gorm.DB {
	db := p.db.Session(&gorm.Session{NewDB: true, Context: ctx})
	if p.db.Statement.Unscoped {
		db = db.Unscoped()
	}
	p.db.Statement.Settings.Range(func(key, value any) bool {
		if name, ok := key.(string); ok {
			db = db.Set(name, value)
		}
		return true
	})
	for name, c := range p.db.Statement.Clauses {
		if strings.Contains(name, ":") { // as in gorm:db_resolver:write, which no SQL clause is
			db = db.Clauses(hint{name, c})
		}
	}
	return db
}

// hint is a clause that another plugin put into a statement.
type hint struct {
	name string
	clause.Clause
}

// ModifyStatement implements [gorm.StatementModifier].
func (h hint) ModifyStatement(stmt *gorm.Statement) { stmt.Clauses[h.name] = h.Clause }

// findChunk keeps a query below the number of values that databases take.
const findChunk = 1000

// load adds the rows of one table to found.
func (p *Plugin) load(ctx context.Context, plan *plan, ids []int64, found map[int64]any) error {
	slices.Sort(ids)
	for chunk := range slices.Chunk(ids, findChunk/max(len(plan.fields), 1)) {
		rows := reflect.New(reflect.SliceOf(reflect.PointerTo(plan.schema.ModelType)))
		var where []clause.Expression
		for _, f := range plan.fields {
			values := make([]any, len(chunk))
			for i, id := range chunk {
				values[i] = f.value(id)
			}
			where = append(where, clause.IN{Column: clause.Column{Table: clause.CurrentTable, Name: f.DBName}, Values: values})
		}
		db := p.query(ctx)
		if err := db.Where(clause.Or(where...)).Find(rows.Interface()).Error; err != nil {
			return fmt.Errorf("uidplugin: find in %s: %w", plan.schema.Table, err)
		}
		for _, loaded := range rows.Elem().Seq2() {
			for _, f := range plan.fields {
				if id := (row{v: loaded.Elem()}).id(ctx, f); id != 0 && slices.Contains(chunk, id) {
					found[id] = loaded.Interface()
				}
			}
		}
	}
	return nil
}

// An IDError says why one id of several leads nowhere.
type IDError struct {
	ID  int64
	Err error
}

// Error returns the text of Err, which names the id.
func (e *IDError) Error() string { return e.Err.Error() }

// Unwrap returns Err.
func (e *IDError) Unwrap() error { return e.Err }

func idErrorf(id int64, format string, args ...any) error {
	return &IDError{id, fmt.Errorf(format, args...)}
}

func format(t time.Time) string { return t.UTC().Format("2006-01-02 15:04:05 MST") }
