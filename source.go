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

	pending *call // guarded by core.mu: somebody is getting a worker id
}

// made is a generator, and its first leases; none if its ids are not of the layout.
type made struct {
	generator.Generator
	leases []generator.Lease
}

// A call is the getting of worker ids for some sources, in the background: it
// serves all that wait for it, and ends neither with the context of the first
// nor with his transaction.
type call struct {
	done chan struct{} // closed when err is set
	err  error
}

// An assigner says who may stamp. Its policies are workernode.Leased,
// workernode.Disposable and a fixed worker id.
type assigner interface {
	Assign(ctx context.Context, tables ...string) ([]generator.Lease, error)
}

// fixed assigns one worker id: there is one source, of all tables.
type fixed struct {
	lease  generator.Lease
	backup int64 // worker id
}

// Assign returns the worker id, and for a second one of the same table its backup.
func (f fixed) Assign(_ context.Context, tables ...string) ([]generator.Lease, error) {
	leases := make([]generator.Lease, len(tables))
	for i := range leases {
		leases[i] = f.lease
		if i > 0 {
			leases[i].WorkerID = f.backup
		}
	}
	return leases, nil
}

// allTables is the table name of worker ids that serve all tables.
const allTables = "*"

// source returns the source for a field of a table.
func (c *core) source(table string, f *schema.Field) (*source, error) {
	name, _ := tagged(f)
	if name == "" {
		name = c.generator
	}
	kind, ok := c.kindNamed(name)
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
	if inside && c.leased != nil {
		if err := c.useSpares(sources); err != nil {
			return err
		}
	}
	calls, err := c.begin(sources)
	if err != nil {
		return err
	}
	timer := time.NewTimer(wait)
	defer timer.Stop()
	for _, call := range calls {
		select {
		case <-call.done:
			if call.err != nil && inside {
				return fmt.Errorf("%w: %s: %w", ErrInTransaction, remedy, call.err)
			}
			if call.err != nil {
				return call.err
			}
		case <-ctx.Done():
			return fmt.Errorf("uidplugin: waiting for a worker id: %w", ctx.Err())
		case <-timer.C:
			return fmt.Errorf("%w: %s", ErrInTransaction, remedy)
		}
	}
	return nil
}

// remedy says what to do about the first insert into a table that comes inside a
// transaction.
const remedy = "the first insert into a table needs a connection of its own, beside the one of the transaction" +
	" (hooks and CreateInBatches are inside one, too): give the models to WithModels, so that db.Use gets their worker ids," +
	" or insert a row before the transaction, or let the pool have more connections (SQLite cannot write from a second one meanwhile)"

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
		lease, ok := c.leased.Spare(s.table)
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
func (c *core) make(s *source, leases ...generator.Lease) error {
	var low func()
	if c.leased != nil {
		low = c.leased.Need
	}
	g, err := c.newGenerator(s.kind, s.table, leases, c.clock, c.time, low)
	if err != nil {
		if c.leased != nil {
			c.leased.Drop(leases[0])
		}
		return err
	}
	if c.leased != nil {
		c.leased.Keep(leases[0], g)
	}
	c.store(s, g, leases)
	return nil
}

// store makes a generator that of a source. The caller holds c.mu.
func (c *core) store(s *source, g generator.Generator, leases []generator.Lease) {
	if c.closed {
		g.Close()
	}
	s.made.Store(&made{g, leases})
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
var errNoGenerator = errors.New("the table has no worker id yet; create again")

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

// openAll makes generators whose ids are not of the layout, all at once: what they do is
// their own affair. One that is late is there when it is done.
func (c *core) openAll(ctx context.Context, sources []*source) error {
	errs := make(chan error, len(sources))
	for _, s := range sources {
		c.background.Go(func() {
			g, err := c.open1(ctx, s)
			c.mu.Lock()
			s.pending = nil
			if err == nil {
				c.store(s, g, nil)
			}
			c.mu.Unlock()
			if err != nil {
				err = fmt.Errorf("uidplugin: the generator %s of table %s: %w", s.kind, s.table, err)
			}
			errs <- err
		})
	}
	var all []error
	for range sources {
		select {
		case err := <-errs:
			all = append(all, err)
		case <-ctx.Done():
			return errors.Join(append(all, fmt.Errorf("uidplugin: a generator did not open within %v, the limit that WithTimeout sets: %w", c.timeout, ctx.Err()))...)
		}
	}
	return errors.Join(all...)
}

func (c *core) open1(ctx context.Context, s *source) (g generator.Generator, err error) {
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("its opener panicked: %v", p)
		}
	}()
	kind, _ := c.kindNamed(s.kind)
	g, err = kind.open(ctx, c, s)
	if v := reflect.ValueOf(g); err == nil && (g == nil || v.Kind() == reflect.Pointer && v.IsNil()) {
		err = errors.New("its opener returns none")
	}
	return g, err
}

// assignAll gets worker ids for sources and makes their generators.
func (c *core) assignAll(ctx context.Context, sources []*source) error {
	if len(sources) == 0 {
		return nil
	}
	tables := make([]string, len(sources))
	var wanted []string
	for i, s := range sources {
		tables[i] = s.table
		wanted = append(wanted, slices.Repeat([]string{s.table}, c.lanes(s))...)
	}
	leases, err := c.assigner.Assign(ctx, wanted...)
	first := make([]generator.Lease, len(sources))
	c.mu.Lock()
	for i, s := range sources {
		s.pending = nil
		if len(leases) == 0 {
			continue
		}
		own := leases[:c.lanes(s)]
		leases, first[i] = leases[len(own):], own[0]
		switch {
		case err == nil && s.made.Load() == nil:
			err = c.make(s, own...)
		case c.leased != nil:
			c.leased.Drop(own[0]) // a transaction could not wait and took a spare one, or another could not be made
		}
	}
	c.mu.Unlock()
	if err != nil {
		return c.noWorkerID(err, list(tables))
	}
	// A logger may be code that creates rows: no lock is held, and the generators
	// are there.
	if !c.fixed {
		workers := make([]string, len(sources))
		for i, s := range sources {
			workers[i] = fmt.Sprintf("%s=%d", s.table, first[i].WorkerID)
		}
		c.log.Info("uidplugin: worker ids assigned", "tables", len(tables), "worker_id", list(workers),
			"from", c.layout.TimeOf(first[0].From), "until", c.layout.TimeOf(first[0].Until+1))
		if last, most := first[len(first)-1].WorkerID, c.layout.MaxWorkerID(); last > most-most/10 {
			c.log.Warn("uidplugin: more than nine tenths of the worker ids were given out; when all are, a process gets those that others have left of the same tables, or none",
				"worker_id", last, "of", most, "layout", c.layout.String())
		}
	}
	return nil
}

// lanes returns how many worker ids a source is given at first: leased ones it gets
// more of when it wants them.
func (c *core) lanes(s *source) int {
	if kind, _ := c.kindNamed(s.kind); c.leased == nil {
		return kind.lanes
	}
	return 1
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

var (
	_ assigner = (*workernode.Disposable)(nil)
	_ assigner = (*workernode.Leased)(nil)
)
