package supply_test

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
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

// An opener may use the plugin of its handle, even while db.Use waits for the opener.
func TestOpener_MayUseThePluginAndCreateRows(t *testing.T) {
	t.Parallel()

	db := plugintest.Bare(t)
	plugintest.Migrate(t, db, &ticket{}, &plugintest.Part{}, &plugintest.Article{})
	plugin := plugintest.Use(t, db, uidplugin.WithModels(&ticket{}, &plugintest.Part{}),
		uidplugin.WithSource("tickets", func(ctx context.Context, db *gorm.DB, _ string) (generator.Generator, error) {
			_, err := uidplugin.From(db).NextID(ctx, &plugintest.Part{})
			return &plugintest.Numbers{Step: 2}, errors.Join(err, db.Create(&plugintest.Part{}).Error, db.Create(&plugintest.Article{}).Error)
		}))
	must(t, plugin.Health())
	must(t, db.Create(&ticket{}).Error)
	plugintest.Rows(t, 1, db, "parts") // of the opener
	plugintest.Rows(t, 1, db, "articles")
}

// A goroutine that calls an opener again ends with the plugin: a bubble waits for all of them.
func TestClose_EndsTheCallsOfOpeners(t *testing.T) {
	plugintest.InBubble(t, func(t *testing.T, db *gorm.DB) {
		var calls atomic.Int64
		plugin := plugintest.Use(t, db, uidplugin.WithWorkerID(1), uidplugin.WithClock(plugintest.AtNoon), uidplugin.WithModels(&ticket{}),
			uidplugin.WithSource("tickets", func(context.Context, *gorm.DB, string) (generator.Generator, error) {
				calls.Add(1)
				return nil, plugintest.ErrBroken
			}))
		time.Sleep(10 * time.Second)
		testkit.MustClose(t, plugin)
		before := calls.Load()
		time.Sleep(time.Hour)
		if n := calls.Load(); before < 2 || n != before {
			t.Errorf("%d calls before Close, %d after it", before, n-before)
		}
		testkit.IsError(t, db.Create(&ticket{}).Error, uidplugin.ErrClosed)
	})
}
