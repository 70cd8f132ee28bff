// Package uidplugin is a GORM plugin that gives new rows 64-bit keys. The ids are unique across all processes and
// ascend in time. They are known before the INSERT, and making one costs about as much as an increment. Each id
// resolves to its table, its process and its row.
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
// A field tagged uid gets an id when a row is created without one. The field is an int64, a uint64, an [ID], a string,
// or a type with Scan and Value. A sole key of type [ID] needs no tag.
//
// You should list all models with [WithModels]. Otherwise the first row of a table needs a second connection, to get
// a worker id for the table. Inside a transaction on a pool of one connection, that create fails with
// [ErrInTransaction].
//
// # Generators
//
// The tag can name a generator, as in gorm:"uid:segment":
//
//   - cached, the default: keeps ids ready, so each costs an increment
//   - snowflake: reads the clock for each id
//   - paired: switches to a second worker id while the clock is set back
//   - segment: small numbers from a counter in the database, like Leaf
//   - your own, added by [WithGenerator] or [WithSource]
//
// # Lookups
//
// [Plugin.Decode] splits an id. [Plugin.Locate] returns its table, process and time. [Plugin.Find] loads its row, and
// [FindAs] loads rows of one model. [Plugin.CreatedBetween] finds rows by the time in their keys.
//
// For ids that users send, use the keys of package publicid, which are texts outside the database. [OnlyModels] and
// [Scoped] restrict the rows that users may see.
//
// # Processes
//
// A [generator.Layout] divides an id into time, worker id and sequence. Each process holds a slot, which owns worker
// ids. Slots and worker ids are in four tables, in the database of the rows or that of [WithRegistry]; see
// docs/how-it-works.md. While the database is unreachable, a process continues to make ids for as long as [WithLead]
// allows. [Plugin.Health] reports whether ids can be made, [Plugin.Stats] returns counters and the state of the slot,
// and [Plugin.Close] releases it.
package uidplugin

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/uidplugin/uidplugin/generator"
	"github.com/uidplugin/uidplugin/internal/adopt"
	"github.com/uidplugin/uidplugin/internal/catalog"
	"github.com/uidplugin/uidplugin/internal/config"
	"github.com/uidplugin/uidplugin/internal/core"
	"github.com/uidplugin/uidplugin/internal/fill"
	"github.com/uidplugin/uidplugin/internal/lookup"
	"github.com/uidplugin/uidplugin/internal/narrow"
	"github.com/uidplugin/uidplugin/internal/sqldb"
	"github.com/uidplugin/uidplugin/internal/supply"
	"github.com/uidplugin/uidplugin/workernode"
	"gorm.io/gorm"
)

const name = "uidplugin"

// A Plugin sets fields tagged gorm:"uid" when rows are created, and resolves ids to their origin. [New] returns one for
// one database handle, and [From] finds it again. All methods except Initialize are safe for concurrent use.
type Plugin struct {
	shared *shared
	db     *gorm.DB // the methods use this handle
}

var _ gorm.Plugin = (*Plugin)(nil)

// shared is the state of a plugin. All Plugins that [From] returns for the plugin share it.
type shared struct {
	*config.Config

	initialize sync.Mutex // held by Initialize
	registered atomic.Bool

	// Set by each attempt of Initialize, and constant once registered is true.
	space    *sharedSpace        // nil with a fixed worker id
	manager  *workernode.Manager // of the id space
	home     *sqldb.DB           // finds the schemas of tables named without one; nil with a fixed worker id
	database string              // of the rows, as WORKER_NODE names it; may be empty if it is the registry's
	supply   *supply.Supply
	catalog  *catalog.Catalog
	filler   *fill.Filler
	narrow   *narrow.Guard
	adopt    *adopt.Numbering
	tables   *sqldb.DB                      // reads the models' tables; nil with a fixed worker id
	locator  atomic.Pointer[lookup.Locator] // set by New, because Decode works before Initialize
	core     *core.Core
}

// New returns a plugin for db.Use. It does nothing yet; db.Use reports invalid options. Call db.Use before AutoMigrate
// and before goroutines share the handle, because GORM's registration of callbacks is not safe for concurrent use.
func New(options ...Option) *Plugin {
	s := &shared{Config: newConfig(options)}
	s.locator.Store(s.newLocator())
	return &Plugin{shared: s}
}

// newLocator returns a locator that can only decode ids.
func (s *shared) newLocator() *lookup.Locator {
	return &lookup.Locator{Config: s.Config, Clock: s.Now, IDError: newIDError}
}

// From returns the plugin of a database handle, for calls such as From(db).Locate(ctx, id). Find and FindAll then query
// db, so its conditions apply. If db is in a transaction, they read within it.
//
// From never returns nil. If db does not have the plugin, every method that can return an error returns
// [ErrNotRegistered], except Close.
func From(db *gorm.DB) *Plugin {
	if db != nil && db.Config != nil {
		if p, ok := db.Config.Plugins[name].(*Plugin); ok {
			return &Plugin{shared: p.shared, db: db}
		}
	}
	return &Plugin{}
}

// Name implements [gorm.Plugin]: GORM registers the plugin as "uidplugin".
func (p *Plugin) Name() string { return name }

// Initialize implements [gorm.Plugin]; db.Use calls it. It checks the options and the database's layout, and creates or
// extends the plugin's four tables unless [WithoutMigration] is given. It gets worker ids for the models of WithModels,
// and opens their segments and other sources. If it fails, nothing is registered, and you can try again.
//
// Initialize succeeds even if the database of a segment is unreachable or a source of WithSource fails. The log and
// Health report the failure, and the plugin tries again.
func (p *Plugin) Initialize(db *gorm.DB) error {
	if p.shared == nil {
		return fmt.Errorf("%w: create plugins with New", ErrNotRegistered)
	}
	if db == nil || db.Config == nil || db.Statement == nil {
		return fmt.Errorf("%w: the database handle is not connected: gorm.Open has returned an error", ErrOption)
	}
	s := p.shared
	s.initialize.Lock()
	defer s.initialize.Unlock()
	if s.registered.Load() {
		if db.Config.Plugins[name] == gorm.Plugin(p) {
			// dbresolver opens its replicas with a copy of the configuration, which has the plugin but no callbacks.
			if db.Callback().Create().Get("uidplugin:fill") == nil {
				return s.registerCallbacks(db)
			}
			return nil
		}
		return fmt.Errorf("%w: this plugin is already in use by another database handle; each handle needs its own plugin from New (WithRegistry lets them share an id space)", ErrOption)
	}
	if isTransaction(db) {
		return fmt.Errorf("%w: the database handle is a transaction; use the handle that gorm.Open returned", ErrOption)
	}
	if err := s.open(db); err != nil {
		s.abandon()
		return err
	}
	if err := s.registerCallbacks(db); err != nil {
		s.abandon()
		return fmt.Errorf("uidplugin: register callbacks: %w", err)
	}
	p.db = db
	s.registered.Store(true)
	db.Config.Plugins[name] = p // db.Use sets it later, but functions that open a source may call From(db) now
	db.Config.Plugins[core.Name] = s.core
	s.catalog.Start()
	s.adopt.Start()
	s.supply.Start(s.catalog.Later())
	if left := s.Layout.Expires().Sub(s.Now()); left < 365*24*time.Hour {
		s.Log.Warn("uidplugin: the layout ends within a year; after that no ids can be made",
			"layout", s.Layout.String(), "ends", s.Layout.Expires(), "days", int(left.Hours()/24))
	}
	return nil
}

func isTransaction(db *gorm.DB) bool {
	_, ok := db.Statement.ConnPool.(gorm.TxCommitter)
	return ok
}

// abandon releases everything that a failed Initialize has taken. It lets GORM expect keys from the database again,
// because otherwise a program that continues without the plugin would insert rows with the key 0.
func (s *shared) abandon() {
	if s.adopt != nil {
		s.adopt.Undo()
	}
	ctx, cancel := context.WithTimeout(context.Background(), closeTimeout)
	defer cancel()
	if s.supply != nil {
		s.supply.Close(ctx) // may take long, because functions that open a source may still run
	}
	if s.space != nil {
		ctx, cancel := context.WithTimeout(context.Background(), closeTimeout)
		defer cancel()
		_ = s.space.leave(ctx, s)
		s.space, s.manager = nil, nil
	}
}

// open does the work of Initialize up to the registration of callbacks.
func (s *shared) open(db *gorm.DB) error {
	if err := s.Validate(); err != nil {
		return err
	}
	s.supply, s.catalog, s.adopt = nil, nil, nil // the previous attempt may have used another database
	loc := s.newLocator()
	var statements *sqldb.DB
	if s.Fixed {
		if err := s.excludeRegistry(db); err != nil {
			return err
		}
	} else {
		var err error
		if statements, err = sqldb.Open(db, s.Timeout); err == nil {
			err = s.join(db, statements, loc)
		}
		switch {
		case sqldb.IsNoDatabase(err):
			return fmt.Errorf("uidplugin: %w; call db.Use on a connection whose data source name contains the database", err)
		case err != nil:
			return fmt.Errorf("uidplugin: %w", err)
		}
	}
	cfg, err := s.supplyConfig(db, loc)
	if err != nil {
		return err
	}
	s.supply = supply.New(cfg)
	s.catalog = catalog.New(s.Config, db, s.supply)
	s.filler = fill.New(s.catalog, s.supply)
	s.adopt = adopt.New(s.Config, db, statements, s.catalog, s.supply, loc.WorkersFor)
	s.narrow = narrow.New(s.Config, db, statements, s.catalog)
	s.tables = statements
	loc.Supply, loc.Catalog = s.supply, s.catalog
	s.core = core.New(loc, s.home)
	s.wireWings(loc)
	s.locator.Store(loc)
	ctx := context.Background()
	if err := s.add(ctx, db, s.Models); err != nil {
		return err
	}
	if s.LookupOnly {
		return nil
	}
	if err := s.supply.OpenCounters(s.catalog.Later()); err != nil {
		return err
	}
	s.inspect(ctx, db, s.Models)
	return nil
}

func (s *shared) supplyConfig(db *gorm.DB, loc *lookup.Locator) (_ supply.Config, err error) {
	var wall *supply.Wall
	if s.Fixed && !s.Injected {
		wall = supply.NewWall(s.Now)
		loc.Clock = wall.Now
	}
	config := supply.Config{
		Layout: s.Layout, Specs: s.Specs, Default: s.Generator, Timeout: s.Timeout, Log: s.Log, Now: s.Now,
		DB: db, Manager: s.manager, Database: s.database, Registry: db, OneEach: s.OneEach, LookupOnly: s.LookupOnly, MaxBorrow: s.MaxBorrow(), Time: loc.Clock, Wall: wall,
	}
	if s.Fixed {
		config.Clock = generator.NewClock(loc.Clock)
		if _, makes := s.LargestFixed(); !makes || s.Injected || s.Alone {
			config.Fixed = supply.NewFixed(s.Layout, s.WorkerID, s.FixedLead(), s.Now)
		} else {
			config.Fixed, err = supply.ShareFixed(s.Layout, s.WorkerID, s.FixedLead(), s.Now, s.Generator, s.Specs[s.Generator].Lanes)
		}
		return config, err
	}
	config.Clock, config.Schema, config.Current = s.space.idSpace.clock, s.space.idSpace.sql.Schema(), s.home.Current()
	if loc.Apart {
		config.Registry = s.Registry
	}
	return config, nil
}

// Layout returns the layout of the plugin's ids. It is zero on a handle without the plugin.
func (p *Plugin) Layout() generator.Layout {
	if p == nil || p.shared == nil {
		return generator.Layout{}
	}
	return p.shared.Layout
}

// Close stops the making of ids and, if no other plugin of the process shares the slot, releases it. Creates that
// need an id, including those already waiting, then fail with [ErrClosed]. Another process can use the slot's worker
// ids when its clock is about Lead past the last tick that this process was granted.
//
// Close waits for background work until ctx ends, and for the release 0.1 s longer. An error means that the slot
// may not be released; it becomes free about a minute after that tick anyway. On a handle without the plugin Close
// returns nil.
//
// Call Close when the program ends, before closing the pool. You may call it twice, or while the plugin is in use.
func (p *Plugin) Close(ctx context.Context) error {
	s, err := p.initialized()
	if err != nil {
		return nil
	}
	ended := ctx.Err() // not nil if ctx had ended before the call
	idle := s.supply.Close(ctx)
	if s.space != nil {
		err = s.space.leave(ctx, s) // even if !idle: then renewals stop, and another process can reclaim the slot
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

func (p *Plugin) initialized() (*shared, error) {
	if p == nil || p.shared == nil || !p.shared.registered.Load() {
		return nil, core.NotRegistered()
	}
	return p.shared, nil
}
