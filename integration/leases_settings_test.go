package integration_test

import (
	"errors"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/uidplugin/uidplugin"
	"github.com/uidplugin/uidplugin/generator"
	"github.com/uidplugin/uidplugin/internal/testkit"
	"github.com/uidplugin/uidplugin/workernode"
	"gorm.io/gorm"
	"gorm.io/gorm/logger"
)

// Renewals are not part of the application's transactions, with prepared statements or without: a rollback does not
// take them back.
func TestRenewals_StayWhenATransactionIsRolledBack(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, d *database) {
		for _, prepare := range []bool{false, true} {
			d := fresh(t, d.engine)
			db, err := d.connect(&gorm.Config{PrepareStmt: prepare, Logger: logger.Discard})
			must(t, err)
			t.Cleanup(func() { _ = closed(db) })
			must(t, db.AutoMigrate(&T1{}))
			p := use(t, db, uidplugin.WithLead(time.Second), uidplugin.WithModels(&T1{}))
			ledger := testkit.NewLedger(t)
			rollback := errors.New("rollback")
			for range 3 {
				before := p.Stats().Slot.Renewals
				err := db.Transaction(func(tx *gorm.DB) error {
					for begin := time.Now(); time.Since(begin) < 5*time.Second && p.Stats().Slot.Renewals < before+2; {
						row := T1{}
						if err := tx.Create(&row).Error; err != nil {
							return err
						}
						ledger.Add("t1", row.ID.Int64())
					}
					return rollback
				})
				if !errors.Is(err, rollback) {
					t.Fatal(err)
				}
				s := p.Stats().Slot
				if s.Renewals < before+2 {
					t.Errorf("no renewals during the transaction (prepared: %t): %+v", prepare, s)
				}
				if fence, until := slots(t, db)[0].Fence, p.Layout().TickAt(s.Until)-1; fence < until {
					t.Errorf("the fence is %d, and ids are made until %d (prepared: %t)", fence, until, prepare)
				}
			}
			if s := p.Stats().Slot; s.LostCommits != 0 || s.Lost != 0 {
				t.Errorf("%+v (prepared: %t)", s, prepare)
			}
		}
	}, "mariadb", "mysql", "postgres")
}

func closed(db *gorm.DB) error {
	pool, err := db.DB()
	if err != nil {
		return err
	}
	return pool.Close()
}

// What a connection is set to makes no difference, but for autocommit=0, which is
// refused (TestAutocommitOff).
func TestLeasesAtAnyIsolation(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, d *database) {
		levels := []string{"READ-UNCOMMITTED", "READ-COMMITTED", "REPEATABLE-READ", "SERIALIZABLE"}
		for _, level := range levels {
			d := fresh(t, d.engine)
			param := "tx_isolation=%27" + level + "%27"
			switch d.name {
			case "mysql":
				param = "transaction_isolation=%27" + level + "%27"
			case "postgres":
				param = "default_transaction_isolation='" + strings.ToLower(strings.ReplaceAll(level, "-", " ")) + "'"
			}
			c := newMovedClock(0)
			ledger := testkit.NewLedger(t)
			for range 2 {
				plugins := make([]*uidplugin.Plugin, 8)
				var group sync.WaitGroup
				for i := range plugins {
					group.Go(func() {
						db, err := d.connect(nil, param)
						if err == nil {
							t.Cleanup(func() { _ = closed(db) })
							plugins[i] = uidplugin.New(quiet, uidplugin.WithClock(c.now), uidplugin.WithModels(&T1{}))
							err = db.Use(plugins[i])
						}
						for k := 0; err == nil && k < 50; k++ {
							var id int64
							if id, err = nextID(plugins[i]); err == nil {
								ledger.Add("t1", id)
							}
						}
						if err != nil {
							t.Errorf("%s: %v", level, err)
						}
					})
				}
				group.Wait()
				for _, p := range plugins {
					if err := p.Close(t.Context()); err != nil {
						t.Errorf("%s: %v", level, err)
					}
				}
				c.move(time.Hour + time.Minute)
			}
		}
	}, "mariadb", "mysql", "postgres")
}

// The layout of a database cannot be changed, its epoch included.
func TestEpochMismatch(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, d *database) {
		p := use(t, open(t, d), uidplugin.WithModels(&T1{}))
		later := generator.DefaultLayout()
		later.Epoch = later.Epoch.Add(24 * time.Hour)
		says(t, open(t, d).Use(uidplugin.New(quiet, uidplugin.WithLayout(later))), workernode.ErrLayoutMismatch,
			later.String())
		if _, err := nextID(p); err != nil {
			t.Errorf("the process that is there: %v", err)
		}
	})
}

// Each start of a disposable process gets a slot and worker ids that no other process ever gets. Others reuse theirs.
func TestDisposable_SlotsAreNeverReclaimed(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, d *database) {
		c := newMovedClock(0)
		ledger := testkit.NewLedger(t)
		seen := map[int64]bool{}
		reused := int64(0)
		for round := range 3 {
			var plugins []*uidplugin.Plugin
			for _, option := range []uidplugin.Option{uidplugin.WithDisposable(), nil} {
				p := use(t, open(t, d), uidplugin.WithModels(&T1{}), uidplugin.WithClock(c.now), option)
				plugins = append(plugins, p)
				worker := p.Stats().Tables[0].WorkerIDs[0]
				switch {
				case option != nil && seen[worker]:
					t.Errorf("worker id %d was given out before", worker)
				case option != nil:
					seen[worker] = true
				case round == 0:
					reused = worker
				case worker != reused:
					t.Errorf("worker id %d, want %d again", worker, reused)
				}
				for range 5000 {
					id, err := nextID(p)
					must(t, err)
					ledger.Add("t1", id)
				}
			}
			for _, p := range plugins {
				must(t, p.Close(t.Context()))
			}
			c.move(2 * time.Hour)
		}
		if n := len(slots(t, open(t, d))); len(seen) != 3 || n != 4 {
			t.Errorf("%d disposable worker ids, %d slots; want 3 and 4", len(seen), n)
		}
	})
}
