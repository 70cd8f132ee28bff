package uidplugin

import (
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"time"

	"github.com/uidplugin/uidplugin/generator"
	"github.com/uidplugin/uidplugin/workernode"
)

// The generators that a tag can name: gorm:"uid:cached".
const (
	Cached  = "cached"  // [generator.Cached]
	Default = "default" // [generator.Default]
)

// generators are the known names, for messages.
var generators = []string{Cached, Default}

// An Option changes what [New] makes. Options may come in any order; they are
// checked together when db.Use initializes the plugin.
type Option func(*config)

type config struct {
	layout    generator.Layout
	generator string
	given     []any // WithModels
	log       *slog.Logger

	workerID     int64
	fixed        bool
	noMigration  bool
	timeout      time.Duration
	host         workernode.Host
	maxBorrow    time.Duration
	noWait       bool
	maxBackwards time.Duration
	randomStart  int64
	now          func() time.Time
}

func newConfig(options []Option) config {
	c := config{
		layout:    generator.DefaultLayout(),
		generator: Cached,
		log:       slog.Default(),
		timeout:   10 * time.Second,
		now:       time.Now,
	}
	for _, o := range options {
		if o != nil {
			o(&c)
		}
	}
	return c
}

// validate returns everything that is wrong with the options. Values that belong
// to a generator are checked by making one.
func (c *config) validate() error {
	var errs []error
	bad := func(format string, args ...any) {
		errs = append(errs, fmt.Errorf("%w: "+format, append([]any{ErrOption}, args...)...))
	}
	if err := c.layout.ValidAt(c.now()); err != nil {
		errs = append(errs, err)
	} else {
		for _, name := range generators {
			_, err := c.newGenerator(name, c.layout.Endless(1, c.now()), nil)
			if err != nil {
				errs = append(errs, fmt.Errorf("%w: %w", ErrOption, err))
			}
		}
	}
	if !slices.Contains(generators, c.generator) {
		bad("WithDefaultGenerator(%q): there is no generator of this name, only %s", c.generator, strings.Join(generators, ", "))
	}
	if c.timeout <= 0 {
		bad("WithTimeout(%v): it must be longer than 0", c.timeout)
	}
	if c.fixed && (c.workerID < 0 || c.workerID > c.layout.MaxWorkerID()) {
		bad("WithWorkerID(%d): the layout has %d bits for it, 0 to %d", c.workerID, c.layout.WorkerBits, c.layout.MaxWorkerID())
	}
	if c.fixed && c.noMigration {
		bad("WithoutMigration is of no use beside WithWorkerID, which needs no table")
	}
	if k := c.host.Kind; k != 0 && k != workernode.Container && k != workernode.Actual {
		bad("WithHost: the kind %d is neither %d (%v) nor %d (%v)", k,
			workernode.Container, workernode.Container, workernode.Actual, workernode.Actual)
	}
	return errors.Join(errs...)
}

// newGenerator makes a generator by its name.
func (c *config) newGenerator(name string, lease generator.Lease, clock *generator.Clock) (generator.Generator, error) {
	switch name {
	case Cached:
		if clock == nil {
			clock = generator.NewClock(c.now)
		}
		return generator.NewCached(generator.CachedConfig{
			Layout: c.layout, Lease: lease, MaxBorrow: c.maxBorrow, NoWait: c.noWait, Clock: clock,
		})
	case Default:
		return generator.NewDefault(generator.DefaultConfig{
			Layout: c.layout, Lease: lease, MaxClockBackwards: c.maxBackwards, RandomStart: c.randomStart, Now: c.now,
		})
	}
	return nil, fmt.Errorf("%w: there is no generator %q, only %s", ErrField, name, strings.Join(generators, ", "))
}

// detectHost returns the host, each part from the options or else found out.
func (c *config) detectHost() workernode.Host {
	h := workernode.DetectHost()
	if c.host.Name != "" {
		h.Name = c.host.Name
	}
	if c.host.Port != "" {
		h.Port = c.host.Port
	}
	if c.host.Kind != 0 {
		h.Kind = c.host.Kind
	}
	return h
}

// WithLayout sets what ids look like. The default is [generator.DefaultLayout].
// The first process pins the layout in the database; one that is set to another
// is refused.
func WithLayout(l generator.Layout) Option { return func(c *config) { c.layout = l } }

// WithModels names models whose keys the plugin sets, as pointers to structs. Their
// worker ids are taken by db.Use, and not at the first create, and AutoMigrate
// makes their keys plain BIGINT instead of AUTO_INCREMENT if it comes later. The
// models they are associated with are included. Find can load their rows from the
// start.
func WithModels(models ...any) Option {
	return func(c *config) { c.given = append(c.given, models...) }
}

// WithDefaultGenerator sets the generator of fields that name none in their tag:
// [Cached], which is the default, or [Default].
func WithDefaultGenerator(name string) Option {
	return func(c *config) { c.generator = strings.ToLower(strings.TrimSpace(name)) }
}

// WithMaxBorrow sets how far ahead of the clock the cached generator may stamp
// ids, from one tick on. The default is [generator.DefaultMaxBorrow], an hour.
func WithMaxBorrow(d time.Duration) Option { return func(c *config) { c.maxBorrow = d } }

// WithoutWaiting makes a create fail with [generator.ErrBorrowLimit] when the
// cached generator is as far ahead of the clock as it may be. The default is to
// wait, as long as the context of the create lasts.
func WithoutWaiting() Option { return func(c *config) { c.noWait = true } }

// WithMaxClockBackwards sets how far the clock may go back for the generator
// [Default] to wait for it. The default, 0, refuses to make ids at once, with
// [generator.ErrClockBackwards]. The cached generator needs no such thing.
func WithMaxClockBackwards(d time.Duration) Option { return func(c *config) { c.maxBackwards = d } }

// WithRandomStart makes the generator [Default] begin the sequence of each tick
// at a random number below n. The default is to begin at 0.
func WithRandomStart(n int64) Option { return func(c *config) { c.randomStart = n } }

// WithWorkerID fixes the worker id of this process, from 0 to what the layout
// holds. Then no table of worker ids is needed or read, and it is up to you that
// no two processes have the same: not at the same time, and not after each other
// before the clock has passed what the first one was ahead of it, up to
// WithMaxBorrow; and that none has one that a WORKER_NODE of the same id space
// gave out. All tables share the worker id and one generator, so that ids lead
// back to the process but not to a table.
//
// It is also what unit tests with a mocked database want: the plugin then sends
// no statement.
func WithWorkerID(n int64) Option { return func(c *config) { c.workerID, c.fixed = n, true } }

// WithoutMigration keeps db.Use from creating and extending the tables
// WORKER_NODE and WORKER_REGISTRY. Package migrations has the SQL to run by hand.
func WithoutMigration() Option { return func(c *config) { c.noMigration = true } }

// WithTimeout sets how long getting worker ids from the database may take, for
// db.Use and for the first insert into a table. The default is 10 s.
func WithTimeout(d time.Duration) Option { return func(c *config) { c.timeout = d } }

// WithHost sets what WORKER_NODE says about this process: name and port, of at
// most 64 characters, and kind. What is zero is found out, as
// [workernode.DetectHost] says.
func WithHost(h workernode.Host) Option { return func(c *config) { c.host = h } }

// WithLogger sets where changes of state are logged. The default is
// [slog.Default]; nil logs nothing.
func WithLogger(l *slog.Logger) Option {
	return func(c *config) {
		if l == nil {
			l = slog.New(slog.DiscardHandler)
		}
		c.log = l
	}
}

// WithClock reads the time from now, for tests that move the clock. The default
// is [time.Now]. now is called by many goroutines at once.
func WithClock(now func() time.Time) Option {
	return func(c *config) {
		if now != nil {
			c.now = now
		}
	}
}
