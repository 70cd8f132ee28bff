package supply_test

import (
	"context"
	"errors"
	"log/slog"
	"sync/atomic"
	"testing"
	"time"

	"github.com/uidplugin/uidplugin"
	"github.com/uidplugin/uidplugin/generator"
	"github.com/uidplugin/uidplugin/internal/plugintest"
	"github.com/uidplugin/uidplugin/internal/testkit"
	"gorm.io/gorm"
	"gorm.io/gorm/clause"
)

// A log handler of the application may hang, close the plugin, or panic. Formerly the first create waited for it.
func TestWithLogger_ItsHandlerMayHang(t *testing.T) {
	t.Parallel()

	hang := make(chan struct{})
	t.Cleanup(func() { close(hang) })
	for name, handle := range map[string]func(p *uidplugin.Plugin){
		"hangs": func(*uidplugin.Plugin) { <-hang }, "panics": func(*uidplugin.Plugin) { panic("a handler") },
		"closes": func(p *uidplugin.Plugin) { _ = p.Close(context.Background()) },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()

			db := plugintest.Bare(t)
			var on atomic.Bool
			var p *uidplugin.Plugin
			p = uidplugin.New(uidplugin.WithLogger(testkit.LogFunc(func(slog.Record) {
				if on.Load() {
					handle(p)
				}
			})))
			must(t, db.Use(p))
			plugintest.Migrate(t, db, &plugintest.Part{}, &plugintest.Article{})
			on.Store(true)
			done := make(chan error, 1)
			go func() {
				if err := db.Create(&plugintest.Part{}).Error; err != nil && !errors.Is(err, uidplugin.ErrClosed) {
					done <- err
					return
				}
				ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
				defer cancel()
				done <- p.Close(ctx)
			}()
			select {
			case err := <-done:
				must(t, err)
			case <-time.After(time.Minute):
				t.Fatal("a create, or Close, hangs")
			}
		})
	}
}

// A source of the application ignores its context. Close, and creates of other tables, return when their own ends.
func TestPluginClose_ReturnsAlthoughASourceHangs(t *testing.T) {
	t.Parallel()

	db, hang := plugintest.Bare(t), make(chan struct{})
	defer close(hang)
	fetched := false
	fetch := func(context.Context, int64) (generator.Run, error) {
		if fetched {
			<-hang
			return generator.Run{}, plugintest.ErrBroken
		}
		fetched = true
		return generator.Run{First: 1, N: 5}, nil
	}
	open := func(context.Context, *gorm.DB, string) (generator.Generator, error) {
		return generator.NewBuffered(generator.BufferedConfig{Size: 10, Source: fetch})
	}
	p := uidplugin.New(uidplugin.WithLogger(nil), uidplugin.WithSource("tickets", open))
	must(t, db.Use(p))
	plugintest.Migrate(t, db, &ticket{}, &plugintest.Part{})
	must(t, db.Create(&ticket{}).Error)
	ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer cancel()
	done := make(chan error, 1)
	go func() { done <- p.Close(ctx) }()
	for _, want := range []error{context.DeadlineExceeded, uidplugin.ErrClosed} {
		select {
		case err := <-done:
			testkit.IsError(t, err, want)
		case <-time.After(time.Minute):
			t.Fatalf("no %v a minute later", want)
		}
		go func() { done <- db.WithContext(ctx).Create(&plugintest.Part{}).Error }()
	}
}

// A source may make any numbers in any order. This one descends, so upserts cannot rely on an order. After a conflict, the
// structs have the ids of the rows nevertheless.
func TestSource_IDsOfAnyOrderSurviveUpserts(t *testing.T) {
	t.Parallel()

	type stamp struct {
		ID    int64  `gorm:"primaryKey;autoIncrement:false;uid:any"`
		Extra int64  `gorm:"uid:any"`
		Name  string `gorm:"uniqueIndex"`
	}
	db := plugintest.Open(t, uidplugin.WithSource("any", func(context.Context, *gorm.DB, string) (generator.Generator, error) {
		descending := &plugintest.Numbers{Step: -1}
		descending.Last.Store(1000)
		return descending, nil
	}))
	plugintest.Migrate(t, db, &stamp{})
	old := []stamp{{Name: "a"}, {Name: "b"}, {Name: "c"}, {Name: "d"}}
	must(t, db.Create(&old).Error)
	byName := []clause.Column{{Name: "name"}}
	for _, conflict := range []clause.OnConflict{{Columns: byName, DoNothing: true}, {Columns: byName, UpdateAll: true}} {
		stamps := []stamp{{Name: "a"}, {Name: "b"}, {Name: "c", Extra: 7}, {Name: "d"}}
		must(t, db.Clauses(conflict).Create(&stamps).Error)
		var rows []stamp
		must(t, db.Order("name").Find(&rows).Error)
		for i, s := range stamps {
			if s.ID != old[i].ID || rows[i].ID != old[i].ID || s.Extra != 7 && s.Extra != old[i].Extra ||
				rows[i].Extra != old[i].Extra && (i != 2 || rows[i].Extra != 7) {
				t.Errorf("the struct is %v, the row %v, and it was %v", s, rows[i], old[i])
			}
		}
	}
}
