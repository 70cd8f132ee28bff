package supply_test

import (
	"context"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/uidplugin/uidplugin"
	"github.com/uidplugin/uidplugin/generator"
	"github.com/uidplugin/uidplugin/internal/plugintest"
	"github.com/uidplugin/uidplugin/internal/testkit"
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
		var got generator.Config
		db := plugintest.Open(t, option, uidplugin.WithDefaultGenerator("mine"),
			uidplugin.WithGenerator("mine", func(c generator.Config) (generator.Renewable, error) {
				got = c
				return generator.NewCached(c.Cached())
			}))
		plugintest.Migrate(t, db, &mine{})
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

// A factory that fails leaves its worker id to the next attempt. Formerly each create used up another one.
func TestWithGenerator_AFactoryThatFailsUsesUpNoWorkerIDs(t *testing.T) {
	t.Parallel()

	var works atomic.Bool
	db := plugintest.Open(t, uidplugin.WithGenerator("mine", func(c generator.Config) (generator.Renewable, error) {
		if !works.Load() {
			return nil, plugintest.ErrBroken
		}
		return generator.NewCached(c.Cached())
	}))
	plugintest.Migrate(t, db, &mine{}, &plugintest.Part{})
	p := uidplugin.From(db)
	inside := func(tx *gorm.DB) error { return tx.Create(&mine{}).Error }
	for range 20 {
		testkit.IsError(t, db.Create(&mine{}).Error, plugintest.ErrBroken)
		testkit.IsError(t, db.Transaction(inside), plugintest.ErrBroken)
	}
	testkit.IsError(t, p.Health(), plugintest.ErrBroken)
	works.Store(true)
	must(t, db.Create(&mine{}).Error)
	must(t, db.Create(&plugintest.Part{}).Error)
	must(t, p.Health())
	plugintest.Rows(t, 1, db, "WORKER_NODE", `"TABLE_NAME" = 'mines'`)
	plugintest.Rows(t, 2, db, "WORKER_NODE") // mines and parts
}

// A factory is called while the plugin makes generators. Formerly a factory that asked for the plugin's Health waited
// for itself, and everything else with it.
func TestWithGenerator_ItsFactoryMayAskThePlugin(t *testing.T) {
	plugintest.InBubble(t, func(t *testing.T, db *gorm.DB) {
		var p *uidplugin.Plugin
		asked := 0
		p = plugintest.Use(t, db, uidplugin.WithWorkerID(1), uidplugin.WithClock(plugintest.AtNoon), uidplugin.WithDefaultGenerator("mine"), uidplugin.WithGenerator("mine", func(c generator.Config) (generator.Renewable, error) {
			if p != nil {
				asked++
				must(t, p.Health())
				p.Stats()
			}
			return generator.NewCached(c.Cached())
		}))
		plugintest.Migrate(t, db, &mine{})
		must(t, db.Create(&mine{}).Error)
		testkit.MustClose(t, p)
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
			plugintest.InBubble(t, func(t *testing.T, db *gorm.DB) {
				plugintest.Migrate(t, db, &ticket{})
				release, hang := make(chan struct{}), make(chan struct{})
				var p *uidplugin.Plugin
				p = uidplugin.New(uidplugin.WithLogger(nil), uidplugin.WithTimeout(time.Second), uidplugin.WithWorkerID(1), uidplugin.WithClock(plugintest.AtNoon),
					uidplugin.WithSource("tickets", func(context.Context, *gorm.DB, string) (generator.Generator, error) {
						<-release
						return closing{close: func() { inClose(p, hang) }}, nil
					}))
				must(t, db.Use(p))
				testkit.IsError(t, db.Create(&ticket{}).Error, nil)
				bounded := func() context.Context {
					ctx, cancel := context.WithTimeout(t.Context(), time.Second)
					t.Cleanup(cancel)
					return ctx
				}
				testkit.IsError(t, p.Close(bounded()), nil) // it has waited for the opener
				close(release)
				synctest.Wait()
				testkit.IsError(t, p.Health(), uidplugin.ErrClosed)
				testkit.IsError(t, db.Create(&ticket{}).Error, uidplugin.ErrClosed)
				_ = p.Close(bounded())
				close(hang)
				synctest.Wait()
				must(t, p.Close(bounded()))
			})
		})
	}
}

// A slot that is lost while the generator of a table is being made: the generator has what was granted, and the
// process gets another slot. It once ended the process.
func TestWithGenerator_ASlotIsLostWhileAGeneratorIsMade(t *testing.T) {
	t.Parallel()

	db := plugintest.Bare(t)
	making, goOn := make(chan struct{}), make(chan struct{})
	lost, again := make(chan struct{}, 1), make(chan struct{})
	var taken atomic.Bool
	plugintest.Tapped(db, func(_ context.Context, query string) error {
		if taken.Load() && strings.Contains(query, "NEXT_SLOT") { // it has lost its slot, and wants another
			select {
			case lost <- struct{}{}:
				<-again
			default:
			}
		}
		return nil
	})
	plugintest.Use(t, db, uidplugin.WithLead(time.Second), uidplugin.WithGenerator("mine", func(c generator.Config) (generator.Renewable, error) {
		close(making)
		<-goOn
		return generator.NewCached(c.Cached())
	}))
	plugintest.Migrate(t, db, &mine{})
	done := make(chan error)
	go func() { done <- db.Create(&mine{}).Error }()
	<-making
	taken.Store(true)
	must(t, db.Exec(`UPDATE "WORKER_SLOT" SET "HOLDER" = 'another', "VERSION" = "VERSION" + 1`).Error)
	<-lost
	close(goOn)
	must(t, <-done)
	close(again)
	must(t, db.Create(&mine{}).Error)
}

// A refusing generator takes no other lease than what it was made of.
type refusing struct{ generator.Renewable }

func (refusing) Renew(...generator.Lease) error { return plugintest.ErrBroken }

// A generator that refuses its lease makes ids until what it has is used up. It once ended the process.
func TestWithGenerator_AGeneratorRefusesItsLease(t *testing.T) {
	t.Parallel()

	var j plugintest.Journal
	db := plugintest.Open(t, j.Option(), uidplugin.WithGenerator("mine", func(c generator.Config) (generator.Renewable, error) {
		g, err := generator.NewCached(c.Cached())
		return refusing{g}, err
	}))
	plugintest.Migrate(t, db, &mine{})
	must(t, db.Create(&mine{}).Error)
	if s := uidplugin.From(db).Stats().Tables; len(s) != 1 || len(s[0].WorkerIDs) != 1 {
		t.Errorf("%+v", s)
	}
	testkit.Eventually(t, "a line in the log", time.Minute, func() bool {
		return len(j.Lines("a generator refuses its lease")) > 0
	})
}
