// Package config holds and validates the options of the plugin.
package config

import (
	"cmp"
	"errors"
	"fmt"
	"log/slog"
	"regexp"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/uidplugin/uidplugin/generator"
	"github.com/uidplugin/uidplugin/internal/supply"
	"github.com/uidplugin/uidplugin/workernode"
	"gorm.io/gorm"
)

// A Config has a field for each option. The root package documents them.
type Config struct {
	Layout    generator.Layout
	Generator string       // name of the default generator
	Specs     supply.Specs // generators by name
	Wrong     []string     // errors in WithGenerator and WithSource
	Models    []any
	Log       *slog.Logger

	Registry *gorm.DB // handle of the database with the worker ids; nil means the plugin's handle
	Database string   // of WithDatabaseName; empty means the default of that option

	Region    workernode.Region // zero means the region that the registry has
	HasRegion bool              // Region is set

	Schema    string // of the tables, on PostgreSQL; empty means detect it
	HasSchema bool   // Schema is set

	WorkerID    int64
	Fixed       bool // WorkerID is set
	OneEach     bool // one worker id for each generator, not for each table
	Disposable  bool
	Lead        time.Duration // 0 means the default
	NoMigration bool
	LookupOnly  bool // make no ids
	Timeout     time.Duration
	Host        workernode.Host
	Now         func() time.Time
	Injected    bool // Now comes from the application

	Alone bool // with a fixed worker id: share no generator with other plugins; for tests

	Test *Test // set by package uidtest

	// MaxSkew limits the difference between the clocks of this process and the database. Negative means the
	// default, and 0 skips the comparison.
	MaxSkew time.Duration
}

// A Test describes the ids of a plugin of package uidtest, which do not come from a registry.
type Test struct {
	Name string // the function that returned the plugin, for messages

	// Table returns the table of an id, or [supply.AllTables] if the id names no table. It reports false if the
	// plugin cannot have made the id. The field Table is nil if the ids do not have the bits of the layout.
	Table func(id int64) (table string, ok bool)
}

// New returns the configuration without options.
func New() *Config {
	return &Config{
		Layout: generator.DefaultLayout(), Generator: supply.Cached, Specs: supply.Builtin(), Log: slog.Default(),
		Timeout: 10 * time.Second, MaxSkew: -1, Now: time.Now,
	}
}

// The range of Lead.
const (
	minLead      = 100 * time.Millisecond
	maxLead      = time.Hour
	minLeadTicks = 3 // because a slot is renewed after a third of the lead, which must be a tick or more
)

// maxSchema is the longest name of a schema on PostgreSQL, in bytes. PostgreSQL cuts off the rest.
const maxSchema = 63

// Skew returns the limit for differences between clocks, or 0 if we should not compare them.
func (c *Config) Skew() time.Duration {
	switch {
	case c.MaxSkew >= 0:
		return c.MaxSkew
	case c.Injected:
		return 0
	}
	return workernode.DefaultMaxSkew
}

// workerIDLead is the default lead of a process with a fixed worker id.
const workerIDLead = time.Second

// FixedLead returns how far a process with a fixed worker id may stamp ahead of the clock. After a start the
// process skips as much time, because an earlier process may have stamped it. FixedLead is 0 with a clock of the
// application, which may never get past that time.
func (c *Config) FixedLead() time.Duration {
	if !c.Fixed || c.Injected {
		return 0
	}
	return max(cmp.Or(c.Lead, workerIDLead), c.Layout.Tick)
}

// MaxBorrow returns the distance that a generator with a fixed worker id may stamp ahead of the clock. 0 means the
// generator's own limit. With a clock of the application, which may stand still, only WithLead sets the distance.
func (c *Config) MaxBorrow() time.Duration {
	if c.Fixed && c.Injected && c.Lead != 0 {
		return max(c.Lead, c.Layout.Tick)
	}
	return c.FixedLead()
}

// Validate returns all errors in the options.
func (c *Config) Validate() error {
	var errs []error
	bad := func(format string, args ...any) {
		errs = append(errs, fmt.Errorf("%w: "+format, append([]any{supply.ErrOption}, args...)...))
	}
	errs = append(errs, c.validateGenerators()...)
	for _, b := range c.Wrong {
		bad("%s", b)
	}
	if _, ok := c.Specs[c.Generator]; !ok {
		bad("WithDefaultGenerator(%q): this generator does not exist; use one of %s", c.Generator, c.Specs.Names())
	}
	if c.Timeout <= 0 {
		bad("WithTimeout(%v): it must be positive", c.Timeout)
	}
	if c.Fixed {
		c.validateFixed(bad)
	}
	if c.Lead != 0 && (c.Lead < minLead || c.Lead > maxLead) {
		bad("WithLead(%v): it must be from %v to %v", c.Lead, minLead, maxLead)
	} else if c.Lead != 0 && !c.Fixed && c.Lead < minLeadTicks*c.Layout.Tick {
		bad("WithLead(%v): it must be at least %d ticks of the layout, of %v each", c.Lead, minLeadTicks, c.Layout.Tick)
	}
	if c.HasRegion && (!c.Region.Valid() || c.Region.Of > c.Layout.MaxWorkerID()) {
		bad("WithRegion(%d, %d): the region must be from 0 to the number of regions minus 1, and there may be at most %d regions, because each needs worker ids",
			c.Region.N, c.Region.Of, c.Layout.MaxWorkerID())
	}
	if n := utf8.RuneCountInString(c.Database); n > workernode.MaxTableName {
		bad("WithDatabaseName(%.40q...): it has %d characters, but at most %d are allowed", c.Database, n, workernode.MaxTableName)
	}
	if c.HasSchema && (c.Schema == "" || len(c.Schema) > maxSchema || strings.ContainsRune(c.Schema, 0)) {
		bad("WithSchema(%.70q): the name must have 1 to %d bytes, and none of them 0", c.Schema, maxSchema)
	}
	if k := c.Host.Kind; k != 0 && k != workernode.Container && k != workernode.Actual {
		bad("WithHost: the kind %d is neither %d (%v) nor %d (%v)", k,
			workernode.Container, workernode.Container, workernode.Actual, workernode.Actual)
	}
	return errors.Join(errs...)
}

// validateGenerators returns the errors of the layout and of the generators. It makes one of each built-in
// generator to check its options; functions of the application are called at the first use.
func (c *Config) validateGenerators() (errs []error) {
	layout := c.Layout.ValidAt(c.Now())
	if layout != nil {
		errs = append(errs, layout)
	}
	for name, spec := range c.Specs {
		var err error
		switch {
		case spec.Check != nil:
			if err = spec.Check(); err != nil {
				err = fmt.Errorf("%s: %w", spec.Option, err)
			}
		case spec.Replaceable && layout == nil:
			leases := []generator.Lease{c.Layout.FullLease(1, c.Now()), c.Layout.FullLease(0, c.Now())}
			_, err = c.Specs.Generator(name, generator.Config{
				Table: supply.AllTables, Layout: c.Layout, Leases: leases[:spec.Lanes], MaxBorrow: c.MaxBorrow(), Clock: generator.NewClock(c.Now), Now: c.Now,
			})
		}
		if err != nil {
			errs = append(errs, fmt.Errorf("%w: %w", supply.ErrOption, err))
		}
	}
	return errs
}

// validateFixed validates WithWorkerID and the options that it excludes.
func (c *Config) validateFixed(bad func(format string, args ...any)) {
	if c.WorkerID < 0 || c.WorkerID > c.Layout.MaxWorkerID() {
		bad("WithWorkerID(%d): the layout has %d bits for worker ids, so it must be from 0 to %d", c.WorkerID, c.Layout.WorkerBits, c.Layout.MaxWorkerID())
	}
	if c.Generator == supply.Paired && c.WorkerID > c.Layout.MaxWorkerID()/2 {
		bad("WithWorkerID(%d): with the generator %s each process has a second worker id, %d for this one; give out only worker ids up to %d",
			c.WorkerID, supply.Paired, c.Layout.BackupWorker(c.WorkerID), c.Layout.MaxWorkerID()/2)
	}
	for _, other := range []struct {
		set    bool
		option string // and why it has no effect
	}{
		{c.Disposable, "WithDisposable has no effect with WithWorkerID, which takes no worker id from the database"},
		{c.OneEach, "WithOneWorkerID has no effect with WithWorkerID, which sets one worker id for all tables"},
		{c.Registry != nil, "WithRegistry has no effect with WithWorkerID, which takes no worker id from a database"},
		{c.Database != "", "WithDatabaseName has no effect with WithWorkerID, whose ids do not name their table"},
		{c.HasRegion, "WithRegion has no effect with WithWorkerID, which takes no worker id from a database"},
		{c.LookupOnly, "WithLookupOnly has no effect with WithWorkerID, which knows no ids of other processes"},
	} {
		if other.set {
			bad("%s", other.option)
		}
	}
}

// LargestFixed returns the largest worker id that WithWorkerID gives to this process. It reports false if the
// process makes no id with such a worker id.
func (c *Config) LargestFixed() (id int64, ok bool) {
	spec := c.Specs[c.Generator]
	if !c.Fixed || c.Test != nil || spec.Make == nil {
		return 0, false
	}
	if spec.Lanes > 1 {
		return max(c.WorkerID, c.Layout.BackupWorker(c.WorkerID)), true
	}
	return c.WorkerID, true
}

// DetectHost returns the host. Options take precedence over what it detects.
func (c *Config) DetectHost() workernode.Host {
	h := workernode.DetectHost()
	if c.Host.Name != "" {
		h.Name = c.Host.Name
	}
	if c.Host.Port != "" {
		h.Port = c.Host.Port
	}
	if c.Host.Kind != 0 {
		h.Kind = c.Host.Kind
	}
	if c.Host.Application != "" {
		h.Application = c.Host.Application
	}
	return h
}

var validName = regexp.MustCompile(`^[a-z][a-z0-9_-]*$`)

// AddGenerator adds a generator of WithGenerator or WithSource.
func (c *Config) AddGenerator(option, name string, spec supply.Spec) {
	name = supply.NameOf(name)
	old, exists := c.Specs[name]
	switch {
	case !validName.MatchString(name) || name == "uid" || name == "true" || name == "false":
		c.Wrong = append(c.Wrong, fmt.Sprintf("%s(%q): a name must have only the characters a to z, 0 to 9, _ and -, begin with a letter, and not be uid, true or false", option, name))
	case old.Option != "":
		c.Wrong = append(c.Wrong, fmt.Sprintf("%s(%q): %s configures this generator", option, name, old.Option))
	case exists && (!old.Replaceable || spec.Make == nil):
		c.Wrong = append(c.Wrong, fmt.Sprintf("%s(%q): a generator of this name exists already", option, name))
	case spec.Make == nil && spec.Open == nil:
		c.Wrong = append(c.Wrong, fmt.Sprintf("%s(%q): its function is nil", option, name))
	default:
		spec.Lanes = max(old.Lanes, spec.Lanes)
		c.Specs[name] = spec
	}
}
