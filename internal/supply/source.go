package supply

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"sync/atomic"
	"time"

	"github.com/uidplugin/uidplugin/generator"
	"github.com/uidplugin/uidplugin/workernode"
	"gorm.io/gorm"
)

// A Source makes the ids of a table. It has a generator after the first use. Two sources never share a worker id.
type Source struct {
	Table     string // [AllTables] for all tables
	Generator string // name of the generator
	Opened    bool   // [Spec.Open] makes its generator
	Foreign   bool   // its ids are not of the layout

	layout  generator.Layout
	tag     string                                               // the table; table.column for a counter of a column other than the key
	columns []Column                                             // the columns with its ids; guarded by Supply.mu
	within  func(context.Context, gorm.ConnPool) context.Context // may be nil

	// made is set once, under Supply.mu.
	made atomic.Pointer[made]

	filter atomic.Pointer[filtered] // nil if all ids of the generator are handed out

	failed  atomic.Pointer[failure] // of the last call of a generator without a method Health; nil if the call succeeded
	pending *call                   // guarded by Supply.mu: a goroutine is making its generator
	outage  outage                  // guarded by Supply.mu: the reason why it lacks a generator
}

// A Column is a column with ids.
type Column struct {
	Name    string
	Primary bool   // it is a primary key
	Text    bool   // its values are text, so they sort differently from numbers
	Tag     string // name of its counter, from the tag of the field; empty if the counter is named after table and column
}

type sourceKey struct{ tag, generator string }

type made struct {
	generator.Generator
	lease *workernode.TableLease // nil with a fixed worker id, and if an opener made the generator
	fixed []generator.Lease      // with a fixed worker id
	note  func(id int64)         // with a fixed worker id: logs that ids are far ahead of the clock
}

// own returns the generator without the wrapper of plugins that share it, which lacks optional methods.
func (m *made) own() generator.Generator {
	if g, ok := m.Generator.(*sharedGenerator); ok {
		return g.Generator
	}
	return m.Generator
}

// retire closes the generator and gives its worker ids back, because other plugins may share the lease manager.
func (m *made) retire() {
	m.Close()
	if m.lease != nil {
		m.lease.Release()
	}
}

// A Filter hands out some ids of a generator, and leaves others out.
type Filter interface {
	// Fill sets ids to ids of g. After an error all are 0.
	Fill(ctx context.Context, g generator.Generator, ids []int64) error

	// Made returns how many ids were handed out.
	Made() int64
}

type filtered struct {
	Filter
	before int64 // number of ids that the generator had made before it got the filter
}

// SetFilter makes future ids pass through f, unless the source has a filter or its ids are not of the layout. It
// may be called concurrently.
func (src *Source) SetFilter(f Filter) {
	if src.Foreign || src.filter.Load() != nil {
		return
	}
	next := &filtered{Filter: f}
	if m := src.made.Load(); m != nil {
		var now State
		now.count(m.own())
		next.before = now.Made
	}
	if src.filter.CompareAndSwap(nil, next) {
		src.spareLanes()
	}
}

// spareLanes makes a source with a filter get lanes later, because the filter uses up several ids for each row.
func (src *Source) spareLanes() {
	if m := src.made.Load(); m != nil && m.lease != nil && src.filter.Load() != nil {
		m.lease.Spare()
	}
}

// served names the source's table for messages.
func (src *Source) served() string {
	if src.Table == AllTables {
		return "all tables"
	}
	return src.Table
}

func (src *Source) named() string {
	if src.Table == AllTables {
		return src.served()
	}
	return "table " + src.Table
}

// Ready reports whether the source has a generator. A ready source stays ready.
func (src *Source) Ready() bool { return src.made.Load() != nil }

// store gives a source its generator. If the Supply is closed it closes the generator without a lock, because the
// application's Close may call the plugin.
func (s *Supply) store(src *Source, m *made) {
	s.mu.Lock()
	src.made.Store(m)
	closed := s.closed
	s.mu.Unlock()
	if closed {
		m.retire()
	}
}

// Within returns the context in which a statement on pool gets ids. It may limit the wait in a transaction.
func (src *Source) Within(ctx context.Context, pool gorm.ConnPool) context.Context {
	if src.within == nil {
		return ctx
	}
	return src.within(ctx, pool)
}

// Next returns an id. Without a generator it returns the error notReady, or errNoGenerator if notReady is nil.
func (src *Source) Next(ctx context.Context, notReady error) (int64, error) {
	m := src.made.Load()
	if m == nil {
		return 0, cmp.Or(notReady, src.wrap(errNoGenerator))
	}
	if src.filter.Load() != nil {
		var ids [1]int64
		err := src.fill(ctx, m, ids[:])
		return ids[0], err
	}
	id, err := m.Next(ctx)
	if src.note(m, err); err != nil {
		return 0, src.wrap(err)
	}
	return id, nil
}

// Fill is like Next for many ids.
func (src *Source) Fill(ctx context.Context, ids []int64, notReady error) error {
	m := src.made.Load()
	if m == nil {
		return cmp.Or(notReady, src.wrap(errNoGenerator))
	}
	return src.fill(ctx, m, ids)
}

func (src *Source) fill(ctx context.Context, m *made, ids []int64) (err error) {
	if f := src.filter.Load(); f != nil {
		err = f.Fill(ctx, m.Generator, ids)
	} else {
		err = m.Fill(ctx, ids)
	}
	if src.note(m, err); err != nil {
		return src.wrap(err)
	}
	if m.note != nil && len(ids) > 0 {
		m.note(ids[len(ids)-1])
	}
	return nil
}

// errNoGenerator is for a row that began to need an id during the create, as when another goroutine changes it.
var errNoGenerator = errors.New("the table has no generator yet; repeat the create")

func (src *Source) wrap(err error) error {
	if errors.Is(err, generator.ErrClosed) {
		return fmt.Errorf("%w: no id for %s", ErrClosed, src.named())
	}
	return fmt.Errorf("uidplugin: no id for %s: %w", src.named(), err)
}

// An outage records why a source lacks a generator. Zero means no failure.
type outage struct {
	err      error     // of the last attempt
	since    time.Time // time of the first failure
	retrying bool      // a goroutine is retrying
}

func (o *outage) note(err error, now time.Time) {
	switch {
	case err == nil:
		o.since = time.Time{}
	case o.err == nil:
		o.since = now
	}
	o.err = err
}

// A State describes a source that has a generator.
type State struct {
	Tag       string
	Generator string
	Leases    []generator.Lease // empty if an opener made its generator

	// Results of the generator's methods Lead, Made and Waits, or 0. Made excludes ids that a filter leaves out.
	Lead        time.Duration
	Made, Waits int64
}

// States returns the states of the sources with a generator, ordered by tag.
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
		state.count(m.own())
		if f := src.filter.Load(); f != nil {
			state.Made = f.before + f.Made()
		}
		states = append(states, state)
	}
	return states
}

// count reads the generator's counters. It recovers panics of the application's generators, because a panic in a
// goroutine that collects metrics would end the process.
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

// Failing reports whether the source's last attempt to get a generator failed. A retry follows in the background.
func (s *Supply) Failing(src *Source) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return src.outage.err != nil
}

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

type failure struct {
	err  error
	when time.Time
}

// remembered is for how long Health reports the last error of a generator without a method Health. It is limited,
// because a process that reports an error may get no more creates, so no success clears the error.
const remembered = 30 * time.Second

// note records the outcome of a call of a generator without a method Health.
func (src *Source) note(m *made, err error) {
	switch {
	case err == nil && src.failed.Load() == nil:
	case err == nil:
		src.failed.Store(nil)
	case errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded): // usually the context of the caller
	default:
		if _, ok := m.own().(healthy); !ok {
			src.failed.Store(&failure{err, time.Now()})
		}
	}
}

// healthy is the optional method of a generator.
type healthy interface{ Health() error }

// Health joins the errors of the sources, sorted by tag, after one about the whole Supply.
func (s *Supply) Health() error {
	errs := []error{s.unusable()}
	for _, src := range s.sorted() {
		s.mu.Lock()
		o := src.outage
		s.mu.Unlock()
		m := src.made.Load()
		switch {
		case m != nil:
			errs = append(errs, src.health(m.own()))
			if m.lease != nil && m.lease.Err() != nil {
				errs = append(errs, fmt.Errorf("uidplugin: %w", m.lease.Err()))
			}
		case o.err == nil:
		case src.Opened:
			errs = append(errs, fmt.Errorf("uidplugin: the generator %s of table %s could not be opened since %s: %w",
				src.Generator, src.Table, FormatTime(o.since), o.err))
		default:
			errs = append(errs, fmt.Errorf("uidplugin: no worker id for %s since %s: %w", src.named(), FormatTime(o.since), o.err))
		}
	}
	return errors.Join(errs...)
}

// unusable returns why tables without a generator cannot get one now.
func (s *Supply) unusable() error {
	if s.LookupOnly || s.Specs[s.Default].opened() {
		return nil
	}
	for _, src := range s.sorted() {
		if !src.Opened && src.Ready() { // its generator reports errors of the layout
			return nil
		}
	}
	if err := s.Layout.ValidAt(s.Time()); err != nil {
		return fmt.Errorf("uidplugin: no ids can be made: %w", err)
	}
	if s.Fixed != nil {
		return s.Fixed.late(s.Timeout)
	}
	return nil
}

// FormatTime formats an instant for messages, in UTC.
func FormatTime(t time.Time) string { return t.UTC().Format("2006-01-02 15:04:05.999 MST") }

func (src *Source) health(g generator.Generator) (err error) {
	h, ok := g.(healthy)
	if !ok {
		if f := src.failed.Load(); f != nil && time.Since(f.when) < remembered {
			return fmt.Errorf("uidplugin: the generator %s of table %s failed at %s: %w", src.Generator, src.Table, FormatTime(f.when), f.err)
		}
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
