// Package uidtest makes ids for the tests of an application. [Sequential] ids are 1, 2, 3 in each table, as test suites
// for AUTO_INCREMENT expect. [Fixed] ids have the bits of the layout, and are the same in each run.
//
//	if err := db.Use(uidtest.Sequential()); err != nil { ... }
//
// Both register the real plugin, which then makes these ids. [uidplugin.From] returns it. Tags, associations,
// batches, upserts, hooks and AutoMigrate work as in production.
//
// The plugin needs no tables of its own, leases no worker ids and runs nothing in the background. db.Use and Close
// send no statement, so the plugin works with a mock of the database, such as sqlmock.
//
// # Options
//
// Pass the options of the application. Those for the source of ids do not change the ids: WithWorkerID,
// WithOneWorkerID, WithDisposable, WithRegistry, WithRegion, WithSchema, WithDatabaseName, WithoutMigration,
// WithLookupOnly, WithGenerator, WithSource and WithSegments. Tags may name any generator. Nothing is logged
// without WithLogger.
//
// # Tables, plugins and tests
//
// Each plugin and each table counts separately, so ids do not depend on creates in other tables or tests. A new plugin
// starts with the first id again. If tags of one table name several generators, each generator has its own count.
// Columns with the same generator share its count.
//
// An id is used up even if its row is not inserted, as with AUTO_INCREMENT on MySQL and PostgreSQL. Any number of
// goroutines may create rows, but the order of the goroutines decides which row gets which id. Parallel tests do not
// affect each other if each has its own database and plugin.
//
// Like AUTO_INCREMENT, Sequential continues above keys that the application sets. After the largest int64, creates
// fail with [generator.ErrTimeExhausted]. Sequential sends no queries, so it knows only rows that GORM creates on
// its handle. A create can fail with a duplicate key if a row comes from raw SQL, another handle or an earlier run.
//
// # Looking ids up
//
// With Fixed, [uidplugin.Plugin.Decode], Locate, Find, FindAll, CreatedBetween, publicid.Find and the page of package
// inspector work as in production, without a WORKER_NODE table. Locate returns this process. With the options
// WithOneWorkerID and WithWorkerID the ids do not resolve to a table, as in production. The plugin knows the tables of
// its models, and tables in which it has created rows. Keys with the tag uid:segment are 1, 2, 3 and so on, and do not
// contain a time, as in production.
//
// Sequential ids do not contain a time or a worker id, because all tables have the same ids. So Decode, Locate, Find,
// FindAll and CreatedBetween return errors that wrap [uidplugin.ErrNotDecodable]. [uidplugin.FindAs], publicid.Find,
// NextID and Range work as in production, because they need only a table, the prefix of a public id or the layout.
//
// Nodes, Slots and Sessions return nil, as with WithWorkerID. follow.Enable and follow.Disable do nothing, because
// followed tables would refuse ids that are old or have no time. follow.Rows yields rows as soon as they are
// visible, so tests need not wait. So does follow.Consume, which creates the table UID_CURSOR in the database.
package uidtest

import (
	"cmp"
	"context"
	"fmt"
	"hash/fnv"
	"math"
	"slices"
	"sync"
	"time"

	"github.com/uidplugin/uidplugin"
	"github.com/uidplugin/uidplugin/generator"
	"github.com/uidplugin/uidplugin/internal/config"
	"github.com/uidplugin/uidplugin/internal/model"
	"github.com/uidplugin/uidplugin/internal/supply"
	"gorm.io/gorm"
)

// Sequential returns a plugin for db.Use whose ids are 1, 2, 3 and so on in each table.
func Sequential(options ...uidplugin.Option) gorm.Plugin {
	s := &sequence{counters: map[key]*counter{}}
	s.ids = newPlugin(options, "uidtest.Sequential", func(c *config.Config) opener {
		s.usual = c.Generator
		return s.counter
	})
	return s
}

// Fixed returns a plugin for db.Use that makes the ids of a process whose clock always shows start. The ids of a table
// are the same in each run, so a test can compare them with numbers in a file.
//
// The ids have the bits of the layout and ascend within their table. The first ids have the tick of start, and
// further ids have the next ticks. The worker id is derived from the names of the table and the generator. Two
// tables with the same worker id share a count, so that their ids differ. Their ids then depend on the order of
// creates. Among 50 tables, two share a worker id with a probability of 0.5 % in the default layout. In layouts
// with few worker ids this is likely.
//
// To create a row at another time, use a second handle on the same database with Fixed at that time. Lookups of the
// first handle find the row, unless its table shares a worker id with another table.
//
// WithClock is ignored. Times that GORM sets, such as CreatedAt, come from NowFunc in gorm.Config. db.Use returns an
// error that wraps [generator.ErrLayout] if start is outside of the layout.
func Fixed(start time.Time, options ...uidplugin.Option) gorm.Plugin {
	options = append(slices.Clip(options), uidplugin.WithClock(func() time.Time { return start }))
	return newPlugin(options, "uidtest.Fixed", func(c *config.Config) opener {
		first := max(c.Layout.TickAt(start), 1) // ids never use the first tick of the layout
		f := &fixed{layout: c.Layout, first: first, noTable: c.Fixed || c.OneEach, counters: map[int64]*counter{}}
		c.Test.Table, f.specs = f.table, c.Specs
		return f.counter
	})
}

// A fixed holds the counters of Fixed.
type fixed struct {
	layout  generator.Layout
	first   int64 // tick of the first ids
	specs   supply.Specs
	noTable bool // as in production, ids do not resolve to a table

	mu       sync.Mutex
	counters map[int64]*counter // by worker id
}

func (f *fixed) counter(k key) *counter {
	if f.specs[k.generator].Counter {
		return &counter{number: following(k)}
	}
	worker := workerOf(f.layout, k)
	f.mu.Lock()
	defer f.mu.Unlock()
	c := f.counters[worker]
	if c == nil {
		c = &counter{number: f.stamps(worker, k.table)}
		f.counters[worker] = c
	}
	return c
}

// stamps returns a function that makes the ids of a worker id.
func (f *fixed) stamps(worker int64, table string) func(n int64) (int64, error) {
	l := f.layout
	return func(n int64) (int64, error) {
		tick := f.first + n>>l.SequenceBits
		if tick > l.MaxTick() {
			return 0, fmt.Errorf("%w: the table %s has used up the %d ids of the layout %s from %s on",
				generator.ErrTimeExhausted, table, n, l, supply.FormatTime(l.TimeOf(f.first)))
		}
		return l.Compose(generator.Parts{Time: l.TimeOf(tick), WorkerID: worker, Sequence: n & l.MaxSequence()})
	}
}

// table implements Table of [config.Test].
func (f *fixed) table(id int64) (table string, ok bool) {
	parts, err := f.layout.Decompose(id)
	tick := f.layout.TickAt(parts.Time)
	f.mu.Lock()
	c := f.counters[parts.WorkerID]
	f.mu.Unlock()
	if err != nil || c == nil {
		return "", false
	}
	table, ok = c.owner((tick-f.first)<<f.layout.SequenceBits + parts.Sequence)
	if ok && f.noTable {
		table = supply.AllTables
	}
	return table, ok
}

// noWorker is the worker id of the plugin itself. Ids never contain it.
const noWorker = 0

// workerOf derives the worker id of a counter, which is never noWorker.
func workerOf(l generator.Layout, k key) int64 {
	h := fnv.New64a()
	_, _ = h.Write([]byte(k.table + " " + k.generator))
	return noWorker + 1 + int64(h.Sum64()%uint64(l.MaxWorkerID()))
}

// An opener returns the counter of a table.
type opener func(key) *counter

// newPlugin returns a plugin with the options of an application, except options for the source of ids. The function
// counters returns the opener for a configuration.
func newPlugin(options []uidplugin.Option, name string, counters func(*config.Config) opener) *uidplugin.Plugin {
	before := []uidplugin.Option{uidplugin.WithLogger(nil)}
	after := []uidplugin.Option{func(c *config.Config) {
		c.Test = &config.Test{Name: name}
		open := counters(c)
		c.WorkerID, c.Fixed = noWorker, true
		c.Schema, c.HasSchema = "", false
		c.OneEach, c.Disposable, c.NoMigration, c.LookupOnly, c.Registry, c.Database, c.HasRegion = false, false, false, false, nil, "", false
		for name, spec := range c.Specs {
			openTable := func(_ context.Context, o supply.Opening) (generator.Generator, error) {
				return open(key{o.Table, name}).generatorOf(o.Table), nil
			}
			c.Specs[name] = supply.Spec{Open: openTable, Local: true, OfLayout: c.Test.Table != nil && !spec.Counter,
				Counter: spec.Counter, Option: spec.Option, Check: spec.Check}
		}
	}}
	return uidplugin.New(slices.Concat(before, options, after)...)
}

// A sequence is the plugin of Sequential. It watches for keys set by the application.
type sequence struct {
	ids   *uidplugin.Plugin
	usual string // generator of tags that do not name one

	mu       sync.Mutex
	counters map[key]*counter
}

// Name implements [gorm.Plugin]. It must differ from the name of the real plugin, because both are registered.
func (s *sequence) Name() string { return "uidtest" }

// Initialize implements [gorm.Plugin]. It registers s.watch last, because GORM then runs it first, before the
// plugin's callbacks. GORM calls Initialize again for copies of the configuration, for example with dbresolver.
func (s *sequence) Initialize(db *gorm.DB) error {
	register := db.Use
	if db.Plugins[s.ids.Name()] == gorm.Plugin(s.ids) {
		register = func(p gorm.Plugin) error { return p.Initialize(db) }
	}
	if err := register(s.ids); err != nil {
		return err
	}
	if db.Callback().Create().Get(watching) != nil {
		return nil
	}
	return db.Callback().Create().Before("*").Register(watching, s.watch)
}

const watching = "uidtest:watch"

func (s *sequence) counter(k key) *counter {
	s.mu.Lock()
	defer s.mu.Unlock()
	c := s.counters[k]
	if c == nil {
		c = &counter{number: following(k)}
		s.counters[k] = c
	}
	return c
}

// following returns a function that makes the number n+1 for position n, so a table gets 1, 2, 3 and so on.
func following(k key) func(n int64) (int64, error) {
	return func(n int64) (int64, error) {
		if n == math.MaxInt64 {
			return 0, fmt.Errorf("%w: a row of the table %s has the largest key, %d, so there is no key above it",
				generator.ErrTimeExhausted, k.table, n)
		}
		return n + 1, nil
	}
}

// watch moves the counter of a table above the keys that rows of a create already have.
func (s *sequence) watch(db *gorm.DB) {
	stmt := db.Statement
	if db.Error != nil || stmt.Schema == nil {
		return
	}
	rows := model.RowsOf(stmt.ReflectValue, stmt.Schema.ModelType)
	for _, f := range model.UIDFields(stmt.Schema) {
		name, _ := model.Tagged(f)
		c := s.counter(key{stmt.Schema.Table, cmp.Or(supply.NameOf(name), s.usual)})
		for _, row := range rows {
			if v, zero := row.Value(stmt.Context, f); !zero {
				c.skip(model.ParseDigits(model.Digits(v)))
			}
		}
	}
}

type key struct{ table, generator string }

// A counter holds the ids of a table, or of several tables that share a worker id.
type counter struct {
	number func(n int64) (int64, error) // the id at position n, which counts from 0

	mu     sync.Mutex
	tables []string // tables that use this counter
	runs   []run    // which table took which positions, ascending
	next   int64    // next position
	closed bool
}

// A run contains the positions taken for one table, up to the next run.
type run struct {
	from  int64
	table string
}

func (c *counter) generatorOf(table string) generator.Generator {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !slices.Contains(c.tables, table) {
		c.tables = append(c.tables, table)
	}
	return tableCounter{c, table}
}

// owner returns the table for which a position was taken. If only one table uses the counter, that table also owns
// positions not taken yet, because a test may insert rows with ids from an earlier run of the tests.
func (c *counter) owner(position int64) (table string, ok bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(c.tables) == 1 {
		return c.tables[0], true
	}
	for _, r := range slices.Backward(c.runs) {
		if r.from <= position && position < c.next {
			return r.table, true
		}
	}
	return "", false
}

// skip skips the first n positions.
func (c *counter) skip(n int64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.next = max(c.next, n)
}

// A tableCounter is the generator of one table.
type tableCounter struct {
	*counter
	table string
}

// Next implements [generator.Generator].
func (t tableCounter) Next(ctx context.Context) (int64, error) {
	var id [1]int64
	err := t.Fill(ctx, id[:])
	return id[0], err
}

// Fill implements [generator.Generator].
func (t tableCounter) Fill(_ context.Context, ids []int64) (err error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.closed {
		return generator.ErrClosed
	}
	if n := len(t.runs); n == 0 || t.runs[n-1].table != t.table {
		t.runs = append(t.runs, run{t.next, t.table})
	}
	for i := range ids {
		if ids[i], err = t.number(t.next); err != nil {
			return err
		}
		t.next++
	}
	return nil
}

// Close implements [generator.Generator]. It also closes the counter for other tables; a plugin closes all at once.
func (t tableCounter) Close() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.closed = true
}
