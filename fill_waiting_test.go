package uidplugin_test

import (
	"context"
	"errors"
	"path/filepath"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/uidplugin/uidplugin"
	"gorm.io/gorm"
)

// A gate lets no transaction of the lease manager begin while it is shut, so no worker id comes.
type gate struct {
	deaf    bool // statements do not notice that their context ends
	arrived chan struct{}
	opened  chan struct{}
	err     atomic.Pointer[error] // what transactions fail with
}

// gated puts a gate before the pool that a plugin of db uses.
func gated(db *gorm.DB) *gate {
	g := &gate{arrived: make(chan struct{}, 1000), opened: make(chan struct{})}
	tapped(db, g.before)
	return g
}

// parts returns a handle on a table of parts whose plugin is behind a gate.
func parts(t *testing.T) (*gorm.DB, *gate) {
	t.Helper()
	db := bare(t)
	g := gated(db)
	use(t, db)
	migrate(t, db, &part{})
	return db, g
}

func (g *gate) before(ctx context.Context, query string) error {
	if query != "BEGIN" {
		return nil
	}
	if err := g.err.Load(); err != nil {
		return *err
	}
	g.arrived <- struct{}{}
	if g.deaf {
		ctx = context.WithoutCancel(ctx)
	}
	select {
	case <-g.opened:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

func TestCreate_ACreateStopsWaitingForAWorkerIDWhenItsContextEnds(t *testing.T) {
	t.Parallel()

	db, g := parts(t)
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error)
	go func() { done <- db.WithContext(ctx).Create(&part{}).Error }()
	<-g.arrived
	cancel()
	err := <-done
	if !errors.Is(err, context.Canceled) {
		t.Errorf("the error is %v", err)
	}
	saysAll(t, err.Error(), "uidplugin: waiting for a worker id")

	// The wait of the source continues, and serves the next create.
	go func() { done <- db.Create(&part{}).Error }()
	close(g.opened)
	must(t, <-done)
	if count(t, db, "WORKER_NODE") != 1 || count(t, db, "parts") != 1 {
		t.Errorf("%d worker ids, %d rows", count(t, db, "WORKER_NODE"), count(t, db, "parts"))
	}
}

func TestCreate_AllWhoWaitForATableShareOneWorkerID(t *testing.T) {
	t.Parallel()

	db, g := parts(t)
	var group sync.WaitGroup
	for range 16 {
		group.Go(func() {
			if err := db.Create(&part{}).Error; err != nil {
				t.Error(err)
			}
		})
	}
	<-g.arrived
	close(g.opened)
	group.Wait()
	if count(t, db, "parts") != 16 || count(t, db, "WORKER_NODE") != 1 || count(t, db, "WORKER_SLOT") != 1 {
		t.Errorf("%d worker ids, %d slots, %d rows", count(t, db, "WORKER_NODE"), count(t, db, "WORKER_SLOT"), count(t, db, "parts"))
	}
}

func TestCreate_AWorkerIDThatFailedIsTriedAgain(t *testing.T) {
	t.Parallel()

	db, g := parts(t)
	broken := errBroken
	g.err.Store(&broken)
	r := part{}
	for range 2 {
		if err := db.Create(&r).Error; !errors.Is(err, errBroken) {
			t.Errorf("the error is %v", err)
		}
	}
	if r.ID != 0 || count(t, db, "parts") != 0 {
		t.Errorf("the row is %+v", r)
	}
	g.err.Store(nil)
	close(g.opened)
	must(t, db.Create(&r).Error)
	isOurs(t, db, "parts", r.ID)
}

// If a worker id does not come in time, db.Use and the first create return an error that names the tables and the
// limit.
func TestCreate_AWorkerIDThatDoesNotComeInTimeIsAnError(t *testing.T) {
	t.Parallel()

	dir := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		db := file(t, filepath.Join(dir, "test.db"), &gorm.Config{})
		gated(db)
		late := func(started time.Time, err error, says ...string) {
			t.Helper()
			if !errors.Is(err, context.DeadlineExceeded) || time.Since(started) != 3*time.Second {
				t.Fatalf("after %v: %v", time.Since(started), err)
			}
			saysAll(t, err.Error(), append(says, "uidplugin: ", "3s", "WithTimeout")...)
		}
		options := []uidplugin.Option{uidplugin.WithClock(atNoon), uidplugin.WithTimeout(3 * time.Second), uidplugin.WithLogger(nil)}
		started := time.Now()
		late(started, db.Use(uidplugin.New(append(options, uidplugin.WithModels(&part{}, &article{}))...)), "parts, articles")
		unregistered(t, db)

		use(t, db, options...)
		migrate(t, db, &part{})
		for range 2 {
			started = time.Now()
			late(started, db.Create(&part{}).Error, "parts")
		}
	})
}
