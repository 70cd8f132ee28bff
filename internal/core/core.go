// Package core is the part of a database handle that packages above the root package need: where the plugin's tables
// are, the layout and the clock. They find it in the handle, so [uidplugin.Plugin] does not need exported methods for
// it.
//
// [uidplugin.Plugin]: https://pkg.go.dev/github.com/uidplugin/uidplugin#Plugin
package core

import (
	"errors"

	"github.com/uidplugin/uidplugin/internal/lookup"
	"github.com/uidplugin/uidplugin/internal/sqldb"
	"gorm.io/gorm"
)

// Name is the name of a Core among the plugins of a handle.
const Name = "uidplugin:core"

// A Core belongs to a handle and to all that are made from it. It is safe for concurrent use.
type Core struct {
	*lookup.Locator

	home *sqldb.DB // knows where names of the handle without a schema are; nil with a fixed worker id
}

var _ gorm.Plugin = (*Core)(nil)

// New returns the Core of a plugin that db.Use has initialized.
func New(loc *lookup.Locator, home *sqldb.DB) *Core { return &Core{Locator: loc, home: home} }

// Of returns the Core of a handle, or an error if the plugin was not registered with it.
func Of(db *gorm.DB) (*Core, error) {
	if db != nil && db.Config != nil {
		if c, ok := db.Config.Plugins[Name].(*Core); ok {
			return c, nil
		}
	}
	return nil, errors.New("uidplugin: not registered: call db.Use(uidplugin.New()) first")
}

// Name implements [gorm.Plugin].
func (c *Core) Name() string { return Name }

// Initialize implements [gorm.Plugin]. GORM calls it for copies of the configuration; they share the Core.
func (c *Core) Initialize(*gorm.DB) error { return nil }
