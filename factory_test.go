package uidplugin_test

import (
	"errors"
	"sync/atomic"
	"testing"

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
	if n := count(t, db, "WORKER_NODE"); n != 4 { // mines, parts and two spares
		t.Errorf("%d worker ids of all tables", n)
	}
}
