package uidplugin

import (
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"time"

	"github.com/uidplugin/uidplugin/generator"
	"github.com/uidplugin/uidplugin/segment"
	"github.com/uidplugin/uidplugin/workernode"
)

// An Option changes what [New] makes. Options may come in any order; they are
// checked together when db.Use initializes the plugin.
type Option func(*config)

type config struct {
	layout    generator.Layout
	generator string
	kinds     map[string]kind // of WithGenerator and WithSource
	bad       []string        // what was wrong with them
	segments  segment.Config
	given     []any // WithModels
	log       *slog.Logger

	workerID     int64
	fixed        bool
	perProcess   bool
	disposable   bool
	durable      bool
	maxLanes     int
	spares       int // unset: the default
	sticky       bool
	coarse       bool
	leaseFile    string
	noMigration  bool
	timeout      time.Duration
	host         workernode.Host
	maxBorrow    time.Duration
	noWait       bool
	maxBackwards time.Duration
	randomStart  int64
	now          func() time.Time
	injected     bool          // now is the application's
	maxSkew      time.Duration // negative if not set
}

// unset is the number of spares that nobody has set.
const unset = -1 << 31

func newConfig(options []Option) config {
	c := config{
		layout:    generator.DefaultLayout(),
		generator: Cached,
		log:       slog.Default(),
		timeout:   10 * time.Second,
		maxLanes:  workernode.DefaultMaxLanes,
		spares:    unset,
		maxSkew:   -1,
		now:       time.Now,
	}
	for _, o := range options {
		if o != nil {
			o(&c)
		}
	}
	return c
}

// reserve returns how many spare worker ids to hold: none where worker ids are few.
func (c *config) reserve() int {
	switch {
	case c.spares != unset:
		return c.spares
	case c.layout.WorkerBits < 16:
		return 0
	}
	return 2
}

// skew returns how far clocks may be apart; 0 if they are not compared.
func (c *config) skew() time.Duration {
	switch {
	case c.maxSkew >= 0:
		return c.maxSkew
	case c.injected:
		return 0
	}
	return workernode.DefaultMaxSkew
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
		for name, k := range c.builtin() {
			if k.make == nil {
				continue
			}
			if _, err := c.newGenerator(name, allTables, []generator.Lease{c.layout.Endless(1, c.now())}, nil, nil, nil); err != nil {
				errs = append(errs, fmt.Errorf("%w: %w", ErrOption, err))
			}
		}
	}
	for _, b := range c.bad {
		bad("%s", b)
	}
	if err := c.segments.Validate(); err != nil {
		bad("WithSegments: %w", err)
	}
	if _, ok := c.kindNamed(c.generator); !ok {
		bad("WithDefaultGenerator(%q): there is no generator of this name, only %s", c.generator, c.names())
	}
	if c.timeout <= 0 {
		bad("WithTimeout(%v): it must be longer than 0", c.timeout)
	}
	if c.fixed && (c.workerID < 0 || c.workerID > c.layout.MaxWorkerID()) {
		bad("WithWorkerID(%d): the layout has %d bits for it, 0 to %d", c.workerID, c.layout.WorkerBits, c.layout.MaxWorkerID())
	}
	if c.fixed && c.generator == Paired && c.workerID > c.layout.MaxWorkerID()/2 {
		bad("WithWorkerID(%d): with the generator %s each process has a second worker id, %d for this one, so only those up to %d are to be given out",
			c.workerID, Paired, c.layout.BackupWorker(c.workerID), c.layout.MaxWorkerID()/2)
	}
	if c.fixed && c.disposable {
		bad("WithDisposable is of no use beside WithWorkerID, which takes no worker id from the database")
	}
	if (c.fixed || c.disposable) && c.durable {
		bad("WithDurableDatabase is of no use beside WithWorkerID or WithDisposable, which renew nothing")
	}
	if c.maxLanes < 1 || c.maxLanes > generator.MaxLanes || c.maxLanes&(c.maxLanes-1) != 0 {
		bad("WithMaxLanes(%d): it must be 1, 2, 4 or another power of two up to %d", c.maxLanes, generator.MaxLanes)
	}
	if c.spares != unset && (c.spares < 0 || c.spares > 1000) {
		bad("WithSpares(%d): it must be from 0 to 1000", c.spares)
	}
	if c.coarse && c.layout.Tick < 10*time.Millisecond {
		bad("WithCoarseClock: with ticks of %v ids would often bear the tick before; it is for ticks from 10 ms on", c.layout.Tick)
	}
	if c.leaseFile != "" && (c.fixed || c.disposable) {
		bad("WithLeaseFile is of no use beside WithWorkerID or WithDisposable, which hold no leases")
	}
	if c.sticky && (c.fixed || c.disposable) {
		bad("WithStickyWorkerIDs is of no use beside WithWorkerID or WithDisposable, which take nothing over")
	}
	if c.fixed && c.perProcess {
		bad("WithOneWorkerID is of no use beside WithWorkerID, which is one for all tables")
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
// [Cached], which is the default, [Default], [Paired], [Segment], or one of
// WithGenerator and WithSource.
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
// back to the process but not to a table. With the generator [Paired] the process also has
// the worker id [generator.Layout.BackupWorker], so only the lower half may be given out.
//
// It is also what unit tests with a mocked database want: the plugin then sends
// no statement.
func WithWorkerID(n int64) Option { return func(c *config) { c.workerID, c.fixed = n, true } }

// WithOneWorkerID gives this process one worker id for all its tables, instead of one for
// each, for layouts that have few. Ids then lead back to their process, and not to a
// table. Each generator that tags name has one.
func WithOneWorkerID() Option { return func(c *config) { c.perProcess = true } }

// WithDisposable gives each start of the process new worker ids that no other
// process ever gets, UidGenerator's policy, instead of taking over those that ended
// processes have left. The database is not asked again after the start. It takes one
// worker id for each start and table, for ever.
func WithDisposable() Option { return func(c *config) { c.disposable = true } }

// WithDurableDatabase promises that the database never loses a commit that it has
// acknowledged, not when it fails over and not when it is restored: one server that
// syncs each commit to its disk, a synchronous standby, Group Replication, TiDB. Then
// a worker id may be held far ahead of the clock: ids can be made for longer while
// the database is away, and bursts need fewer worker ids. If the promise does not
// hold, ids can be made twice. Without it, the plugin assumes that up to some seconds
// of commits can be lost; see docs/running.md. SQLite is taken as durable.
func WithDurableDatabase() Option { return func(c *config) { c.durable = true } }

// WithMaxLanes bounds how many worker ids this process may hold for one table, a
// power of two: one makes 8,192 ids a second in the default layout, and a table
// that is written to faster gets more while it needs them. The default is
// [workernode.DefaultMaxLanes]; at the bound creates wait.
func WithMaxLanes(n int) Option { return func(c *config) { c.maxLanes = n } }

// WithSpares sets how many worker ids are held in reserve for tables whose first row
// comes inside a transaction, where the database cannot be asked for one if there is
// no other connection. They are taken by db.Use. The default is 2, and 0 for layouts
// with less than 16 bits for worker ids.
func WithSpares(n int) Option { return func(c *config) { c.spares = n } }

// WithStickyWorkerIDs has this process take over, where it can, the worker ids that a
// process with the same host and port had before, as Leaf does; see WithHost. A worker id
// that is not free yet it does not wait for. Nothing depends on it but what WORKER_NODE
// looks like.
func WithStickyWorkerIDs() Option { return func(c *config) { c.sticky = true } }

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

// WithLeaseFile has Close write down, in a file, what the leases have left, so that a
// process on the same machine can start while the database is away, and make ids of the
// models of WithModels for as long as that lasts: 20 s at most in the guarded mode, up to an
// hour with WithDurableDatabase. db.Use then succeeds; gorm.Open must be told not to ask the
// database (DisableAutomaticPing, and SkipInitializeWithVersion for MySQL).
//
// It is off for a reason, and seldom needed: an application that cannot reach its database
// has little use for ids. The file is used once, and refused after a restart of the machine
// or under another host name. But nothing can tell whether it was copied meanwhile. Who
// sets this promises that it never is: not by itself, nor with its disk, container or
// virtual machine while that is up; and that the DSN leads to one database. Otherwise
// ids come twice.
func WithLeaseFile(path string) Option { return func(c *config) { c.leaseFile = path } }

// WithCoarseClock makes generators read a clock that is read once a millisecond, however
// many ids they make: [Default] and [Paired], which read it for each id, make one three
// times as fast. It is for layouts with ticks of much more than a millisecond.
func WithCoarseClock() Option { return func(c *config) { c.coarse = true } }

// WithMaxClockSkew sets how far the clock of this process may be from the database's:
// beyond it, db.Use, and creates that need a renewed worker id, fail with
// [workernode.ErrClock]. The default is [workernode.DefaultMaxSkew]; 0 does not
// compare them, which is the default beside WithClock. SQLite has no clock of its own.
func WithMaxClockSkew(d time.Duration) Option { return func(c *config) { c.maxSkew = max(d, 0) } }

// WithClock reads the time from now, for tests that move the clock. The default
// is [time.Now]. now is called by many goroutines at once.
func WithClock(now func() time.Time) Option {
	return func(c *config) {
		if now != nil {
			c.now, c.injected = now, true
		}
	}
}
