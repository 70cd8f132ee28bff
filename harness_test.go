package uidplugin_test

import (
	"context"
	"database/sql"
	"sync"
	"testing"
	"time"

	"github.com/uidplugin/uidplugin"
	"github.com/uidplugin/uidplugin/generator"
	"github.com/uidplugin/uidplugin/internal/config"
	"github.com/uidplugin/uidplugin/internal/testkit"
	"gorm.io/gorm"
	"gorm.io/gorm/logger"
)

var must, saysAll = testkit.Must, testkit.SaysAll

// noon is the instant that fixed clocks show: the start of a tick, so that the
// sequence of the first id is 0.
var noon = time.Date(2026, 6, 1, 12, 0, 0, 0, time.UTC)

func atNoon() time.Time { return noon }

// at returns the id of the default layout that worker makes at noon with a sequence.
func at(tb testing.TB, worker, sequence int64) int64 {
	tb.Helper()
	return compose(tb, generator.DefaultLayout(), worker, sequence)
}

// atFew returns the same id of the layout few.
func atFew(tb testing.TB, worker, sequence int64) int64 {
	tb.Helper()
	return compose(tb, generator.DefaultLayout(), worker, sequence)
}

func compose(tb testing.TB, l generator.Layout, worker, sequence int64) int64 {
	tb.Helper()
	id, err := l.Compose(generator.Parts{Time: noon, WorkerID: worker, Sequence: sequence})
	must(tb, err)
	return id
}

// A tap is a connection pool that tells a test of each statement before it is sent. BEGIN and COMMIT count as
// statements. If before returns an error, the statement fails with it.
type tap struct {
	gorm.ConnPool
	before func(ctx context.Context, query string) error
}

// tapped puts a tap on the pool that a plugin of db uses. GORM's own statements do not pass it.
func tapped(db *gorm.DB, before func(ctx context.Context, query string) error) {
	db.Config.ConnPool = &tap{db.Config.ConnPool, before}
}

func (p *tap) ExecContext(ctx context.Context, query string, args ...any) (sql.Result, error) {
	if err := p.before(ctx, query); err != nil {
		return nil, err
	}
	return p.ConnPool.ExecContext(ctx, query, args...)
}

func (p *tap) QueryContext(ctx context.Context, query string, args ...any) (*sql.Rows, error) {
	if err := p.before(ctx, query); err != nil {
		return nil, err
	}
	return p.ConnPool.QueryContext(ctx, query, args...)
}

// BeginTx implements [gorm.ConnPoolBeginner].
func (p *tap) BeginTx(ctx context.Context, options *sql.TxOptions) (gorm.ConnPool, error) {
	if err := p.before(ctx, "BEGIN"); err != nil {
		return nil, err
	}
	tx, err := p.ConnPool.(gorm.TxBeginner).BeginTx(ctx, options)
	if err != nil {
		return nil, err
	}
	return &tappedTx{tap{tx, p.before}, ctx, tx}, nil
}

// A tappedTx is a transaction of a tap.
type tappedTx struct {
	tap
	ctx context.Context
	tx  *sql.Tx
}

func (t *tappedTx) Commit() error {
	if err := t.before(t.ctx, "COMMIT"); err != nil {
		_ = t.tx.Rollback()
		return err
	}
	return t.tx.Commit()
}

func (t *tappedTx) Rollback() error { return t.tx.Rollback() }

// bare returns a handle, without the plugin, on a SQLite database of its own.
func bare(tb testing.TB) *gorm.DB {
	tb.Helper()
	return testkit.SQLite{}.Open(tb)
}

// file returns a handle, without the plugin, on a SQLite database in a file.
func file(tb testing.TB, path string, config *gorm.Config) *gorm.DB {
	tb.Helper()
	return testkit.SQLite{Path: path, Config: config}.Open(tb)
}

// open returns a handle with the plugin on a SQLite database of its own.
func open(tb testing.TB, options ...uidplugin.Option) *gorm.DB {
	tb.Helper()
	db := bare(tb)
	use(tb, db, options...)
	return db
}

// use gives db a quiet plugin. With a fixed worker id it is alone, because other tests use the same numbers.
func use(tb testing.TB, db *gorm.DB, options ...uidplugin.Option) *uidplugin.Plugin {
	tb.Helper()
	p := uidplugin.New(append([]uidplugin.Option{uidplugin.WithLogger(nil), config.Alone}, options...)...)
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
	l, err := uidplugin.From(db).Locate(context.Background(), uidplugin.ID(id))
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

// statements is a GORM logger that keeps all statements.
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

// journal keeps the lines that a plugin has logged.
type journal struct{ testkit.Log }

// option makes a plugin log into the journal.
func (j *journal) option() uidplugin.Option { return uidplugin.WithLogger(j.Logger()) }

// otherLayout is a layout that differs from the default.
func otherLayout() generator.Layout {
	l := generator.DefaultLayout()
	l.WorkerBits, l.SequenceBits = 15, 7
	return l
}
