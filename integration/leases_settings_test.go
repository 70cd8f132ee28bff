package integration_test

import (
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/uidplugin/uidplugin"
	"github.com/uidplugin/uidplugin/generator"
	"github.com/uidplugin/uidplugin/workernode"
	"gorm.io/gorm"
	"gorm.io/gorm/logger"
)

// Renewals are not part of the application's transactions, with prepared statements
// or without: a rollback does not take them back.
func TestRollbackKeepsRenewals(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, d *database) {
		for _, prepare := range []bool{false, true} {
			d := fresh(t, d.engine)
			db, err := d.connect(&gorm.Config{PrepareStmt: prepare, Logger: logger.Discard})
			must(t, err)
			t.Cleanup(func() { _ = errors.Join(closed(db)) })
			must(t, db.AutoMigrate(&T1{}))
			c := newMovedClock(10)
			p := use(t, db, uidplugin.WithClock(c.now), uidplugin.WithLayout(small(4)), uidplugin.WithModels(&T1{}))
			var all used
			rollback := errors.New("rollback")
			for range 3 {
				before := p.Stats().Leases.Renewed
				err := db.Transaction(func(tx *gorm.DB) error {
					for begin := time.Now(); time.Since(begin) < 3*time.Second && p.Stats().Leases.Renewed <= before; {
						row := T1{}
						if err := tx.Create(&row).Error; err != nil {
							return err
						}
						all.add(t, row.ID.Int64(), "the plugin")
					}
					return rollback
				})
				if !errors.Is(err, rollback) {
					t.Fatal(err)
				}
				if p.Stats().Leases.Renewed <= before {
					t.Errorf("no renewal during the transaction (prepared: %t)", prepare)
				}
				until := p.Layout().TickAt(p.Stats().Tables[0].Until) - 1
				for _, r := range rows(t, db) {
					if r.WorkerID == p.Stats().Tables[0].WorkerIDs[0] && r.Fence < until {
						t.Errorf("the fence is %d, and ids are made until %d (prepared: %t)", r.Fence, until, prepare)
					}
				}
			}
			if s := p.Stats().Leases; s.Regressed != 0 || s.Lost != 0 {
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
			var all used
			for round := range 2 {
				plugins := make([]*uidplugin.Plugin, 8)
				var group sync.WaitGroup
				for i := range plugins {
					db := open(t, d, param)
					plugins[i] = use(t, db, uidplugin.WithClock(c.now), uidplugin.WithLayout(small(4)))
					group.Go(func() {
						for range 50 {
							id, err := nextID(plugins[i])
							if err != nil {
								t.Errorf("%s: %v", level, err)
								return
							}
							all.add(t, id, fmt.Sprint("process ", i, " of round ", round))
						}
					})
				}
				group.Wait()
				for _, p := range plugins {
					// Serializable, the database may refuse to take them back.
					if err := p.Close(t.Context()); err != nil && level != "SERIALIZABLE" {
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
		says(t, open(t, d).Use(uidplugin.New(quiet, uidplugin.WithLayout(later))), workernode.ErrLayoutMismatch, later.String())
		if _, err := nextID(p); err != nil {
			t.Errorf("the process that is there: %v", err)
		}
	})
}

// Disposable worker ids are held for ever: no statement after the start, nobody takes
// them over. Processes of both kinds work side by side.
func TestDisposableBesideLeased(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, d *database) {
		c := newMovedClock(0)
		var all used
		disposable := map[int64]bool{}
		for round := range 3 {
			var plugins []*uidplugin.Plugin
			for _, option := range []uidplugin.Option{uidplugin.WithDisposable(), nil} {
				db, v := valved(t, d)
				p := use(t, db, uidplugin.WithModels(&T1{}), uidplugin.WithClock(c.now), uidplugin.WithSpares(0), option)
				plugins = append(plugins, p)
				worker := p.Stats().Tables[0].WorkerIDs[0]
				if disposable[worker] {
					t.Errorf("worker id %d was given out before", worker)
				}
				if option != nil {
					disposable[worker] = true
				}
				sent := v.n.Load()
				for range 5000 {
					id, err := nextID(p)
					must(t, err)
					all.add(t, id, fmt.Sprint("round ", round, ", worker id ", worker))
				}
				if option != nil {
					c.move(2 * time.Hour)
					_, err := nextID(p)
					must(t, err)
					if n := v.n.Load() - sent; n != 0 {
						t.Errorf("%d statements after the start", n)
					}
				}
			}
			for _, p := range plugins {
				must(t, p.Close(t.Context()))
			}
			c.move(2 * time.Hour)
		}
		reusable := 0
		nodes := rows(t, open(t, d))
		for _, r := range nodes {
			if !disposable[r.WorkerID] {
				reusable++
			}
		}
		if len(disposable) != 3 || reusable != 1 || len(nodes) != 4 {
			t.Errorf("%d disposable worker ids and %d others, want 3 and 1", len(disposable), reusable)
		}
	})
}

// Rows of UidGenerator are never taken over, and its worker ids are never given to
// somebody else, while leased ones go from process to process.
func TestLeasedBesideUidGenerator(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, d *database) {
		java := open(t, d)
		must(t, java.Exec(strings.ReplaceAll(uidGeneratorTable, "TIMESTAMP NOT NULL", "TIMESTAMP NOT NULL DEFAULT CURRENT_TIMESTAMP")).Error)
		c := newMovedClock(0)
		theirs, ours := map[int64]bool{}, map[int64]bool{}
		var all used
		for round := range 4 {
			for range 3 {
				worker, err := begin(java)
				must(t, err)
				if theirs[worker] || ours[worker] {
					t.Fatalf("worker id %d was given out before", worker)
				}
				theirs[worker] = true
			}
			p := use(t, open(t, d), uidplugin.WithModels(&T1{}, &T2{}), uidplugin.WithClock(c.now))
			for _, s := range p.Stats().Tables {
				if theirs[s.WorkerIDs[0]] {
					t.Fatalf("worker id %d is UidGenerator's", s.WorkerIDs[0])
				}
				ours[s.WorkerIDs[0]] = true
			}
			for range 1000 {
				id, err := nextID(p)
				must(t, err)
				all.add(t, id, fmt.Sprint("round ", round))
			}
			must(t, p.Close(t.Context()))
			c.move(2 * time.Hour)
		}
		if len(ours) != 2 {
			t.Errorf("worker ids %v, want two that are used again and again", ours)
		}
		var n int64
		must(t, java.Raw("SELECT COUNT(*) FROM WORKER_NODE WHERE HOST_NAME = 'java-1' AND TABLE_NAME = '' AND FENCE <= 0 AND HOLDER = ''").Scan(&n).Error)
		if n != 12 {
			t.Errorf("%d rows of UidGenerator's are as they were, want 12", n)
		}
	}, "mariadb", "mysql")
}
