package uidplugin

import (
	"cmp"
	"context"
	"database/sql"
	"errors"
	"fmt"
	"math"
	"reflect"
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
	table string // TABLE_NAME; "*" with a fixed worker id, which serves all tables
	kind  string // name of the generator

	// made is set once, under core.mu, by whoever got the worker id, and never
	// changed.
	made atomic.Pointer[made]

	pending *call // guarded by core.mu: somebody is getting a worker id
}

// made is a generator and its first lease.
type made struct {
	generator.Renewable
	lease generator.Lease
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

// fixed assigns the same worker id, whatever the tables.
type fixed struct{ lease generator.Lease }

func (f fixed) Assign(_ context.Context, tables ...string) ([]generator.Lease, error) {
	leases := make([]generator.Lease, len(tables))
	for i := range leases {
		leases[i] = f.lease
	}
	return leases, nil
}

// allTables is the table name of worker ids that serve all tables.
const allTables = "*"

// source returns the source for a field of a table.
func (c *core) source(table string, f *schema.Field) (*source, error) {
	kind, _ := tagged(f)
	if kind == "" {
		kind = c.generator
	}
	if c.fixed {
		table = allTables
		if kind != c.generator {
			return nil, fmt.Errorf("%w %s.%s: its tag names the generator %q, but with WithWorkerID there is one for all tables, %q",
				ErrField, f.Schema.Name, f.Name, kind, c.generator)
		}
	}
	if kind != Cached && kind != Default {
		return nil, fmt.Errorf(`%w %s.%s: its tag names the generator %q, which there is not; there are %s, and gorm:"uid" for %s`,
			ErrField, f.Schema.Name, f.Name, kind, strings.Join(generators, ", "), c.generator)
	}
	key := sourceKey{table, kind}
	c.mu.Lock()
	defer c.mu.Unlock()
	s := c.sources[key]
	if s == nil {
		s = &source{table: table, kind: kind}
		c.sources[key] = s
	}
	return s, nil
}

type sourceKey struct{ table, kind string }

// ensure returns when all sources have a generator, or an error says why not. It
// is called with a handle whose statement tells whether it is in a transaction.
func (c *core) ensure(ctx context.Context, db *gorm.DB, sources []*source) error {
	wait := time.Duration(math.MaxInt64) // the call has its own limit
	inside := holdsConnection(db.Statement.ConnPool) && !c.fixed
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
	stats, _ := c.wdb.Stats()
	switch full := stats.MaxOpenConnections > 0 && stats.InUse >= stats.MaxOpenConnections; {
	case stats.MaxOpenConnections == 1:
		return 0
	case full, c.wdb.Dialect() == "sqlite":
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
		if s.made.Load() != nil || c.closed {
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
func (c *core) make(s *source, lease generator.Lease) error {
	var low func()
	if c.leased != nil {
		low = c.leased.Need
	}
	g, err := c.newGenerator(s.kind, lease, c.clock, low)
	if err != nil {
		return err
	}
	if c.closed {
		g.Close()
	}
	if c.leased != nil {
		c.leased.Keep(lease, g)
	}
	s.made.Store(&made{g, lease})
	return nil
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

// assign gets worker ids for sources and makes their generators.
func (c *core) assign(n *call, sources []*source) {
	ctx, cancel := context.WithTimeout(c.ctx, c.timeout)
	defer cancel()
	tables := make([]string, len(sources))
	for i, s := range sources {
		tables[i] = s.table
	}
	leases, err := c.assigner.Assign(ctx, tables...)
	c.mu.Lock()
	for i, s := range sources {
		s.pending = nil
		switch {
		case err != nil:
		case s.made.Load() == nil:
			err = c.make(s, leases[i])
		default:
			c.leased.Drop(leases[i]) // a transaction could not wait and took a spare one
		}
	}
	c.mu.Unlock()
	if err != nil {
		n.err = c.noWorkerID(err, list(tables))
	}

	defer close(n.done)
	// A logger may be code that creates rows: no lock is held, and the generators
	// are there.
	if err == nil && !c.fixed {
		workers := make([]string, len(sources))
		for i, s := range sources {
			workers[i] = fmt.Sprintf("%s=%d", s.table, leases[i].WorkerID)
		}
		c.log.Info("uidplugin: worker ids assigned", "tables", len(tables), "worker_id", list(workers),
			"from", c.layout.TimeOf(leases[0].From), "until", c.layout.TimeOf(leases[0].Until+1))
		if last, most := leases[len(leases)-1].WorkerID, c.layout.MaxWorkerID(); last > most/10*9 {
			c.log.Warn("uidplugin: more than nine tenths of the worker ids are used up; when all are, no process can start",
				"worker_id", last, "of", most, "layout", c.layout.String())
		}
	}
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
