package integration_test

import (
	"errors"
	"testing"
	"time"

	"github.com/uidplugin/uidplugin"
	"github.com/uidplugin/uidplugin/internal/testkit"
	"github.com/uidplugin/uidplugin/migrations"
	"github.com/uidplugin/uidplugin/workernode"
	"gorm.io/gorm"
)

var leaseTables = []string{"NODE", "SLOT", "SESSION", "REGISTRY"}

// snapshot copies the tables of the plugin, and returns what puts the copies back.
func snapshot(t *testing.T, db *gorm.DB) (back func()) {
	t.Helper()
	for _, table := range leaseTables {
		execute(t, db, `CREATE TABLE "COPY_`+table+`" AS SELECT * FROM "WORKER_`+table+`"`)
	}
	return func() {
		t.Helper()
		for _, table := range leaseTables {
			execute(t, db, `DELETE FROM "WORKER_`+table+`"`)
			execute(t, db, `INSERT INTO "WORKER_`+table+`" SELECT * FROM "COPY_`+table+`"`)
		}
	}
}

// A database that has lost its last commits, as a promoted replica has, gives slots and worker ids out again. No id
// comes twice if Lead, a tick and what clocks differ by lie between the last commit that was lost and the first
// statement afterwards; some do if it is less.
func TestLostCommits_NoIDTwiceAfterLead(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, d *database) {
		for _, test := range []struct {
			name   string
			gap    time.Duration // between the last commit that was lost and the first one afterwards
			former bool          // there is a slot to reclaim: only its last session is lost
			twice  bool          // ids come twice
		}{
			{"new slot", 11 * time.Second, false, false},
			{"reclaimed slot", 11 * time.Second, true, false},
			{"new slot, too fast", 8 * time.Second, false, true},
			{"reclaimed slot, too fast", 8 * time.Second, true, true},
		} {
			for _, noticed := range []bool{false, true} { // by the process that goes on, before another one starts
				if noticed && test.twice {
					continue
				}
				d := fresh(t, d.engine)
				db := open(t, d)
				c := newMovedClock(0)
				c.base = c.base.Truncate(time.Second)
				config := func(l *workernode.Config) { l.Spares = 1 }
				former := manager(t, db, c, config)
				if test.former {
					newTenant(t, former, "t1").drain(t)
					must(t, former.Close(t.Context()))
					c.move(time.Minute)
				}
				back := snapshot(t, db)
				ledger := &testkit.Ledger{}
				away, tap := tapped(t, d)
				first := manager(t, away, c, config)
				g := newTenant(t, first, "t1")
				ledger.Add("t1", g.drain(t)...)
				spare, ok := first.Spare(workernode.Table{Name: "t2"}, 1)
				if !ok {
					t.Fatalf("%s: no spare", test.name)
				}
				s := attached(t, first, spare)
				ledger.Add("t2", s.drain(t)...)
				eventually(t, 5*time.Second, "table of the spare", func() bool {
					for _, n := range rows(t, db) {
						if n.Table.Name == "t2" {
							return first.Stats().Spares == 1 // another one
						}
					}
					return false
				})
				tap.shut.Store(!noticed) // it must not notice by itself
				back()
				c.move(test.gap)
				if noticed {
					g.renewed(t, first, c)
					ledger.Add("t1", g.drain(t)...)
					s.renewed(t, first, c)
					ledger.Add("t2", s.drain(t)...)
				}
				second := manager(t, db, c, config)
				ledger.Add("t1", newTenant(t, second, "t1").drain(t)...)
				ledger.Add("t3", newTenant(t, second, "t3").drain(t)...)
				if (ledger.Twice() > 0) != test.twice {
					t.Errorf("%s, noticed %t: %d of %d ids came twice", test.name, noticed, ledger.Twice(), ledger.Len())
				}
			}
		}
	})
}

// A process finds out that the database has forgotten a renewal, says so, and goes on with another slot.
func TestLostCommits_AreNoticedByTheHolder(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, d *database) {
		db, c := open(t, d), newMovedClock(0)
		m := manager(t, db, c, nil)
		g := newTenant(t, m, "t1")
		ledger := testkit.NewLedger(t)
		ledger.Add("t1", g.drain(t)...)
		back := snapshot(t, db)
		for range 2 {
			c.move(5 * time.Second)
			g.renewed(t, m, c)
			ledger.Add("t1", g.drain(t)...)
		}
		back()
		c.move(13 * time.Second)
		g.renewed(t, m, c)
		ledger.Add("t1", g.drain(t)...)
		if s := m.Stats(); s.Lost != 0 || s.LostCommits != 1 {
			t.Errorf("%+v", s)
		}
	})
}

// A backup of ten minutes ago is restored under processes that run, and FLOOR_TICK and the counters are set before they
// go on, as docs/running.md says. No id comes twice, and none resolves to a table that it is not of, although slots and
// worker ids that were lost are given out again.
func TestRestoredBackup_WithFloorTick(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, d *database) {
		db, c := open(t, d), newMovedClock(0)
		ledger := testkit.NewLedger(t)
		of := map[int64]string{}
		add := func(table string, g *tenant) {
			t.Helper()
			ids := g.drain(t)
			if len(ids) == 0 {
				t.Errorf("no ids of %s", table)
			}
			ledger.Add(table, ids...)
			of[ids[0]], of[ids[len(ids)-1]] = table, table
		}
		running := manager(t, db, c, nil)
		g := newTenant(t, running, "t1")
		add("t1", g)
		back := snapshot(t, db)
		c.move(10 * time.Minute)
		g.renewed(t, running, c)
		add("t1", g)
		late := manager(t, db, c, nil)
		h := newTenant(t, late, "t3")
		add("t3", h)

		for _, table := range leaseTables {
			execute(t, db, `DROP TABLE "WORKER_`+table+`"`)
		}
		running.RequestRenewal() // which finds no table
		must(t, migrations.Up(t.Context(), db))
		back()
		floor := small(4).TickAt(c.now()) + 11 // as far as anybody may have stamped
		execute(t, db, `UPDATE "WORKER_REGISTRY" SET "FLOOR_TICK" = ?, "NEXT_ID" = "NEXT_ID" + 100, "NEXT_SLOT" = "NEXT_SLOT" + 100`, floor)
		c.move(2 * time.Second)
		// All processes are started again.
		_, _ = running.Close(t.Context()), late.Close(t.Context())
		for _, table := range []string{"t4", "t1", "t3"} {
			m := manager(t, db, c, nil)
			add(table, newTenant(t, m, table))
		}
		p := use(t, db, uidplugin.WithLayout(small(4)), uidplugin.WithClock(c.now))
		unknown := 0
		for id, table := range of {
			where, err := p.Locate(t.Context(), uidplugin.ID(id))
			switch {
			case errors.Is(err, uidplugin.ErrUnknownID):
				unknown++
			case err != nil || where.Table != table:
				t.Errorf("Locate of an id of %s: %+v, %v", table, where, err)
			}
		}
		if unknown == 0 || unknown == len(of) {
			t.Errorf("of %d ids %d are unknown: those of the lost minutes must be", len(of), unknown)
		}
	})
}
