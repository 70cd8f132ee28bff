// wing: segment

package segments_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/uidplugin/uidplugin"
	"github.com/uidplugin/uidplugin/generator"
	"github.com/uidplugin/uidplugin/internal/plugintest"
	"github.com/uidplugin/uidplugin/internal/testkit"
	"github.com/uidplugin/uidplugin/segment"
	"gorm.io/gorm"
)

// Formerly the segment was opened in the background, and its first range fetched after that, so a transaction that held
// the only connection waited for itself, and failed.
func TestUse_SegmentsNeedNoConnectionAfterIt(t *testing.T) {
	t.Parallel()

	for name, list := range map[string]func(db *gorm.DB, p *uidplugin.Plugin) error{
		"WithModels":      nil,
		"Register":        func(_ *gorm.DB, p *uidplugin.Plugin) error { return p.Register(t.Context(), &voucher{}) },
		"AutoMigrate":     func(_ *gorm.DB, p *uidplugin.Plugin) error { return p.AutoMigrate(&voucher{}) },
		"a create before": func(db *gorm.DB, _ *uidplugin.Plugin) error { return db.Create(&voucher{}).Error },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()

			for range 20 {
				db := plugintest.Bare(t)
				plugintest.Migrate(t, db, &voucher{})
				plugintest.Single(t, db)
				if list == nil {
					plugintest.Use(t, db, uidplugin.WithModels(&voucher{}))
				} else {
					must(t, list(db, plugintest.Use(t, db)))
				}
				must(t, db.Transaction(func(tx *gorm.DB) error {
					return errors.Join(tx.Create(&voucher{}).Error, tx.Create(&[]voucher{{}, {}}).Error)
				}))
				testkit.MustClose(t, uidplugin.From(db))
			}
		})
	}
}

// Formerly errors mentioned worker ids, which a segment does not have.
func TestCreate_ErrorsOfSegmentsAreAboutSegments(t *testing.T) {
	t.Parallel()

	db := plugintest.Bare(t)
	plugintest.Use(t, db)
	plugintest.Migrate(t, db, &voucher{}, &plugintest.Part{})
	plugintest.Single(t, db)
	about := func(err, is error, says string) {
		t.Helper()
		testkit.IsError(t, err, is, "the generator segment of table vouchers", says)
		if strings.Contains(fmt.Sprint(err), "worker id") {
			t.Errorf("%v\nspeaks of worker ids", err)
		}
	}
	tx := db.Begin()
	about(tx.Create(&voucher{}).Error, uidplugin.ErrInTransaction, "WithModels")
	must(t, tx.Rollback().Error)
	tx = db.Begin()
	testkit.IsError(t, tx.Create(&plugintest.Part{}).Error, uidplugin.ErrInTransaction, "a worker id for parts")
	must(t, tx.Rollback().Error)

	other := plugintest.Bare(t)
	p := leafy(other)
	plugintest.Use(t, other)
	plugintest.Migrate(t, other, &voucher{})
	arrived := make(chan struct{}, 10)
	p.fails(func(ctx context.Context) error {
		arrived <- struct{}{}
		<-ctx.Done()
		return ctx.Err()
	})
	ctx, cancel := context.WithCancel(t.Context())
	go func() {
		<-arrived
		cancel()
	}()
	about(other.WithContext(ctx).Create(&voucher{}).Error, context.Canceled, "waiting for")
	p.passes()
}

// db.Use returns the error of a configuration that cannot work. Formerly it was only a warning in the log, and an error
// at the first create. The log must not report it as well, as an attempt that is repeated.
func TestUse_FailsIfASegmentIsNotUsable(t *testing.T) {
	t.Parallel()

	for _, tt := range []struct {
		name, spoil, fix string
		want             error
		says             string
	}{
		{"step", "UPDATE leaf_alloc SET step = 0", "UPDATE leaf_alloc SET step = 10", segment.ErrRow, "step"},
		{"end", "UPDATE leaf_alloc SET max_id = 9223372036854775807", "UPDATE leaf_alloc SET max_id = 70", segment.ErrExhausted, "max_id"},
		{"columns", "ALTER TABLE leaf_alloc RENAME COLUMN max_id TO max", "ALTER TABLE leaf_alloc RENAME COLUMN max TO max_id", nil, "max_id"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()

			db := plugintest.Bare(t)
			plugintest.Migrate(t, db, &voucher{})
			first := plugintest.Use(t, db, uidplugin.WithModels(&voucher{}), uidplugin.WithSegments(segment.Config{Step: 10}))
			testkit.MustClose(t, first)
			must(t, db.Exec(tt.spoil).Error)

			db = plugintest.File(t, plugintest.FileOf(t, db), &gorm.Config{})
			log := &plugintest.Journal{}
			p := uidplugin.New(log.Option(), uidplugin.WithModels(&voucher{}, &plugintest.Part{}))
			testkit.IsError(t, db.Use(p), tt.want, "the generator segment of table vouchers", tt.says)
			plugintest.Unregistered(t, db)

			must(t, db.Exec(tt.fix).Error)
			must(t, db.Use(p))
			must(t, db.Create(&voucher{}).Error)
			testkit.MustClose(t, p)
			if lines := log.Lines("cannot be opened"); len(lines) > 0 {
				t.Errorf("the log has the error, too: %q", lines)
			}
		})
	}
}

// A segment that could not be reached at db.Use is opened later by itself. Formerly only the next create tried, and
// failed.
func TestUse_OpensASegmentAgainWhenTheDatabaseIsBack(t *testing.T) {
	plugintest.InBubble(t, func(t *testing.T, db *gorm.DB) {
		plugintest.Migrate(t, db, &voucher{})
		p := leafy(db)
		p.fails(func(context.Context) error { return errUnreachable })
		log := &plugintest.Journal{}
		plugin := plugintest.Use(t, db, uidplugin.WithWorkerID(1), uidplugin.WithClock(plugintest.AtNoon), log.Option(), uidplugin.WithModels(&voucher{}))
		for range 3 {
			testkit.IsError(t, plugin.Health(), errUnreachable, "the generator segment of table vouchers", "since 2026-06-01 12:00:00")
			testkit.IsError(t, db.Create(&voucher{}).Error, errUnreachable)
			time.Sleep(time.Minute)
		}
		p.passes()
		time.Sleep(time.Minute)
		must(t, plugin.Health())
		must(t, db.Transaction(func(tx *gorm.DB) error { return tx.Create(&voucher{}).Error }))
		synctest.Wait()
		if failed, open := log.Lines("cannot be opened"), log.Lines("is open now"); len(failed) != 1 || len(open) != 1 {
			t.Errorf("logged\n%q\n%q", failed, open)
		}
	})
}

// Formerly every error said that a connection was missing.
func TestCreate_InATransactionTellsWhyASegmentIsNotUsable(t *testing.T) {
	t.Parallel()

	db := plugintest.Bare(t)
	plugintest.Migrate(t, db, &voucher{})
	testkit.MustClose(t, plugintest.Use(t, db, uidplugin.WithModels(&voucher{})))
	must(t, db.Exec("UPDATE leaf_alloc SET step = 0").Error)
	db = plugintest.File(t, plugintest.FileOf(t, db), &gorm.Config{})
	plugintest.Use(t, db)
	err := db.Transaction(func(tx *gorm.DB) error { return tx.Create(&voucher{}).Error })
	if !errors.Is(err, segment.ErrRow) || errors.Is(err, uidplugin.ErrInTransaction) {
		t.Errorf("%v", err)
	}
}

// Formerly a db.Use that failed left the segments of other models open.
func TestUse_ThatFailsLeavesNoSegmentOpen(t *testing.T) {
	plugintest.InBubble(t, func(t *testing.T, db *gorm.DB) {
		must(t, db.Exec("CREATE TABLE slips (id BIGINT, ref TEXT)").Error)
		must(t, db.Exec("INSERT INTO slips VALUES (9223372036854775807, 1)").Error)
		err := db.Use(uidplugin.New(uidplugin.WithWorkerID(1), uidplugin.WithClock(plugintest.AtNoon), uidplugin.WithLogger(nil),
			uidplugin.WithModels(&voucher{}, &spelt{})))
		testkit.IsError(t, err, segment.ErrExhausted)
	}) // all goroutines have to end
}

// Formerly a create without a deadline waited for a segment as long as the driver did not answer.
func TestCreate_WaitsForASegmentForABoundedTime(t *testing.T) {
	plugintest.InBubble(t, func(t *testing.T, db *gorm.DB) {
		plugintest.Migrate(t, db, &voucher{})
		p := leafy(db)
		plugintest.Use(t, db, uidplugin.WithWorkerID(1), uidplugin.WithClock(plugintest.AtNoon), uidplugin.WithTimeout(3*time.Second),
			uidplugin.WithSegments(segment.Config{Step: 10, MaxStep: 1}), uidplugin.WithModels(&voucher{}))
		answered := make(chan struct{})
		p.fails(func(context.Context) error { // and does not notice that its context ends
			<-answered
			return errUnreachable
		})
		must(t, db.Create(make([]voucher, 10)).Error)
		for range 2 {
			begin := time.Now()
			if err := db.Create(&voucher{}).Error; !errors.Is(err, generator.ErrSource) || time.Since(begin) != 3*time.Second {
				t.Errorf("after %v: %v", time.Since(begin), err)
			}
		}
		close(answered)
		testkit.IsError(t, db.Create(&voucher{}).Error, errUnreachable)
		p.passes()
		time.Sleep(10 * time.Second)
		must(t, db.Create(&voucher{}).Error)
	})
}

// A log handler may create rows, but not while GORM registers callbacks, which is not safe for that.
func TestUse_LogOfASegmentComesAfterIt(t *testing.T) {
	t.Parallel()

	db := plugintest.Bare(t)
	plugintest.Migrate(t, db, &voucher{})
	logged, used := make(chan error, 100), atomic.Bool{}
	log := testkit.LogFunc(func(r slog.Record) {
		if strings.Contains(r.Message, "tag inserted") {
			if !used.Load() {
				t.Error("it was logged during db.Use")
			}
			logged <- db.Create(&voucher{}).Error
		}
	})
	p := uidplugin.New(uidplugin.WithLogger(log), uidplugin.WithModels(&voucher{}),
		uidplugin.WithSource("tickets", func(context.Context, *gorm.DB, string) (generator.Generator, error) {
			time.Sleep(20 * time.Millisecond)
			used.Store(true) // db.Use is about to return
			return &plugintest.Numbers{Step: 1}, nil
		}), uidplugin.WithModels(&ticket{}))
	must(t, db.Use(p))
	must(t, <-logged)
	testkit.MustClose(t, p)
}
