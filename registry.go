package uidplugin

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/uidplugin/uidplugin/generator"
	"github.com/uidplugin/uidplugin/internal/config"
	"github.com/uidplugin/uidplugin/internal/lookup"
	"github.com/uidplugin/uidplugin/internal/sqldb"
	"github.com/uidplugin/uidplugin/internal/supply"
	"github.com/uidplugin/uidplugin/workernode"
	"gorm.io/gorm"
)

// An idSpace holds the open handles of an id space: its tables, and the lease manager, which holds a slot.
type idSpace struct {
	sql     *sqldb.DB
	wdb     *workernode.DB // the WORKER tables
	manager *workernode.Manager
	clock   *generator.Clock // shared by the generators
}

// A sharedSpace is the id space of one plugin, or of all plugins in this process with the same handle of WithRegistry.
type sharedSpace struct {
	pool  any                        // of the handle of WithRegistry; nil without WithRegistry
	users map[*shared]tablesDatabase // plugins that use it; guarded by the mutex of sharedSpaces

	mu      sync.Mutex // held while opening
	idSpace *idSpace   // nil until open
	options *config.Config
}

type tablesDatabase struct {
	name string // as in WORKER_NODE; empty for the registry's database
	pool any
}

// sharedSpaces holds the id spaces of WithRegistry that are in use or being opened, by their pools.
var sharedSpaces = struct {
	mu     sync.Mutex
	byPool map[any]*sharedSpace
}{byPool: map[any]*sharedSpace{}}

// join opens the id space, or joins plugins that share it. statements must belong to db.
func (s *shared) join(db *gorm.DB, statements *sqldb.DB, loc *lookup.Locator) error {
	ctx, cancel := context.WithTimeout(context.Background(), s.Timeout)
	defer cancel()
	s.database = ""
	var err error
	if s.space, err = joinSpace(ctx, s, db); err != nil {
		return err
	}
	space := s.space.idSpace
	s.manager = space.manager
	loc.SQL, loc.Workers, loc.Manager, loc.Clock = space.sql, space.wdb, space.manager, space.manager.Now
	loc.Apart = s.Registry != nil && poolOf(s.Registry) != poolOf(db)
	s.home = space.sql
	if loc.Apart {
		if s.home, err = statements.Home(ctx); err != nil {
			return err
		}
		warnOfOwnSpace(ctx, s.Config, statements)
	}
	name := s.Database
	if name == "" && loc.Apart {
		if name, err = supply.DatabaseName(ctx, db, s.Timeout); err != nil {
			return err
		}
	}
	s.database, loc.TablesDatabase = name, name
	if s.space.nameDatabase(s, tablesDatabase{name, poolOf(db)}) && s.Database == "" {
		s.Log.Warn("uidplugin: two handles with one registry have databases of the same name, so Locate and Find cannot"+
			" distinguish them; if the databases differ, set WithDatabaseName", "database", name)
	}
	return nil
}

// joinSpace returns the id space of a plugin on db. The first plugin with a handle of WithRegistry opens its space.
func joinSpace(ctx context.Context, s *shared, db *gorm.DB) (*sharedSpace, error) {
	sp := &sharedSpace{users: map[*shared]tablesDatabase{s: {}}}
	if s.Registry != nil {
		sp, db = findSpace(s), s.Registry
	}
	err := sp.openFor(ctx, s.Config, db)
	if err != nil {
		ctx, cancel := context.WithTimeout(context.Background(), closeTimeout)
		defer cancel()
		_ = sp.leave(ctx, s) // closes the space if the other plugins have left meanwhile
		return nil, err
	}
	return sp, nil
}

// openFor opens the id space on db, or checks that the plugin can share it.
func (sp *sharedSpace) openFor(ctx context.Context, cfg *config.Config, db *gorm.DB) (err error) {
	sp.mu.Lock()
	defer sp.mu.Unlock()
	if sp.idSpace != nil {
		return cmp.Or(conflict(sp.options, cfg), sp.idSpace.manager.Registry().CheckRegion(cfg.Region))
	}
	sp.idSpace, err = openSpace(ctx, cfg, db)
	if err = sqldb.HintOfShards(err); err == nil {
		sp.options = cfg
	}
	return err
}

// findSpace returns the id space of a plugin with WithRegistry, and adds the plugin to its users. The space may not be
// open yet.
func findSpace(s *shared) *sharedSpace {
	pool := poolOf(s.Registry)
	sharedSpaces.mu.Lock()
	defer sharedSpaces.mu.Unlock()
	sp := sharedSpaces.byPool[pool]
	if sp == nil {
		sp = &sharedSpace{pool: pool, users: map[*shared]tablesDatabase{}}
		sharedSpaces.byPool[pool] = sp
	}
	sp.users[s] = tablesDatabase{}
	return sp
}

// poolOf returns the pool of a handle, without GORM's wrappers.
func poolOf(db *gorm.DB) any {
	if pool, err := db.DB(); err == nil && pool != nil {
		return pool
	}
	if pool := db.Config.ConnPool; pool != nil && reflect.TypeOf(pool).Comparable() {
		return pool
	}
	return db.Config
}

// nameDatabase notes a plugin's database, and reports whether a plugin on another pool has a database of this name.
func (sp *sharedSpace) nameDatabase(s *shared, b tablesDatabase) (taken bool) {
	sharedSpaces.mu.Lock()
	defer sharedSpaces.mu.Unlock()
	sp.users[s] = b
	for _, other := range sp.users {
		if other.pool != nil && other.pool != b.pool && other.name == b.name {
			return true
		}
	}
	return false
}

// leave removes a plugin. After the last plugin it closes the lease manager, which releases the slot. If closing
// fails, call leave again.
func (sp *sharedSpace) leave(ctx context.Context, s *shared) error {
	sharedSpaces.mu.Lock()
	delete(sp.users, s)
	users := len(sp.users)
	if users == 0 && sharedSpaces.byPool[sp.pool] == sp {
		delete(sharedSpaces.byPool, sp.pool)
	}
	sharedSpaces.mu.Unlock()
	sp.mu.Lock()
	space := sp.idSpace
	sp.mu.Unlock()
	if users > 0 || space == nil {
		return nil
	}
	return space.manager.Close(ctx)
}

func conflict(first, cfg *config.Config) error {
	differ := func(option string, value, own any) error {
		return fmt.Errorf("%w: %s: another plugin with the same handle of WithRegistry has %v, and this one has %v;"+
			" use the same value for both, because they share a slot", ErrOption, option, value, own)
	}
	switch {
	case first.Layout.String() != cfg.Layout.String():
		return differ("WithLayout", first.Layout, cfg.Layout)
	case first.Lead != cfg.Lead:
		return differ("WithLead", first.Lead, cfg.Lead)
	case first.Disposable != cfg.Disposable:
		return differ("WithDisposable", first.Disposable, cfg.Disposable)
	case first.Host != cfg.Host:
		return differ("WithHost", fmt.Sprintf("%+v", first.Host), fmt.Sprintf("%+v", cfg.Host))
	case first.Schema != cfg.Schema:
		return differ("WithSchema", strconv.Quote(first.Schema), strconv.Quote(cfg.Schema))
	case first.Injected != cfg.Injected:
		return differ("WithClock", first.Injected, cfg.Injected)
	}
	return nil
}

// closeTimeout limits how long a failed db.Use waits for the release of its slot.
const closeTimeout = time.Second

// warnOfOwnSpace warns if processes still make ids in the database's own id space, because that id space and the
// plugin's can make equal ids.
func warnOfOwnSpace(ctx context.Context, cfg *config.Config, statements *sqldb.DB) {
	statements, err := statements.Locate(ctx, "", "WithSchema")
	if err != nil {
		return
	}
	if _, err := statements.Columns(ctx, "WORKER_SLOT"); err != nil {
		return // the database does not have its own id space
	}
	slots, err := workernode.New(statements).Slots(ctx, cfg.Layout, 0, 1000) // 1,000 are enough, because live processes reuse the first slots
	if err != nil {
		return
	}
	if held := slices.IndexFunc(slots, func(s workernode.Slot) bool { return s.Held }); held >= 0 {
		cfg.Log.Warn("uidplugin: a process still makes ids in this database's own id space, or ended without Close;"+
			" stop all processes without WithRegistry first, because both id spaces can make the same ids",
			"host", slots[held].Host, "port", slots[held].Port)
	}
}

// openSpace checks the database's settings, creates or checks the tables on db, and creates the lease manager. Checks
// that can refuse the start come before the first change of the database.
func openSpace(ctx context.Context, cfg *config.Config, db *gorm.DB) (space *idSpace, err error) {
	space = &idSpace{}
	if space.sql, err = locateTables(ctx, cfg, db); err != nil {
		return nil, err
	}
	space.wdb = workernode.New(space.sql)
	if err := space.wdb.CheckClock(ctx, cfg.Now, cfg.Skew()); err != nil {
		return nil, err
	}
	if err := prepareTables(ctx, cfg, db, space.sql); err != nil {
		return nil, err
	}
	if risk := space.sql.DurabilityRisk(ctx); risk != "" {
		cfg.Log.Warn("uidplugin: the database may lose acknowledged commits, so two rows could get the same id",
			"settings", risk)
	}
	if cfg.LookupOnly {
		if _, err := space.wdb.Registry(ctx); err != nil {
			return nil, err // because NewManager would begin an id space
		}
	}
	space.manager, err = workernode.NewManager(ctx, space.wdb, cfg.Layout, cfg.DetectHost(), workernode.Config{
		Lead: cfg.Lead, Region: cfg.Region, Disposable: cfg.Disposable, MaxSkew: cfg.Skew(), Now: cfg.Now, Log: cfg.Log,
	})
	if err != nil {
		return nil, err
	}
	space.clock = generator.NewClock(space.manager.Now)
	return space, nil
}

// locateTables finds the tables of an id space. All later statements name the schema of these tables.
func locateTables(ctx context.Context, cfg *config.Config, db *gorm.DB) (*sqldb.DB, error) {
	d, err := sqldb.Open(db, cfg.Timeout)
	if err != nil {
		return nil, err
	}
	if cfg.HasSchema && d.Dialect() != "postgres" {
		return nil, fmt.Errorf("%w: WithSchema is for PostgreSQL only; on %s the tables are in the database of the connection", ErrOption, d.Dialect())
	}
	d, err = workernode.Locate(ctx, d, sqldb.Place{Schema: cfg.Schema, Option: "WithSchema"})
	if errors.Is(err, sqldb.ErrSchema) {
		err = fmt.Errorf("%w: %w", ErrOption, err)
	}
	return d, err
}
