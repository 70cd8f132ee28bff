package supply_test

import (
	"log/slog"
	"path/filepath"
	"testing"
	"testing/synctest"
	"time"

	"github.com/uidplugin/uidplugin"
	"github.com/uidplugin/uidplugin/internal/plugintest"
	"github.com/uidplugin/uidplugin/internal/testkit"
	"gorm.io/gorm"
	"gorm.io/gorm/logger"
)

// A process that is killed after a burst has stamped ids ahead of the clock. Formerly the next process with the same
// worker id made the same ids: of 2,000 creates 2,000 failed.
func TestWithWorkerID_RestartAfterABurst(t *testing.T) {
	t.Parallel()

	for _, kind := range []string{"cached", "snowflake", "paired"} {
		t.Run(kind, func(t *testing.T) {
			t.Parallel()

			path := filepath.Join(t.TempDir(), "test.db")
			setUp := plugintest.File(t, path, &gorm.Config{})
			plugintest.Use(t, setUp, uidplugin.WithWorkerID(9))
			plugintest.Migrate(t, setUp, &plugintest.Part{})
			for range 3 { // processes, which never calls Close
				db := plugintest.File(t, path, &gorm.Config{})
				must(t, db.Use(uidplugin.New(plugintest.Alone, uidplugin.WithWorkerID(3), uidplugin.WithDefaultGenerator(kind))))
				for range 20 {
					must(t, db.Create(&plugintest.Part{}).Error)
				}
				parts := make([]plugintest.Part, 2000)
				must(t, db.CreateInBatches(&parts, 500).Error)
			}
		})
	}
}

// The same with ticks of a second, in which one process can end and the next begin.
func TestWithWorkerID_RestartWithinATick(t *testing.T) {
	t.Parallel()

	for _, kind := range []string{"cached", "snowflake", "paired"} {
		t.Run(kind, func(t *testing.T) {
			t.Parallel()

			synctest.Test(t, func(t *testing.T) {
				path := filepath.Join(t.TempDir(), "test.db")
				plugintest.Migrate(t, plugintest.File(t, path, &gorm.Config{}), &plugintest.Parcel{})
				l := plugintest.Seconds()
				l.TimeBits, l.WorkerBits, l.SequenceBits = 40, 10, 6
				l.Epoch = time.Date(1999, 1, 1, 0, 0, 0, 0, time.UTC)
				ledger := testkit.NewLedger(t)
				for _, pause := range []time.Duration{0, 1, 300 * time.Millisecond, 700 * time.Millisecond, 2 * time.Second, time.Minute} {
					time.Sleep(pause)
					db := plugintest.File(t, path, &gorm.Config{SkipDefaultTransaction: true, Logger: logger.Discard})
					must(t, db.Use(uidplugin.New(plugintest.Alone, uidplugin.WithWorkerID(1), uidplugin.WithLayout(l), uidplugin.WithDefaultGenerator(kind),
						uidplugin.WithLogger(slog.New(slog.DiscardHandler)))))
					began := time.Now()
					for i := range 300 {
						row := plugintest.Parcel{}
						must(t, db.Create(&row).Error)
						ledger.Add("parcels", row.ID)
						p, err := l.Decompose(row.ID)
						if must(t, err); time.Until(p.Time) > time.Second {
							t.Fatalf("an id is stamped %v ahead of the clock", time.Until(p.Time))
						}
						if i == 0 && time.Since(began) > l.Tick+l.Tick/64 { // the next tick, and one id of it
							t.Errorf("after %v: the first id took %v", pause, time.Since(began))
						}
					}
				}
			})
		})
	}
}

// With a clock of the application's there is no lead: a test may let it stand still.
func TestWithWorkerID_HasNoLeadWithAnInjectedClock(t *testing.T) {
	t.Parallel()

	db := plugintest.File(t, filepath.Join(t.TempDir(), "test.db"), &gorm.Config{})
	plugintest.Use(t, db, uidplugin.WithWorkerID(3), uidplugin.WithClock(plugintest.AtNoon))
	if id, err := uidplugin.From(db).NextID(t.Context(), &plugintest.Part{}); err != nil || int64(id) != plugintest.At(t, 3, 0) {
		t.Errorf("%d, %v; want %d", id, err, plugintest.At(t, 3, 0))
	}
}
