package uidplugin

import (
	"cmp"
	"context"
	"database/sql"
	"errors"
	"fmt"
	"math"
	"reflect"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"github.com/uidplugin/uidplugin/generator"
	"github.com/uidplugin/uidplugin/internal/model"
	"github.com/uidplugin/uidplugin/workernode"
	"gorm.io/gorm"
	"gorm.io/gorm/schema"
)

// A source is where the ids of a table come from: a generator, once the table has
// a worker id. Two sources never share a worker id.
type source struct {
	table string // TABLE_NAME; "*" for one that serves all tables
	tag   string // of a segment: the table, or a column of it
	kind  string // name of the generator
	open  bool   // its ids are not of the layout

	fields []*schema.Field // that its ids are for; guarded by core.mu

	// made is set once, under core.mu, by whoever got the worker id, and never
	// changed.
	made atomic.Pointer[made]

	pending *call  // guarded by core.mu: somebody is getting a worker id
	outage  outage // guarded by core.mu: why it has no generator
}

// made is a generator, and what it stamps with.
type made struct {
	generator.Generator
	lease *workernode.TableLease // nil with a fixed worker id, and if its ids are not of the layout
	fixed []generator.Lease      // with a fixed worker id
}

// A call is the getting of worker ids for some sources, in the background: it
// serves all that wait for it, and ends neither with the context of the first
// nor with his transaction.
type call struct {
	done chan struct{} // closed when err is set
	err  error
}

// fixed is the worker id of WithWorkerID. One source of all tables has it.
type fixed struct {
	lease  generator.Lease
	backup int64     // worker id of a second lane
	begins time.Time // not to be used before
	now    func() time.Time
}

// newFixed returns the worker id of a process that starts now. A process that had the worker id before
// may have stamped ticks up to fixedLead ahead of the clock, the last of them in part. So
// the lease begins with the tick after these, and is used when the present tick has
// ended: then its first tick is fixedLead ahead, no more.
func (c *config) newFixed(now time.Time) fixed {
	f := fixed{lease: c.layout.FullLease(c.workerID, now), backup: c.layout.BackupWorker(c.workerID), begins: now, now: c.now}
	if lead := c.fixedLead(); lead > 0 {
		next := f.lease.From + 1
		f.lease.From = next + int64((lead-1)/c.layout.Tick) + 1
		f.begins = now.Add(c.layout.TimeOf(next).Sub(now)) // by the monotonic clock
	}
	return f
}

// wait returns when the worker id may be used.
func (f fixed) wait(ctx context.Context) error {
	if d := f.begins.Sub(f.now()); d > 0 {
		select {
		case <-time.After(d):
		case <-ctx.Done():
			return fmt.Errorf("worker id %d must not be used before %s, when a tick begins that no process before can have stamped: %w",
				f.lease.WorkerID, format(f.begins), ctx.Err())
		}
	}
	return nil
}

// leases returns a lease for each lane.
func (f fixed) leases(lanes int) []generator.Lease {
	leases := make([]generator.Lease, lanes)
	for i := range leases {
		leases[i] = f.lease
		if i > 0 {
			leases[i].WorkerID = f.backup
		}
	}
	return leases
}

// allTables is the table name of worker ids that serve all tables.
const allTables = workernode.AllTables

// source returns the source for a field of a table.
func (c *core) source(table string, f *schema.Field) (*source, error) {
	name, _ := model.Tagged(f)
	name = kindName(cmp.Or(name, c.generator))
	kind, ok := c.kinds[name]
	switch {
	case !ok:
		return nil, fmt.Errorf(`%w %s.%s: its tag names the generator %q, which there is not; there are %s, and gorm:"uid" for %s`,
			ErrField, f.Schema.Name, f.Name, name, c.names(), c.generator)
	case kind.open != nil:
	case c.fixed && name != c.generator:
		return nil, fmt.Errorf("%w %s.%s: its tag names the generator %q, but with WithWorkerID there is one for all tables, %q",
			ErrField, f.Schema.Name, f.Name, name, c.generator)
	case c.fixed || c.perProcess:
		table = allTables
	}
	tag := table
	if name == Segment && !f.PrimaryKey {
		tag += "." + f.DBName // each column has its own largest id
	}
	key := sourceKey{tag, name}
	c.mu.Lock()
	defer c.mu.Unlock()
	s := c.sources[key]
	if s == nil {
		s = &source{table: table, tag: tag, kind: name, open: kind.open != nil}
		c.sources[key] = s
	}
	s.fields = append(s.fields, f)
	if s.open {
		c.opens.Store(true)
	}
	return s, nil
}

type sourceKey struct{ tag, kind string }

// ensure returns when all sources have a generator, or an error says why not. It
// is called with a handle whose statement tells whether it is in a transaction.
func (c *core) ensure(ctx context.Context, db *gorm.DB, sources []*source) error {
	wait := time.Duration(math.MaxInt64) // the call has its own limit
	inside := holdsConnection(db.Statement.ConnPool) && (!c.fixed || slices.ContainsFunc(sources, func(s *source) bool { return s.open }))
	if inside {
		wait = c.patience()
	}
	if inside && c.manager != nil {
		if err := c.useSpares(sources); err != nil {
			return err
		}
	}
	what := lacking(sources)
	calls, err := c.begin(sources)
	if err != nil {
		return err
	}
	timer := time.NewTimer(wait)
	defer timer.Stop()
	for _, call := range calls {
		select {
		case <-call.done:
			if call.err != nil && inside && passes(call.err) {
				return fmt.Errorf("%w: %s: %w", ErrInTransaction, remedy(what), call.err)
			}
			if call.err != nil {
				return call.err
			}
		case <-ctx.Done():
			return fmt.Errorf("uidplugin: waiting for %s: %w", what, ctx.Err())
		case <-timer.C:
			return fmt.Errorf("%w: %s", ErrInTransaction, remedy(what))
		}
	}
	return nil
}

// holdsConnection tells whether a statement has a connection already: in a
// transaction, or by db.Connection.
func holdsConnection(pool gorm.ConnPool) bool {
	switch pool := pool.(type) {
	case *sql.Conn:
		return true
	case gorm.TxCommitter:
		// gorm.io/sharding puts a pool that commits and begins around every other.
		if _, begins := pool.(gorm.ConnPoolBeginner); begins {
			if v := reflect.Indirect(reflect.ValueOf(pool)); v.Kind() == reflect.Struct {
				if f := v.FieldByName("ConnPool"); f.IsValid() && f.CanInterface() {
					if inner, ok := f.Interface().(gorm.ConnPool); ok {
						return holdsConnection(inner)
					}
				}
			}
		}
		return true
	}
	return false
}

// patience is how long a create inside a transaction waits for a worker id: not
// at all if the transaction has the only connection, and briefly if no other is
// free, for they may all wait like this one, and on SQLite, where nobody else can
// write while it writes.
func (c *core) patience() time.Duration {
	var stats sql.DBStats
	if pool, err := c.db.DB(); err == nil && pool != nil {
		stats = pool.Stats()
	}
	switch full := stats.MaxOpenConnections > 0 && stats.InUse >= stats.MaxOpenConnections; {
	case stats.MaxOpenConnections == 1:
		return 0
	case full, c.db.Dialector.Name() == "sqlite":
		return min(time.Second, c.timeout)
	}
	return c.timeout
}

// begin returns the calls that will give generators to those of sources that
// have none, after starting one for those that no call is for yet.
func (c *core) begin(sources []*source) (calls []*call, err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed {
		return nil, ErrClosed
	}
	var fresh []*source
	started := &call{done: make(chan struct{})}
	for _, s := range sources {
		switch {
		case s.made.Load() != nil || s.pending == started:
		case s.pending != nil:
			calls = append(calls, s.pending)
		default:
			s.pending = started
			fresh = append(fresh, s)
		}
	}
	if len(fresh) > 0 {
		calls = append(calls, started)
		c.background.Go(func() { c.assign(started, fresh) })
	}
	return calls, nil
}

// useSpares gives worker ids in reserve to those of sources that have none, as far
// as there are any: inside a transaction the database may not be reached.
func (c *core) useSpares(sources []*source) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, s := range sources {
		if s.made.Load() != nil || c.closed || s.open {
			continue
		}
		lease, ok := c.manager.Spare(workernode.Table{Name: s.table}, c.lanes(s))
		if !ok {
			return nil
		}
		if err := c.make(s, lease); err != nil {
			return err
		}
	}
	return nil
}

// make makes the generator of a source. The caller holds c.mu.
func (c *core) make(s *source, lease *workernode.TableLease) error {
	g, err := c.newGenerator(s.kind, s.table, lease.Leases(), c.clock, c.time, c.manager.RequestRenewal)
	if err != nil {
		lease.Release()
		return err
	}
	lease.Attach(g)
	c.store(s, &made{Generator: g, lease: lease})
	return nil
}

// store makes a generator that of a source. The caller holds c.mu.
func (c *core) store(s *source, m *made) {
	if c.closed {
		m.Close()
	}
	s.made.Store(m)
}

// next returns an id, or the error why if s has no generator.
func (s *source) next(ctx context.Context, why error) (int64, error) {
	m := s.made.Load()
	if m == nil {
		return 0, cmp.Or(why, s.wrap(errNoGenerator))
	}
	id, err := m.Next(ctx)
	if err != nil {
		return 0, s.wrap(err)
	}
	return id, nil
}

// fill is next for many ids.
func (s *source) fill(ctx context.Context, ids []int64, why error) error {
	m := s.made.Load()
	if m == nil {
		return cmp.Or(why, s.wrap(errNoGenerator))
	}
	if err := m.Fill(ctx, ids); err != nil {
		return s.wrap(err)
	}
	return nil
}

// errNoGenerator is the reason when nobody knew that a row would need an id:
// another goroutine changed it meanwhile, for one.
var errNoGenerator = errors.New("the table has no generator yet; create again")

// wrap says for which table there is no id.
func (s *source) wrap(err error) error {
	if errors.Is(err, generator.ErrClosed) {
		return fmt.Errorf("%w: no id for table %s", ErrClosed, s.table)
	}
	return fmt.Errorf("uidplugin: no id for table %s: %w", s.table, err)
}

// assign makes the generators of sources.
func (c *core) assign(n *call, sources []*source) {
	ctx, cancel := context.WithTimeout(c.ctx, c.timeout)
	defer cancel()
	defer close(n.done)
	var open, ours []*source
	for _, s := range sources {
		if s.open {
			open = append(open, s)
		} else {
			ours = append(ours, s)
		}
	}
	err := c.assignAll(ctx, ours)
	n.err = errors.Join(c.openAll(ctx, open), err)
}

// assignAll gets worker ids for sources and makes their generators.
func (c *core) assignAll(ctx context.Context, sources []*source) (err error) {
	if len(sources) == 0 {
		return nil
	}
	tables, lanes, names := make([]workernode.Table, len(sources)), make([]int, len(sources)), make([]string, len(sources))
	for i, s := range sources {
		tables[i], lanes[i], names[i] = workernode.Table{Name: s.table}, c.lanes(s), s.table
	}
	var leases []*workernode.TableLease
	if c.manager != nil {
		leases, err = c.manager.Assign(ctx, tables, lanes)
	} else {
		err = c.own.wait(ctx)
	}
	if err != nil {
		err = c.noWorkerID(err, list(names))
	}
	workers := c.makeAll(sources, leases, &err)
	// A logger may be code that creates rows: no lock is held, and the generators are there.
	if err == nil && c.manager != nil {
		c.log.Info("uidplugin: worker ids assigned", "tables", len(names), "worker_id", list(workers))
	}
	return err
}

// makeAll makes the generators of sources, unless there is an error, and notes what became
// of each. It returns the worker ids for the log.
func (c *core) makeAll(sources []*source, leases []*workernode.TableLease, err *error) (workers []string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for i, s := range sources {
		s.pending = nil
		switch {
		case *err != nil && i >= len(leases):
		case s.made.Load() != nil || *err != nil:
			leases[i].Release() // a transaction could not wait and took a spare one, or another could not be made
		case c.manager == nil:
			*err = c.makeFixed(s)
		default:
			if *err = c.make(s, leases[i]); *err == nil {
				workers = append(workers, fmt.Sprintf("%s=%d", s.table, s.made.Load().lease.Leases()[0].WorkerID))
			}
		}
		s.outage.note(*err, c.now())
	}
	return workers
}

// makeFixed makes the generator of all tables with a fixed worker id.
func (c *core) makeFixed(s *source) error {
	leases := c.own.leases(c.lanes(s))
	g, err := c.newGenerator(s.kind, s.table, leases, c.clock, c.time, nil)
	if err == nil {
		c.store(s, &made{Generator: g, fixed: leases})
	}
	return err
}

// lanes returns how many worker ids a source has at first.
func (c *core) lanes(s *source) int {
	return c.kinds[s.kind].lanes
}

// noWorkerID says for what there is no worker id, and why.
func (c *core) noWorkerID(err error, what string) error {
	switch {
	case c.ctx.Err() != nil:
		return fmt.Errorf("%w: no worker id for %s", ErrClosed, what)
	case errors.Is(err, context.DeadlineExceeded):
		return fmt.Errorf("uidplugin: no worker id for %s after %v, the limit that WithTimeout sets: %w", what, c.timeout, err)
	}
	return fmt.Errorf("uidplugin: no worker id for %s: %w", what, err)
}

// list writes names for a message, not all of them if they are many.
func list(names []string) string {
	const most = 5
	if len(names) > most {
		return fmt.Sprintf("%s and %d more", strings.Join(names[:most], ", "), len(names)-most)
	}
	return strings.Join(names, ", ")
}
