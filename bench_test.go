package uidplugin_test

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"log/slog"
	"testing"
	"time"

	"github.com/uidplugin/uidplugin"
	"gorm.io/gorm"
	"gorm.io/gorm/logger"
	"gorm.io/gorm/utils/tests"
)

// The cost of the plugin is the difference between the variants of one run:
//
//	go test -run '^$' -bench 'Create|Select' -count 10 .

// nothing is a connection pool that accepts every statement and ignores it.
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

// parcel is a model of usual size.
type parcel struct {
	ID      int64 `gorm:"primaryKey;autoIncrement:false;uid"`
	OrderID int64
	Status  int
	Weight  int64
	Street  string
	City    string
}

// nowhere returns a handle on nothing.
func nowhere(tb testing.TB, options ...uidplugin.Option) *gorm.DB {
	db, err := gorm.Open(tests.DummyDialector{}, &gorm.Config{
		ConnPool: nothing{}, SkipDefaultTransaction: true, Logger: logger.Discard,
	})
	if err != nil {
		tb.Fatal(err)
	}
	if options != nil {
		// A layout of so many ids a second, and a clock of its own, so that no benchmark waits.
		p := uidplugin.New(append(options, uidplugin.WithWorkerID(1), uidplugin.WithClock(time.Now), uidplugin.WithLayout(plenty()), uidplugin.WithLogger(slog.New(slog.DiscardHandler)))...)
		if err := db.Use(p); err != nil {
			tb.Fatal(err)
		}
	}
	return db
}

func variants(b *testing.B, run func(b *testing.B, db *gorm.DB, id int64)) {
	b.Run("preset", func(b *testing.B) { run(b, nowhere(b), 1) })
	b.Run("uidplugin", func(b *testing.B) { run(b, nowhere(b, uidplugin.WithWorkerID(1)), 0) })
}

// BenchmarkCreateOneRow measures a db.Create of one row, once with a key that is set, and once with one that the
// plugin sets.
func BenchmarkCreateOneRow(b *testing.B) {
	variants(b, func(b *testing.B, db *gorm.DB, id int64) {
		row := parcel{OrderID: 1, Street: "Long Lane", City: "Ely"}
		b.ReportAllocs()
		for b.Loop() {
			row.ID = id
			if err := db.Create(&row).Error; err != nil {
				b.Fatal(err)
			}
		}
	})
}

// BenchmarkSelect measures a SELECT of the application, without and with the plugin. The pool answers no query, so this is
// what GORM and the plugin do before it.
func BenchmarkSelect(b *testing.B) {
	variants(b, func(b *testing.B, db *gorm.DB, _ int64) {
		b.ReportAllocs()
		for b.Loop() {
			var rows []parcel
			if err := db.Where("city = ?", "Ely").Limit(10).Find(&rows).Error; !errors.Is(err, driver.ErrSkip) {
				b.Fatal(err)
			}
		}
	})
}

// BenchmarkCreate1000Rows is the same for a slice of 1000.
func BenchmarkCreate1000Rows(b *testing.B) {
	variants(b, func(b *testing.B, db *gorm.DB, id int64) {
		rows := make([]parcel, 1000)
		b.ReportAllocs()
		for b.Loop() {
			for i := range rows {
				rows[i].ID = id
			}
			if err := db.Create(&rows).Error; err != nil {
				b.Fatal(err)
			}
		}
	})
}
