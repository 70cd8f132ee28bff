package uidplugin_test

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
	"gorm.io/gorm"
)

// mine has ids of a generator of the application.
type mine struct {
	ID int64 `gorm:"primaryKey;autoIncrement:false;uid:mine"`
}

// A factory gets what it may stamp when it is called, all worker ids at once, and later changes by Renew.
func TestWithGenerator_GivesItsFactoryLeases(t *testing.T) {
	t.Parallel()

	for name, option := range map[string]uidplugin.Option{
		"slot": nil, "fixed": uidplugin.WithWorkerID(7), "one for all": uidplugin.WithOneWorkerID(),
	} {
		var got uidplugin.GeneratorConfig
		db := open(t, option, uidplugin.WithDefaultGenerator("mine"),
			uidplugin.WithGenerator("mine", func(c uidplugin.GeneratorConfig) (generator.Renewable, error) {
				got = c
				return generator.NewCached(generator.CachedConfig{
					Layout: c.Layout, Lease: c.Leases[0], OnLow: c.OnLow, Clock: c.Clock, MaxBorrow: c.MaxBorrow,
				})
			}))
		migrate(t, db, &mine{})
		p, r := uidplugin.From(db), mine{}
		must(t, db.Create(&r).Error)
		table := "mines"
		if name != "slot" {
			table = "*"
		}
		if got.Table != table || got.Layout != p.Layout() || len(got.Leases) != 1 ||
			got.Clock == nil || got.Now == nil {
			t.Errorf("%s: %+v", name, got)
		}
		if fixed := name == "fixed"; fixed != (got.OnLow == nil) || fixed != (got.MaxBorrow != 0) {
			t.Errorf("%s: %+v", name, got)
		}
		parts, err := p.Decode(uidplugin.ID(r.ID))
		tick := p.Layout().TickAt(parts.Time)
		if l := got.Leases[0]; err != nil || parts.WorkerID != l.WorkerID || tick < l.From || tick > l.Until {
			t.Errorf("%s: %+v with the lease %+v, %v", name, parts, l, err)
		}
		if s := p.Stats().Tables; len(s) != 1 || s[0].Generator != "mine" || s[0].WorkerIDs[0] != parts.WorkerID {
			t.Errorf("%s: %+v", name, s)
		}
	}
}

// A factory that fails leaves its worker id to the next attempt. Each create once took another one, for good.
func TestWithGenerator_AFactoryThatFailsUsesUpNoWorkerIDs(t *testing.T) {
	t.Parallel()

	var works atomic.Bool
	db := open(t, uidplugin.WithGenerator("mine", func(c uidplugin.GeneratorConfig) (generator.Renewable, error) {
		if !works.Load() {
			return nil, errBroken
		}
		return generator.NewCached(generator.CachedConfig{Layout: c.Layout, Lease: c.Leases[0], OnLow: c.OnLow, Clock: c.Clock})
	}))
	migrate(t, db, &mine{}, &part{})
	p := uidplugin.From(db)
	inside := func(tx *gorm.DB) error { return tx.Create(&mine{}).Error }
	for range 20 {
		for name, err := range map[string]error{
			"create": db.Create(&mine{}).Error, "in a transaction": db.Transaction(inside),
		} {
			if !errors.Is(err, errBroken) {
				t.Fatalf("%s: %v", name, err)
			}
		}
	}
	if err := p.Health(); !errors.Is(err, errBroken) {
		t.Errorf("Health: %v", err)
	}
	works.Store(true)
	must(t, db.Create(&mine{}).Error)
	must(t, db.Create(&part{}).Error)
	if err := p.Health(); err != nil {
		t.Errorf("Health: %v", err)
	}
	if n := count(t, db, "WORKER_NODE", `"TABLE_NAME" = 'mines'`); n != 1 {
		t.Errorf("%d worker ids", n)
	}
	if n := count(t, db, "WORKER_NODE"); n != 2 { // mines and parts
		t.Errorf("%d worker ids of all tables", n)
	}
}

// A factory is called while the plugin makes generators. One that asked the plugin how it is waited for itself, and
// everything else with it.
func TestWithGenerator_ItsFactoryMayAskThePlugin(t *testing.T) {
	t.Parallel()

	dir := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		db := file(t, filepath.Join(dir, "test.db"), &gorm.Config{})
		var p *uidplugin.Plugin
		asked := 0
		p = use(t, db, uidplugin.WithWorkerID(1), uidplugin.WithClock(atNoon), uidplugin.WithDefaultGenerator("mine"), uidplugin.WithGenerator("mine", func(c uidplugin.GeneratorConfig) (generator.Renewable, error) {
			if p != nil {
				asked++
				must(t, p.Health())
				p.Stats()
			}
			return generator.NewCached(c.Cached())
		}))
		migrate(t, db, &mine{})
		must(t, db.Create(&mine{}).Error)
		must(t, p.Close(t.Context()))
		if asked != 1 {
			t.Errorf("asked %d times", asked)
		}
	})
}

// closing is a generator whose Close is code of the application.
type closing struct {
	generator.Generator
	close func()
}

func (c closing) Close() { c.close() }

// An opener returns after the plugin was closed, and Close of its generator asks the plugin, or hangs: Health, creates
// and Close of the plugin go on.
func TestWithSource_ItsGeneratorMayHangWhenItIsClosed(t *testing.T) {
	t.Parallel()

	for name, inClose := range map[string]func(p *uidplugin.Plugin, hang chan struct{}){
		"asks the plugin": func(p *uidplugin.Plugin, _ chan struct{}) { _ = p.Health() },
		"hangs":           func(_ *uidplugin.Plugin, hang chan struct{}) { <-hang },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dir := t.TempDir()
			synctest.Test(t, func(t *testing.T) {
				db := file(t, filepath.Join(dir, "test.db"), &gorm.Config{})
				migrate(t, db, &slowRow{})
				release, hang := make(chan struct{}), make(chan struct{})
				var p *uidplugin.Plugin
				p = uidplugin.New(uidplugin.WithLogger(nil), uidplugin.WithTimeout(time.Second), uidplugin.WithWorkerID(1), uidplugin.WithClock(atNoon),
					uidplugin.WithSource("src", func(context.Context, *gorm.DB, string) (generator.Generator, error) {
						<-release
						return closing{close: func() { inClose(p, hang) }}, nil
					}))
				must(t, db.Use(p))
				if err := db.Create(&slowRow{}).Error; err == nil {
					t.Fatal("a row without a generator")
				}
				bounded := func() context.Context {
					ctx, cancel := context.WithTimeout(t.Context(), time.Second)
					t.Cleanup(cancel)
					return ctx
				}
				if err := p.Close(bounded()); err == nil {
					t.Error("Close has not waited for the opener")
				}
				close(release)
				synctest.Wait()
				if err := p.Health(); !errors.Is(err, uidplugin.ErrClosed) {
					t.Error(err)
				}
				if err := db.Create(&slowRow{}).Error; !errors.Is(err, uidplugin.ErrClosed) {
					t.Error(err)
				}
				_ = p.Close(bounded())
				close(hang)
				synctest.Wait()
				must(t, p.Close(bounded()))
			})
		})
	}
}
