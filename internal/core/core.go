// Package core has what packages above the root, such as follow, need from a database handle. They find a [Core] in
// the handle, so the type Plugin does not need exported methods for them.
package core

import (
	"errors"
	"fmt"
	"reflect"
	"sync"
	"time"

	"github.com/uidplugin/uidplugin/internal/lookup"
	"github.com/uidplugin/uidplugin/internal/sqldb"
	"github.com/uidplugin/uidplugin/workernode"
	"gorm.io/gorm"
)

// Name is the name of a Core among the plugins of a handle.
const Name = "uidplugin:core"

// ErrNotRegistered reports a handle without the plugin. The root package documents it.
var ErrNotRegistered = errors.New("uidplugin: not registered")

// NotRegistered returns the error about a handle that the plugin has not been registered with.
func NotRegistered() error {
	return fmt.Errorf("%w: call db.Use(uidplugin.New()) first, on this handle or the one it was made from; if you did, db.Use has returned an error", ErrNotRegistered)
}

// A Core belongs to a handle and to all handles that are made from it. It is safe for concurrent use.
type Core struct {
	*lookup.Locator

	// OnInsertError gets the error of each create, update and Exec. It returns the error for the caller, and
	// reports whether the database has refused the id of a row. Set it before the handle is used.
	OnInsertError func(stmt *gorm.Statement, err error) (_ error, refused bool)

	// Collect returns a handle that records which rows its creates give ids to. Calling clear sets these ids to 0.
	Collect func(tx *gorm.DB) (_ *gorm.DB, clear func()) // wing: follow

	home   *sqldb.DB // knows the schema of tables that are named without one; nil with a fixed worker id
	values sync.Map  // of [Value], by type
}

var _ gorm.Plugin = (*Core)(nil)

// New returns the Core of a plugin that db.Use has initialized.
func New(loc *lookup.Locator, home *sqldb.DB) *Core { return &Core{Locator: loc, home: home} }

// Of returns the Core of a handle. The error wraps [ErrNotRegistered].
func Of(db *gorm.DB) (*Core, error) {
	if db != nil && db.Config != nil {
		if c, ok := db.Config.Plugins[Name].(*Core); ok {
			return c, nil
		}
	}
	return nil, NotRegistered()
}

// Name implements [gorm.Plugin].
func (c *Core) Name() string { return Name }

// Initialize implements [gorm.Plugin]. GORM calls it for a handle that is opened with a copy of a configuration.
func (c *Core) Initialize(*gorm.DB) error { return nil }

// Value returns the T that a package keeps for a handle. Each call returns the same T, which is zero at first.
func Value[T any](c *Core) *T {
	key := reflect.TypeFor[T]()
	v, ok := c.values.Load(key)
	if !ok {
		v, _ = c.values.LoadOrStore(key, new(T))
	}
	return v.(*T)
}

// Statements returns a DB whose statements take at most the larger of the plugin's timeout and minimum. If a
// statement names a table without its schema, the DB looks where the plugin looks. Statements fails if db is a
// transaction.
func (c *Core) Statements(db *gorm.DB, minimum time.Duration) (*sqldb.DB, error) {
	statements, err := sqldb.Open(db, max(c.Timeout, minimum))
	if err == nil && c.home != nil {
		statements = statements.HomeOf(c.home)
	}
	return statements, err
}

// Region returns the region of the registry. It is [workernode.Whole] with a fixed worker id.
func (c *Core) Region() workernode.Region {
	if c.Manager == nil {
		return workernode.Whole
	}
	return c.Manager.Registry().Region
}

// WorkerOf returns the worker id in an id. It reports false for a number that is no id.
func (c *Core) WorkerOf(id int64) (int64, bool) {
	parts, err := c.Decode(id)
	return parts.WorkerID, err == nil
}
