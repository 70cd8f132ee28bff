package lifecycle_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/uidplugin/uidplugin"
	"github.com/uidplugin/uidplugin/internal/plugintest"
	"github.com/uidplugin/uidplugin/internal/testkit"
	"gorm.io/gorm"
)

// closes calls Close with a limit of two seconds, and fails the test if that does not end it. A busy machine is slow.
func closes(tb testing.TB, p *uidplugin.Plugin) error {
	tb.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Second)
	defer cancel()
	begin := time.Now()
	err := p.Close(ctx)
	if took := time.Since(begin); took > time.Minute {
		tb.Errorf("Close took %v: %v", took, err)
	}
	return err
}

// closedFor fails the test unless creates of both a known and a new table now say that the plugin is closed.
func closedFor(tb testing.TB, db *gorm.DB) {
	tb.Helper()
	for _, row := range []any{&plugintest.Part{}, &[]plugintest.Part{{}, {}}, &plugintest.Counter{}} {
		testkit.IsError(tb, db.Create(row).Error, uidplugin.ErrClosed, "uidplugin: closed")
	}
}

// Applications end on a fatal error wherever it occurs, also in a callback of a create, whose transaction has a
// connection. Close ends there, with a pool of one connection, too, and later creates say why they fail.
func TestPluginClose_WithinACallback(t *testing.T) {
	t.Parallel()

	type registrar interface {
		Register(name string, f func(*gorm.DB)) error
	}
	for name, at := range map[string]func(db *gorm.DB) registrar{
		"first": func(db *gorm.DB) registrar { return db.Callback().Create().Before("*") },
		"before the INSERT": func(db *gorm.DB) registrar {
			return db.Callback().Create().After("gorm:begin_transaction").Before("gorm:create")
		},
		"after the INSERT": func(db *gorm.DB) registrar {
			return db.Callback().Create().After("gorm:create").Before("gorm:after_create")
		},
		"last": func(db *gorm.DB) registrar { return db.Callback().Create().After("*") },
	} {
		for _, pool := range []int{0, 1} {
			t.Run(fmt.Sprintf("%s, pool of %d", name, pool), func(t *testing.T) {
				t.Parallel()

				db := testkit.SQLite{Pool: pool}.Open(t)
				p := plugintest.Use(t, db)
				plugintest.Migrate(t, db, &plugintest.Part{}, &plugintest.Counter{})
				must(t, db.Create(&plugintest.Part{}).Error)
				var once sync.Once
				var within error
				must(t, at(db).Register("test:close", func(*gorm.DB) { once.Do(func() { within = closes(t, p) }) }))
				row := plugintest.Part{}
				err := db.Create(&row).Error
				if err != nil && !errors.Is(err, uidplugin.ErrClosed) {
					t.Errorf("the create: %v", err)
				}
				if n, want := plugintest.Count(t, db, "parts", "id = ?", row.ID), err == nil; (n == 1) != want {
					t.Errorf("the create returned %v, and there are %d rows", err, n)
				}
				closedFor(t, db)
				if within != nil { // the create held the only connection, or the lock of SQLite
					saysAll(t, within.Error(), "uidplugin: close", "was not released")
					testkit.MustClose(t, p)
				}
				if n := plugintest.Count(t, db, "WORKER_SLOT", `"HOLDER" <> ''`); n != 0 {
					t.Errorf("%d slots are held", n)
				}
			})
		}
	}
}

// A signal may come while tables are created at the start. AutoMigrate either succeeds or says that the plugin is
// closed.
func TestPluginClose_WhileAutoMigrateRuns(t *testing.T) {
	t.Parallel()

	for _, at := range []int{1, 2, 5} { // statements of AutoMigrate before Close
		t.Run(fmt.Sprint(at), func(t *testing.T) {
			t.Parallel()

			wire := &testkit.Wire{}
			db := wire.Open(t, testkit.SQLite{})
			p := plugintest.Use(t, db)
			closed := make(chan struct{})
			var seen int
			var mu sync.Mutex
			wire.Set(func(c *testkit.Crossing) error {
				mu.Lock()
				seen++
				now := seen == at
				mu.Unlock()
				if now {
					begun := make(chan struct{})
					go func() { close(begun); testkit.MustClose(t, p); close(closed) }()
					<-begun
					time.Sleep(20 * time.Millisecond)
				}
				return c.Run()
			})
			err := p.AutoMigrate(&plugintest.Part{}, &plugintest.Counter{})
			if err != nil && !errors.Is(err, uidplugin.ErrClosed) {
				t.Errorf("AutoMigrate: %v", err)
			}
			<-closed
			wire.Set(nil)
			plugintest.Migrate(t, db, &plugintest.Part{}, &plugintest.Counter{}) // GORM's own needs no ids
			closedFor(t, db)
		})
	}
}

// Deferred calls, signal handlers and servers each call Close, while creates of many tables wait for worker ids. All
// end, and none makes a row.
func TestPluginClose_AtOnceWhileCreatesWait(t *testing.T) {
	t.Parallel()

	db, g := plugintest.Parts(t)
	plugintest.Migrate(t, db, &plugintest.Counter{})
	p := uidplugin.From(db)
	created := make(chan error, 40)
	for i := range cap(created) {
		row := []any{&plugintest.Part{}, &plugintest.Counter{}, &[]plugintest.Part{{}, {}}}[i%3]
		go func() {
			if i%2 == 0 {
				created <- db.Create(row).Error
			} else {
				created <- db.Transaction(func(tx *gorm.DB) error { return tx.Create(row).Error })
			}
		}()
	}
	<-g.Arrived
	var group sync.WaitGroup
	for range 4 {
		group.Go(func() { testkit.MustClose(t, p) })
	}
	var errs []string
	for range cap(created) {
		// On a busy machine a transaction may have taken the only connection for longer than a create waits for another.
		if err := <-created; !errors.Is(err, uidplugin.ErrClosed) && !errors.Is(err, uidplugin.ErrInTransaction) {
			errs = append(errs, fmt.Sprint(err))
		}
	}
	group.Wait()
	slices.Sort(errs)
	if errs = slices.Compact(errs); len(errs) > 0 {
		t.Errorf("creates ended with %q", errs)
	}
	if n := plugintest.Count(t, db, "parts") + plugintest.Count(t, db, "counters"); n != 0 {
		t.Errorf("%d rows", n)
	}
	closedFor(t, db)
}
