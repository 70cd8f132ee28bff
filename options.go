package uidplugin

import (
	"log/slog"
	"time"

	"github.com/uidplugin/uidplugin/generator"
	"github.com/uidplugin/uidplugin/internal/config"
	"github.com/uidplugin/uidplugin/internal/supply"
	"github.com/uidplugin/uidplugin/segment"
	"github.com/uidplugin/uidplugin/workernode"
	"gorm.io/gorm"
)

// An Option changes what [New] creates. Options may come in any order. db.Use checks them together, and returns an
// error that wraps [ErrOption] for a value out of range or options that exclude each other.
type Option func(*config.Config)

// WithLayout sets what ids look like. The default is [generator.DefaultLayout]; db.Use refuses a Layout
// that is not valid, such as the zero one, with [generator.ErrLayout]. The first process pins the layout in the
// database. A process with another layout is refused.
func WithLayout(l generator.Layout) Option { return func(cfg *config.Config) { cfg.Layout = l } }

// WithModels lists models whose keys the plugin sets, as pointers to structs. The default is none. Several calls add
// up.
//
// db.Use gets worker ids for these models and for those that they are associated with, and the first ranges of their
// segments. Then the first create needs no connection for them. If AutoMigrate comes later, it makes their keys plain
// BIGINT instead of AUTO_INCREMENT.
//
// [Plugin.Find] loads rows of the models that WithModels, [Plugin.Register] or [Plugin.AutoMigrate] lists, and of no
// others. A model that is only associated with a listed one is not listed itself.
func WithModels(models ...any) Option {
	return func(cfg *config.Config) { cfg.Models = append(cfg.Models, models...) }
}

// WithSegments configures the generator [Segment]; see [segment.Config] for units, ranges and defaults. The default is
// the zero Config. Here a zero Now or Log means that of the plugin, and a zero MaxWait or Timeout means that of
// [WithTimeout].
//
// The field's tag can name the tag of the row, its biz_tag: gorm:"uid:segment:order-service". A Leaf service may use the
// same row. Otherwise it is the name of the table whose keys come from it. The name has no quotes. It has no
// schema or database if that is the current one of the connection, so processes that insert into one table must connect
// to the same schema or database. It is in lower case where the server ignores case: on SQLite, and on MySQL if its
// lower_case_table_names is not 0. So all spellings of a table's name share one row. For a column that is no primary
// key, a dot and the name of the column follow.
//
// Ids begin above the largest value of the column, and at Start if that is more. A new tag of a column that has values
// is refused with [segment.ErrRow], unless Start is above them: see Config.Used, which the plugin sets. If Start is an id
// of the layout, ids look like ids of the layout, and Locate returns a wrong place for them.
func WithSegments(s segment.Config) Option { return func(cfg *config.Config) { cfg.Segments = s } }

// WithDefaultGenerator sets the generator of fields whose tag names none: [Cached], [Snowflake], [Paired], [Segment],
// or a name of [WithGenerator] or [WithSource]. The default is [Cached]; an empty name is not valid.
func WithDefaultGenerator(name string) Option {
	return func(cfg *config.Config) { cfg.Generator = supply.NameOf(name) }
}

// WithLead sets how far ahead of the clock ids may be stamped, from 100 ms to an hour. It must be at least three
// ticks of the layout, except with [WithWorkerID]. 0 means the default: [workernode.DefaultLead], 10 s, and on SQLite
// [workernode.DefaultLeadSQLite], 10 min. With [WithWorkerID] the default is 1 s, or a tick if that is longer.
//
// Lead bounds three things:
//
//   - how long ids are made while the database is unreachable
//   - how many ids one worker id makes in a burst: 160,000 in the default layout, with 10 s
//   - how soon a database that has lost its latest commits may accept statements again without an id being made twice:
//     Lead and two seconds after the last lost commit, if clocks differ by less than a second and ticks are no longer
//
// The first process pins Lead in the database. A process with another Lead logs a warning and uses the pinned one.
func WithLead(d time.Duration) Option { return func(cfg *config.Config) { cfg.Lead = d } }

// WithWorkerID fixes the worker id of this process, from 0 to [generator.Layout.MaxWorkerID]. By default worker ids
// come from the database. With this option the plugin needs no table of worker ids, and sends no statement for
// them. For tests, see package uidtest. The option excludes [WithOneWorkerID], [WithDisposable] and [WithoutMigration].
//
// You guarantee that no two processes have the same worker id at the same time. You also guarantee that no process has
// a worker id that a WORKER_NODE of the same id space gave out. With the generator [Paired] a process also has the
// worker id [generator.Layout.BackupWorker], so only the lower half may be given out.
//
// A process may follow another one with the same worker id at once, also after a crash, if both use the same clock. Ids
// are stamped at most [WithLead] ahead of the clock, and a new process begins where the one before must have ended. So
// its first id waits for the next tick to begin, and at first it makes ids no faster than the layout counts them.
// [WithClock] voids this guarantee.
//
// All tables share the worker id and one generator, so ids resolve to the process but not to a table.
func WithWorkerID(n int64) Option {
	return func(cfg *config.Config) { cfg.WorkerID, cfg.Fixed = n, true }
}

// WithOneWorkerID gives this process one worker id for all its tables, for layouts that have few. The default is one
// for each table. Each generator that tags name has a worker id of its own. Ids resolve to their process, and not to a
// table.
func WithOneWorkerID() Option { return func(cfg *config.Config) { cfg.OneEach = true } }

// WithDisposable gives each start of the process a new slot that no other process ever reclaims, as UidGenerator does.
// By default slots are reclaimed. Each start uses up one worker id for each table, permanently. The slot is renewed
// like any other.
func WithDisposable() Option { return func(cfg *config.Config) { cfg.Disposable = true } }

// WithoutMigration keeps db.Use from creating and extending the four tables of package workernode; by default it does
// both. Package migrations has the SQL to run manually. The table of segments is created all the same if it does not
// exist; package segment has the SQL for a user without the right to create it.
func WithoutMigration() Option { return func(cfg *config.Config) { cfg.NoMigration = true } }

// WithLookupOnly makes a plugin that looks ids up and makes none, for tools and pages that only read: [Plugin.Decode],
// [Plugin.Locate], [Plugin.Find], [Plugin.Nodes], [Plugin.Slots] and [Plugin.Sessions] work. It takes no slot and writes
// nothing, so a database user with the right SELECT will do. A create that needs an id fails with an error that wraps
// [ErrOption]. By default db.Use takes a slot.
//
// A process that makes ids must have begun the id space before. The option implies [WithoutMigration], and excludes
// [WithWorkerID].
func WithLookupOnly() Option {
	return func(cfg *config.Config) { cfg.LookupOnly, cfg.NoMigration = true, true }
}

// WithRegistry keeps worker ids, slots and sessions in another database than that of the plugin's handle. So several
// databases share one id space: shards, a database for each service or tenant, SQLite files. No two of their rows have
// one id, and [Plugin.Locate] returns the database too. The default is the handle's own database. The table of segments
// is there as well, so tables of one name share a segment.
//
// The plugins of a process that are given the same handle, or handles with one pool, share a slot. Their layout, lead,
// host, WithClock and WithDisposable must be the same. Logger, timeout and WithoutMigration are those of the first. The
// slot is released by Close of the last plugin. db is a connected handle, not a transaction. The caller closes its pool
// after the plugins.
//
// To add the option to a running system, stop all processes that use a database without it for at least Lead: they are
// in another id space. A database must have one name in an id space, see [WithDatabaseName].
//
// The first create of a table inside a transaction needs no other connection of the plugin's handle then. The option
// excludes [WithWorkerID].
func WithRegistry(db *gorm.DB) Option {
	return func(cfg *config.Config) {
		switch cfg.Registry = nil; {
		case db == nil || db.Config == nil || db.Statement == nil:
			cfg.Wrong = append(cfg.Wrong, "WithRegistry: the database handle is not connected: gorm.Open has returned an error")
		case isTransaction(db):
			cfg.Wrong = append(cfg.Wrong, "WithRegistry: the database handle is a transaction, which ends before the plugin does; use the one that gorm.Open returned")
		default:
			cfg.Registry = db
		}
	}
}

// WithDatabaseName sets by which name the registry knows the database of the plugin's handle, in WORKER_NODE and
// [Location].Database: at most 128 characters. With [WithRegistry] the default is the current database of the handle:
// on PostgreSQL with the schema if that is not public, on SQLite the name of the file without its folder. Without
// WithRegistry the default is empty, which means the database of WORKER_NODE. Rows of a database keep their name: do
// not change it later. The option excludes [WithWorkerID].
func WithDatabaseName(name string) Option { return func(cfg *config.Config) { cfg.Database = name } }

// WithTimeout sets how long db.Use and the first insert into a table may take to get worker ids, or to open a segment
// or another source. A create whose context has no deadline also waits that long for a range of a segment. The default
// is 10 s; d must be longer than 0.
func WithTimeout(d time.Duration) Option { return func(cfg *config.Config) { cfg.Timeout = d } }

// WithHost sets what the tables say about this process: name, port and application, of which the first 64 characters
// are kept, and kind. For each zero field the default is that of [workernode.DetectHost]. A process reclaims only slots
// of its own application while worker ids are left.
func WithHost(h workernode.Host) Option { return func(cfg *config.Config) { cfg.Host = h } }

// WithLogger sets where changes of state are logged. The default is [slog.Default]; nil logs nothing.
func WithLogger(l *slog.Logger) Option {
	return func(cfg *config.Config) {
		if l == nil {
			l = slog.New(slog.DiscardHandler)
		}
		cfg.Log = l
	}
}

// WithClock sets where the plugin reads the time, for tests that move the clock. The default, also for nil, is
// [time.Now]. Many goroutines may call now at once.
//
// With [WithWorkerID] a process begins at the present, and stamps ids far ahead of the clock unless [WithLead] bounds
// that. A process that follows another one with the same worker id then makes its ids again.
func WithClock(now func() time.Time) Option {
	return func(cfg *config.Config) {
		if now != nil {
			cfg.Now, cfg.Injected = now, true
		}
	}
}
