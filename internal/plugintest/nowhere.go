package plugintest

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"log/slog"
	"testing"
	"time"

	"github.com/uidplugin/uidplugin"
	"github.com/uidplugin/uidplugin/generator"
	"gorm.io/gorm"
	"gorm.io/gorm/logger"
	"gorm.io/gorm/utils/tests"
)

// nothing is a connection pool that accepts and ignores every Exec. Queries get an error.
type nothing struct{}

func (nothing) PrepareContext(context.Context, string) (*sql.Stmt, error) {
	return nil, driver.ErrSkip
}

func (nothing) ExecContext(context.Context, string, ...any) (sql.Result, error) {
	return driver.RowsAffected(1), nil
}

func (nothing) QueryContext(context.Context, string, ...any) (*sql.Rows, error) {
	return nil, driver.ErrSkip
}

func (nothing) QueryRowContext(context.Context, string, ...any) *sql.Row { return nil }

// Nowhere returns a handle without a database, with a plugin if there are options.
func Nowhere(tb testing.TB, options ...uidplugin.Option) *gorm.DB {
	db, err := gorm.Open(tests.DummyDialector{}, &gorm.Config{
		ConnPool: nothing{}, SkipDefaultTransaction: true, Logger: logger.Discard,
	})
	if err != nil {
		tb.Fatal(err)
	}
	if options != nil {
		// Benchmarks must not wait: the layout has very many ids, and WithClock lets ids be ahead of the clock.
		p := uidplugin.New(append(options, uidplugin.WithWorkerID(1), uidplugin.WithClock(time.Now), uidplugin.WithLayout(Plenty()), uidplugin.WithLogger(slog.New(slog.DiscardHandler)))...)
		if err := db.Use(p); err != nil {
			tb.Fatal(err)
		}
	}
	return db
}

// Plenty is a layout with a billion ids a second for each worker id.
func Plenty() generator.Layout {
	l := Seconds()
	l.WorkerBits, l.SequenceBits = 5, 30
	return l
}

// Seconds is a layout with ticks of a second and 8,192 ids in each.
func Seconds() generator.Layout {
	return generator.Layout{TimeBits: 28, WorkerBits: 22, SequenceBits: 13, Tick: time.Second,
		Epoch: time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)}
}
