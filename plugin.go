// Package uidplugin is a GORM plugin that gives rows their keys: 64-bit ids that
// are unique across all processes, ascend in time, are known before the INSERT,
// cost what an increment costs, and resolve to their table, their process and
// their row.
//
//	db.Use(uidplugin.New(uidplugin.WithModels(&Order{})))
//
//	type Order struct {
//		ID    int64 `gorm:"primaryKey;autoIncrement:false;uid"`
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
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/uidplugin/uidplugin/generator"
	"github.com/uidplugin/uidplugin/internal/model"
	"github.com/uidplugin/uidplugin/internal/sqldb"
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
	config
	largest int64 // largest id of the layout

	initialize sync.Mutex // held by Initialize
	registered atomic.Bool
	opens      atomic.Bool // there are ids that are not of the layout

	// Set by Initialize, and not changed after registered is true.
	db      *gorm.DB
	sql     *sqldb.DB           // nil with a fixed worker id
	wdb     *workernode.DB      // nil with a fixed worker id
	manager *workernode.Manager // nil with a fixed worker id
	own     fixed               // the fixed worker id
	clock   *generator.Clock
	time    func() time.Time // what clock reads
	later   []*source        // to be opened after Initialize

	plans atomic.Pointer[map[*schema.Schema]*plan] // the map is never changed, only replaced, under mu

	mu        sync.Mutex
	sources   map[sourceKey]*source
	segmentOf map[string]*tableSegment // by tag
	models    map[string]*plan         // by table: those that were listed, which Find loads
	warned    map[string]bool          // by table: of AUTO_INCREMENT
	closed    bool
	used      chan struct{} // closed when Initialize has returned

	nodes sync.Map // worker id -> *workernode.Node; what Locate uses of a node never changes

	// Work in the background: ctx ends and the group is waited for in Close.
	ctx        context.Context
	cancel     context.CancelFunc
	background sync.WaitGroup
}

// New returns a plugin for db.Use. It does nothing yet; what is wrong with the
// options is reported by db.Use. The handle is best given the plugin before it is
// shared between goroutines, because GORM's registration of callbacks is not safe
// for concurrent use, and before AutoMigrate.
func New(options ...Option) *Plugin {
	c := &core{config: newConfig(options)}
	c.ctx, c.cancel = context.WithCancel(context.Background())
	return &Plugin{core: c}
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
	used := make(chan struct{})
	defer close(used)
	c.mu.Lock()
	c.used = used
	c.mu.Unlock()
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
	c.openLater()
	if left := c.layout.Expires().Sub(c.now()); left < 365*24*time.Hour {
		c.log.Warn("uidplugin: the layout ends within a year; then no id can be made",
			"layout", c.layout.String(), "ends", c.layout.Expires(), "days", int(left.Hours()/24))
	}
	return nil
}

// abandon gives back what a failed Initialize has taken.
func (c *core) abandon() {
	idle := make(chan struct{})
	go func() {
		c.background.Wait()
		close(idle)
	}()
	select {
	case <-idle:
	case <-time.After(time.Second): // an opener that takes its time
	}
	c.mu.Lock()
	sources := c.sources
	c.sources = map[sourceKey]*source{} // an opener that returns later finds that nobody wants its generator
	c.mu.Unlock()
	for _, s := range sources {
		if m := s.made.Load(); m != nil && s.open {
			m.Close()
		}
	}
	if c.manager != nil {
		ctx, cancel := context.WithTimeout(c.ctx, time.Second)
		defer cancel()
		_ = c.manager.Close(ctx)
		c.manager = nil
	}
}

// open does all of Initialize that can fail.
func (c *core) open(db *gorm.DB) error {
	if err := c.validate(); err != nil {
		return err
	}
	c.largest = 1<<(c.layout.TimeBits+c.layout.WorkerBits+c.layout.SequenceBits) - 1
	c.clock, c.time = generator.NewClock(c.now), c.now
	c.db, c.later = db, nil
	// What a failed attempt may have left belongs to another database.
	c.plans.Store(&map[*schema.Schema]*plan{})
	c.sources, c.models, c.warned = map[sourceKey]*source{}, map[string]*plan{}, map[string]bool{}
	c.segmentOf = map[string]*tableSegment{}
	if c.fixed {
		c.own = c.newFixed(c.now())
	} else if err := c.openRegistry(db); err != nil {
		return err
	}
	if err := c.addModels(c.ctx, db, c.given); err != nil {
		return err
	}
	if err := c.takeSpares(); err != nil {
		return err
	}
	if err := c.openSegments(); err != nil {
		return err
	}
	c.inspect(c.ctx, db, c.given)
	return nil
}

func (c *core) openRegistry(db *gorm.DB) (err error) {
	ctx, cancel := context.WithTimeout(c.ctx, c.timeout)
	defer cancel()
	if c.sql, err = sqldb.Open(db, c.timeout); err != nil {
		return fmt.Errorf("uidplugin: %w", err)
	}
	if c.wdb, err = workernode.Open(db, c.timeout); err != nil {
		return fmt.Errorf("uidplugin: %w", err)
	}
	if err := c.reach(ctx); err != nil {
		return fmt.Errorf("uidplugin: %w", err)
	}
	c.manager, err = workernode.NewManager(ctx, c.wdb, c.layout, c.detectHost(), workernode.Config{
		Lead: c.lead, Disposable: c.disposable, Spares: c.spares(), MaxSkew: c.skew(), Now: c.now, Log: c.log,
	})
	if err != nil {
		return fmt.Errorf("uidplugin: %w", err)
	}
	c.clock, c.time = generator.NewClock(c.manager.Now), c.manager.Now
	return nil
}

// reach looks at the tables and settings of the database.
func (c *core) reach(ctx context.Context) (err error) {
	if c.noMigration {
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
		c.log.Warn("uidplugin: the database may lose what it has acknowledged, and with it who may make which ids: two rows could get one id",
			"settings", strings.Join(risks, "; "))
	}
	return c.wdb.CheckClock(ctx, c.now, c.skew())
}

// takeSpares takes the worker ids in reserve, unless those of the models came with them.
func (c *core) takeSpares() error {
	if c.manager == nil || c.spares() == 0 {
		return nil
	}
	ctx, cancel := context.WithTimeout(c.ctx, c.timeout)
	defer cancel()
	if err := c.manager.Start(ctx); err != nil {
		return c.noWorkerID(err, "the tables to come")
	}
	return nil
}

// Register does for models what WithModels does: it gets worker ids for them and
// for the models they are associated with, opens their segments and other sources, makes AutoMigrate
// create plain BIGINT keys, and lets Find load rows of models, but not of associated ones. As it changes what GORM knows of a model,
// it must come before the model, and those it is associated with, are used: one that
// is in use stays as it is.
func (p *Plugin) Register(ctx context.Context, models ...any) error {
	c, err := p.ready()
	if err != nil {
		return err
	}
	if err := c.addModels(ctx, p.db, models); err != nil {
		return err
	}
	c.inspect(ctx, p.db, models)
	return nil
}

// AutoMigrate registers those of models that have a uid field, and then calls
// GORM's AutoMigrate for all, so that keys become plain BIGINT columns. As
// Register, it must come before the models are used.
func (p *Plugin) AutoMigrate(models ...any) error {
	c, err := p.ready()
	if err != nil {
		return err
	}
	var ours []any
	for _, m := range models {
		s, err := model.Parse(p.db, m)
		if err != nil {
			return err
		}
		if len(model.UIDFields(s)) > 0 {
			ours = append(ours, m)
		} else if err := model.Join(s, model.CheckForeignKeys(s, c.target())); err != nil {
			return err
		}
	}
	if err := c.addModels(p.db.Statement.Context, p.db, ours); err != nil {
		return err
	}
	if err := p.db.AutoMigrate(models...); err != nil {
		return err
	}
	c.inspect(p.db.Statement.Context, p.db, ours) // GORM leaves keys that are there as they are
	return nil
}

// addModels prepares models for use.
func (c *core) addModels(ctx context.Context, db *gorm.DB, models []any) error {
	var errs []error
	var sources []*source
	for _, m := range models {
		s, err := model.Parse(db, m)
		if err != nil {
			errs = append(errs, err)
			continue
		}
		if len(model.UIDFields(s)) == 0 {
			errs = append(errs, fmt.Errorf(`%w: %T; tag its key gorm:"primaryKey;uid", or leave the model out`, ErrNoField, m))
			continue
		}
		c.makePlain(db, s)
		plan := c.plan(s)
		if plan.err != nil {
			errs = append(errs, plan.err)
			continue
		}
		sources = append(sources, plan.sources...)
		c.mu.Lock()
		c.models[s.Table] = plan
		c.mu.Unlock()
	}
	if err := errors.Join(errs...); err != nil || len(sources) == 0 {
		return err
	}
	if !c.registered.Load() {
		// Openers are called by openSegments and openLater.
		sources = slices.DeleteFunc(sources, func(s *source) bool {
			if s.open {
				c.later = append(c.later, s)
			}
			return s.open
		})
	}
	if len(sources) == 0 {
		return nil
	}
	return c.ensure(ctx, db, sources)
}

// NextID returns the id that a new row of a model may have: of its primary key, if
// that is a uid field, else of its first uid field. model is a pointer to a
// struct. A row that is then created with the id keeps it.
func (p *Plugin) NextID(ctx context.Context, model any) (int64, error) {
	c, err := p.ready()
	if err != nil {
		return 0, err
	}
	_, f, err := c.keyOf(p.db, model)
	if err != nil {
		return 0, err
	}
	if err := c.ensure(ctx, p.db, []*source{f.source}); err != nil {
		return 0, err
	}
	return f.source.next(ctx, nil)
}

// Layout returns what the plugin's ids look like.
func (p *Plugin) Layout() generator.Layout {
	if p == nil || p.core == nil {
		return generator.Layout{}
	}
	return p.core.layout
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
	c.mu.Lock()
	c.closed = true
	c.cancel()
	var made []*made
	for _, s := range c.sources {
		if m := s.made.Load(); m != nil {
			made = append(made, m)
		}
	}
	c.mu.Unlock()
	idle := make(chan struct{})
	go func() {
		for _, m := range made {
			m.Close()
		}
		c.background.Wait()
		close(idle)
	}()
	select {
	case <-idle:
	case <-ctx.Done():
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
		return nil, fmt.Errorf("%w: call db.Use(uidplugin.New()) first, on this handle or the one it was made from", ErrNotRegistered)
	}
	return p.core, nil
}
