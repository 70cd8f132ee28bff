package uidplugin

import (
	"context"
	"fmt"
	"maps"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/uidplugin/uidplugin/generator"
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

// kindName returns the name of a generator as kinds have it.
func kindName(name string) string {
	name = strings.ToLower(strings.TrimSpace(name))
	if name == "default" {
		return Snowflake
	}
	return name
}

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
	return generator.CachedConfig{Layout: c.Layout, Lease: c.Leases[0], MaxBorrow: c.MaxBorrow, Clock: c.Clock, OnLow: c.OnLow}
}

// Snowflake returns the configuration of the generator [Snowflake], for a [Factory] that changes some of it.
func (c GeneratorConfig) Snowflake() generator.SnowflakeConfig {
	return generator.SnowflakeConfig{Layout: c.Layout, Lease: c.Leases[0], Now: c.Now, OnLow: c.OnLow}
}

// Paired returns the configuration of the generator [Paired], for a [Factory] of that name that changes some of it.
// Others are given one lease, and it needs two.
func (c GeneratorConfig) Paired() generator.PairedConfig {
	return generator.PairedConfig{Layout: c.Layout, Main: c.Leases[0], Backup: c.Leases[1], MaxBorrow: c.MaxBorrow, Clock: c.Clock, OnLow: c.OnLow}
}

// A Factory makes the generator of a table, or of all with one worker id. It must stamp
// nothing that its leases do not allow: uniqueness rests on that alone. Its Usage counts
// ids of the layout, all sequences of a tick, or it is given more worker ids than it needs.
// It is called while other tables wait, so it must not ask a database.
type Factory func(GeneratorConfig) (generator.Renewable, error)

// An Opener makes the generator of a table whose ids are not those of the layout: that
// they are unique, and fit the field, is its own affair. For the models of WithModels it is
// called by db.Use, when the callbacks are registered, so it may create rows. For others it
// is called by Register, AutoMigrate, or the first create. They wait for it as long as
// WithTimeout sets.
//
// It gets a handle on the database that is in no transaction. It may ask the database with
// ctx, which ends when it returns. The table itself may not be there yet. The generator may
// keep the handle. It is closed with the plugin.
//
// An opener that fails is called again in the background, with pauses that grow from a
// second to a minute, and by each create that needs it, until it succeeds. If the generator
// has a method Health() error, [Plugin.Health] returns what it returns.
type Opener func(ctx context.Context, db *gorm.DB, table string) (generator.Generator, error)

// A kind is a generator by its name.
type kind struct {
	// make is nil for one whose ids are not of the layout, which has open.
	make  func(c GeneratorConfig) (generator.Renewable, error)
	lanes int // how many worker ids it has at first
	open  func(ctx context.Context, c *core, s *source) (generator.Generator, error)

	replaceable bool // WithGenerator may put another one in its place
}

// builtin returns the kinds that are always there.
func builtin() map[string]kind {
	return map[string]kind{
		Cached: {lanes: 1, replaceable: true, make: func(c GeneratorConfig) (generator.Renewable, error) {
			return generator.NewCached(c.Cached())
		}},
		Snowflake: {lanes: 1, replaceable: true, make: func(c GeneratorConfig) (generator.Renewable, error) {
			return generator.NewSnowflake(c.Snowflake())
		}},
		Paired: {lanes: 2, replaceable: true, make: func(c GeneratorConfig) (generator.Renewable, error) {
			return generator.NewPaired(c.Paired())
		}},
		Segment: {open: openSegment},
	}
}

// names lists the known generators, for messages.
func (c *config) names() string {
	return strings.Join(slices.Sorted(maps.Keys(c.kinds)), ", ")
}

// newGenerator makes a generator by its name, for what leases allow, as many as its kind
// takes. clock, now and low may be nil.
func (c *config) newGenerator(name, table string, leases []generator.Lease, clock *generator.Clock, now func() time.Time, low func()) (g generator.Renewable, err error) {
	k, ok := c.kinds[name]
	if !ok || k.make == nil {
		return nil, fmt.Errorf("%w: there is no generator %q, only %s", ErrField, name, c.names())
	}
	if clock == nil {
		clock, now = generator.NewClock(c.now), c.now
	}
	defer func() {
		if p := recover(); p != nil {
			g, err = nil, fmt.Errorf("%w: the factory of the generator %q panicked: %v", ErrOption, name, p)
		}
	}()
	g, err = k.make(GeneratorConfig{Table: table, Layout: c.layout, Leases: leases, MaxBorrow: c.maxBorrow(), Clock: clock, OnLow: low, Now: now})
	if v := reflect.ValueOf(g); err == nil && (g == nil || v.Kind() == reflect.Pointer && v.IsNil()) {
		return nil, fmt.Errorf("%w: the factory of the generator %q returns none", ErrOption, name)
	}
	return g, err
}

var validKind = regexp.MustCompile(`^[a-z][a-z0-9_-]*$`)

// add adds a kind of WithGenerator or WithSource.
func (c *config) add(option, name string, k kind, none bool) {
	name = kindName(name)
	old, there := c.kinds[name]
	switch {
	case !validKind.MatchString(name) || name == "uid" || name == "true" || name == "false":
		c.bad = append(c.bad, fmt.Sprintf("%s(%q): a name is a letter and then letters, digits, _ and -, and none of uid, true, false", option, name))
	case name == Segment:
		c.bad = append(c.bad, fmt.Sprintf("%s(%q): WithSegments configures this generator", option, name))
	case there && (!old.replaceable || k.make == nil):
		c.bad = append(c.bad, fmt.Sprintf("%s(%q): there is a generator of this name already", option, name))
	case none:
		c.bad = append(c.bad, fmt.Sprintf("%s(%q): there is no function to make it with", option, name))
	default:
		k.lanes = max(old.lanes, k.lanes)
		c.kinds[name] = k
	}
}

// WithGenerator adds a generator of your own, which the tag gorm:"uid:NAME" and
// WithDefaultGenerator then name. It makes ids of the layout, from worker ids that it is
// given, so they resolve to their rows. The name is of letters, digits, _ and -.
//
// [Cached], [Snowflake] and [Paired] can be replaced by their names, to configure them:
//
//	uidplugin.WithGenerator("cached", func(c uidplugin.GeneratorConfig) (generator.Renewable, error) {
//		cached := c.Cached()
//		cached.NoWait = true
//		return generator.NewCached(cached)
//	})
func WithGenerator(name string, f Factory) Option {
	return func(c *config) {
		c.add("WithGenerator", name, kind{lanes: 1, make: f}, f == nil)
	}
}

// WithSource adds a generator of your own as WithGenerator does, but one whose ids are
// not those of the layout. They cannot be decoded or located.
func WithSource(name string, open Opener) Option {
	return func(c *config) {
		c.add("WithSource", name, kind{open: func(ctx context.Context, p *core, s *source) (generator.Generator, error) {
			return open(ctx, p.db.Session(&gorm.Session{NewDB: true, Context: context.WithoutCancel(ctx)}), s.table)
		}}, open == nil)
	}
}
