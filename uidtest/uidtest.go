// Package uidtest makes ids for the tests of an application: [Sequential] 1, 2, 3 in each table, as suites expect that
// were written for AUTO_INCREMENT, and [Fixed] ids of the layout that are the same in each run.
//
//	if err := db.Use(uidtest.Sequential()); err != nil { ... }
//
// Both register the real plugin, which [uidplugin.From] returns: only the numbers differ. Tags, associations, batches,
// upserts, hooks and AutoMigrate work as in production.
//
// The plugin has no tables, no worker ids and no background work, and sends no statement, neither in db.Use nor in
// Close. So it suits a mock of the database, such as sqlmock.
//
// # Options
//
// The options are those of the application. Those that say where ids come from have no effect: WithWorkerID,
// WithOneWorkerID, WithDisposable, WithRegistry, WithDatabaseName, WithoutMigration, WithLookupOnly, WithGenerator,
// WithSource, WithSegments and WithDefaultGenerator. A tag may still name each of the generators. Without WithLogger nothing is
// logged.
//
// # Tables, plugins and tests
//
// Each plugin counts for itself: its first id in a table is the first one of a new database. Within a plugin each table
// has its own count, so ids do not depend on creates of other tables. If tags of one table name several generators,
// each of these has its own count. The columns of one generator share it.
//
// An id is used up even if its row is not inserted, as with AUTO_INCREMENT on MySQL and PostgreSQL. Any number of
// goroutines may create rows. Each row gets an id of its own then, but which of them gets which depends on their order.
// Tests that run in parallel, each with a database and a plugin of its own, do not affect each other.
//
// Like AUTO_INCREMENT, Sequential continues above a key that the application sets itself. Above the largest int64
// creates fail with [generator.ErrTimeExhausted]. It sends no query. So it knows only the rows that GORM creates on its
// handle. If a row comes from raw SQL, another handle or an earlier run, a create can fail with a duplicate key.
//
// # Looking ids up
//
// With Fixed, [uidplugin.Plugin.Decode], Locate, Find, FindAll, FindPublic, CreatedBetween and the page of package
// inspector work as in production, without a WORKER_NODE table. The process that Locate returns is this one. With the
// options WithOneWorkerID and WithWorkerID the ids do not resolve to a table, as in production. The plugin knows the
// tables of the models that it lists and of those that it has created rows of. Keys with the tag uid:segment are 1, 2, 3
// and so on, and have no time in production either.
//
// The ids of Sequential have no time and no worker id, because each table has the same ones. So Decode, Locate, Find,
// FindAll and CreatedBetween return errors that wrap [uidplugin.ErrNotDecodable]. What needs the table or the prefix of
// a public id and no time works as in production: [uidplugin.FindAs], FindPublic, NextID and Range.
//
// Nodes, Slots and Sessions return nil with both plugins, as with WithWorkerID.
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

// Fixed returns a plugin for db.Use whose ids are those of a process that starts at the instant at, and whose clock
// stands still. The ids of a table are the same in each run. So a test can compare them with numbers in a file.
//
// The ids are of the layout, as in production, and ascend within their table. The first ones are stamped with the tick
// of at, those that no longer fit into it with the next ticks. The worker id is derived from the name of the table. Two
// tables whose names have one worker id share their count, so that no two of their rows have one id. Their ids then
// depend on the order of their creates. Of 50 tables, two share a worker id with a probability of 0.5 % in the default
// layout. Layouts with few worker ids make it likely.
//
// The plugin reads no other clock: WithClock has no effect. Times that GORM sets, such as CreatedAt, are those of
// NowFunc in gorm.Config. db.Use returns an error that wraps [generator.ErrLayout] if at is outside of the layout.
func Fixed(at time.Time, options ...uidplugin.Option) gorm.Plugin {
	options = append(slices.Clip(options), uidplugin.WithClock(func() time.Time { return at }))
	return newPlugin(options, "uidtest.Fixed", func(c *config.Config) opener {
		first := max(c.Layout.TickAt(at), 1) // no id has the first tick of the layout
		f := &fixed{layout: c.Layout, first: first, noTable: c.Fixed || c.OneEach, counters: map[int64]*counter{}}
		c.Test.Table = f.table
		return f.counter
	})
}

// A fixed has the counters of Fixed.
type fixed struct {
	layout  generator.Layout
	first   int64 // tick of the first ids
	noTable bool  // in production the ids do not resolve to a table

	mu       sync.Mutex
	counters map[int64]*counter // by worker id
}

// counter returns the counter of a table, which it may share with others.
func (f *fixed) counter(k key) *counter {
	if k.generator == uidplugin.Segment {
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

// stamps returns the ids of the layout with a worker id.
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

// table returns the table of an id, as [config.Test] says.
func (f *fixed) table(id int64) (table string, ok bool) {
	parts, err := f.layout.Decompose(id)
	tick := f.layout.TickAt(parts.Time)
	f.mu.Lock()
	c := f.counters[parts.WorkerID]
	f.mu.Unlock()
	if err != nil || c == nil || tick < f.first {
		return "", false
	}
	table, ok = c.owner((tick-f.first)<<f.layout.SequenceBits + parts.Sequence)
	if ok && f.noTable {
		table = supply.AllTables
	}
	return table, ok
}

// noWorker is the worker id of the plugins of this package. No id has it.
const noWorker = 0

// workerOf returns a worker id for the ids of a counter, from noWorker+1 on.
func workerOf(l generator.Layout, k key) int64 {
	h := fnv.New64a()
	_, _ = h.Write([]byte(k.table + " " + k.generator))
	return noWorker + 1 + int64(h.Sum64()%uint64(l.MaxWorkerID()))
}

// An opener returns the counter of a table.
type opener func(key) *counter

// newPlugin returns a plugin with the options of an application, but for those that say where ids come from. counters
// gets what the options say, and returns what opens the generator of a table.
func newPlugin(options []uidplugin.Option, name string, counters func(*config.Config) opener) *uidplugin.Plugin {
	before := []uidplugin.Option{uidplugin.WithLogger(nil)}
	after := []uidplugin.Option{func(c *config.Config) {
		c.Test = &config.Test{Name: name}
		open := counters(c)
		c.WorkerID, c.Fixed = noWorker, true
		c.OneEach, c.Disposable, c.NoMigration, c.LookupOnly, c.Registry, c.Database = false, false, false, false, nil, ""
		for name := range c.Specs {
			openTable := func(_ context.Context, _ *gorm.DB, table string) (generator.Generator, error) {
				return open(key{table, name}).of(table), nil
			}
			c.Specs[name] = supply.Spec{Open: openTable, Local: true, OfLayout: c.Test.Table != nil && name != uidplugin.Segment}
		}
	}}
	return uidplugin.New(slices.Concat(before, options, after)...)
}

// A sequence is the plugin of Sequential. It watches which keys the application sets itself.
type sequence struct {
	ids   *uidplugin.Plugin
	usual string // the generator of a tag that names none

	mu       sync.Mutex
	counters map[key]*counter
}

// Name implements [gorm.Plugin]. The name of ids is that of the real plugin.
func (s *sequence) Name() string { return "uidtest" }

// Initialize implements [gorm.Plugin]. It registers watch after the callbacks of ids, so that watch comes before them.
// GORM calls it again for a copy of the configuration, as dbresolver makes one.
func (s *sequence) Initialize(db *gorm.DB) error {
	register := db.Use
	if db.Plugins[uidplugin.Name] == gorm.Plugin(s.ids) {
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

// watching is the name of the callback.
const watching = "uidtest:watch"

// counter returns the generator of a table, which counts from 1.
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

// following returns the numbers from 1 on.
func following(k key) func(n int64) (int64, error) {
	return func(n int64) (int64, error) {
		if n == math.MaxInt64 {
			return 0, fmt.Errorf("%w: a row of the table %s has the largest key, %d, and there is none above it",
				generator.ErrTimeExhausted, k.table, n)
		}
		return n + 1, nil
	}
}

// watch lets the ids of a table continue above the keys that the rows of a create have already.
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

// A key names a counter: a table, and a generator that its tags name.
type key struct{ table, generator string }

// A counter has the ids of a table, or of several tables that share a worker id.
type counter struct {
	number func(n int64) (int64, error) // the id at a position, from 0 on

	mu     sync.Mutex
	tables []string // that take their ids from it
	runs   []run    // who has taken which positions
	next   int64    // position
	closed bool
}

// A run is the positions from one on that were taken for one table.
type run struct {
	from  int64
	table string
}

// of returns the generator of a table.
func (c *counter) of(table string) generator.Generator {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !slices.Contains(c.tables, table) {
		c.tables = append(c.tables, table)
	}
	return tableCounter{c, table}
}

// owner returns the table that a position was taken for. It reports false for a position that was not taken, unless only
// one table can take it: a test may insert rows whose ids it has from an earlier run.
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

// skip leaves out the first n positions.
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

// Close implements [generator.Generator]. A plugin closes all of its generators at once.
func (t tableCounter) Close() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.closed = true
}
