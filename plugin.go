// Package uidplugin is a GORM plugin that gives rows their keys: 64-bit ids that
// are unique across all processes, ascend in time, are known before the INSERT,
// cost what an increment costs, and resolve to their table, their process and
// their row.
//
//	db.Use(uidplugin.New(uidplugin.WithModels(&Order{})))
//
//	type Order struct {
//		ID    uidplugin.ID `gorm:"primaryKey;uid"`
//		Total int
//	}
//	db.Create(&order)                                      // order.ID is set
//	where, err := uidplugin.From(db).Locate(ctx, order.ID) // table, host, time ...
//	row, err := uidplugin.From(db).Find(ctx, order.ID)     // *Order
//
// What an id looks like is a [generator.Layout]; how ids are made is a
// [generator.Generator]; who may make which is settled in four tables
// of the same database, by package workernode. docs/architecture.md has the
// picture.
package uidplugin

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/uidplugin/uidplugin/generator"
	"github.com/uidplugin/uidplugin/internal/config"
	"github.com/uidplugin/uidplugin/internal/sqldb"
	"github.com/uidplugin/uidplugin/internal/supply"
	"github.com/uidplugin/uidplugin/migrations"
	"github.com/uidplugin/uidplugin/workernode"
	"gorm.io/gorm"
	"gorm.io/gorm/schema"
)

// Name is the name under which GORM knows the plugin.
const Name = "uidplugin"

// A Plugin sets the fields of models that are tagged gorm:"uid" when rows are
// created, and resolves ids to where they came from. [New] makes one for one
// database handle; [From] finds it again. All methods but Initialize may be
// called by any number of goroutines at once.
type Plugin struct {
	core *core
	db   *gorm.DB // what Find queries
}

var _ gorm.Plugin = (*Plugin)(nil)

// core is what all handles on a plugin share.
type core struct {
	*config.Config

	initialize sync.Mutex // held by Initialize
	registered atomic.Bool

	// Set by Initialize, and not changed after registered is true.
	db      *gorm.DB
	sql     *sqldb.DB           // nil with a fixed worker id
	wdb     *workernode.DB      // nil with a fixed worker id
	manager *workernode.Manager // nil with a fixed worker id
	supply  *supply.Supply
	time    func() time.Time // the clock of the generators
	later   []*supply.Source // to be opened after Initialize
	undo    []func()         // what to do to GORM's schemas if Initialize fails

	plans atomic.Pointer[map[*schema.Schema]*plan] // the map is never changed, only replaced, under mu

	mu     sync.Mutex
	models map[string]*plan // by table: those that were listed, which Find loads
	warned map[string]bool  // by table: of AUTO_INCREMENT

	nodes sync.Map // worker id -> *workernode.Node; what Locate uses of a node never changes
}

// New returns a plugin for db.Use. It does nothing yet; what is wrong with the
// options is reported by db.Use. The handle is best given the plugin before it is
// shared between goroutines, because GORM's registration of callbacks is not safe
// for concurrent use, and before AutoMigrate.
func New(options ...Option) *Plugin {
	return &Plugin{core: &core{Config: newConfig(options)}}
}

// newConfig returns what options say.
func newConfig(options []Option) *config.Config {
	c := config.New()
	for _, o := range options {
		if o != nil {
			o(c)
		}
	}
	return c
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
			return &Plugin{core: p.core, db: db}
		}
	}
	return &Plugin{}
}

// Name implements [gorm.Plugin].
func (p *Plugin) Name() string { return Name }

// Initialize implements [gorm.Plugin]; db.Use calls it. It checks the options,
// creates or extends the four tables of package workernode unless told
// otherwise, compares the layout with the database's, gets worker ids for the
// models of WithModels, and opens their segments and other sources. If it fails,
// nothing is registered, and it may be tried again.
//
// A segment that the database cannot be reached for, and a source of WithSource that
// fails, are no errors: the log and Health tell of them, and they are opened again.
func (p *Plugin) Initialize(db *gorm.DB) error {
	if p.core == nil {
		return fmt.Errorf("%w: a Plugin is made by New", ErrNotRegistered)
	}
	c := p.core
	c.initialize.Lock()
	defer c.initialize.Unlock()
	if c.registered.Load() {
		if db.Config.Plugins[Name] == gorm.Plugin(p) {
			// Opened with a copy of the configuration, as dbresolver opens its replicas.
			if db.Callback().Create().Get("uidplugin:fill") == nil {
				return c.register(db)
			}
			return nil
		}
		return fmt.Errorf("%w: this plugin is already in use by another database handle; each needs one of its own from New", ErrOption)
	}
	if db == nil || db.Config == nil || db.Statement == nil {
		return fmt.Errorf("%w: the database handle is not connected: gorm.Open has returned an error", ErrOption)
	}
	if _, ok := db.Statement.ConnPool.(gorm.TxCommitter); ok {
		return fmt.Errorf("%w: the database handle is a transaction, which ends before the plugin does; use the one that gorm.Open returned", ErrOption)
	}
	if err := c.open(db); err != nil {
		c.abandon()
		return err
	}
	if err := c.register(db); err != nil {
		c.abandon()
		return fmt.Errorf("uidplugin: register callbacks: %w", err)
	}
	p.db = db
	c.registered.Store(true)
	db.Config.Plugins[Name] = p // db.Use does so when this returns, but openers may ask From(db)
	c.supply.Start(c.later)
	c.later = nil
	if left := c.Layout.Expires().Sub(c.Now()); left < 365*24*time.Hour {
		c.Log.Warn("uidplugin: the layout ends within a year; then no id can be made",
			"layout", c.Layout.String(), "ends", c.Layout.Expires(), "days", int(left.Hours()/24))
	}
	return nil
}

// abandon releases what a failed Initialize has taken, and leaves GORM's schemas as they were: a
// program that goes on without the plugin must not insert rows without a key.
func (c *core) abandon() {
	for _, undo := range c.undo {
		undo()
	}
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	if c.supply != nil {
		c.supply.Close(ctx) // openers may take their time
	}
	if c.manager != nil {
		ctx, cancel := context.WithTimeout(context.Background(), time.Second)
		defer cancel()
		_ = c.manager.Close(ctx)
		c.manager = nil
	}
}

// open does all of Initialize that can fail.
func (c *core) open(db *gorm.DB) error {
	if err := c.Validate(); err != nil {
		return err
	}
	// What a failed attempt may have left belongs to another database.
	c.db, c.later, c.undo, c.supply, c.time = db, nil, nil, nil, c.Now
	c.plans.Store(&map[*schema.Schema]*plan{})
	c.models, c.warned = map[string]*plan{}, map[string]bool{}
	if !c.Fixed {
		if err := c.openRegistry(db); err != nil {
			return err
		}
	}
	c.supply = supply.New(c.supplyConfig())
	ctx := context.Background()
	if err := c.addModels(ctx, db, c.Models); err != nil {
		return err
	}
	if c.manager != nil && c.Spares() > 0 {
		if err := c.supply.TakeSpares(); err != nil {
			return err
		}
	}
	if err := c.supply.OpenSegments(c.later); err != nil {
		return err
	}
	c.inspect(ctx, db, c.Models)
	return nil
}

// supplyConfig returns what the Supply needs.
func (c *core) supplyConfig() supply.Config {
	config := supply.Config{
		Layout: c.Layout, Specs: c.Specs, Default: c.Generator, Timeout: c.Timeout, Segments: c.Segments, Log: c.Log, Now: c.Now,
		DB: c.db, Manager: c.manager, OneEach: c.OneEach, MaxBorrow: c.MaxBorrow(), Clock: generator.NewClock(c.time), Time: c.time,
	}
	if c.Fixed {
		config.Fixed = supply.NewFixed(c.Layout, c.WorkerID, c.FixedLead(), c.Now)
	}
	return config
}

func (c *core) openRegistry(db *gorm.DB) (err error) {
	ctx, cancel := context.WithTimeout(context.Background(), c.Timeout)
	defer cancel()
	if c.sql, err = sqldb.Open(db, c.Timeout); err != nil {
		return fmt.Errorf("uidplugin: %w", err)
	}
	if c.wdb, err = workernode.Open(db, c.Timeout); err != nil {
		return fmt.Errorf("uidplugin: %w", err)
	}
	if err := c.reach(ctx); err != nil {
		return fmt.Errorf("uidplugin: %w", err)
	}
	c.manager, err = workernode.NewManager(ctx, c.wdb, c.Layout, c.DetectHost(), workernode.Config{
		Lead: c.Lead, Disposable: c.Disposable, Spares: c.Spares(), MaxSkew: c.Skew(), Now: c.Now, Log: c.Log,
	})
	if err != nil {
		return fmt.Errorf("uidplugin: %w", err)
	}
	c.time = c.manager.Now
	return nil
}

// reach looks at the tables and settings of the database.
func (c *core) reach(ctx context.Context) (err error) {
	if c.NoMigration {
		err = migrations.Check(ctx, c.db)
	} else {
		err = migrations.Up(ctx, c.db)
	}
	if err != nil {
		return err
	}
	if err := c.wdb.OneDatabase(ctx); err != nil {
		return err
	}
	if risks := c.sql.DurabilityRisks(ctx); len(risks) > 0 {
		c.Log.Warn("uidplugin: the database may lose what it has acknowledged, and with it who may make which ids: two rows could get one id",
			"settings", strings.Join(risks, "; "))
	}
	return c.wdb.CheckClock(ctx, c.Now, c.Skew())
}

// Layout returns what the plugin's ids look like.
func (p *Plugin) Layout() generator.Layout {
	if p == nil || p.core == nil {
		return generator.Layout{}
	}
	return p.core.Layout
}

// Close ends the making of ids: every create that needs one then fails with
// [ErrClosed], those that wait included. It waits for what goes on in the
// background, and releases the slot, so that the next process gets its worker ids as soon
// as the clock has passed what was granted, and Lead; until ctx ends. An error means that the slot was not
// released: it is free a minute later all the same. It may be called more than once, and while the
// plugin is in use. Call it when the program ends, before the pool is closed.
func (p *Plugin) Close(ctx context.Context) error {
	c, err := p.ready()
	if err != nil {
		return err
	}
	if !c.supply.Close(ctx) {
		if c.manager != nil {
			_ = c.manager.Close(ctx) // it renews no longer, and another process reclaims the slot
		}
		return fmt.Errorf("uidplugin: close: a worker id is still being taken, or a generator does not end: %w", ctx.Err())
	}
	if c.manager == nil {
		return nil
	}
	if err := c.manager.Close(ctx); err != nil {
		if sqldb.IsPoolClosed(err) {
			return fmt.Errorf("uidplugin: close: the slot of this process, with its worker ids, was not released;"+
				" call Close before the pool is closed: %w", err)
		}
		return fmt.Errorf("uidplugin: close: the slot of this process, with its worker ids, was not released: %w", err)
	}
	return nil
}

// ready returns the core if db.Use has initialized it.
func (p *Plugin) ready() (*core, error) {
	if p == nil || p.core == nil || !p.core.registered.Load() {
		return nil, fmt.Errorf("%w: call db.Use(uidplugin.New()) first, on this handle or the one it was made from; if you did, it has returned an error", ErrNotRegistered)
	}
	return p.core, nil
}
