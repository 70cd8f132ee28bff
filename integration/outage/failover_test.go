package outage_test

import (
	"errors"
	"testing"
	"time"

	"github.com/uidplugin/uidplugin"
	"github.com/uidplugin/uidplugin/integration/internal/harness"
	"github.com/uidplugin/uidplugin/internal/testkit"
	"github.com/uidplugin/uidplugin/migrations"
)

// A database that has lost its last commits, as a promoted replica has, gives slots and worker ids out again. No id
// comes twice if there are at least Lead, a tick and the difference of clocks between the last commit that was lost and
// the first statement afterwards. With less time, some do.
func TestLostCommits_NoIDTwiceAfterLead(t *testing.T) {
	t.Parallel()
	testkit.Each(t, func(t *testing.T, d *testkit.Database) {
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
			for _, noticed := range []bool{false, true} { // by the process that keeps running, before another one starts
				if noticed && test.twice {
					continue
				}
				d := d.New(t)
				db := d.Open(t, nil)
				c := testkit.NewClock(time.Now())
				c.Set(c.Now().Truncate(time.Second))
				former := harness.NewManager(t, db, c, nil)
				if test.former {
					harness.NewTenant(t, former, "t1").Drain(t)
					harness.Close(t, former)
					c.Add(time.Minute)
				}
				back := harness.Snapshot(t, db)
				ledger := &testkit.Ledger{}
				away, wire := testkit.OpenWire(t, d)
				first := harness.NewManager(t, away, c, nil)
				g := harness.NewTenant(t, first, "t1")
				ledger.Add("t1", g.Drain(t)...)
				s := harness.NewTenant(t, first, "t2")
				ledger.Add("t2", s.Drain(t)...)
				wire.Shut.Store(!noticed) // it must not notice by itself
				back()
				c.Add(test.gap)
				if noticed {
					g.Renewed(t, first, c)
					ledger.Add("t1", g.Drain(t)...)
					s.Renewed(t, first, c)
					ledger.Add("t2", s.Drain(t)...)
				}
				second := harness.NewManager(t, db, c, nil)
				ledger.Add("t1", harness.NewTenant(t, second, "t1").Drain(t)...)
				ledger.Add("t3", harness.NewTenant(t, second, "t3").Drain(t)...)
				if (ledger.Twice() > 0) != test.twice {
					t.Errorf("%s, noticed %t: %d of %d ids came twice", test.name, noticed, ledger.Twice(), ledger.Len())
				}
			}
		}
	})
}

// A backup of ten minutes ago is restored under processes that run, and FLOOR_TICK and the counters are set before they
// go on, as docs/failures.md says. No id comes twice, and none resolves to a wrong table, although slots and worker ids
// that were lost are given out again.
func TestRestoredBackup_WithFloorTick(t *testing.T) {
	t.Parallel()
	testkit.Each(t, func(t *testing.T, d *testkit.Database) {
		db, wire := testkit.OpenWire(t, d)
		operator, c := d.Open(t, nil), testkit.NewClock(time.Now())
		ledger := testkit.NewLedger(t)
		of := map[int64]string{}
		add := func(table string, g *harness.Tenant) {
			t.Helper()
			ids := g.Drain(t)
			if len(ids) == 0 {
				t.Errorf("no ids of %s", table)
			}
			ledger.Add(table, ids...)
			of[ids[0]], of[ids[len(ids)-1]] = table, table
		}
		running := harness.NewManager(t, db, c, nil)
		g := harness.NewTenant(t, running, "t1")
		add("t1", g)
		back := harness.Snapshot(t, operator)
		c.Add(10 * time.Minute)
		g.Renewed(t, running, c)
		add("t1", g)
		late := harness.NewManager(t, db, c, nil)
		h := harness.NewTenant(t, late, "t3")
		add("t3", h)

		for _, table := range harness.Tables {
			harness.Exec(t, operator, `DROP TABLE "WORKER_`+table+`"`)
		}
		running.RequestRenewal() // which finds no table
		wire.Shut.Store(true)    // until the counters are set, too
		testkit.Must(t, migrations.Up(t.Context(), operator))
		back()
		floor := harness.SmallLayout(4).TickAt(c.Now()) + 11 // as far as anybody may have stamped
		harness.Exec(t, operator, `UPDATE "WORKER_REGISTRY" SET "FLOOR_TICK" = ?, "NEXT_ID" = "NEXT_ID" + 100, "NEXT_SLOT" = "NEXT_SLOT" + 100`, floor)
		wire.Shut.Store(false)
		c.Add(2 * time.Second)
		// All processes are started again.
		_, _ = running.Close(t.Context()), late.Close(t.Context())
		for _, table := range []string{"t4", "t1", "t3"} {
			m := harness.NewManager(t, db, c, nil)
			add(table, harness.NewTenant(t, m, table))
		}
		p := harness.Use(t, db, uidplugin.WithLayout(harness.SmallLayout(4)), uidplugin.WithClock(c.Now))
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
