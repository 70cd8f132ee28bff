package uidplugin

import (
	"context"

	"github.com/uidplugin/uidplugin/generator"
	"github.com/uidplugin/uidplugin/internal/config"
	"github.com/uidplugin/uidplugin/internal/supply"
	"gorm.io/gorm"
)

// WithGenerator adds your own generator for the tag gorm:"uid:NAME" and [WithDefaultGenerator]. Its ids have the layout
// and the plugin's worker ids, so they resolve to their rows. A name is a letter, then letters, digits, _ or -.
//
// The function newGenerator makes the generator of one table, or of all tables that share a worker id. The
// generator must make no id twice, and stamp only ticks that its leases allow: nothing else makes ids unique. A
// lease of [WithWorkerID] never ends, but the generator must then stay within MaxBorrow of the clock, because the
// next process with the worker id begins MaxBorrow ahead. A generator whose Usage.Left does not count each sequence
// of a tick gets too many worker ids. The function must use no database, because other tables wait for it.
//
// To configure [generator.Cached], [generator.Snowflake] or [generator.Paired], replace them by name:
//
//	uidplugin.WithGenerator("cached", func(c generator.Config) (generator.Renewable, error) {
//		cached := c.Cached()
//		cached.NoWait = true
//		return generator.NewCached(cached)
//	})
func WithGenerator(name string, newGenerator func(generator.Config) (generator.Renewable, error)) Option {
	return func(cfg *config.Config) {
		cfg.AddGenerator("WithGenerator", name, supply.Spec{Lanes: 1, Make: newGenerator})
	}
}

// WithSource adds your own generator whose ids do not have the layout, so they cannot be decoded or located. The same
// names are valid as for [WithGenerator].
//
// The function open makes the generator of one table. You must ensure that its ids are unique and fit the field.
// For models of WithModels, db.Use calls open after registering the callbacks, so open may create rows. For other
// models Register, AutoMigrate or the first create calls open, and waits up to [WithTimeout].
//
// The handle db is not in a transaction, and the generator may keep it. The function open may query db with ctx,
// which ends when open returns. The table may not exist yet. The plugin's Close closes the generator.
//
// After an error, open is called again in the background, with pauses that grow up to five seconds. Each create
// that needs the generator also calls open. If the generator has a method Health() error, [Plugin.Health] calls it.
func WithSource(
	name string, open func(ctx context.Context, db *gorm.DB, table string) (generator.Generator, error),
) Option {
	return func(cfg *config.Config) {
		var spec supply.Spec
		if open != nil {
			spec.Open = func(ctx context.Context, o supply.Opening) (generator.Generator, error) {
				return open(ctx, o.DB, o.Table)
			}
		}
		cfg.AddGenerator("WithSource", name, spec)
	}
}
