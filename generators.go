package uidplugin

import (
	"context"
	"time"

	"github.com/uidplugin/uidplugin/generator"
	"github.com/uidplugin/uidplugin/internal/config"
	"github.com/uidplugin/uidplugin/internal/supply"
	"gorm.io/gorm"
)

// The generators that a tag can always name: gorm:"uid:cached". The name "default" means
// Snowflake, which UidGenerator calls its DefaultUidGenerator.
const (
	Cached    = "cached"    // [generator.Cached]
	Snowflake = "snowflake" // [generator.Snowflake]
	Paired    = "paired"    // [generator.Paired]
	Segment   = "segment"   // ranges of a table, as Leaf's; see package segment
)

// A GeneratorConfig is what a [Factory] makes a generator of.
type GeneratorConfig struct {
	Table  string // whose ids it makes; "*" if it serves all tables
	Layout generator.Layout

	// Leases is what it may stamp, one for each lane. With OnLow, which is not nil if leases
	// are renewed, others follow by Renew.
	Leases []generator.Lease
	OnLow  func()

	MaxBorrow time.Duration // how far ahead of the clock ids may be stamped; 0 means [generator.DefaultMaxBorrow]

	Clock *generator.Clock // what the generators of the process share
	Now   func() time.Time // the clock that it reads
}

// Cached returns the configuration of the generator [Cached], for a [Factory] that changes some of it.
func (c GeneratorConfig) Cached() generator.CachedConfig {
	return supply.GeneratorConfig(c).Cached()
}

// Snowflake returns the configuration of the generator [Snowflake], for a [Factory] that changes some of it.
func (c GeneratorConfig) Snowflake() generator.SnowflakeConfig {
	return supply.GeneratorConfig(c).Snowflake()
}

// Paired returns the configuration of the generator [Paired], for a [Factory] of that name that changes some of it.
// Other generators get one lease at first, and Paired needs two.
func (c GeneratorConfig) Paired() generator.PairedConfig {
	return supply.GeneratorConfig(c).Paired()
}

// A Factory makes the generator of a table, or of all with one worker id. The generator must stamp nothing that its
// leases do not allow: uniqueness rests on that alone. Its Usage must count ids of the layout, all sequences of a tick.
// Otherwise it gets more worker ids than it needs. A Factory is called while other tables wait, so it must not query a
// database, nor create rows.
type Factory func(GeneratorConfig) (generator.Renewable, error)

// An Opener makes the generator of a table whose ids are not those of the layout. It is responsible for ids that are
// unique and fit the field. For the models of WithModels, db.Use calls it when the callbacks are registered, so it may
// create rows. For other models Register, AutoMigrate or the first create calls it. They wait for it as long as
// [WithTimeout] sets.
//
// It gets a handle on the database that is in no transaction. It may query the database with ctx, which ends when it
// returns. The table itself may not exist yet. The generator may keep the handle. The plugin's Close closes the
// generator.
//
// After an error the opener is called again in the background, with pauses that grow from one second to five. Each
// create that needs it calls it as well, until it succeeds. If the generator has a method Health() error,
// [Plugin.Health] calls it.
type Opener func(ctx context.Context, db *gorm.DB, table string) (generator.Generator, error)

// WithGenerator adds a generator of your own, which the tag gorm:"uid:NAME" and [WithDefaultGenerator] then name. It
// makes ids of the layout, from worker ids that it gets, so they resolve to their rows. The name consists of letters,
// digits, _ and -.
//
// [Cached], [Snowflake] and [Paired] can be replaced by their names, to configure them:
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

// WithSource adds a generator of your own whose ids are not those of the layout. They cannot be decoded or located. The
// name is as for [WithGenerator].
func WithSource(name string, open Opener) Option {
	return func(cfg *config.Config) {
		cfg.AddGenerator("WithSource", name, supply.Spec{Open: open})
	}
}
