package uidplugin

import (
	"cmp"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/uidplugin/uidplugin/generator"
	"github.com/uidplugin/uidplugin/internal/supply"
	"github.com/uidplugin/uidplugin/segment"
	"github.com/uidplugin/uidplugin/workernode"
)

// An Option changes what [New] makes. Options may come in any order; they are
// checked together when db.Use initializes the plugin.
type Option func(*config)

type config struct {
	layout    generator.Layout
	generator string
	specs     supply.Specs // generators by their names
	bad       []string     // what was wrong with them
	segments  segment.Config
	given     []any // WithModels
	log       *slog.Logger

	workerID    int64
	fixed       bool
	perProcess  bool
	disposable  bool
	lead        time.Duration // 0: the default
	noMigration bool
	timeout     time.Duration
	host        workernode.Host
	now         func() time.Time
	injected    bool          // now is the application's
	maxSkew     time.Duration // negative if not set
}

func newConfig(options []Option) config {
	c := config{
		layout:    generator.DefaultLayout(),
		generator: Cached,
		specs:     supply.Builtin(),
		log:       slog.Default(),
		timeout:   10 * time.Second,
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

// spares is how many worker ids without a table the process has in reserve: none where worker
// ids are few.
func (c *config) spares() int {
	if c.layout.WorkerBits < 16 {
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

// workerIDLead is how far ahead of the clock a process with a fixed worker id stamps ids.
const workerIDLead = time.Second

// fixedLead returns how far ahead of the clock a process with a fixed worker id stamps
// ids, at least a tick, and where it begins after a start. It is 0 for worker ids from
// the database, and with a clock of the application's, which may stand still.
func (c *config) fixedLead() time.Duration {
	if !c.fixed || c.injected {
		return 0
	}
	return max(cmp.Or(c.lead, workerIDLead), c.layout.Tick)
}

// maxBorrow returns how far ahead of the clock a generator with a fixed worker id may stamp ids; 0
// means its own limit. With a clock of the application's, which may stand still, only WithLead says so.
func (c *config) maxBorrow() time.Duration {
	if c.fixed && c.injected && c.lead != 0 {
		return max(c.lead, c.layout.Tick)
	}
	return c.fixedLead()
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
		for name, spec := range c.specs {
			if !spec.Replaceable { // the application's own are called when they are needed
				continue
			}
			leases := []generator.Lease{c.layout.FullLease(1, c.now()), c.layout.FullLease(0, c.now())}
			_, err := c.specs.Generator(name, supply.GeneratorConfig{
				Table: supply.AllTables, Layout: c.layout, Leases: leases[:spec.Lanes], MaxBorrow: c.maxBorrow(), Clock: generator.NewClock(c.now), Now: c.now,
			})
			if err != nil {
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
	if _, ok := c.specs[c.generator]; !ok {
		bad("WithDefaultGenerator(%q): there is no generator of this name, only %s", c.generator, c.specs.Names())
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
		bad("WithDisposable has no effect with WithWorkerID, which takes no worker id from the database")
	}
	if c.lead != 0 && (c.lead < minLead || c.lead > maxLead) {
		bad("WithLead(%v): it must be from %v to %v", c.lead, minLead, maxLead)
	} else if c.lead != 0 && !c.fixed && c.lead < minLeadTicks*c.layout.Tick {
		bad("WithLead(%v): it must be at least %d ticks of the layout, of %v each", c.lead, minLeadTicks, c.layout.Tick)
	}
	if c.fixed && c.perProcess {
		bad("WithOneWorkerID has no effect with WithWorkerID, which is one for all tables")
	}
	if c.fixed && c.noMigration {
		bad("WithoutMigration has no effect with WithWorkerID, which needs no table")
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
	if c.host.Application != "" {
		h.Application = c.host.Application
	}
	return h
}

// WithLayout sets what ids look like. The default is [generator.DefaultLayout].
// The first process pins the layout in the database; one that is set to another
// is refused.
func WithLayout(l generator.Layout) Option { return func(c *config) { c.layout = l } }

// WithModels names models whose keys the plugin sets, as pointers to structs. Their
// worker ids, and the first ranges of their segments, are taken by db.Use, and not at the
// first create, which then needs no connection for them. AutoMigrate
// makes their keys plain BIGINT instead of AUTO_INCREMENT if it comes later. The
// models they are associated with are included.
//
// Find loads rows of the models that are listed here, or given to Register or to the
// plugin's AutoMigrate, and of no others. A model that is only associated with a listed
// one is not listed: give it as well if Find is to load its rows.
func WithModels(models ...any) Option {
	return func(c *config) { c.given = append(c.given, models...) }
}

// WithSegments configures the generator [Segment]: its table, the sizes of ranges and so
// on; see [segment.Config]. Now and Log default to the plugin's, MaxWait and Timeout to WithTimeout.
//
// The tag of a row, its biz_tag, is the name of the table whose keys come from it. It has
// no quotes, and no schema or database if that is the current one of the connection. It is
// in lower case where the server ignores case: on SQLite, and on MySQL if its
// lower_case_table_names is not 0. So all spellings of a table's name share one row. If the
// column is no primary key, its name follows behind a dot. Processes that insert into one
// table must therefore connect to the same schema or database.
//
// Ids begin above the largest that the column has, above the max_id of rows with another
// spelling of the tag, or at Start if that is more. If Start is an id of the layout they
// look like such ids, and Locate returns a wrong place for them.
func WithSegments(s segment.Config) Option { return func(c *config) { c.segments = s } }

// WithDefaultGenerator sets the generator of fields that name none in their tag:
// [Cached], which is the default, [Snowflake], [Paired], [Segment], or one of
// WithGenerator and WithSource.
func WithDefaultGenerator(name string) Option {
	return func(c *config) { c.generator = supply.NameOf(name) }
}

// The range of WithLead.
const (
	minLead      = 100 * time.Millisecond
	maxLead      = time.Hour
	minLeadTicks = 3 // a slot is renewed after a third of the lead
)

// WithLead sets how far ahead of the clock ids may be stamped, from 100 ms to an hour, and at
// least three ticks of the layout. The
// default is [workernode.DefaultLead], 10 s, and on SQLite [workernode.DefaultLeadSQLite], 10 min.
//
// It bounds three things: how long ids are made while the database is unreachable; how many
// one worker id makes in a burst (160,000 in the default layout, with 10 s); and how soon a
// database that has lost its latest commits may accept statements again without an id being made twice: Lead and
// a second later. The first process pins it in the database; another one logs a warning and uses that.
func WithLead(d time.Duration) Option { return func(c *config) { c.lead = d } }

// WithWorkerID fixes the worker id of this process, from 0 to what the layout
// holds. Then no table of worker ids is needed or read. You guarantee that no two
// processes have the same worker id at the same time, and that none has one that a
// WORKER_NODE of the same id space gave out.
//
// A process may follow another one with the same worker id at once, also after a crash,
// if both use the same clock: ids are stamped at most WithLead ahead of the clock, which is
// 1 s by default here, or a tick if that is longer, and a new process begins where the one before must have ended. So
// its first id waits for the next tick to begin, and in its first moments it makes ids no
// faster than the layout counts them.
//
// With WithClock a process begins at the present, and stamps ids far ahead of the clock unless
// WithLead bounds that. A process that follows another one with the same worker id then makes ids
// again. WithClock is for tests.
//
// All tables share the worker id and one generator, so ids resolve to the process but not
// to a table. With the generator [Paired] the process also has
// the worker id [generator.Layout.BackupWorker], so only the lower half may be given out.
//
// It is also what unit tests with a mocked database want: the plugin then sends
// no statement.
func WithWorkerID(n int64) Option { return func(c *config) { c.workerID, c.fixed = n, true } }

// WithOneWorkerID gives this process one worker id for all its tables, instead of one for
// each, for layouts that have few. Ids then resolve to their process, and not to a
// table. Each generator that tags name has one.
func WithOneWorkerID() Option { return func(c *config) { c.perProcess = true } }

// WithDisposable gives each start of the process a new slot that no other process ever
// reclaims, UidGenerator's policy. Each start uses up one worker id for each table,
// permanently. The slot is renewed like any other: while the database is unreachable, ids are
// made for Lead at most.
func WithDisposable() Option { return func(c *config) { c.disposable = true } }

// WithoutMigration keeps db.Use from creating and extending the four tables of
// package workernode. Package migrations has the SQL to run manually. The table of
// segments is created if it does not exist; package segment has the SQL for a user
// who may not.
func WithoutMigration() Option { return func(c *config) { c.noMigration = true } }

// WithTimeout sets how long getting worker ids from the database, or opening a segment or
// another source, may take, for db.Use and for the first insert into a table. It is also how
// long a create whose context has no deadline waits for a range of a segment. The default
// is 10 s.
func WithTimeout(d time.Duration) Option { return func(c *config) { c.timeout = d } }

// WithHost sets what the tables say about this process: name, port and application, of at
// most 64 characters, and kind. What is zero is found out, as
// [workernode.DetectHost] says. A process reclaims the slots of its own application.
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

// WithMaxClockSkew sets how far the clock of this process may be from the database's:
// beyond it, db.Use, and creates that need a renewed worker id, fail with
// [workernode.ErrClock]. The default is [workernode.DefaultMaxSkew]; 0 does not
// compare them, which is the default with WithClock. SQLite has no clock of its own.
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
