// Package supply provides ids for tables. It selects the generator of a table, gets worker ids or segments at the
// first use or earlier, and makes callers wait. It knows tables and columns by name instead of GORM's schemas.
package supply

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/uidplugin/uidplugin/generator"
	"github.com/uidplugin/uidplugin/internal/logqueue"
	"github.com/uidplugin/uidplugin/workernode"
	"gorm.io/gorm"
)

// Errors that the root package exports.
var (
	ErrOption        = errors.New("uidplugin: option")
	ErrInTransaction = errors.New("uidplugin: first insert into a table, inside a transaction")
	ErrClosed        = errors.New("uidplugin: closed")
)

// AllTables is the table of a source that serves all tables.
const AllTables = workernode.AllTables

// Config configures [New].
type Config struct {
	Layout  generator.Layout
	Specs   Specs
	Default string // the generator of columns whose tag names none
	Timeout time.Duration
	Log     *slog.Logger
	Now     func() time.Time // the wall clock

	DB       *gorm.DB // for the tables, and for openers
	Registry *gorm.DB // for worker ids and counters: DB, or another database
	Schema   string   // of the plugin's tables in Registry; empty if statements do not name it
	Current  string   // DB's schema or database at the start, for unqualified names; empty means the connection's
	Database string   // name of the tables' database in the registry; empty for the registry's own
	Manager  *workernode.Manager
	Fixed    *Fixed // the worker id of all tables; excludes Manager
	OneEach  bool   // one worker id per generator instead of per table

	LookupOnly bool // sources get no generator

	MaxBorrow time.Duration    // limit of stamping ahead of the clock; 0 means the generator's own
	Clock     *generator.Clock // shared by the generators
	Time      func() time.Time // read by Clock
	Wall      *Wall            // if not nil, Time is its Now, which logs steps of the clock
}

// A Supply provides the ids of one plugin. Its methods may be called concurrently.
type Supply struct {
	Config

	mu      sync.Mutex
	sources map[sourceKey]*Source
	started bool
	closed  bool

	anyForeign atomic.Bool   // a source has ids that are not of the layout
	gate       chan struct{} // Start or Close closes it
	openGate   func()        // closes gate; may be called again
	queue      *logqueue.Queue
	log        *slog.Logger // for background work; keeps its records until gate is closed

	// Background work: Close cancels ctx and waits for the group.
	ctx        context.Context
	cancel     context.CancelFunc
	background sync.WaitGroup
}

// A call gets the generators of some sources in the background. All creates that wait share it, so it may outlive
// the first create.
type call struct {
	done chan struct{} // closed when err is set
	err  error
}

// New returns a Supply without sources.
func New(c Config) *Supply {
	s := &Supply{Config: c, sources: map[sourceKey]*Source{}, gate: make(chan struct{})}
	s.openGate = sync.OnceFunc(func() { close(s.gate) })
	s.ctx, s.cancel = context.WithCancel(context.Background())
	s.queue = logqueue.New(s.gate)
	s.log = s.queue.Logger(c.Log)
	if c.Wall != nil {
		c.Wall.log = s.log
	}
	s.Specs = maps.Clone(c.Specs)
	for name, spec := range s.Specs {
		if spec.Bind != nil {
			spec.Bind(s, &spec)
			s.Specs[name] = spec
		}
	}
	return s
}

// Source returns the source for a column of a table. name is its generator; empty means the default.
func (s *Supply) Source(table string, c Column, name string) (*Source, error) {
	name = NameOf(name)
	if name == "" {
		name = s.Default
	}
	spec, ok := s.Specs[name]
	switch {
	case !ok:
		return nil, fmt.Errorf(`its tag names the generator %q, but only these exist: %s; gorm:"uid" means %s`, name, s.Specs.Names(), s.Default)
	case c.Tag != "" && !spec.Counter:
		return nil, fmt.Errorf("its tag has %q after the generator %s: remove it", c.Tag, name)
	case spec.opened():
	case s.Fixed != nil && name != s.Default:
		return nil, fmt.Errorf("its tag names the generator %q, but with WithWorkerID there is one for all tables, %q:"+
			" set it with WithDefaultGenerator(%q), or leave the name out of the tag", name, s.Default, name)
	case s.Fixed != nil || s.OneEach:
		table = AllTables
	}
	tag := table
	if spec.Counter && !c.Primary {
		tag += "." + c.Name // each column has its own counter
	}
	key := sourceKey{tag, name}
	s.mu.Lock()
	defer s.mu.Unlock()
	src := s.sources[key]
	if src == nil {
		src = &Source{Table: table, Generator: name, Opened: spec.opened(), Foreign: spec.opened() && !spec.OfLayout, layout: s.Layout, tag: tag, within: spec.Within}
		s.sources[key] = src
	}
	if len(src.columns) > 0 && src.columns[0].Tag != c.Tag {
		return nil, TwoTags(cmp.Or(src.columns[0].Tag, tag), cmp.Or(c.Tag, tag))
	}
	if !slices.Contains(src.columns, c) {
		src.columns = append(src.columns, c)
	}
	if src.Foreign {
		s.anyForeign.Store(true)
	}
	return src, nil
}

// TwoTags returns the error of models of one table with different tags for a column.
func TwoTags(a, b string) error {
	return fmt.Errorf("%w: models of one table have the tags %q and %q, but two counters would make the same numbers; use one tag", ErrOption, a, b)
}

// Logger returns a logger for background work, which passes records on to l, or to the plugin's logger if l is nil.
func (s *Supply) Logger(l *slog.Logger) *slog.Logger { return s.queue.Logger(cmp.Or(l, s.Log)) }

// AnyForeign reports whether any source has ids that are not of the layout.
func (s *Supply) AnyForeign() bool { return s.anyForeign.Load() }

// startCall returns the calls to wait for. It starts one for sources that have no generator and no running call.
func (s *Supply) startCall(sources []*Source) (calls []*call, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return nil, ErrClosed
	}
	var fresh []*Source
	started := &call{done: make(chan struct{})}
	for _, src := range sources {
		switch {
		case src.Ready() || src.pending == started:
		case src.pending != nil:
			calls = append(calls, src.pending)
		default:
			src.pending = started
			fresh = append(fresh, src)
		}
	}
	if len(fresh) > 0 {
		calls = append(calls, started)
		s.background.Go(func() { s.serveCall(started, fresh) })
	}
	return calls, nil
}

func (s *Supply) serveCall(c *call, sources []*Source) {
	ctx, cancel := context.WithTimeout(s.ctx, s.Timeout)
	defer cancel()
	defer close(c.done)
	var opened, ours []*Source
	for _, src := range sources {
		if src.Opened {
			opened = append(opened, src)
		} else {
			ours = append(ours, src)
		}
	}
	err := s.assignLeases(ctx, ours)
	c.err = errors.Join(s.openAll(ctx, opened), err)
}

// Close stops the making of ids: all callers get [ErrClosed], even those that wait. It waits for background work
// until ctx ends, and reports whether all of it has ended.
func (s *Supply) Close(ctx context.Context) bool {
	s.mu.Lock()
	s.closed = true
	s.cancel()
	s.openGate()
	var all []*made
	for _, src := range s.sources {
		if m := src.made.Load(); m != nil {
			all = append(all, m)
		}
	}
	s.mu.Unlock()
	idle := make(chan struct{})
	go func() {
		for _, m := range all {
			m.retire()
		}
		s.Fixed.close()
		s.background.Wait()
		close(idle)
	}()
	select {
	case <-idle:
		s.queue.Flush(ctx, time.Second)
		return true
	case <-ctx.Done():
		return false
	}
}

// Closed reports whether Close was called.
func (s *Supply) Closed() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.closed
}

// list joins names for a message, and shortens long lists.
func list(names []string) string {
	const most = 5
	if len(names) > most {
		return fmt.Sprintf("%s and %d more", strings.Join(names[:most], ", "), len(names)-most)
	}
	return strings.Join(names, ", ")
}

// ReachClock sets the clock of the generators ahead to the clock of a database that has refused an id as too old.
// It waits up to a second for the lease, because a generator waits for a late renewal only briefly, and then hands
// out the ids left in its old lease. With a fixed worker id, whose clock is the application's, it does nothing.
func (s *Supply) ReachClock(to time.Time) {
	if s.Manager == nil || !s.Manager.ReachClock(to) {
		return
	}
	for range 100 {
		s.Manager.RequestRenewal()
		time.Sleep(10 * time.Millisecond)
		if slot := s.Manager.Stats(); slot.Until.Add(-s.Layout.Tick).After(s.Manager.Now()) {
			return
		}
	}
}
