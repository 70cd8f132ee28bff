package supply_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/uidplugin/uidplugin"
	"github.com/uidplugin/uidplugin/generator"
	"github.com/uidplugin/uidplugin/internal/plugintest"
	"github.com/uidplugin/uidplugin/segment"
	"gorm.io/gorm"
	"gorm.io/gorm/clause"
	"gorm.io/gorm/logger"
)

// entry is a row of a log, with ids of a segment.
type entry struct {
	ID   int64 `gorm:"primaryKey;autoIncrement:false;uid:segment"`
	Text string
}

// A handlerFunc handles what is logged.
type handlerFunc func(slog.Record)

func (f handlerFunc) Enabled(context.Context, slog.Level) bool      { return true }
func (f handlerFunc) Handle(_ context.Context, r slog.Record) error { f(r); return nil }
func (f handlerFunc) WithAttrs([]slog.Attr) slog.Handler            { return f }
func (f handlerFunc) WithGroup(string) slog.Handler                 { return f }

// A log handler writes rows, whose ids the plugin makes. What is logged while such an id is being made once waited for
// itself.
func TestWithLogger_ItsHandlerMayCreateRows(t *testing.T) {
	t.Parallel()

	db := plugintest.Bare(t)
	var on atomic.Bool
	handler := handlerFunc(func(r slog.Record) {
		if on.Load() {
			_ = db.Create(&entry{Text: r.Message}).Error
		}
	})
	p := uidplugin.New(uidplugin.WithLogger(slog.New(handler)), uidplugin.WithTimeout(time.Second))
	must(t, db.Use(p))
	plugintest.Migrate(t, db, &entry{}, &plugintest.Part{})
	on.Store(true)
	done := make(chan error, 1)
	go func() {
		done <- errors.Join(db.Create(&entry{Text: "first"}).Error, db.Create(&plugintest.Part{}).Error, p.Close(t.Context()))
	}()
	select {
	case err := <-done:
		must(t, err)
	case <-time.After(time.Minute):
		t.Fatal("a create, or Close, hangs, although WithTimeout is a second")
	}
	if n := plugintest.Count(t, db, "entries", "text = 'first'"); n != 1 {
		t.Errorf("%d rows", n)
	}
}

// A handler that hangs, or closes the plugin, or panics, is the application's affair. The first create waited for it.
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
			p = uidplugin.New(uidplugin.WithLogger(slog.New(handlerFunc(func(slog.Record) {
				if on.Load() {
					handle(p)
				}
			}))))
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
				if err != nil {
					t.Error(err)
				}
			case <-time.After(time.Minute):
				t.Fatal("a create, or Close, hangs")
			}
		})
	}
}

// A writer is a logger of GORM that creates a row for each statement of the lease manager.
type writer struct {
	logger.Interface
	db atomic.Pointer[gorm.DB]
}

func (w *writer) LogMode(logger.LogLevel) logger.Interface { return w }
func (w *writer) Trace(_ context.Context, _ time.Time, statement func() (string, int64), _ error) {
	if sql, _ := statement(); strings.Contains(sql, "WORKER_SLOT") && w.db.Load() != nil {
		_ = w.db.Load().Create(&plugintest.Part{Name: sql}).Error
	}
}

// GORM's logger may create rows, which wait for worker ids. The lease manager once waited for the logger: neither came
// on.
func TestNew_GORMsLoggerMayCreateRows(t *testing.T) {
	t.Parallel()

	w := &writer{Interface: logger.Discard}
	db := plugintest.File(t, filepath.Join(t.TempDir(), "test.db"), &gorm.Config{Logger: w})
	p := plugintest.Use(t, db, uidplugin.WithTimeout(time.Second), uidplugin.WithDisposable())
	must(t, db.Exec("CREATE TABLE parts (id bigint PRIMARY KEY, name text)").Error)
	must(t, db.Exec("CREATE TABLE entries (id bigint PRIMARY KEY, text text)").Error)
	w.db.Store(db.Session(&gorm.Session{Logger: logger.Discard}))
	must(t, db.Create(&entry{Text: "first"}).Error)
	must(t, db.Create(&plugintest.Part{Name: "second"}).Error)
	for plugintest.Count(t, db, "parts", "name LIKE '%WORKER_SLOT%'") == 0 { // the logger runs next to
		must(t, t.Context().Err())
		time.Sleep(time.Millisecond)
	}
	must(t, p.Close(t.Context()))
}

// The options of segments are checked with all others. They once failed at the first create.
func TestWithSegments_IsCheckedByUse(t *testing.T) {
	t.Parallel()

	for says, config := range map[string]segment.Config{"Step -1": {Step: -1}, "no name": {Table: "no name"}} {
		db := plugintest.Bare(t)
		err := db.Use(uidplugin.New(uidplugin.WithLogger(nil), uidplugin.WithSegments(config)))
		if !errors.Is(err, uidplugin.ErrOption) {
			t.Fatalf("db.Use: %v", err)
		}
		saysAll(t, err.Error(), "WithSegments", says)
		plugintest.Unregistered(t, db)
	}
}

type (
	bigString struct {
		ID string `gorm:"primaryKey;uid:segment;type:bigint"`
	}
	bigText struct {
		ID int64 `gorm:"primaryKey;autoIncrement:false;uid:segment;type:varchar(20)"`
	}
	shortString struct {
		ID string `gorm:"primaryKey;size:20;uid:segment"`
	}
)

// Keys of all types continue above the largest existing one, by value. As texts, 9 would be above 10.
func TestSegment_GoesOnAboveKeysOfAnyType(t *testing.T) {
	t.Parallel()

	for table, m := range map[string]any{
		"big_strings": &bigString{}, "big_texts": &bigText{}, "short_strings": &shortString{},
	} {
		db := plugintest.Open(t)
		plugintest.Migrate(t, db, m)
		fetched(t, db, table)
		for _, id := range []int{1, 2, 9, 10} {
			must(t, db.Exec("INSERT INTO "+table+" (id) VALUES (?)", id).Error)
		}
		if err := db.Create(m).Error; err != nil || fmt.Sprint(m) != "&{11}" {
			t.Errorf("%s: %v, %v", table, m, err)
		}
	}
}

type slowRow struct {
	ID int64 `gorm:"primaryKey;autoIncrement:false;uid:src"`
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
	p := uidplugin.New(uidplugin.WithLogger(nil), uidplugin.WithSource("src", open))
	must(t, db.Use(p))
	plugintest.Migrate(t, db, &slowRow{}, &plugintest.Part{})
	must(t, db.Create(&slowRow{}).Error)
	ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer cancel()
	done := make(chan error, 1)
	go func() { done <- p.Close(ctx) }()
	for _, want := range []error{context.DeadlineExceeded, uidplugin.ErrClosed} {
		select {
		case err := <-done:
			if !errors.Is(err, want) {
				t.Errorf("%v, want %v", err, want)
			}
		case <-time.After(time.Minute):
			t.Fatalf("no %v a minute later", want)
		}
		go func() { done <- db.WithContext(ctx).Create(&plugintest.Part{}).Error }()
	}
}

// A descending source makes ids in no order that upserts could rely on.
type descending struct{ last atomic.Int64 }

func (d *descending) Next(context.Context) (int64, error) { return d.last.Add(-1), nil }

func (d *descending) Fill(_ context.Context, ids []int64) error {
	for i := range ids {
		ids[i] = d.last.Add(-1)
	}
	return nil
}

func (d *descending) Close() {}

// A source may make any numbers in any order. After a conflict, the structs have the ids of the rows nevertheless.
func TestSource_IDsOfAnyOrderSurviveUpserts(t *testing.T) {
	t.Parallel()

	type stamp struct {
		ID    int64  `gorm:"primaryKey;autoIncrement:false;uid:any"`
		Extra int64  `gorm:"uid:any"`
		Name  string `gorm:"uniqueIndex"`
	}
	db := plugintest.Open(t, uidplugin.WithSource("any", func(context.Context, *gorm.DB, string) (generator.Generator, error) {
		d := &descending{}
		d.last.Store(1000)
		return d, nil
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
