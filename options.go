package uidplugin

import (
	"log/slog"
	"time"

	"github.com/uidplugin/uidplugin/generator"
	"github.com/uidplugin/uidplugin/internal/config"
	"github.com/uidplugin/uidplugin/internal/supply"
	"github.com/uidplugin/uidplugin/segment"
	"github.com/uidplugin/uidplugin/workernode"
)

// An Option changes what [New] makes. Options may come in any order; they are
// checked together when db.Use initializes the plugin.
type Option func(*config.Config)

// WithLayout sets what ids look like. The default is [generator.DefaultLayout].
// The first process pins the layout in the database; one that is set to another
// is refused.
func WithLayout(l generator.Layout) Option { return func(c *config.Config) { c.Layout = l } }

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
	return func(c *config.Config) { c.Models = append(c.Models, models...) }
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
func WithSegments(s segment.Config) Option { return func(c *config.Config) { c.Segments = s } }

// WithDefaultGenerator sets the generator of fields that name none in their tag:
// [Cached], which is the default, [Snowflake], [Paired], [Segment], or one of
// WithGenerator and WithSource.
func WithDefaultGenerator(name string) Option {
	return func(c *config.Config) { c.Generator = supply.NameOf(name) }
}

// WithLead sets how far ahead of the clock ids may be stamped, from 100 ms to an hour, and at
// least three ticks of the layout. The
// default is [workernode.DefaultLead], 10 s, and on SQLite [workernode.DefaultLeadSQLite], 10 min.
//
// It bounds three things: how long ids are made while the database is unreachable; how many
// one worker id makes in a burst (160,000 in the default layout, with 10 s); and how soon a
// database that has lost its latest commits may accept statements again without an id being made twice: Lead and
// a second later. The first process pins it in the database; another one logs a warning and uses that.
func WithLead(d time.Duration) Option { return func(c *config.Config) { c.Lead = d } }

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
func WithWorkerID(n int64) Option { return func(c *config.Config) { c.WorkerID, c.Fixed = n, true } }

// WithOneWorkerID gives this process one worker id for all its tables, instead of one for
// each, for layouts that have few. Ids then resolve to their process, and not to a
// table. Each generator that tags name has one.
func WithOneWorkerID() Option { return func(c *config.Config) { c.OneEach = true } }

// WithDisposable gives each start of the process a new slot that no other process ever
// reclaims, UidGenerator's policy. Each start uses up one worker id for each table,
// permanently. The slot is renewed like any other: while the database is unreachable, ids are
// made for Lead at most.
func WithDisposable() Option { return func(c *config.Config) { c.Disposable = true } }

// WithoutMigration keeps db.Use from creating and extending the four tables of
// package workernode. Package migrations has the SQL to run manually. The table of
// segments is created if it does not exist; package segment has the SQL for a user
// who may not.
func WithoutMigration() Option { return func(c *config.Config) { c.NoMigration = true } }

// WithTimeout sets how long getting worker ids from the database, or opening a segment or
// another source, may take, for db.Use and for the first insert into a table. It is also how
// long a create whose context has no deadline waits for a range of a segment. The default
// is 10 s.
func WithTimeout(d time.Duration) Option { return func(c *config.Config) { c.Timeout = d } }

// WithHost sets what the tables say about this process: name, port and application, of at
// most 64 characters, and kind. What is zero is found out, as
// [workernode.DetectHost] says. A process reclaims the slots of its own application.
func WithHost(h workernode.Host) Option { return func(c *config.Config) { c.Host = h } }

// WithLogger sets where changes of state are logged. The default is
// [slog.Default]; nil logs nothing.
func WithLogger(l *slog.Logger) Option {
	return func(c *config.Config) {
		if l == nil {
			l = slog.New(slog.DiscardHandler)
		}
		c.Log = l
	}
}

// WithClock reads the time from now, for tests that move the clock. The default
// is [time.Now]. now is called by many goroutines at once.
func WithClock(now func() time.Time) Option {
	return func(c *config.Config) {
		if now != nil {
			c.Now, c.Injected = now, true
		}
	}
}
