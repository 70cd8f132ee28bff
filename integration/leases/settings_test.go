package leases_test

import (
	"errors"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/uidplugin/uidplugin"
	"github.com/uidplugin/uidplugin/generator"
	"github.com/uidplugin/uidplugin/integration/internal/harness"
	"github.com/uidplugin/uidplugin/internal/testkit"
	"gorm.io/gorm"
	"gorm.io/gorm/logger"
)

// Renewals are not part of the application's transactions, with prepared statements or without: a rollback does not
// take them back.
func TestRenewals_StayWhenATransactionIsRolledBack(t *testing.T) {
	t.Parallel()
	testkit.Each(t, func(t *testing.T, d *testkit.Database) {
		for _, prepare := range []bool{false, true} {
			d := d.New(t)
			db, err := d.Connect(&gorm.Config{PrepareStmt: prepare, Logger: logger.Discard})
			testkit.Must(t, err)
			t.Cleanup(func() { _ = testkit.Close(db) })
			testkit.Must(t, db.AutoMigrate(&harness.T1{}))
			p := harness.Use(t, db, uidplugin.WithLead(3*time.Second), uidplugin.WithModels(&harness.T1{}))
			ledger := testkit.NewLedger(t)
			rollback := errors.New("rollback")
			before := p.Stats().Slot.Renewals
			err = db.Transaction(func(tx *gorm.DB) error {
				for begin := time.Now(); time.Since(begin) < time.Minute && p.Stats().Slot.Renewals < before+2; {
					row := harness.T1{}
					if err := tx.Create(&row).Error; errors.Is(err, generator.ErrLeaseExpired) {
						continue // the lease ended while a busy machine stalled, before a statement was sent
					} else if err != nil {
						return err
					}
					ledger.Add("t1", int64(row.ID))
				}
				return rollback
			})
			testkit.IsError(t, err, rollback)
			s := p.Stats().Slot
			if s.Renewals < before+2 {
				t.Errorf("no renewals during the transaction (prepared: %t): %+v", prepare, s)
			}
			if fence, until := harness.Slots(t, db)[0].Fence, s.Until.Add(-p.Layout().Tick); fence.Before(until) {
				t.Errorf("the fence is %v, and ids are made until %v (prepared: %t)", fence, until, prepare)
			}
			again := s.Renewals + 1 // which finds out whether the rollback has taken anything back
			testkit.Eventually(t, "renewal after the rollback", time.Minute, func() bool {
				_, err := harness.NextID(p)
				return err == nil && p.Stats().Slot.Renewals >= again
			})
			if s := p.Stats().Slot; s.LostCommits != 0 || s.Lost != 0 {
				t.Errorf("%+v (prepared: %t)", s, prepare)
			}
		}
	}, "mariadb", "mysql", "postgres")
}

// Settings of a connection make no difference, except autocommit=0, which is refused (TestBadInput_AutocommitOff).
func TestLeases_AtAnyIsolation(t *testing.T) {
	t.Parallel()
	testkit.Each(t, func(t *testing.T, d *testkit.Database) {
		levels := []string{"READ-UNCOMMITTED", "READ-COMMITTED", "REPEATABLE-READ", "SERIALIZABLE"}
		for _, level := range levels {
			d := d.New(t)
			param := "tx_isolation=%27" + level + "%27"
			switch d.Name {
			case "mysql":
				param = "transaction_isolation=%27" + level + "%27"
			case "postgres":
				param = "default_transaction_isolation='" + strings.ToLower(strings.ReplaceAll(level, "-", " ")) + "'"
			}
			c := testkit.NewClock(time.Now())
			ledger := testkit.NewLedger(t)
			for range 2 {
				plugins := make([]*uidplugin.Plugin, 8)
				var group sync.WaitGroup
				for i := range plugins {
					group.Go(func() {
						db, err := d.Connect(nil, param)
						if err == nil {
							t.Cleanup(func() { _ = testkit.Close(db) })
							plugins[i] = uidplugin.New(harness.Quiet, uidplugin.WithClock(c.Now), uidplugin.WithModels(&harness.T1{}))
							err = db.Use(plugins[i])
						}
						for k := 0; err == nil && k < 50; k++ {
							var id int64
							if id, err = harness.NextID(plugins[i]); err == nil {
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
					harness.Close(t, p)
				}
				c.Add(time.Hour + time.Minute)
			}
		}
	}, "mariadb", "mysql", "postgres")
}

// Each start of a disposable process gets a slot and worker ids that no other process ever gets. Others reuse theirs.
func TestDisposable_SlotsAreNeverReclaimed(t *testing.T) {
	t.Parallel()
	testkit.Each(t, func(t *testing.T, d *testkit.Database) {
		c := testkit.NewClock(time.Now())
		ledger := testkit.NewLedger(t)
		disposable, usual, again := map[int64]bool{}, map[int64]bool{}, 0
		for range 3 {
			var plugins []*uidplugin.Plugin
			for _, option := range []uidplugin.Option{uidplugin.WithDisposable(), nil} {
				p := harness.Use(t, d.Open(t, nil), uidplugin.WithModels(&harness.T1{}), uidplugin.WithClock(c.Now), option)
				plugins = append(plugins, p)
				worker := p.Stats().Tables[0].WorkerIDs[0]
				switch {
				case disposable[worker] || option != nil && usual[worker]:
					t.Errorf("worker id %d was given out before", worker)
				case option != nil:
					disposable[worker] = true
				case usual[worker]:
					again++
				default:
					usual[worker] = true
				}
				for range 5000 {
					id, err := harness.NextID(p)
					testkit.Must(t, err)
					ledger.Add("t1", id)
				}
			}
			for _, p := range plugins {
				harness.Close(t, p)
			}
			c.Add(2 * time.Hour)
		}
		// On a busy machine a start may take a new slot because the answer for the former one comes too late.
		if n := len(harness.Slots(t, d.Open(t, nil))); len(disposable) != 3 || again == 0 || n < 4 {
			t.Errorf("%d disposable worker ids, %d slots; others were used again %d times", len(disposable), n, again)
		}
	})
}
