package uidplugin

import (
	"context"
	"time"

	"github.com/uidplugin/uidplugin/generator"
	"github.com/uidplugin/uidplugin/internal/config"
	"github.com/uidplugin/uidplugin/internal/supply"
	"gorm.io/gorm"
)

// The built-in generators, which tags can name: gorm:"uid:cached".
const (
	Cached    = "cached"    // [generator.Cached]
	Snowflake = "snowflake" // [generator.Snowflake]
	Paired    = "paired"    // [generator.Paired]
)

// A GeneratorConfig is the input of a [Factory].
type GeneratorConfig struct {
	Table  string // table of the ids; "*" for all tables
	Layout generator.Layout

	// Leases limit the ticks that the generator may stamp; each lane has one. If OnLow is not nil, later leases arrive
	// by Renew.
	Leases []generator.Lease
	OnLow  func()

	// MaxBorrow is how far ahead of the clock ids may be stamped; 0 means [generator.DefaultMaxBorrow]. With
	// [WithWorkerID] it is Lead.
	MaxBorrow time.Duration

	Clock *generator.Clock // shared by the generators of the process
	Now   func() time.Time // the time source of Clock
}

// Cached returns the default configuration of [Cached], for a [Factory] to modify.
func (c GeneratorConfig) Cached() generator.CachedConfig {
	return supply.GeneratorConfig(c).Cached()
}

// Snowflake returns the default configuration of [Snowflake], for a [Factory] to modify.
func (c GeneratorConfig) Snowflake() generator.SnowflakeConfig {
	return supply.GeneratorConfig(c).Snowflake()
}

// Paired returns the default configuration of [Paired], for a [Factory] to modify. The factory must replace "paired",
// because that name gets two leases and other generators start with one.
func (c GeneratorConfig) Paired() generator.PairedConfig {
	return supply.GeneratorConfig(c).Paired()
}

// A Factory makes the generator of one table, or of all tables that share a worker id. The generator must stamp only
// ticks that its leases allow, because uniqueness depends on nothing else. A lease of [WithWorkerID] never ends, so
// there the generator must also keep to MaxBorrow, because the next process with the worker id begins that far ahead.
// Its Usage should count all ids of the layout, including every sequence of a tick; otherwise it gets too many worker
// ids. A Factory must not query a database or create rows, because other tables wait for it.
type Factory func(GeneratorConfig) (generator.Renewable, error)

// An Opener makes the generator of a table whose ids do not have the layout. You must ensure that these ids are unique
// and fit the field. For models of WithModels, db.Use calls it after registering the callbacks, so it may create rows.
// For other models Register, AutoMigrate or the first create calls it and waits for up to [WithTimeout].
//
// The handle db is not in a transaction, and the generator may keep it. The opener may query it with ctx, which ends
// when the opener returns. The table may not exist yet. The plugin's Close closes the generator.
//
// After an error the opener is called again in the background, with pauses that grow from one to five seconds. Each
// create that needs the generator also calls it. If the generator has a method Health() error, [Plugin.Health] calls
// it.
type Opener func(ctx context.Context, db *gorm.DB, table string) (generator.Generator, error)

// WithGenerator adds your own generator for the tag gorm:"uid:NAME" and [WithDefaultGenerator]. Its ids have the layout
// and the plugin's worker ids, so they resolve to their rows. A name consists of letters, digits, _ and -.
//
// To configure [Cached], [Snowflake] or [Paired], replace them by name:
//
//	uidplugin.WithGenerator("cached", func(c uidplugin.GeneratorConfig) (generator.Renewable, error) {
//		cached := c.Cached()
//		cached.NoWait = true
//		return generator.NewCached(cached)
//	})
func WithGenerator(name string, f Factory) Option {
	return func(cfg *config.Config) {
		spec := supply.Spec{Lanes: 1}
		if f != nil {
			spec.Make = func(made supply.GeneratorConfig) (generator.Renewable, error) { return f(GeneratorConfig(made)) }
		}
		cfg.AddGenerator("WithGenerator", name, spec)
	}
}

// WithSource adds your own generator whose ids do not have the layout, so they cannot be decoded or located. The same
// names are valid as for [WithGenerator].
func WithSource(name string, open Opener) Option {
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
