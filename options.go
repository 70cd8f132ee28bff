package uidplugin

import (
	"log/slog"
	"time"

	"github.com/uidplugin/uidplugin/generator"
	"github.com/uidplugin/uidplugin/internal/config"
	"github.com/uidplugin/uidplugin/internal/supply"
	"github.com/uidplugin/uidplugin/workernode"
	"gorm.io/gorm"
)

// An Option configures the plugin that [New] creates. Options may come in any order. db.Use checks them together,
// and returns an error that wraps [ErrOption] for values out of range and for options that exclude each other.
type Option func(*config.Config)

func newConfig(options []Option) *config.Config {
	cfg := config.New()
	addSegments(cfg) // wing: segment
	for _, o := range options {
		if o != nil {
			o(cfg)
		}
	}
	return cfg
}

// WithLayout sets the layout of ids. The default is [generator.DefaultLayout]. db.Use refuses an invalid Layout, such
// as the zero value, with [generator.ErrLayout]. The first process pins its layout in the database, and processes with
// another layout are refused. With [WithWorkerID] often none is pinned, so give all processes the same layout.
func WithLayout(l generator.Layout) Option { return func(cfg *config.Config) { cfg.Layout = l } }

// WithModels lists the models whose keys the plugin sets, as pointers to structs. The default is none. Repeated calls
// add to the list.
//
// db.Use gets worker ids, and first ranges of segments, for these models and their associations. So the first create of
// a table needs no second connection. If you call AutoMigrate after db.Use, it creates the keys of these models as
// plain BIGINT instead of AUTO_INCREMENT.
//
// [Plugin.Find] loads only rows of models that are listed by WithModels, [Plugin.Register] or [Plugin.AutoMigrate]. You
// should list associated models as well, because listing a model does not list its associations.
func WithModels(models ...any) Option {
	return func(cfg *config.Config) { cfg.Models = append(cfg.Models, models...) }
}

// WithDefaultGenerator sets the generator of fields whose tag does not name one: "cached", "snowflake", "paired",
// "segment", or a name added by [WithGenerator] or [WithSource]. The default is "cached". The name must not be empty.
func WithDefaultGenerator(name string) Option {
	return func(cfg *config.Config) { cfg.Generator = supply.NameOf(name) }
}

// WithLead sets how far ahead of the clock ids may be stamped, from 100 ms to an hour. It must be at least three ticks
// of the layout, except with [WithWorkerID]. 0 means the default: 10 s, or 10 min on SQLite. With [WithWorkerID] the
// default is 1 s, or a tick if that is longer.
//
// Lead bounds three things:
//
//   - how long ids are made while the database is unreachable
//   - how many ids one worker id makes in a burst: 160,000 in the default layout, with 10 s
//   - how soon a database that lost its latest commits may accept statements again without duplicate ids: Lead plus two
//     seconds after the last lost commit, if clocks differ by less than a second and a tick is at most a second long
//
// The first process pins Lead in the database. A process with another Lead logs a warning and uses the pinned value.
func WithLead(d time.Duration) Option { return func(cfg *config.Config) { cfg.Lead = d } }

// WithWorkerID fixes the worker id of this process, from 0 to [generator.Layout.MaxWorkerID]. By default worker ids
// come from the database. For tests, use package uidtest instead. The option excludes [WithOneWorkerID] and
// [WithDisposable].
//
// You must ensure that two processes never have the same worker id at the same time, and that all have the same
// [WithLayout], because no database checks this. With the generator "paired" a process also has the worker id
// [generator.Layout.BackupWorker], so you should give out only the lower half of the worker ids.
//
// Processes without the option may use the same database. Their worker ids begin above
// [generator.Layout.MaxFixedWorkerID], so with a number up to this limit the plugin needs no table. db.Use only
// reads WORKER_REGISTRY and WORKER_NODE, if they exist, and fails with [ErrOption] if the number is not free, or
// with [ErrLayoutMismatch] if the layout is not the registry's. Next to UidGenerator only 0 is free, because
// UidGenerator numbers the rows of WORKER_NODE from 1 on. A number above the limit, or any number with the
// generator "paired", needs the four tables: db.Use takes the number from the registry, which then gives out only
// higher numbers. db.Use fails with ErrOption if the registry gave out worker ids before that. To change to the
// registry, or back, see docs/layouts.md.
//
// A process may use the worker id of a previous one immediately, even after a crash, if both have the same clock
// and the same [WithLead]. Ids are stamped at most [WithLead] ahead, so the new process begins that far ahead. Its
// first id waits for the next tick. At first the process makes no bursts: in a tick it makes only ids of one tick.
// [WithClock] voids this guarantee. So does a clock that was set ahead and back again; the log reports that.
//
// Plugins of one process may have the same number. They share a generator, and must have the same [WithLead],
// [WithLayout] and [WithDefaultGenerator] while they are open at once; the factory of [WithGenerator] and the logger of
// the first plugin apply. Plugins with [WithClock] share no generator, so each needs its own number.
//
// All tables share the worker id and one generator. So ids resolve to their time, but not to a table or a process.
func WithWorkerID(n int64) Option {
	return func(cfg *config.Config) { cfg.WorkerID, cfg.Fixed = n, true }
}

// WithOneWorkerID gives this process one worker id for all its tables instead of one for each, for layouts with few
// worker ids. Each generator that a tag names gets one, too. Ids then resolve to their process, but not to a table.
func WithOneWorkerID() Option { return func(cfg *config.Config) { cfg.OneEach = true } }

// WithDisposable gives each start of the process a new slot that is never reclaimed, as with UidGenerator. So each
// start permanently uses up one worker id per table. By default slots are reclaimed. The slot is renewed as usual.
func WithDisposable() Option { return func(cfg *config.Config) { cfg.Disposable = true } }

// WithoutMigration makes db.Use check the plugin's four tables, such as WORKER_NODE, instead of creating and extending
// them. Run the SQL of package migrations yourself. The table of segments is created nevertheless if it does not exist;
// package segment has the SQL for database users that may not create tables.
func WithoutMigration() Option { return func(cfg *config.Config) { cfg.NoMigration = true } }

// WithLookupOnly makes a plugin that looks up ids and never makes any, for tools and pages that only read.
// [Plugin.Decode], [Plugin.Locate], [Plugin.Find], [Plugin.Nodes], [Plugin.Slots] and [Plugin.Sessions] work.
// db.Use takes no slot and writes nothing, so the SELECT privilege is enough. A create that needs an id fails with
// an error that wraps [ErrOption].
//
// Another process that makes ids must have begun the id space before. The option implies [WithoutMigration], and
// excludes [WithWorkerID].
func WithLookupOnly() Option {
	return func(cfg *config.Config) { cfg.LookupOnly, cfg.NoMigration = true, true }
}

// WithRegistry keeps worker ids, slots and sessions in the database of db instead of the plugin's own. Several
// databases then share one id space: shards, databases of services or tenants, SQLite files. Their ids never collide,
// and [Plugin.Locate] also returns the database. The segment table is in the registry too, so tables of the same name
// share a segment.
//
// The plugins of a process that pass the same handle, or handles on one pool, share a slot. They must have the same
// layout, lead, host, schema and WithDisposable, and all or none WithClock. Logger, timeout and WithoutMigration of
// the first plugin apply. Close of the last plugin releases the slot. db must be a connected handle and not a
// transaction. The caller closes the pool of db after the plugins.
//
// Processes without the option are in another id space. So before you add the option, stop all processes that use one
// of the databases, for at least Lead. A database must keep one name in an id space; see [WithDatabaseName].
//
// If db has its own pool, the first create of a table inside a transaction needs no second connection of the
// plugin's handle. The option excludes [WithWorkerID].
func WithRegistry(db *gorm.DB) Option {
	return func(cfg *config.Config) {
		switch cfg.Registry = nil; {
		case db == nil || db.Config == nil || db.Statement == nil:
			cfg.Wrong = append(cfg.Wrong, "WithRegistry: the database handle is not connected: gorm.Open has returned an error")
		case isTransaction(db):
			cfg.Wrong = append(cfg.Wrong, "WithRegistry: the database handle is a transaction; use the handle that gorm.Open returned")
		default:
			cfg.Registry = db
		}
	}
}

// WithRegion makes the registry of this database region n, from 0 to count-1. Regions are for databases that accept
// writes independently, and replicate to each other or are merged later. Their ids are never equal, because each region
// gives out its own worker ids: those that leave the remainder n when divided by count. The number of regions can only
// be multiplied later, so choose the largest number that you may ever need. All regions together have the 261,119
// worker ids of the default layout.
//
// The first process in an empty database begins the region, which is then pinned. db.Use fails with [ErrRegion] if the
// registry is of another region. A region that was divided again later counts as the same, such as region 1 of 4 for
// WithRegion(1, 2). By default a process works in any region, and an empty database begins a registry that is not
// divided. docs/regions.md describes how to divide a registry in use, and what to replicate. The option excludes
// [WithWorkerID]. A region refuses segments and UidGenerator.
func WithRegion(n, count int) Option {
	return func(cfg *config.Config) {
		cfg.Region, cfg.HasRegion = workernode.Region{N: int64(n), Of: int64(count)}, true
	}
}

// WithSchema names the schema of the plugin's tables on PostgreSQL, without quotes; it must exist. By default the
// tables are in the schema in which the search path of the connection finds WORKER_REGISTRY, or else in the current
// schema. In both cases db.Use fails with [ErrTable] if any other schema of the database has a WORKER_REGISTRY.
// With this option db.Use looks only at the given schema. So services with a schema each in one database can have
// their own id spaces, whose ids can be equal.
//
// All processes of an id space should set the same schema. Plugins with one handle of [WithRegistry] must do so.
// Other databases refuse the option.
func WithSchema(name string) Option {
	return func(cfg *config.Config) { cfg.Schema, cfg.HasSchema = name, true }
}

// WithDatabaseName names the database of the plugin's handle in WORKER_NODE and [Location].Database, with at most 128
// characters. With [WithRegistry] the default is the current database of the handle. On PostgreSQL the schema is added
// if it is not public. On SQLite the default is the file name without the folder. Without WithRegistry the default
// is empty, which means the database of WORKER_NODE. Do not change the name later, because existing rows keep the
// old name. The option excludes [WithWorkerID].
func WithDatabaseName(name string) Option { return func(cfg *config.Config) { cfg.Database = name } }

// WithTimeout bounds how long db.Use and the first insert into a table wait for worker ids, or for a segment or other
// source to open. A create whose context has no deadline waits equally long for a range of a segment. The default is 10
// s; d must be positive.
func WithTimeout(d time.Duration) Option { return func(cfg *config.Config) { cfg.Timeout = d } }

// WithHost sets the name, port, application and kind of this process in the tables. Only 64 characters of each text are
// kept. Zero fields have the defaults described at [workernode.Host]. While worker ids are left, a process reclaims
// only slots of its own application.
func WithHost(h workernode.Host) Option { return func(cfg *config.Config) { cfg.Host = h } }

// WithLogger sets the logger for changes of state. The default is [slog.Default]; nil disables logging.
func WithLogger(l *slog.Logger) Option {
	return func(cfg *config.Config) {
		if l == nil {
			l = slog.New(slog.DiscardHandler)
		}
		cfg.Log = l
	}
}

// WithClock sets the function that reads the time, for tests that move the clock. The default, also for nil, is
// [time.Now]. The function must be safe for concurrent use.
//
// With [WithWorkerID] a process begins at the present and stamps ids far ahead of the clock, unless [WithLead] bounds
// that. You should not reuse the worker id in another process, because it could make the same ids again.
func WithClock(now func() time.Time) Option {
	return func(cfg *config.Config) {
		if now != nil {
			cfg.Now, cfg.Injected = now, true
		}
	}
}
