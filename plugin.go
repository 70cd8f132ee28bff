// Package uidplugin is a GORM plugin that gives rows their keys: 64-bit ids that are unique across all processes and
// ascend in time. They are known before the INSERT, and cost what an increment costs. They resolve to their table,
// their process and their row.
//
//	type Order struct {
//		ID    uidplugin.ID `gorm:"primaryKey;uid"`
//		Total int
//	}
//
//	if err := db.Use(uidplugin.New(uidplugin.WithModels(&Order{}))); err != nil { ... }
//	defer uidplugin.From(db).Close(ctx)
//
//	db.Create(&order)                                      // order.ID is set
//	where, err := uidplugin.From(db).Locate(ctx, order.ID) // table, host, time ...
//	row, err := uidplugin.From(db).Find(ctx, order.ID)     // *Order
//
// # Keys
//
// A field with the tag uid gets an id when a row is created without one: an int64, a uint64, an [ID], a string, or a
// type with Scan and Value. A sole key of type [ID] or [Public] needs no tag. [WithModels] lists the models of an
// application. Without it, the first create of a table needs a worker id and so a second connection: inside a
// transaction on a pool of one it fails with [ErrInTransaction].
//
// # Generators
//
// The tag can name a generator, as in gorm:"uid:segment":
//
//   - cached, the default: ids are made ahead of need, for the price of an increment
//   - snowflake, or default: the clock is read for each id
//   - paired: a second worker id for the time that the clock was set back
//   - segment: small numbers from a counter in the database, as Leaf's
//   - one of your own, by [WithGenerator] or [WithSource]
//
// # What an id resolves to
//
// [Plugin.Decode] splits an id. [Plugin.Locate] returns its table, process and time, and
// [Plugin.Find] its row; [FindAs] returns rows of one model. For ids that users send, [Public] is a key that is a text
// outside, and [OnlyModels] and [Scoped] say which rows they may see. [Plugin.CreatedBetween] finds rows by the time in
// their keys.
//
// # Processes
//
// What an id looks like is a [generator.Layout]. Each process has a slot, which owns worker ids, in four tables of the
// same database; package workernode has the protocol. While the database is unreachable, ids are made for as long as
// [WithLead] says. [Plugin.Health] says whether ids can be made, [Plugin.Stats] in which state the process is, and
// [Plugin.Close] releases its slot.
package uidplugin

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/uidplugin/uidplugin/generator"
	"github.com/uidplugin/uidplugin/internal/config"
	"github.com/uidplugin/uidplugin/internal/sqldb"
	"github.com/uidplugin/uidplugin/internal/supply"
	"github.com/uidplugin/uidplugin/workernode"
	"gorm.io/gorm"
)

// Name is the name under which GORM knows the plugin.
const Name = "uidplugin"

// A Plugin sets the fields of models that are tagged gorm:"uid" when rows are created, and resolves ids to where they
// came from. [New] returns one for one database handle; [From] finds it again. Any number of goroutines may call all
// methods except Initialize at once.
type Plugin struct {
	shared *shared
	db     *gorm.DB // the handle that the methods act on
}

var _ gorm.Plugin = (*Plugin)(nil)

// shared is what all handles on a plugin share.
type shared struct {
	*config.Config

	initialize sync.Mutex // held by Initialize
	registered atomic.Bool

	// Set by each attempt of Initialize, and not changed after registered is true.
	space    *sharedSpace        // nil with a fixed worker id
	manager  *workernode.Manager // of the id space
	database string              // of the tables, as WORKER_NODE names it; empty for that of the registry
	supply   *supply.Supply
	catalog  *catalog
	locator  atomic.Pointer[locator] // Decode needs no Initialize
}

// New returns a plugin for db.Use. It does nothing yet; db.Use reports what is wrong with the options. Call db.Use
// before AutoMigrate, and before the handle is shared between goroutines: GORM's registration of callbacks is not safe
// for concurrent use.
func New(options ...Option) *Plugin {
	s := &shared{Config: newConfig(options)}
	s.locator.Store(&locator{Config: s.Config, time: s.Now})
	return &Plugin{shared: s}
}

// newConfig returns what options say.
func newConfig(options []Option) *config.Config {
	cfg := config.New()
	for _, o := range options {
		if o != nil {
			o(cfg)
		}
	}
	return cfg
}

// From returns the plugin of a database handle, for calls such as
// From(db).Locate(ctx, id). Find and FindAll of the plugin that it returns query
// db: inside a transaction they see what the transaction sees, and the conditions
// of db hold for them.
//
// It never returns nil. If db has no such plugin, every method returns
// [ErrNotRegistered].
func From(db *gorm.DB) *Plugin {
	if db != nil && db.Config != nil {
		if p, ok := db.Config.Plugins[Name].(*Plugin); ok {
			return &Plugin{shared: p.shared, db: db}
		}
	}
	return &Plugin{}
}

// Name implements [gorm.Plugin].
func (p *Plugin) Name() string { return Name }

// Initialize implements [gorm.Plugin]; db.Use calls it. It checks the options. It creates or extends the four tables of
// package workernode, but not with [WithoutMigration]. It compares the layout with the database's, gets worker ids for
// the models of WithModels, and opens their segments and other sources. If it fails, nothing is registered, and it may
// be tried again.
//
// It is no error if the database of a segment cannot be reached, or a source of WithSource fails. The log and Health
// report it, and the segment or source is opened again.
func (p *Plugin) Initialize(db *gorm.DB) error {
	if p.shared == nil {
		return fmt.Errorf("%w: a Plugin is made by New", ErrNotRegistered)
	}
	s := p.shared
	s.initialize.Lock()
	defer s.initialize.Unlock()
	if s.registered.Load() {
		if db.Config.Plugins[Name] == gorm.Plugin(p) {
			// Opened with a copy of the configuration, as dbresolver opens its replicas.
			if db.Callback().Create().Get("uidplugin:fill") == nil {
				return s.callbacks().register(db)
			}
			return nil
		}
		return fmt.Errorf("%w: this plugin is already in use by another database handle; each needs one of its own from New (with WithRegistry, they share an id space)", ErrOption)
	}
	if db == nil || db.Config == nil || db.Statement == nil {
		return fmt.Errorf("%w: the database handle is not connected: gorm.Open has returned an error", ErrOption)
	}
	if isTransaction(db) {
		return fmt.Errorf("%w: the database handle is a transaction, which ends before the plugin does; use the one that gorm.Open returned", ErrOption)
	}
	if err := s.open(db); err != nil {
		s.abandon()
		return err
	}
	if err := s.callbacks().register(db); err != nil {
		s.abandon()
		return fmt.Errorf("uidplugin: register callbacks: %w", err)
	}
	p.db = db
	s.registered.Store(true)
	db.Config.Plugins[Name] = p // db.Use does it when this returns, but openers may call From(db)
	s.catalog.started = true
	s.supply.Start(s.catalog.later)
	if left := s.Layout.Expires().Sub(s.Now()); left < 365*24*time.Hour {
		s.Log.Warn("uidplugin: the layout ends within a year; then no id can be made",
			"layout", s.Layout.String(), "ends", s.Layout.Expires(), "days", int(left.Hours()/24))
	}
	return nil
}

// isTransaction reports whether a handle is a transaction.
func isTransaction(db *gorm.DB) bool {
	_, ok := db.Statement.ConnPool.(gorm.TxCommitter)
	return ok
}

// callbacks returns those of the plugin.
func (s *shared) callbacks() *callbacks { return &callbacks{s.catalog} }

// abandon releases what a failed Initialize has taken, and restores GORM's schemas. A program that continues without
// the plugin must not insert rows without a key.
func (s *shared) abandon() {
	if s.catalog != nil {
		for _, undo := range s.catalog.undo {
			undo()
		}
	}
	ctx, cancel := context.WithTimeout(context.Background(), closeTimeout)
	defer cancel()
	if s.supply != nil {
		s.supply.Close(ctx) // openers may take their time
	}
	if s.space != nil {
		ctx, cancel := context.WithTimeout(context.Background(), closeTimeout)
		defer cancel()
		_ = s.space.leave(ctx, s)
		s.space, s.manager = nil, nil
	}
}

// open does what Initialize does before it registers callbacks.
func (s *shared) open(db *gorm.DB) error {
	if err := s.Validate(); err != nil {
		return err
	}
	s.supply, s.catalog = nil, nil // the last attempt may have been on another database
	loc := &locator{Config: s.Config, time: s.Now}
	var statements *sqldb.DB
	if !s.Fixed {
		var err error
		if statements, err = sqldb.Open(db, s.Timeout); err == nil {
			err = s.join(db, statements, loc)
		}
		switch {
		case sqldb.IsNoDatabase(err):
			return fmt.Errorf("uidplugin: %w; call db.Use on the final connection, whose data source name has the database", err)
		case err != nil:
			return fmt.Errorf("uidplugin: %w", err)
		}
	}
	s.supply = supply.New(s.supplyConfig(db, loc))
	s.catalog = newCatalog(s.Config, db, statements, s.supply)
	loc.supply = s.supply
	s.locator.Store(loc)
	ctx := context.Background()
	if err := s.catalog.addModels(ctx, db, s.Models); err != nil {
		return err
	}
	if s.LookupOnly {
		return nil
	}
	if s.manager != nil && s.Spares() > 0 {
		if err := s.supply.TakeSpares(); err != nil {
			return err
		}
	}
	if err := s.supply.OpenSegments(s.catalog.later); err != nil {
		return err
	}
	s.catalog.inspect(ctx, db, s.Models)
	return nil
}

// supplyConfig returns what the Supply needs.
func (s *shared) supplyConfig(db *gorm.DB, loc *locator) supply.Config {
	config := supply.Config{
		Layout: s.Layout, Specs: s.Specs, Default: s.Generator, Timeout: s.Timeout, Segments: s.Segments, Log: s.Log, Now: s.Now,
		DB: db, Manager: s.manager, Database: s.database, Registry: db, OneEach: s.OneEach, LookupOnly: s.LookupOnly, MaxBorrow: s.MaxBorrow(), Time: loc.time,
	}
	if s.Fixed {
		config.Fixed, config.Clock = supply.NewFixed(s.Layout, s.WorkerID, s.FixedLead(), s.Now), generator.NewClock(loc.time)
		return config
	}
	config.Clock = s.space.idSpace.clock
	if loc.apart {
		config.Registry = s.Registry
	}
	return config
}

// Layout returns what the plugin's ids look like.
func (p *Plugin) Layout() generator.Layout {
	if p == nil || p.shared == nil {
		return generator.Layout{}
	}
	return p.shared.Layout
}

// Close ends the making of ids: every create that needs one then fails with [ErrClosed], waiting ones included. It
// waits for background work, and releases the slot. The next process gets the worker ids of the slot as soon as the
// clock has passed what was granted, and Lead.
//
// On a handle without the plugin there is nothing to release, so Close returns nil.
//
// Close waits at most until ctx ends. An error means that the slot was not released: it is free a minute later all the
// same. Close may be called more than once, and while the plugin is in use. Call it when the program ends, before the
// pool is closed.
func (p *Plugin) Close(ctx context.Context) error {
	s, err := p.initialized()
	if err != nil {
		return nil
	}
	ended := ctx.Err() // before anything could be done
	idle := s.supply.Close(ctx)
	if s.space != nil {
		err = s.space.leave(ctx, s) // if not idle as well: it renews no longer, and another process reclaims the slot
	}
	const notReleased = "uidplugin: close: the slot of this process, with its worker ids, was not released"
	switch {
	case ended != nil && (err != nil || !idle):
		return fmt.Errorf("%s: the context ended (%w) before Close was called; call Close again with another context", notReleased, ended)
	case !idle:
		return fmt.Errorf("%s: the context ended (%w) while a worker id was still being taken, or a generator did not end;"+
			" call Close again with another context", notReleased, ctx.Err())
	case sqldb.IsPoolClosed(err):
		return fmt.Errorf("%s; call Close before the pool is closed: %w", notReleased, err)
	case err != nil:
		return fmt.Errorf("%s: %w", notReleased, err)
	}
	return nil
}

// initialized returns what is shared if db.Use has initialized it.
func (p *Plugin) initialized() (*shared, error) {
	if p == nil || p.shared == nil || !p.shared.registered.Load() {
		return nil, fmt.Errorf("%w: call db.Use(uidplugin.New()) first, on this handle or the one it was made from; if you did, it has returned an error", ErrNotRegistered)
	}
	return p.shared, nil
}
