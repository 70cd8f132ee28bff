package supply

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/uidplugin/uidplugin/generator"
	"github.com/uidplugin/uidplugin/workernode"
)

// A Source is where the ids of a table come from: a generator, once it has been made. Two sources never share a worker
// id.
type Source struct {
	Table     string // [AllTables] for one that serves all tables
	Generator string // name of the generator
	Opened    bool   // an opener makes its generator
	Foreign   bool   // its ids are not of the layout

	layout  generator.Layout
	tag     string   // the table, or for a segment of a column that is no key table.column
	columns []Column // that its ids are for; guarded by Supply.mu

	// made is set once, under Supply.mu, and never changed.
	made atomic.Pointer[made]

	gap    atomic.Int64 // how many numbers its ids leave to other programs; 0 and 1 mean that there are no gaps
	hurry  atomic.Int64 // until when they leave fewer, in nanoseconds since 1970
	before atomic.Int64 // ids that the generator had made before there were gaps
	handed atomic.Int64 // ids that were handed out since; the generator counts the gaps as well

	makeMu  sync.Mutex // held while its generator is made of leases, which may be code of the application
	pending *call      // guarded by Supply.mu: a goroutine is making its generator
	outage  outage     // guarded by Supply.mu: why it has no generator
}

// A Column is a column that ids are for.
type Column struct {
	Name    string
	Primary bool   // it is a primary key
	Text    bool   // its values are text, which has another order than numbers
	Tag     string // the biz_tag of its segment; empty means that the table and the column name it
}

type sourceKey struct{ tag, generator string }

// made is a generator, and what it stamps with.
type made struct {
	generator.Generator
	lease *workernode.TableLease // nil with a fixed worker id, and if its ids are not of the layout
	fixed []generator.Lease      // with a fixed worker id
}

// retire closes the generator, and gives its worker ids back: other plugins may share the lease manager.
func (m *made) retire() {
	m.Close()
	if m.lease != nil {
		m.lease.Retire()
	}
}

// Ready reports whether the source has a generator. It keeps it.
func (src *Source) Ready() bool { return src.made.Load() != nil }

// store makes a generator the one of a source without one. If the Supply is closed it closes the generator, with no
// lock held: Close may be code of the application, which may call the plugin. The caller holds src.makeMu.
func (s *Supply) store(src *Source, m *made) {
	s.mu.Lock()
	src.made.Store(m)
	closed := s.closed
	s.mu.Unlock()
	if closed {
		m.retire()
	}
}

// Next returns an id, or the error notReady if the source has no generator.
func (src *Source) Next(ctx context.Context, notReady error) (int64, error) {
	m := src.made.Load()
	if m == nil {
		return 0, cmp.Or(notReady, src.wrap(errNoGenerator))
	}
	if src.gap.Load() > 1 {
		var ids [1]int64
		err := src.fill(ctx, m, ids[:])
		return ids[0], err
	}
	id, err := m.Next(ctx)
	if err != nil {
		return 0, src.wrap(err)
	}
	return id, nil
}

// Fill is Next for many ids.
func (src *Source) Fill(ctx context.Context, ids []int64, notReady error) error {
	m := src.made.Load()
	if m == nil {
		return cmp.Or(notReady, src.wrap(errNoGenerator))
	}
	return src.fill(ctx, m, ids)
}

// fill is Fill with the generator of the source.
func (src *Source) fill(ctx context.Context, m *made, ids []int64) (err error) {
	if src.gap.Load() > 1 {
		if err = src.fillWithGaps(ctx, m, ids); err == nil {
			src.handed.Add(int64(len(ids)))
		}
	} else {
		err = m.Fill(ctx, ids)
	}
	if err != nil {
		return src.wrap(err)
	}
	return nil
}

// errNoGenerator is the reason when the search did not find that a row needs an id, for example because another
// goroutine changed the row meanwhile.
var errNoGenerator = errors.New("the table has no generator yet; create again")

// wrap adds to an error for which table there is no id.
func (src *Source) wrap(err error) error {
	if errors.Is(err, generator.ErrClosed) {
		return fmt.Errorf("%w: no id for table %s", ErrClosed, src.Table)
	}
	return fmt.Errorf("uidplugin: no id for table %s: %w", src.Table, err)
}

// An outage says why a source has no generator: it got no worker id, or its opener fails. It is zero while nothing has
// failed.
type outage struct {
	err      error     // of the last attempt
	since    time.Time // when the first attempt failed
	retrying bool      // a goroutine tries again
}

// note notes what became of an attempt; now is when.
func (o *outage) note(err error, now time.Time) {
	switch {
	case err == nil:
		o.since = time.Time{}
	case o.err == nil:
		o.since = now
	}
	o.err = err
}

// A State is the state of a source that has a generator.
type State struct {
	Tag       string
	Generator string
	Leases    []generator.Lease // none if its ids are not of the layout

	// Of the generator's methods of these names; 0 if it has none. Made is without gaps.
	Lead        time.Duration
	Made, Waits int64
}

// States returns the states of the sources that have a generator, in the order of their tags.
func (s *Supply) States() (states []State) {
	for _, src := range s.sorted() {
		m := src.made.Load()
		if m == nil {
			continue
		}
		state := State{Tag: src.tag, Generator: src.Generator, Leases: m.fixed}
		if m.lease != nil {
			state.Leases = m.lease.Leases()
		}
		state.count(m.Generator)
		if src.gap.Load() > 1 {
			state.Made = src.before.Load() + src.handed.Load()
		}
		states = append(states, state)
	}
	return states
}

// count adds what a generator says of itself. A generator of the application that panics must not end the process, as
// it would in a goroutine that collects metrics: what it has not said is 0.
func (s *State) count(g generator.Generator) {
	defer func() { _ = recover() }()
	if g, ok := g.(interface{ Lead() time.Duration }); ok {
		s.Lead = g.Lead()
	}
	if g, ok := g.(interface{ Made() int64 }); ok {
		s.Made = g.Made()
	}
	if g, ok := g.(interface{ Waits() int64 }); ok {
		s.Waits = g.Waits()
	}
}

// sorted returns the sources in the order of their tags.
func (s *Supply) sorted() []*Source {
	s.mu.Lock()
	defer s.mu.Unlock()
	all := make([]*Source, 0, len(s.sources))
	for _, src := range s.sources {
		all = append(all, src)
	}
	slices.SortFunc(all, func(a, b *Source) int {
		return cmp.Or(cmp.Compare(a.tag, b.tag), cmp.Compare(a.Generator, b.Generator))
	})
	return all
}

// Health returns the errors of sources, in the order of their tags: those that have no generator although one was
// needed, and those whose generator has a method Health() error that returns one.
func (s *Supply) Health() error {
	var errs []error
	for _, src := range s.sorted() {
		s.mu.Lock()
		o := src.outage
		s.mu.Unlock()
		m := src.made.Load()
		switch {
		case m != nil:
			errs = append(errs, src.health(m.Generator))
		case o.err == nil:
		case src.Opened:
			errs = append(errs, fmt.Errorf("uidplugin: the generator %s of table %s could not be opened since %s: %w",
				src.Generator, src.Table, FormatTime(o.since), o.err))
		default:
			errs = append(errs, fmt.Errorf("uidplugin: the table %s has no worker id since %s: %w", src.Table, FormatTime(o.since), o.err))
		}
	}
	return errors.Join(errs...)
}

// FormatTime returns an instant as messages of the plugin show it, in UTC. Package generator has its own function
// for it, as it imports no package of the plugin above itself.
func FormatTime(t time.Time) string { return t.UTC().Format("2006-01-02 15:04:05.999 MST") }

// health returns what the method Health of a generator returns, if it has the method.
func (src *Source) health(g generator.Generator) (err error) {
	h, ok := g.(interface{ Health() error })
	if !ok {
		return nil
	}
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("panicked: %v", p)
		}
		if err != nil {
			err = fmt.Errorf("uidplugin: the generator %s of table %s: %w", src.Generator, src.Table, err)
		}
	}()
	return h.Health()
}
