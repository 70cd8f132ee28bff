package fill_test

import (
	"context"
	"testing"
	"time"

	"github.com/uidplugin/uidplugin"
	"github.com/uidplugin/uidplugin/internal/plugintest"
	"github.com/uidplugin/uidplugin/internal/testkit"
	"gorm.io/gorm"
)

func TestCreate_ACreateStopsWaitingForAWorkerIDWhenItsContextEnds(t *testing.T) {
	t.Parallel()

	db, g := plugintest.Parts(t)
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error)
	go func() { done <- db.WithContext(ctx).Create(&plugintest.Part{}).Error }()
	<-g.Arrived
	cancel()
	testkit.IsError(t, <-done, context.Canceled, "uidplugin: waiting for a worker id")

	// The wait of the source continues, and serves the next create.
	go func() { done <- db.Create(&plugintest.Part{}).Error }()
	close(g.Opened)
	must(t, <-done)
	plugintest.Rows(t, 1, db, "WORKER_NODE")
	plugintest.Rows(t, 1, db, "parts")
}

// If a worker id does not come in time, db.Use and the first create return an error that names the tables and the
// limit.
func TestCreate_AWorkerIDThatDoesNotComeInTimeIsAnError(t *testing.T) {
	plugintest.InBubble(t, func(t *testing.T, db *gorm.DB) {
		plugintest.Gated(db)
		late := func(started time.Time, err error, says ...string) {
			t.Helper()
			testkit.IsError(t, err, context.DeadlineExceeded, append(says, "uidplugin: ", "3s", "WithTimeout")...)
			if took := time.Since(started); took != 3*time.Second {
				t.Errorf("after %v", took)
			}
		}
		options := []uidplugin.Option{uidplugin.WithClock(plugintest.AtNoon), uidplugin.WithTimeout(3 * time.Second), uidplugin.WithLogger(nil)}
		started := time.Now()
		late(started, db.Use(uidplugin.New(append(options, uidplugin.WithModels(&plugintest.Part{}, &plugintest.Article{}))...)), "parts, articles")
		plugintest.Unregistered(t, db)

		plugintest.Use(t, db, options...)
		plugintest.Migrate(t, db, &plugintest.Part{})
		for range 2 {
			started = time.Now()
			late(started, db.Create(&plugintest.Part{}).Error, "parts")
		}
	})
}
