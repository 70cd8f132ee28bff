package lifecycle_test

import (
	"context"
	"errors"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/uidplugin/uidplugin"
	"github.com/uidplugin/uidplugin/generator"
	"github.com/uidplugin/uidplugin/internal/plugintest"
	"github.com/uidplugin/uidplugin/internal/testkit"
	"gorm.io/gorm"
)

var must, saysAll = testkit.Must, testkit.SaysAll

func TestPluginClose_AfterItNoIDIsMade(t *testing.T) {
	t.Parallel()

	for _, kind := range []string{"cached", "snowflake"} {
		db := plugintest.Open(t, uidplugin.WithDefaultGenerator(kind))
		p := uidplugin.From(db)
		must(t, p.AutoMigrate(&plugintest.Part{}))
		plugintest.Migrate(t, db, &plugintest.Counter{})
		known := plugintest.Part{}
		must(t, db.Create(&known).Error)
		for range 2 {
			testkit.MustClose(t, p)
		}
		for name, create := range map[string]func() error{
			"known table": func() error { return db.Create(&plugintest.Part{}).Error },
			"slice":       func() error { return db.Create(&[]plugintest.Part{{}, {}}).Error },
			"map":         func() error { return db.Model(&plugintest.Part{}).Create(map[string]any{"name": "a"}).Error },
			"maps":        func() error { return db.Model(&plugintest.Part{}).Create([]map[string]any{{"name": "a"}}).Error },
			"new table":   func() error { return db.Create(&plugintest.Counter{}).Error },
			"NextID":      func() error { _, err := p.NextID(t.Context(), &plugintest.Part{}); return err },
			"Register":    func() error { return p.Register(t.Context(), &plugintest.Article{}) },
		} {
			if err := create(); !errors.Is(err, uidplugin.ErrClosed) || !strings.Contains(err.Error(), "uidplugin: closed") {
				t.Errorf("%s, %s: %v", kind, name, err)
			}
		}
		if plugintest.Count(t, db, "parts") != 1 || plugintest.Count(t, db, "counters") != 0 {
			t.Errorf("%s: rows were created", kind)
		}

		// Old ids still lead to their rows.
		if row, err := p.Find(t.Context(), uidplugin.ID(known.ID)); err != nil || *row.(*plugintest.Part) != known {
			t.Errorf("%s: Find: %v, %v", kind, row, err)
		}
	}
}

func TestPluginClose_WhatNeedsNoIDGoesOnAfterClose(t *testing.T) {
	t.Parallel()

	db := plugintest.Open(t)
	plugintest.Migrate(t, db, &plugintest.Part{}, &plugintest.Ledger{})
	testkit.MustClose(t, uidplugin.From(db))
	for name, err := range map[string]error{
		"query":              db.Find(&[]plugintest.Part{}).Error,
		"delete":             db.Delete(&plugintest.Part{ID: 5}).Error,
		"create without tag": db.Create(&plugintest.Ledger{ID: 1}).Error,
		"update":             db.Model(&plugintest.Part{ID: 5}).Update("name", "a").Error,
		"create with a key":  db.Create(&plugintest.Part{ID: 6}).Error,
	} {
		if err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// Close waits for goroutines in the background, or until its context ends, because a database may not notice that a
// context has ended.
func TestPluginClose_WaitsForTheBackgroundOrItsContext(t *testing.T) {
	t.Parallel()

	db := plugintest.Bare(t)
	g := plugintest.Gated(db)
	g.Deaf = true
	p := plugintest.Use(t, db)
	plugintest.Migrate(t, db, &plugintest.Part{})
	created := make(chan error)
	go func() { created <- db.Create(&plugintest.Part{}).Error }()
	<-g.Arrived

	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Millisecond)
	defer cancel()
	testkit.IsError(t, p.Close(ctx), context.DeadlineExceeded, "uidplugin: close", "worker id")

	close(g.Opened)
	testkit.MustClose(t, p)
	if err := <-created; !errors.Is(err, uidplugin.ErrClosed) { // the worker id came too late
		t.Errorf("the create ended with %v", err)
	}
}

// The clock stands still permanently. Both generators have ids for one tick, and callers want more.
func TestPluginClose_EndsTheWaitForTheClock(t *testing.T) {
	t.Parallel()

	for _, kind := range []string{"cached", "snowflake"} {
		synctest.Test(t, func(t *testing.T) {
			db := plugintest.Nowhere(t)
			hours := plugintest.Seconds() // so long a tick that the cached generator borrows only one
			hours.Tick = time.Hour
			p := plugintest.Use(t, db, uidplugin.WithWorkerID(1), uidplugin.WithDefaultGenerator(kind), uidplugin.WithLayout(hours), uidplugin.WithClock(plugintest.AtNoon))
			ctx, cancel := context.WithCancel(t.Context())
			cancelled, closed := make(chan error), make(chan error)
			go func() { closed <- db.Create(make([]plugintest.Parcel, 20_000)).Error }()
			synctest.Wait()
			go func() { cancelled <- db.WithContext(ctx).Create(&plugintest.Parcel{}).Error }()
			synctest.Wait()
			cancel()
			testkit.IsError(t, <-cancelled, context.Canceled)
			testkit.MustClose(t, p)
			testkit.IsError(t, <-closed, uidplugin.ErrClosed)
		})
	}
}

func TestPluginClose_WhileInUse(t *testing.T) {
	t.Parallel()

	db := plugintest.Nowhere(t, uidplugin.WithWorkerID(1))
	var group sync.WaitGroup
	begun := make(chan struct{}, 16)
	for range 16 {
		group.Go(func() {
			begun <- struct{}{}
			for last := int64(0); ; {
				r := plugintest.Parcel{}
				if err := db.Create(&r).Error; err != nil {
					testkit.IsError(t, err, uidplugin.ErrClosed)
					return
				}
				if r.ID <= last {
					t.Errorf("%d after %d", r.ID, last)
				}
				last = r.ID
			}
		})
	}
	for range 16 {
		<-begun
	}
	for range 4 {
		group.Go(func() {
			testkit.MustClose(t, uidplugin.From(db))
		})
	}
	group.Wait()
}

// Nothing runs after Close, because a bubble ends only when its goroutines have ended.
func TestPluginClose_NothingRunsAfterClose(t *testing.T) {
	t.Parallel()

	dir := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		layout := generator.DefaultLayout()
		layout.Epoch = layout.Epoch.AddDate(-30, 0, 0) // bubbles begin in 2000
		db := plugintest.File(t, filepath.Join(dir, "test.db"), &gorm.Config{})
		p := plugintest.Use(t, db, uidplugin.WithLayout(layout), uidplugin.WithModels(&plugintest.Part{}))
		plugintest.Migrate(t, db, &plugintest.Part{}, &plugintest.Counter{})
		for range 100 {
			must(t, db.Create(&plugintest.Part{}).Error)
			must(t, db.Create(&[]plugintest.Counter{{}, {}}).Error)
		}
		testkit.MustClose(t, p)
	})
}

func TestPluginClose_APluginThatIsForgottenLeavesNothingBehind(t *testing.T) {
	t.Parallel()

	synctest.Test(t, func(t *testing.T) {
		layout := plugintest.Plenty()
		layout.Epoch = layout.Epoch.AddDate(-27, 0, 0)
		db := plugintest.Nowhere(t)
		must(t, db.Use(uidplugin.New(plugintest.Alone, uidplugin.WithWorkerID(1), uidplugin.WithLayout(layout))))
		must(t, db.Create(&plugintest.Parcel{}).Error)
		must(t, db.Create(make([]plugintest.Parcel, 10)).Error)
	})
}

// A program that closes the pool first cannot release the slot. Its error says to close the plugin first. Formerly it
// was only the database's.
func TestPluginClose_AfterThePoolSaysToCloseThePluginFirst(t *testing.T) {
	t.Parallel()

	db := plugintest.Open(t, uidplugin.WithModels(&plugintest.Part{}))
	plugintest.Migrate(t, db, &plugintest.Part{})
	must(t, db.Create(&plugintest.Part{}).Error)
	pool, err := db.DB()
	must(t, err)
	must(t, pool.Close())
	testkit.IsError(t, uidplugin.From(db).Close(t.Context()), nil, "call Close before the pool is closed", "sql: database is closed")
}

// A caller that gives Close an ended context must not look for a hanging generator.
func TestPluginClose_SaysThatTheContextEnded(t *testing.T) {
	t.Parallel()

	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	err := uidplugin.From(plugintest.Open(t, uidplugin.WithModels(&plugintest.Part{}))).Close(ctx)
	testkit.IsError(t, err, context.Canceled, "before Close was called")
}
