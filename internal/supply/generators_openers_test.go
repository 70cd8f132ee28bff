package supply_test

import (
	"context"
	"errors"
	"path/filepath"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/uidplugin/uidplugin"
	"github.com/uidplugin/uidplugin/generator"
	"github.com/uidplugin/uidplugin/internal/plugintest"
	"github.com/uidplugin/uidplugin/internal/testkit"
	"gorm.io/gorm"
)

// ticket has the ids of a source.
type ticket struct {
	ID int64 `gorm:"primaryKey;autoIncrement:false;uid:tickets"`
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
		testkit.IsError(t, db.Create(&ticket{}).Error, uidplugin.ErrClosed)
	})
}
