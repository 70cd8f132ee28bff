package supply_test

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/uidplugin/uidplugin"
	"github.com/uidplugin/uidplugin/generator"
	"github.com/uidplugin/uidplugin/internal/plugintest"
	"github.com/uidplugin/uidplugin/internal/testkit"
	"gorm.io/gorm"
)

// oneOfMany returns a plugin with a worker id that only its test uses.
func oneOfMany(t *testing.T, db *gorm.DB, options ...uidplugin.Option) *uidplugin.Plugin {
	t.Helper()
	p := uidplugin.New(append([]uidplugin.Option{uidplugin.WithLogger(nil)}, options...)...)
	must(t, db.Use(p))
	t.Cleanup(func() { _ = p.Close(context.Background()) })
	return p
}

// A server opens a handle for each request, each with its own plugin and one WithWorkerID. Formerly each plugin had a
// generator of its own: of 180 ids 24 to 78 were there twice.
func TestWithWorkerID_HammerOfPluginsOfOneProcess(t *testing.T) {
	t.Parallel()

	for i, kind := range []string{"cached", "snowflake", "paired", "mine"} {
		t.Run(kind, func(t *testing.T) {
			t.Parallel()

			path, ledger := filepath.Join(t.TempDir(), "test.db"), testkit.NewLedger(t)
			plugintest.Migrate(t, plugintest.File(t, path, nil), &plugintest.Part{})
			options := []uidplugin.Option{uidplugin.WithWorkerID(100 + int64(i)), uidplugin.WithDefaultGenerator(kind),
				uidplugin.WithGenerator("mine", func(c generator.Config) (generator.Renewable, error) {
					return generator.NewCached(c.Cached())
				})}
			var group sync.WaitGroup
			for range 12 {
				group.Go(func() {
					for round := range 5 {
						db := plugintest.File(t, path, nil)
						p := uidplugin.New(append(options, uidplugin.WithLogger(nil))...)
						if err := db.Use(p); err != nil {
							t.Error(err)
							return
						}
						for range 3 + round {
							id, err := p.NextID(t.Context(), &plugintest.Part{})
							rows := make([]plugintest.Part, 20)
							if err := errors.Join(err, db.Session(&gorm.Session{DryRun: true}).Create(&rows).Error); err != nil {
								t.Error(err)
								return
							}
							ledger.Add("parts", int64(id))
							for _, r := range rows {
								ledger.Add("parts", r.ID)
							}
						}
						if err := p.Close(t.Context()); err != nil {
							t.Error(err)
						}
						testkit.IsError(t, plugintest.Second(p.NextID(t.Context(), &plugintest.Part{})), uidplugin.ErrClosed)
					}
				})
			}
			group.Wait()
		})
	}
}

// Plugins that follow one another may have other options, and still know which ids were made.
func TestWithWorkerID_APluginContinuesAboveOneThatWasClosed(t *testing.T) {
	t.Parallel()

	ledger, last := testkit.NewLedger(t), int64(0)
	for i, option := range []uidplugin.Option{
		nil, uidplugin.WithDefaultGenerator("snowflake"), uidplugin.WithDefaultGenerator("paired"), uidplugin.WithLead(200 * time.Millisecond),
		uidplugin.WithDefaultGenerator("snowflake"), nil, nil,
	} {
		p := oneOfMany(t, plugintest.Bare(t), uidplugin.WithWorkerID(110), option)
		for n := range 300 {
			id, err := p.NextID(t.Context(), &plugintest.Part{})
			must(t, err)
			if n == 0 && int64(id)>>22 <= last>>22 {
				t.Errorf("plugin %d begins at %d, and the one before ended at %d", i, id, last)
			}
			ledger.Add("parts", int64(id))
			last = max(int64(id), last)
		}
		testkit.MustClose(t, p)
	}
}

// Plugins with other layouts have generators of their own, so those that would make the same ids are refused. Formerly
// 19,984 of 40,000 ids were there twice with layouts that differ in TimeBits only.
func TestWithWorkerID_RefusesAPluginWhoseLayoutMakesTheSameIDs(t *testing.T) {
	t.Parallel()

	with := func(time, worker, sequence uint8, epoch time.Duration) uidplugin.Option {
		l := generator.DefaultLayout()
		l.TimeBits, l.WorkerBits, l.SequenceBits, l.Epoch = time, worker, sequence, l.Epoch.Add(epoch)
		return uidplugin.WithLayout(l)
	}
	long := generator.DefaultLayout()
	long.TimeBits, long.WorkerBits, long.Tick = 40, 19, 2*time.Millisecond
	first := oneOfMany(t, plugintest.Bare(t), uidplugin.WithWorkerID(130))
	for name, options := range map[string][]uidplugin.Option{
		"time bits":         {uidplugin.WithWorkerID(130), with(40, 18, 4, 0)},
		"larger workers":    {uidplugin.WithWorkerID(130 >> 2), with(41, 16, 6, 0)},
		"smaller workers":   {uidplugin.WithWorkerID(130<<2 + 3), with(41, 20, 2, 0)},
		"smallest workers":  {uidplugin.WithWorkerID(130 << 3), with(41, 21, 1, 0)},
		"longer ticks":      {uidplugin.WithWorkerID(130), uidplugin.WithLayout(long)},
		"their second half": {uidplugin.WithWorkerID(1<<18 + 130), uidplugin.WithLayout(long)},
	} {
		t.Run(name, func(t *testing.T) {
			p := uidplugin.New(append(options, uidplugin.WithLogger(nil))...)
			testkit.IsError(t, plugintest.Bare(t).Use(p), uidplugin.ErrOption, "WithLayout", "worker id 130", generator.DefaultLayout().String(), p.Layout().String())
		})
	}
	for _, options := range [][]uidplugin.Option{
		{uidplugin.WithWorkerID(130>>2 + 1), with(41, 16, 6, 0)},
		{uidplugin.WithWorkerID(130<<2 + 4), with(41, 20, 2, 0)},
		{uidplugin.WithWorkerID(130), with(41, 17, 4, 0)},
		{uidplugin.WithWorkerID(130), with(41, 18, 4, time.Hour)},
		{uidplugin.WithWorkerID(136), uidplugin.WithLayout(long)},
	} {
		oneOfMany(t, plugintest.Bare(t), options...)
	}
	id, err := first.NextID(t.Context(), &plugintest.Part{})
	must(t, err)
	testkit.MustClose(t, first)
	for _, options := range [][]uidplugin.Option{
		{uidplugin.WithWorkerID(130), with(40, 18, 4, 0)},
		{uidplugin.WithWorkerID(130), uidplugin.WithLayout(long)},
		{uidplugin.WithWorkerID(130)},
	} {
		p := oneOfMany(t, plugintest.Bare(t), options...)
		next, err := p.NextID(t.Context(), &plugintest.Part{})
		if must(t, err); next>>22 <= id>>22 {
			t.Errorf("the next layout begins at %d, and the one before ended at %d", next, id)
		}
		testkit.MustClose(t, p)
		id = next
	}
}

// Two plugins that are open at once share a generator, so they must agree on it.
func TestWithWorkerID_RefusesAPluginWithOtherOptions(t *testing.T) {
	t.Parallel()

	first := oneOfMany(t, plugintest.Bare(t), uidplugin.WithWorkerID(120))
	refused := func(says []string, options ...uidplugin.Option) {
		t.Helper()
		err := plugintest.Bare(t).Use(uidplugin.New(append(options, uidplugin.WithLogger(nil))...))
		testkit.IsError(t, err, uidplugin.ErrOption, says...)
	}
	refused([]string{"WithWorkerID(120)", "cached", "snowflake", "another number"}, uidplugin.WithWorkerID(120), uidplugin.WithDefaultGenerator("snowflake"))
	refused([]string{"WithLead", "WithWorkerID(120)", "1s", "5s"}, uidplugin.WithWorkerID(120), uidplugin.WithLead(5*time.Second))
	backup := generator.DefaultLayout().BackupWorker(121)
	oneOfMany(t, plugintest.Bare(t), uidplugin.WithWorkerID(backup))
	refused([]string{"WithWorkerID(121)", fmt.Sprint(backup), "paired"}, uidplugin.WithWorkerID(121), uidplugin.WithDefaultGenerator("paired"))
	oneOfMany(t, plugintest.Bare(t), uidplugin.WithWorkerID(120), uidplugin.WithLayout(plugintest.Seconds()), uidplugin.WithDefaultGenerator("snowflake")) // other ids
	oneOfMany(t, plugintest.Bare(t), uidplugin.WithWorkerID(120), uidplugin.WithClock(plugintest.AtNoon), uidplugin.WithDefaultGenerator("snowflake"))
	testkit.MustClose(t, first)
	oneOfMany(t, plugintest.Bare(t), uidplugin.WithWorkerID(120), uidplugin.WithDefaultGenerator("snowflake"))
}
