package uidplugin_test

import (
	"bytes"
	"context"
	"log/slog"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/glebarez/sqlite"
	"github.com/uidplugin/uidplugin"
	"github.com/uidplugin/uidplugin/generator"
	"gorm.io/gorm"
	"gorm.io/gorm/logger"
)

// noon is the instant that fixed clocks show: the start of a tick, so that the
// sequence of the first id is 0.
var noon = time.Date(2026, 6, 1, 12, 0, 0, 0, time.UTC)

func atNoon() time.Time { return noon }

// at returns the id that worker makes at noon with a sequence.
func at(tb testing.TB, worker, sequence int64) int64 {
	tb.Helper()
	id, err := generator.DefaultLayout().Compose(generator.Parts{Time: noon, WorkerID: worker, Sequence: sequence})
	if err != nil {
		tb.Fatal(err)
	}
	return id
}

// bare returns a handle, without the plugin, on a SQLite database of its own.
func bare(tb testing.TB) *gorm.DB {
	tb.Helper()
	return file(tb, filepath.Join(tb.TempDir(), "test.db"), &gorm.Config{})
}

// file returns a handle, without the plugin, on a SQLite database in a file.
func file(tb testing.TB, path string, config *gorm.Config) *gorm.DB {
	tb.Helper()
	if config.Logger == nil {
		config.Logger = logger.Discard
	}
	db, err := gorm.Open(sqlite.Open("file:"+path+"?_pragma=busy_timeout(10000)&_pragma=journal_mode(WAL)&_pragma=synchronous(0)"), config)
	if err != nil {
		tb.Fatal(err)
	}
	pool, err := db.DB()
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() { _ = pool.Close() })
	return db
}

// open returns a handle with the plugin on a SQLite database of its own.
func open(tb testing.TB, options ...uidplugin.Option) *gorm.DB {
	tb.Helper()
	db := bare(tb)
	use(tb, db, options...)
	return db
}

// use gives db a quiet plugin.
func use(tb testing.TB, db *gorm.DB, options ...uidplugin.Option) *uidplugin.Plugin {
	tb.Helper()
	p := uidplugin.New(append([]uidplugin.Option{uidplugin.WithLogger(nil)}, options...)...)
	if err := db.Use(p); err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() { _ = p.Close(context.Background()) })
	return p
}

// migrate creates the tables of models through GORM, as an application does.
func migrate(tb testing.TB, db *gorm.DB, models ...any) {
	tb.Helper()
	if err := db.AutoMigrate(models...); err != nil {
		tb.Fatal(err)
	}
}

// must stops the test at an error.
func must(tb testing.TB, err error) {
	tb.Helper()
	if err != nil {
		tb.Fatal(err)
	}
}

// saysAll checks that a message names everything that a reader needs to know.
func saysAll(tb testing.TB, message string, words ...string) {
	tb.Helper()
	for _, w := range words {
		if !strings.Contains(message, w) {
			tb.Errorf("the message\n\t%s\ndoes not say %q", message, w)
		}
	}
}

// count returns how many rows a table has, or those that a condition selects.
func count(tb testing.TB, db *gorm.DB, table string, where ...any) int64 {
	tb.Helper()
	var n int64
	tx := db.Session(&gorm.Session{NewDB: true}).Table(table)
	if len(where) > 0 {
		tx = tx.Where(where[0], where[1:]...)
	}
	must(tb, tx.Count(&n).Error)
	return n
}

// isOurs checks that id was made by the plugin for a table.
func isOurs(tb testing.TB, db *gorm.DB, table string, id int64) {
	tb.Helper()
	l, err := uidplugin.From(db).Locate(context.Background(), id)
	if err != nil {
		tb.Errorf("%s: %v", table, err)
	} else if l.Table != table {
		tb.Errorf("the id %d is one of the table %q, not %q", id, l.Table, table)
	}
}

// idIn returns the id that a map has under a key, 0 if none.
func idIn(tb testing.TB, m map[string]any, key string) int64 {
	tb.Helper()
	id, ok := m[key].(int64)
	if !ok {
		tb.Errorf("no id in %v", m)
	}
	return id
}

// statements is a GORM logger that keeps the statements that it is told of.
type statements struct {
	mu   sync.Mutex
	list []string
}

func (s *statements) LogMode(logger.LogLevel) logger.Interface { return s }
func (s *statements) Info(context.Context, string, ...any)     {}
func (s *statements) Warn(context.Context, string, ...any)     {}
func (s *statements) Error(context.Context, string, ...any)    {}
func (s *statements) Trace(_ context.Context, _ time.Time, fc func() (string, int64), _ error) {
	sql, _ := fc()
	s.mu.Lock()
	defer s.mu.Unlock()
	s.list = append(s.list, sql)
}

// take returns the statements since the last call.
func (s *statements) take() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	list := s.list
	s.list = nil
	return list
}

// recorded returns a session of db whose statements are kept.
func recorded(db *gorm.DB) (*gorm.DB, *statements) {
	s := &statements{}
	return db.Session(&gorm.Session{Logger: s}), s
}

// journal is what a plugin has logged.
type journal struct {
	mu     sync.Mutex
	buffer bytes.Buffer
}

func (j *journal) Write(p []byte) (int, error) {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.buffer.Write(p)
}

// lines returns the lines that contain a word.
func (j *journal) lines(word string) (lines []string) {
	j.mu.Lock()
	defer j.mu.Unlock()
	for line := range strings.Lines(j.buffer.String()) {
		if strings.Contains(line, word) {
			lines = append(lines, line)
		}
	}
	return lines
}

// option makes a plugin log into the journal.
func (j *journal) option() uidplugin.Option {
	return uidplugin.WithLogger(slog.New(slog.NewTextHandler(j, nil)))
}
