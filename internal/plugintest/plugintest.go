// Package plugintest has helpers for tests that need the whole plugin. Only external tests (package x_test) may
// import it, because it imports the root.
package plugintest

import (
	"context"
	"errors"
	"path/filepath"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/uidplugin/uidplugin"
	"github.com/uidplugin/uidplugin/generator"
	"github.com/uidplugin/uidplugin/internal/config"
	"github.com/uidplugin/uidplugin/internal/testkit"
	"github.com/uidplugin/uidplugin/workernode"
	"gorm.io/gorm"
	"gorm.io/gorm/logger"
)

var must = testkit.Must

// Noon is the instant that fixed clocks show: the start of a tick, so that the sequence of the first id is 0.
var Noon = time.Date(2026, 6, 1, 12, 0, 0, 0, time.UTC)

// AtNoon is a clock that shows noon.
func AtNoon() time.Time { return Noon }

// At returns the id that a worker id makes at noon with a sequence, in the default layout.
func At(tb testing.TB, worker, sequence int64) int64 {
	tb.Helper()
	id, err := generator.DefaultLayout().Compose(generator.Parts{Time: Noon, WorkerID: worker, Sequence: sequence})
	must(tb, err)
	return id
}

// Bare returns a handle, without the plugin, on a SQLite database of its own.
func Bare(tb testing.TB) *gorm.DB {
	tb.Helper()
	return testkit.SQLite{}.Open(tb)
}

// File returns a handle, without the plugin, on a SQLite database in a file.
func File(tb testing.TB, path string, config *gorm.Config) *gorm.DB {
	tb.Helper()
	return testkit.SQLite{Path: path, Config: config}.Open(tb)
}

// InBubble runs a parallel test in a bubble of synctest, with a handle on a SQLite database without the plugin.
func InBubble(t *testing.T, test func(t *testing.T, db *gorm.DB)) {
	t.Helper()
	t.Parallel()
	path := filepath.Join(t.TempDir(), "test.db")
	synctest.Test(t, func(t *testing.T) { test(t, File(t, path, nil)) })
}

// Open returns a handle with the plugin on a SQLite database of its own.
func Open(tb testing.TB, options ...uidplugin.Option) *gorm.DB {
	tb.Helper()
	db := Bare(tb)
	Use(tb, db, options...)
	return db
}

// Use gives db a quiet plugin. Its timeout is a minute, because test machines may be busy. It has the option
// [Alone], because other tests use the same fixed worker ids.
func Use(tb testing.TB, db *gorm.DB, options ...uidplugin.Option) *uidplugin.Plugin {
	tb.Helper()
	p := uidplugin.New(append([]uidplugin.Option{uidplugin.WithLogger(nil), uidplugin.WithTimeout(time.Minute), Alone}, options...)...)
	testkit.Must(tb, db.Use(p))
	tb.Cleanup(func() { _ = p.Close(context.Background()) })
	return p
}

// Alone makes a plugin with a fixed worker id share its generator with no other plugin of the process.
func Alone(c *config.Config) { c.Alone = true }

// WithMaxSkew sets how much the clocks of a plugin and its database may differ. Without this option the
// clocks are not compared if the test sets the plugin's clock.
func WithMaxSkew(d time.Duration) uidplugin.Option {
	return func(c *config.Config) { c.MaxSkew = d }
}

// Migrate creates the tables of models through GORM, as an application does.
func Migrate(tb testing.TB, db *gorm.DB, models ...any) {
	tb.Helper()
	testkit.Must(tb, db.AutoMigrate(models...))
}

// Count returns how many rows a table has, or how many a condition selects.
func Count(tb testing.TB, db *gorm.DB, table string, where ...any) int64 {
	tb.Helper()
	var n int64
	tx := db.Session(&gorm.Session{NewDB: true}).Table(table)
	if len(where) > 0 {
		tx = tx.Where(where[0], where[1:]...)
	}
	must(tb, tx.Count(&n).Error)
	return n
}

// Rows checks that the number of rows in a table, or of those that a condition selects, is want.
func Rows(tb testing.TB, want int64, db *gorm.DB, table string, where ...any) {
	tb.Helper()
	if n := Count(tb, db, table, where...); n != want {
		tb.Errorf("%d rows in %s, want %d %v", n, table, want, where)
	}
}

// Links checks that a table has want rows, and that the column of each row has the id of a row of the other table.
func Links(tb testing.TB, db *gorm.DB, table, column, to string, want int64) {
	tb.Helper()
	Rows(tb, want, db, table, column+" IN (SELECT id FROM "+to+")")
	Rows(tb, want, db, table)
}

// IsOurs checks that id was made by the plugin for a table.
func IsOurs(tb testing.TB, db *gorm.DB, table string, id int64) {
	tb.Helper()
	l, err := uidplugin.From(db).Locate(context.Background(), uidplugin.ID(id))
	if err != nil {
		tb.Errorf("%s: %v", table, err)
	} else if l.Table != table {
		tb.Errorf("the id %d is one of the table %q, not %q", id, l.Table, table)
	}
}

// IDIn returns the id of a row that is a map. Without an id it reports an error and returns 0.
func IDIn(tb testing.TB, m map[string]any) int64 {
	tb.Helper()
	id, ok := m["id"].(int64)
	if !ok {
		tb.Errorf("no id in %v", m)
	}
	return id
}

// Statements is a GORM logger that keeps all statements.
type Statements struct {
	mu   sync.Mutex
	list []string
}

func (s *Statements) LogMode(logger.LogLevel) logger.Interface { return s }
func (s *Statements) Info(context.Context, string, ...any)     {}
func (s *Statements) Warn(context.Context, string, ...any)     {}
func (s *Statements) Error(context.Context, string, ...any)    {}
func (s *Statements) Trace(_ context.Context, _ time.Time, fc func() (string, int64), _ error) {
	sql, _ := fc()
	s.mu.Lock()
	defer s.mu.Unlock()
	s.list = append(s.list, sql)
}

// Take returns the statements since the last call.
func (s *Statements) Take() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	list := s.list
	s.list = nil
	return list
}

// Recorded returns a session of db whose statements are kept.
func Recorded(db *gorm.DB) (*gorm.DB, *Statements) {
	s := &Statements{}
	return db.Session(&gorm.Session{Logger: s}), s
}

// Journal keeps the lines that a plugin has logged.
type Journal struct{ testkit.Log }

// Option makes a plugin log into the journal.
func (j *Journal) Option() uidplugin.Option { return uidplugin.WithLogger(j.Logger()) }

// FileOf returns the file of a SQLite database.
func FileOf(t *testing.T, db *gorm.DB) (name string) {
	t.Helper()
	must(t, db.Raw("SELECT file FROM pragma_database_list WHERE name = 'main'").Scan(&name).Error)
	return name
}

// Single limits the pool of db to one connection.
func Single(t *testing.T, db *gorm.DB) {
	t.Helper()
	pool, err := db.DB()
	must(t, err)
	pool.SetMaxOpenConns(1)
}

// Unregistered checks that a failed db.Use has left nothing behind.
func Unregistered(t *testing.T, db *gorm.DB) {
	t.Helper()
	if len(db.Plugins) != 0 {
		t.Errorf("registered: %v", db.Plugins)
	}
	create := db.Callback().Create()
	for _, name := range []string{"uidplugin:fill", "uidplugin:refill", "uidplugin:before_insert", "uidplugin:after_insert"} {
		if create.Get(name) != nil {
			t.Errorf("the callback %s is there", name)
		}
	}
	if db.Callback().Update().Get("uidplugin:prepare") != nil {
		t.Error("the callback of updates is there")
	}
}

// Second returns the error of a call that has another result too.
func Second[T any](_ T, err error) error { return err }

// kindsOfNoID are the reasons why no row is found for a number. No error may wrap two of them.
var kindsOfNoID = []error{
	uidplugin.ErrNegativeID, uidplugin.ErrFutureID, uidplugin.ErrUnknownID, uidplugin.ErrOtherLayout,
	uidplugin.ErrNoModel, gorm.ErrRecordNotFound, uidplugin.ErrNotRegistered,
}

// Only checks that err wraps kind and no other error of kindsOfNoID, and that its text contains all words.
func Only(t *testing.T, err, kind error, words ...string) {
	t.Helper()
	if err == nil {
		t.Fatalf("no error, want %v", kind)
	}
	for _, k := range kindsOfNoID {
		if errors.Is(err, k) != (k == kind) {
			t.Errorf("the error\n\t%v\nis %v: %v", err, k, errors.Is(err, k))
		}
	}
	testkit.SaysAll(t, err.Error(), words...)
}

// NodesOf returns a reader of the plugin's tables behind a handle.
func NodesOf(tb testing.TB, db *gorm.DB) *workernode.DB {
	tb.Helper()
	d, err := workernode.Open(db, time.Minute)
	must(tb, err)
	return d
}
