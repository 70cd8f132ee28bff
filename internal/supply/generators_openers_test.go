package supply_test

import (
	"context"
	"errors"
	"path/filepath"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/uidplugin/uidplugin"
	"github.com/uidplugin/uidplugin/generator"
	"github.com/uidplugin/uidplugin/internal/plugintest"
	"gorm.io/gorm"
)

// ticket has the ids of a source.
type ticket struct {
	ID int64 `gorm:"primaryKey;autoIncrement:false;uid:tickets"`
}

// An opener of the application that failed was not called again until the next create.
func TestOpener_IsCalledAgainWithGrowingPauses(t *testing.T) {
	t.Parallel()

	dir := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		var mu sync.Mutex
		var calls []time.Time
		broken := true
		db := plugintest.File(t, filepath.Join(dir, "test.db"), &gorm.Config{})
		plugintest.Migrate(t, db, &ticket{})
		log := &plugintest.Journal{}
		plugin := plugintest.Use(t, db, uidplugin.WithWorkerID(1), uidplugin.WithClock(plugintest.AtNoon), log.Option(), uidplugin.WithModels(&ticket{}),
			uidplugin.WithSource("tickets", func(context.Context, *gorm.DB, string) (generator.Generator, error) {
				mu.Lock()
				defer mu.Unlock()
				calls = append(calls, time.Now())
				if broken {
					return nil, plugintest.ErrBroken
				}
				return &even{}, nil
			}))
		if err := plugin.Health(); !errors.Is(err, plugintest.ErrBroken) {
			t.Errorf("Health: %v", err)
		}
		time.Sleep(10 * time.Minute)
		mu.Lock()
		pauses := make([]time.Duration, len(calls)-1)
		for i := range pauses {
			pauses[i] = calls[i+1].Sub(calls[i])
		}
		broken = false
		mu.Unlock()
		if len(pauses) < 100 || pauses[0] > time.Second || slices.Max(pauses) > 5*time.Second || pauses[len(pauses)-1] < 2*time.Second {
			t.Errorf("the pauses are %v", pauses)
		}
		time.Sleep(time.Minute)
		must(t, plugin.Health())
		must(t, db.Create(&ticket{}).Error)
		mu.Lock()
		n := len(calls)
		mu.Unlock()
		time.Sleep(time.Hour)
		mu.Lock()
		defer mu.Unlock()
		if len(calls) != n {
			t.Errorf("it was called %d times after it had succeeded", len(calls)-n)
		}
		if failed, open := log.Lines("cannot be opened"), log.Lines("is open now"); len(failed) != 1 || len(open) != 1 {
			t.Errorf("logged\n%q\n%q", failed, open)
		}
	})
}

// An opener could not use the plugin of its handle while db.Use waited for it.
func TestOpener_MayUseThePluginAndCreateRows(t *testing.T) {
	t.Parallel()

	db := plugintest.Bare(t)
	plugintest.Migrate(t, db, &ticket{}, &plugintest.Part{}, &plugintest.Article{})
	plugin := plugintest.Use(t, db, uidplugin.WithModels(&ticket{}, &plugintest.Part{}),
		uidplugin.WithSource("tickets", func(ctx context.Context, db *gorm.DB, _ string) (generator.Generator, error) {
			_, err := uidplugin.From(db).NextID(ctx, &plugintest.Part{})
			return &even{}, errors.Join(err, db.Create(&plugintest.Part{}).Error, db.Create(&plugintest.Article{}).Error)
		}))
	must(t, plugin.Health())
	must(t, db.Create(&ticket{}).Error)
	if plugintest.Count(t, db, "parts") != 1 || plugintest.Count(t, db, "articles") != 1 {
		t.Error("the rows of the opener are missing")
	}
}

// A goroutine that calls an opener again ends with the plugin: a bubble waits for all of them.
func TestClose_EndsTheCallsOfOpeners(t *testing.T) {
	t.Parallel()

	dir := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		var calls atomic.Int64
		db := plugintest.File(t, filepath.Join(dir, "test.db"), &gorm.Config{})
		plugin := plugintest.Use(t, db, uidplugin.WithWorkerID(1), uidplugin.WithClock(plugintest.AtNoon), uidplugin.WithModels(&ticket{}),
			uidplugin.WithSource("tickets", func(context.Context, *gorm.DB, string) (generator.Generator, error) {
				calls.Add(1)
				return nil, plugintest.ErrBroken
			}))
		time.Sleep(10 * time.Second)
		must(t, plugin.Close(t.Context()))
		before := calls.Load()
		time.Sleep(time.Hour)
		if n := calls.Load(); before < 2 || n != before {
			t.Errorf("%d calls before Close, %d after it", before, n-before)
		}
		if err := db.Create(&ticket{}).Error; !errors.Is(err, uidplugin.ErrClosed) {
			t.Errorf("create: %v", err)
		}
	})
}

type slowSource struct {
	ID  int64 `gorm:"primaryKey;autoIncrement:false;uid"`
	Src int64 `gorm:"uid:src"`
}

// An opener that ignores its context held up db.Use beyond its timeout.
func TestPluginInitialize_DoesNotWaitForAnOpenerThatHangs(t *testing.T) {
	t.Parallel()

	db := plugintest.Bare(t)
	block := make(chan struct{})
	defer close(block)
	p := uidplugin.New(uidplugin.WithLogger(nil), uidplugin.WithTimeout(time.Second), uidplugin.WithModels(&slowSource{}), uidplugin.WithSource("src", func(ctx context.Context, db *gorm.DB, table string) (generator.Generator, error) {
		<-block
		return nil, nil
	}))
	done := make(chan error, 1)
	go func() { done <- db.Use(p) }()
	select {
	case err := <-done:
		must(t, err) // it is opened again
	case <-time.After(time.Minute):
		t.Fatal("db.Use hangs, WithTimeout is a second")
	}
	if err := p.Health(); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("Health: %v", err)
	}
}
