package uidplugin_test

import (
	"context"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/uidplugin/uidplugin"
	"github.com/uidplugin/uidplugin/generator"
)

type sluggish struct {
	ID int64 `gorm:"primaryKey;autoIncrement:false;uid:slow"`
}

// A slot that is lost while the generator of a table is being made: the generator has what was granted, and the
// process gets another slot. It once ended the process.
func TestWithGenerator_ASlotIsLostWhileAGeneratorIsMade(t *testing.T) {
	t.Parallel()

	db := bare(t)
	making, goOn := make(chan struct{}), make(chan struct{})
	lost, again := make(chan struct{}, 1), make(chan struct{})
	var taken atomic.Bool
	tapped(db, func(_ context.Context, query string) error {
		if taken.Load() && strings.Contains(query, "NEXT_SLOT") { // it has lost its slot, and wants another
			select {
			case lost <- struct{}{}:
				<-again
			default:
			}
		}
		return nil
	})
	use(t, db, uidplugin.WithLead(time.Second), uidplugin.WithGenerator("slow", func(c uidplugin.GeneratorConfig) (generator.Renewable, error) {
		close(making)
		<-goOn
		return generator.NewCached(generator.CachedConfig{Layout: c.Layout, Lease: c.Leases[0], Clock: c.Clock, OnLow: c.OnLow})
	}))
	migrate(t, db, &sluggish{})
	done := make(chan error)
	go func() { done <- db.Create(&sluggish{}).Error }()
	<-making
	taken.Store(true)
	must(t, db.Exec(`UPDATE "WORKER_SLOT" SET "HOLDER" = 'another', "VERSION" = "VERSION" + 1`).Error)
	<-lost
	close(goOn)
	must(t, <-done)
	close(again)
	must(t, db.Create(&sluggish{}).Error)
}

// A refusing generator takes no other lease than what it was made of.
type refusing struct{ generator.Renewable }

func (refusing) Renew(...generator.Lease) error { return errBroken }

// A generator that refuses its lease makes ids until what it has is used up. It once ended the process.
func TestWithGenerator_AGeneratorRefusesItsLease(t *testing.T) {
	t.Parallel()

	var j journal
	db := open(t, j.option(), uidplugin.WithGenerator("slow", func(c uidplugin.GeneratorConfig) (generator.Renewable, error) {
		g, err := generator.NewCached(generator.CachedConfig{Layout: c.Layout, Lease: c.Leases[0], Clock: c.Clock, OnLow: c.OnLow})
		return refusing{g}, err
	}))
	migrate(t, db, &sluggish{})
	must(t, db.Create(&sluggish{}).Error)
	if s := uidplugin.From(db).Stats().Tables; len(s) != 1 || len(s[0].WorkerIDs) != 1 {
		t.Errorf("%+v", s)
	}
	for len(j.Lines("a generator refuses its lease")) == 0 {
		time.Sleep(time.Millisecond)
	}
}
