package leases_test

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/uidplugin/uidplugin"
	"github.com/uidplugin/uidplugin/integration/internal/harness"
	"github.com/uidplugin/uidplugin/internal/testkit"
	"github.com/uidplugin/uidplugin/workernode"
)

// Ten processes hold one slot after each other, all with the same worker id. Each id resolves to the process that made
// it. Formerly a reclaimed worker id lost its former process.
func TestHistory_TenHoldersOfOneSlot(t *testing.T) {
	t.Parallel()
	testkit.Each(t, func(t *testing.T, d *testkit.Database) {
		c := testkit.NewClock(time.Now())
		ids := map[string][]int64{}
		worker := int64(0)
		for i := range 10 {
			port := fmt.Sprint("process", i)
			p := harness.Use(t, d.Open(t, nil), uidplugin.WithModels(&harness.T1{}), uidplugin.WithClock(c.Now),
				uidplugin.WithHost(workernode.Host{Port: port}))
			if w := p.Stats().Tables[0].WorkerIDs[0]; worker == 0 {
				worker = w
			} else if w != worker {
				t.Fatalf("%s has worker id %d, not %d", port, w, worker)
			}
			for range 3 { // sessions of one process, too
				for range 10 {
					id, err := harness.NextID(p)
					testkit.Must(t, err)
					ids[port] = append(ids[port], id)
				}
				c.Add(2 * time.Hour)
			}
			harness.Close(t, p)
			c.Add(2 * time.Hour) // it may have begun a session after the last move
		}
		p := harness.Use(t, d.Open(t, nil), uidplugin.WithClock(c.Now))
		ledger := testkit.NewLedger(t)
		for port, all := range ids {
			ledger.Add("t1", all...)
			harness.Resolves(t, p, "t1", port, all...)
		}
		// A number between two sessions was made by nobody.
		parts, err := p.Decode(uidplugin.ID(ids["process3"][9]))
		testkit.Must(t, err)
		parts.Time = parts.Time.Add(time.Hour)
		id, err := p.Layout().Compose(parts)
		testkit.Must(t, err)
		if l, err := p.Locate(t.Context(), uidplugin.ID(id)); !errors.Is(err, uidplugin.ErrUnknownID) {
			t.Errorf("a number that no process made: %+v, %v", l, err)
		}
	})
}

// The database loses its latest commits, and gives the slot to another process. No id resolves to a process that did
// not make it: an id of the time that was lost is unknown, or resolves to its own process.
func TestHistory_AfterLostCommits(t *testing.T) {
	t.Parallel()
	testkit.Each(t, func(t *testing.T, d *testkit.Database) {
		for _, noticed := range []bool{true, false} { // by the first process, before the second one starts
			d := d.New(t)
			db, c := d.Open(t, nil), testkit.NewClock(time.Now())
			ledger := testkit.NewLedger(t)
			of, lost := map[int64]string{}, map[int64]bool{}
			losing := false
			start := func(port string) (*workernode.Manager, *harness.Tenant) {
				m := harness.NewManager(t, db, c, nil)
				g := harness.NewTenant(t, m, "t1")
				return m, g
			}
			take := func(g *harness.Tenant, who string) {
				t.Helper()
				ids := g.Drain(t)
				if len(ids) == 0 {
					t.Errorf("no ids of %s", who)
				}
				ledger.Add("t1", ids...)
				for i := 0; i < len(ids); i += 16 { // of each tick 1 of 16, because each takes a round trip
					of[ids[i]], lost[ids[i]] = who, losing
				}
			}
			first, g := start("first")
			take(g, "first")
			back := harness.Snapshot(t, db)
			losing = true
			c.Add(5 * time.Second)
			g.Renewed(t, first, c)
			take(g, "first")
			c.Add(5 * time.Second)
			g.Renewed(t, first, c)
			take(g, "first")
			back()
			losing = false
			c.Add(13 * time.Second) // Lead, a second, and a tick
			if noticed {
				g.Renewed(t, first, c)
				take(g, "first")
				if s := first.Stats(); s.LostCommits != 1 || s.Lost != 0 {
					t.Errorf("%+v", s)
				}
			}
			// The row is free in the view of the second process: the first one is silent.
			c.Add(2 * time.Minute)
			second, h := start("second")
			take(h, "second")
			c.Add(3 * time.Second)
			g.Renewed(t, first, c)
			take(g, "first")
			c.Add(30 * time.Second)
			h.Renewed(t, second, c)
			take(h, "second")
			harness.Close(t, first)
			harness.Close(t, second)
			c.Add(time.Hour)
			p := harness.Use(t, d.Open(t, nil), uidplugin.WithLayout(harness.SmallLayout(4)), uidplugin.WithClock(c.Now))
			hosts := map[string]string{} // by process
			unknown := 0
			for id, who := range of {
				l, err := p.Locate(t.Context(), uidplugin.ID(id))
				if errors.Is(err, uidplugin.ErrUnknownID) && lost[id] {
					unknown++
					continue
				}
				if err != nil || l.Table != "t1" {
					t.Fatalf("Locate(%d) of %s: %+v, %v", id, who, l, err)
				}
				if hosts[who] == "" {
					hosts[who] = l.Session.Host
				}
				if hosts[who] != l.Session.Host {
					t.Fatalf("ids of the %s process resolve to %s and to %s", who, hosts[who], l.Session.Host)
				}
			}
			if hosts["first"] == hosts["second"] {
				t.Errorf("ids of both processes resolve to %s", hosts["first"])
			}
			// Those of the lost commits lie above the fence with which the second process got the slot.
			if unknown == 0 {
				t.Errorf("noticed %t: all %d ids are known", noticed, len(of))
			}
		}
	})
}
