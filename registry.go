package uidplugin

import (
	"context"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/uidplugin/uidplugin/generator"
	"github.com/uidplugin/uidplugin/internal/config"
	"github.com/uidplugin/uidplugin/internal/sqldb"
	"github.com/uidplugin/uidplugin/internal/supply"
	"github.com/uidplugin/uidplugin/migrations"
	"github.com/uidplugin/uidplugin/workernode"
	"gorm.io/gorm"
)

// A registry is an id space, as a process uses it: its tables, and the lease manager, which holds a slot.
type registry struct {
	sql     *sqldb.DB
	nodes   *workernode.DB
	manager *workernode.Manager
	clock   *generator.Clock // what the generators share
}

// A sharedRegistry is the registry of a plugin, or of all plugins of this process with one handle of WithRegistry.
type sharedRegistry struct {
	pool  any              // nil if no other plugin can find it
	users map[*shared]base // the plugins that use it; guarded by the mutex of registries

	mu       sync.Mutex // held while it is opened
	registry *registry  // nil until it is open
	options  *config.Config
}

// A base is the database of a plugin's tables.
type base struct {
	name string // as WORKER_NODE names it; empty for that of the registry
	pool any
}

// registries are those of WithRegistry that are in use, by the pool of their handle.
var registries = struct {
	mu   sync.Mutex
	open map[any]*sharedRegistry
}{open: map[any]*sharedRegistry{}}

// join joins the registry, and sets what l needs of it. statements are those of db.
func (c *shared) join(db *gorm.DB, statements *sqldb.DB, l *locator) (err error) {
	ctx, cancel := context.WithTimeout(context.Background(), c.Timeout)
	defer cancel()
	c.database = ""
	if c.registry, err = joinRegistry(ctx, c, db); err != nil {
		return err
	}
	r := c.registry.registry
	c.manager = r.manager
	l.sql, l.wdb, l.manager, l.time = r.sql, r.nodes, r.manager, r.manager.Now
	l.apart = c.Registry != nil && poolOf(c.Registry) != poolOf(db)
	if l.apart {
		warnOfOwnSpace(ctx, c.Config, db, statements)
	}
	if c.database = c.Database; c.database == "" && l.apart {
		c.database, err = supply.DatabaseName(ctx, db, c.Timeout)
	}
	l.database = c.database
	if err != nil {
		return err
	}
	if c.registry.name(c, base{c.database, poolOf(db)}) && c.Database == "" {
		c.Log.Warn("uidplugin: another handle of this process with the same registry has a database of this name, so Locate and Find cannot tell them apart:"+
			" if they are different databases, name them by WithDatabaseName", "database", c.database)
	}
	return nil
}

// joinRegistry returns the registry of a plugin on db. Plugins with one handle of WithRegistry share a registry; the
// first of them opens it.
func joinRegistry(ctx context.Context, c *shared, db *gorm.DB) (*sharedRegistry, error) {
	s := &sharedRegistry{users: map[*shared]base{c: {}}}
	if c.Registry != nil {
		s, db = findRegistry(c), c.Registry
	}
	err := s.openFor(ctx, c.Config, db)
	if err != nil {
		s.leave(c)
		ctx, cancel := context.WithTimeout(context.Background(), closeTimeout)
		defer cancel()
		_ = s.close(ctx) // others may have closed meanwhile, and left that to this one
		return nil, err
	}
	return s, nil
}

// openFor opens the registry on db for a plugin, or checks that the plugin can share it.
func (s *sharedRegistry) openFor(ctx context.Context, c *config.Config, db *gorm.DB) (err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.registry != nil {
		return conflict(s.options, c)
	}
	if s.registry, err = openRegistry(ctx, c, db); err == nil {
		s.options = c
	}
	return err
}

// findRegistry returns the registry of a plugin with WithRegistry, which may not be open yet, with the plugin among its
// users.
func findRegistry(c *shared) *sharedRegistry {
	pool := poolOf(c.Registry)
	registries.mu.Lock()
	defer registries.mu.Unlock()
	s := registries.open[pool]
	if s == nil {
		s = &sharedRegistry{pool: pool, users: map[*shared]base{}}
		registries.open[pool] = s
	}
	s.users[c] = base{}
	return s
}

// poolOf returns the pool of a handle, without what GORM wraps around it.
func poolOf(db *gorm.DB) any {
	if pool, err := db.DB(); err == nil && pool != nil {
		return pool
	}
	if pool := db.Config.ConnPool; pool != nil && reflect.TypeOf(pool).Comparable() {
		return pool
	}
	return db.Config
}

// name notes the database of a plugin, and reports whether another pool has one of the same name.
func (s *sharedRegistry) name(c *shared, b base) (taken bool) {
	registries.mu.Lock()
	defer registries.mu.Unlock()
	s.users[c] = b
	for _, other := range s.users {
		if other.pool != nil && other.pool != b.pool && other.name == b.name {
			return true
		}
	}
	return false
}

// leave ends the use by a plugin. After the last one, plugins open another registry.
func (s *sharedRegistry) leave(c *shared) {
	registries.mu.Lock()
	defer registries.mu.Unlock()
	delete(s.users, c)
	if len(s.users) == 0 && registries.open[s.pool] == s {
		delete(registries.open, s.pool)
	}
}

// close closes the lease manager, which releases the slot, unless other plugins use it.
func (s *sharedRegistry) close(ctx context.Context) error {
	registries.mu.Lock()
	users := len(s.users)
	registries.mu.Unlock()
	s.mu.Lock()
	r := s.registry
	s.mu.Unlock()
	if users > 0 || r == nil {
		return nil
	}
	return r.manager.Close(ctx)
}

// conflict returns an error if a plugin cannot share the registry of another one because their options differ.
func conflict(first, c *config.Config) error {
	differ := func(option string, one, other any) error {
		return fmt.Errorf("%w: %s: another plugin of this process uses the same handle of WithRegistry with %v, and this one has %v;"+
			" they share a slot, so give both the same", ErrOption, option, one, other)
	}
	switch {
	case first.Layout.String() != c.Layout.String():
		return differ("WithLayout", first.Layout, c.Layout)
	case first.Lead != c.Lead:
		return differ("WithLead", first.Lead, c.Lead)
	case first.Disposable != c.Disposable:
		return differ("WithDisposable", first.Disposable, c.Disposable)
	case first.Host != c.Host:
		return differ("WithHost", fmt.Sprintf("%+v", first.Host), fmt.Sprintf("%+v", c.Host))
	case first.Injected != c.Injected:
		return differ("WithClock", first.Injected, c.Injected)
	}
	return nil
}

// closeTimeout is how long a db.Use that has failed waits for the release of the slot.
const closeTimeout = time.Second

// warnOfOwnSpace warns if processes still make ids in an id space of the database itself: ids of both can be equal.
func warnOfOwnSpace(ctx context.Context, c *config.Config, db *gorm.DB, statements *sqldb.DB) {
	if _, err := statements.Columns(ctx, "WORKER_SLOT"); err != nil {
		return // it has none
	}
	nodes, err := workernode.Open(db, c.Timeout)
	if err != nil {
		return
	}
	slots, err := nodes.Slots(ctx, 0, 1000) // the first thousand, which live processes reuse
	if err != nil {
		return
	}
	if held := slices.IndexFunc(slots, func(s workernode.Slot) bool { return s.Holder != "" }); held >= 0 {
		c.Log.Warn("uidplugin: this database has an id space of its own, and a process that makes ids in it, or that ended without Close:"+
			" its ids and those of WithRegistry can be equal; stop processes without WithRegistry first",
			"host", slots[held].Host, "port", slots[held].Port)
	}
}

// openRegistry creates or checks the tables on db, looks at the settings of the database, and creates the lease
// manager.
func openRegistry(ctx context.Context, c *config.Config, db *gorm.DB) (r *registry, err error) {
	r = &registry{}
	if r.sql, err = sqldb.Open(db, c.Timeout); err != nil {
		return nil, err
	}
	if r.nodes, err = workernode.Open(db, c.Timeout); err != nil {
		return nil, err
	}
	if c.NoMigration {
		err = migrations.Check(ctx, db)
	} else {
		err = migrations.Up(ctx, db)
	}
	if err != nil {
		return nil, err
	}
	if err := r.nodes.OneDatabase(ctx); err != nil {
		return nil, err
	}
	if risks := r.sql.DurabilityRisks(ctx); len(risks) > 0 {
		c.Log.Warn("uidplugin: the database may lose what it has acknowledged, and with it who may make which ids: two rows could get one id",
			"settings", strings.Join(risks, "; "))
	}
	if err := r.nodes.CheckClock(ctx, c.Now, c.Skew()); err != nil {
		return nil, err
	}
	if c.LookupOnly {
		if _, err := r.nodes.Registry(ctx); err != nil {
			return nil, err // NewManager would begin an id space
		}
	}
	r.manager, err = workernode.NewManager(ctx, r.nodes, c.Layout, c.DetectHost(), workernode.Config{
		Lead: c.Lead, Disposable: c.Disposable, Spares: c.Spares(), MaxSkew: c.Skew(), Now: c.Now, Log: c.Log,
	})
	if err != nil {
		return nil, err
	}
	r.clock = generator.NewClock(r.manager.Now)
	return r, nil
}
