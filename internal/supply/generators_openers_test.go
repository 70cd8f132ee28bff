package supply_test

import (
	"context"
	"errors"
	"net"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/uidplugin/uidplugin"
	"github.com/uidplugin/uidplugin/generator"
	"github.com/uidplugin/uidplugin/internal/plugintest"
	"github.com/uidplugin/uidplugin/segment"
	"gorm.io/gorm"
)

// voucher has the ids of a segment, ticket those of a source.
type (
	voucher struct {
		ID int64 `gorm:"primaryKey;autoIncrement:false;uid:segment"`
	}
	ticket struct {
		ID int64 `gorm:"primaryKey;autoIncrement:false;uid:tickets"`
	}
)

// A leafPool makes statements about segments fail when a test wants it.
type leafPool struct {
	meet atomic.Pointer[func(ctx context.Context) error] // nil lets them pass
}

// leafy puts a leafPool before the pool that plugins of db will use.
func leafy(db *gorm.DB) *leafPool {
	p := &leafPool{}
	plugintest.Tapped(db, p.answer)
	return p
}

// fails makes statements fail with what f returns.
func (p *leafPool) fails(f func(ctx context.Context) error) { p.meet.Store(&f) }

// passes lets statements pass again.
func (p *leafPool) passes() { p.meet.Store(nil) }

func (p *leafPool) answer(ctx context.Context, query string) error {
	if f := p.meet.Load(); f != nil && strings.Contains(query, "leaf_alloc") {
		return (*f)(ctx)
	}
	return nil
}

// errUnreachable is how an unreachable server fails.
var errUnreachable = &net.OpError{Op: "dial", Net: "tcp", Err: errors.New("connection refused")}

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
	plugintest.Migrate(t, db, &ticket{}, &plugintest.Part{}, &voucher{})
	plugin := plugintest.Use(t, db, uidplugin.WithModels(&ticket{}, &plugintest.Part{}),
		uidplugin.WithSource("tickets", func(ctx context.Context, db *gorm.DB, _ string) (generator.Generator, error) {
			_, err := uidplugin.From(db).NextID(ctx, &plugintest.Part{})
			return &even{}, errors.Join(err, db.Create(&plugintest.Part{}).Error, db.Create(&voucher{}).Error)
		}))
	must(t, plugin.Health())
	must(t, db.Create(&ticket{}).Error)
	if plugintest.Count(t, db, "parts") != 1 || plugintest.Count(t, db, "vouchers") != 1 {
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

// troubled is a generator that is not well.
type troubled struct {
	even
	trouble atomic.Pointer[error]
	panics  atomic.Bool
}

func (g *troubled) Waits() int64 { return 3 }

func (g *troubled) Made() int64 {
	if g.panics.Load() {
		panic("a bug in it")
	}
	return 5
}

func (g *troubled) Health() error {
	if g.panics.Load() {
		panic("a bug in it")
	}
	if err := g.trouble.Load(); err != nil {
		return *err
	}
	return nil
}

// Formerly Health did not report a segment whose ranges could not be fetched, or sources of the application.
func TestPluginHealth_CoversSegmentsAndSources(t *testing.T) {
	t.Parallel()

	dir := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		db := plugintest.File(t, filepath.Join(dir, "test.db"), &gorm.Config{})
		plugintest.Migrate(t, db, &voucher{}, &ticket{})
		p := leafy(db)
		source := &troubled{}
		plugin := plugintest.Use(t, db, uidplugin.WithWorkerID(1), uidplugin.WithClock(plugintest.AtNoon), uidplugin.WithSegments(segment.Config{Step: 10}),
			uidplugin.WithModels(&voucher{}, &ticket{}),
			uidplugin.WithSource("tickets", func(context.Context, *gorm.DB, string) (generator.Generator, error) { return source, nil }))
		must(t, plugin.Health())

		p.fails(func(context.Context) error { return errUnreachable })
		must(t, db.Create(&[]voucher{{}, {}, {}}).Error)
		synctest.Wait()
		err := plugin.Health()
		if !errors.Is(err, errUnreachable) {
			t.Fatalf("Health: %v", err)
		}
		saysAll(t, err.Error(), "the generator segment of table vouchers", "since 2026-06-01 12:00:00", "7 are left", "connection refused")
		trouble := plugintest.ErrBroken
		source.trouble.Store(&trouble)
		if err := plugin.Health(); !errors.Is(err, errUnreachable) || !errors.Is(err, plugintest.ErrBroken) {
			t.Errorf("Health of two: %v", err)
		}
		p.passes()
		time.Sleep(10 * time.Second)
		if err := plugin.Health(); errors.Is(err, errUnreachable) || !errors.Is(err, plugintest.ErrBroken) {
			t.Errorf("Health after the database's return: %v", err)
		}
		source.panics.Store(true)
		if err := plugin.Health(); err == nil || !strings.Contains(err.Error(), "a bug in it") {
			t.Errorf("Health of a source that panics: %v", err)
		}
		// Stats is also called in goroutines that collect metrics, where a panic ends the process.
		if s := plugin.Stats().Tables; len(s) != 2 || s[0].Made != 0 {
			t.Errorf("Stats of a source that panics: %+v", s)
		}
		source.panics.Store(false)
		source.trouble.Store(nil)
		must(t, plugin.Health())
	})
}
