package workernode_test

import (
	"context"
	"errors"
	"flag"
	"maps"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/uidplugin/uidplugin/internal/testkit"
	"github.com/uidplugin/uidplugin/workernode"
)

// life runs a process from its start to its end, with all statements of the protocol.
func (w *world) life(t *testing.T, p *process) {
	t.Helper()
	patient(t, "Start", p.Start)
	p.use(t, table("orders"), 20)
	p.work(t, 10, 20, table("orders"), table("items"))
	time.Sleep(3 * time.Second)
	p.use(t, table("orders"), 5)
	p.end(t)
}

// faults are the ways in which a statement or its answer can fail.
var faults = map[string]func(c *testkit.Crossing) error{
	"lost":        func(c *testkit.Crossing) error { return testkit.ErrLost },
	"answer lost": func(c *testkit.Crossing) error { return errors.Join(c.Run(), testkit.ErrLost) },
	"odd error":   func(c *testkit.Crossing) error { return errors.Join(c.Run(), errors.New("odd")) },
	"no answer in time": func(c *testkit.Crossing) error {
		return errors.Join(c.Run(), c.Sleep(time.Second), context.DeadlineExceeded)
	},
	"unchanged": func(c *testkit.Crossing) error {
		if c.Is("UPDATE", "INSERT") {
			return testkit.ErrUnchanged
		}
		return c.Run()
	},
	"changed, and says it did not": func(c *testkit.Crossing) error {
		if c.Is("UPDATE", "INSERT") {
			return errors.Join(c.Run(), testkit.ErrUnchanged)
		}
		return c.Run()
	},
	"twice": func(c *testkit.Crossing) error {
		if c.Is("UPDATE", "SELECT") {
			return errors.Join(c.Run(), c.Run())
		}
		return c.Run()
	},
	"executed 100 ms later": func(c *testkit.Crossing) error {
		c.Later(100 * time.Millisecond)
		return testkit.ErrLost
	},
	"executed 800 ms later": func(c *testkit.Crossing) error {
		c.Later(800 * time.Millisecond)
		return testkit.ErrLost
	},
}

var faultsAll = flag.Bool("faults.all", false, "TestManager_SurvivesOneFaultAtAnyStatement tries all statements, not a part of them")

// One fault at any statement costs a process nothing but time: it gets its ids, none comes twice, and each resolves
// to its table and to a session. The same holds for the next process.
func TestManager_SurvivesOneFaultAtAnyStatement(t *testing.T) {
	t.Parallel()

	step := 4
	switch {
	case *faultsAll:
		step = 1
	case testkit.Race || testing.Short():
		step = 16
	}
	for i, name := range slices.Sorted(maps.Keys(faults)) {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			fault := faults[name]
			for at, last := 1+i%step, step; at <= last; at += step {
				synctest.Test(t, func(t *testing.T) {
					w := newWorld(t)
					p := w.start(nil)
					count, hit := 0, ""
					p.wire.Set(func(c *testkit.Crossing) error {
						if count++; count == at {
							hit = c.SQL
							return fault(c)
						}
						return c.Run()
					})
					w.life(t, p)
					last = count
					if s := p.Stats(); s.Lost+s.LostCommits > 0 && name != "changed, and says it did not" {
						t.Errorf("the slot was lost: %+v", s)
					}
					time.Sleep(3 * time.Second)
					next := w.start(nil)
					next.assign(table("orders"), table("items"))
					for x := range next.generators {
						next.make(x, 20)
					}
					if s := next.Stats(); s.Reclaimed != 1 {
						t.Errorf("the next process has no slot of the first: %+v", s)
					}
					w.check()
					if t.Failed() {
						t.Logf("the fault was at statement %d, %s", at, hit)
					}
				})
				if t.Failed() {
					return
				}
			}
		})
	}
}

// Answers are late by up to 300 ms. A process is restarted with a free slot, and the first rows of nine tables come at
// once. Formerly, when each table had a lease of its own, two tables got one worker id, and ids came twice.
func TestManager_DelayedAnswersGiveNoWorkerIDTwice(t *testing.T) {
	t.Parallel()

	rounds := 4
	if testkit.Race || testing.Short() {
		rounds = 2
	}
	for round := range rounds {
		synctest.Test(t, func(t *testing.T) {
			w := newWorld(t)
			late := func(c *testkit.Crossing) error { return errors.Join(c.Run(), c.Sleep(rand.N(300*time.Millisecond))) }
			change := leadOf(10 * time.Second)
			for range 3 {
				p := w.start(change)
				p.wire.Set(late)
				var mu sync.Mutex
				var group sync.WaitGroup
				if round%2 == 0 {
					must(t, p.Start(t.Context()))
				}
				for _, x := range tablesNamed(9) {
					group.Go(func() {
						time.Sleep(rand.N(400 * time.Millisecond))
						leases, err := p.Assign(t.Context(), []workernode.Table{x}, nil)
						if err != nil {
							t.Error(err)
							return
						}
						mu.Lock()
						p.attach(leases[0])
						mu.Unlock()
					})
				}
				group.Wait()
				if len(p.generators) != 9 {
					t.Fatalf("%d generators", len(p.generators))
				}
				for range 40 {
					for x := range p.generators {
						p.make(x, 20)
					}
					time.Sleep(500 * time.Millisecond)
				}
				s := p.Stats()
				if s.Renewals < 4 || s.LastError != nil || s.Lost+s.LostCommits > 0 || p.until() < w.tick()+2000 {
					t.Errorf("%+v, now is %d", s, w.tick())
				}
				for x, g := range p.generators {
					if u := g.Usage(); u.Left < 2000*16 {
						t.Errorf("%v is not renewed: %+v", x, u)
					}
					g.Close()
				}
				must(t, p.Close(t.Context()))
				time.Sleep(12 * time.Second)
			}
			w.check()
			tables := map[string]int{}
			for _, n := range w.nodes() {
				tables[n.Table.Name]++
			}
			for _, x := range tablesNamed(9) {
				if tables[x.Name] == 0 {
					t.Errorf("no worker id of %v: %v", x, tables)
				}
			}
		})
	}
}

// Several processes with a bad network, which end and start again: no id comes twice, and each resolves.
func TestManager_MakesNoIDTwiceWithManyFaults(t *testing.T) {
	t.Parallel()

	rounds := 5
	if testkit.Race || testing.Short() {
		rounds = 2
	}
	for range rounds {
		synctest.Test(t, func(t *testing.T) {
			w := newWorld(t)
			names := slices.Sorted(maps.Keys(faults))
			bad := func(c *testkit.Crossing) error {
				if rand.IntN(12) > 0 {
					return errors.Join(c.Sleep(rand.N(20*time.Millisecond)), c.Run())
				}
				return faults[names[rand.IntN(len(names))]](c)
			}
			list := tablesNamed(4)
			var group sync.WaitGroup
			for range 3 {
				group.Go(func() {
					for range 4 {
						p := w.start(nil)
						p.wire.Set(bad)
						for range 60 {
							p.try(t, list[rand.IntN(len(list))])
							time.Sleep(rand.N(100 * time.Millisecond))
						}
						for _, g := range p.generators {
							g.Close()
						}
						ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
						_ = p.Close(ctx)
						cancel()
						p.wire.Set(func(*testkit.Crossing) error { return testkit.ErrLost })
						time.Sleep(rand.N(5 * time.Second))
					}
				})
			}
			group.Wait()
			if w.ledger.Len() < 3000 {
				t.Errorf("%d ids", w.ledger.Len())
			}
			w.checkWorkerIDs()
		})
	}
}

// try makes some ids of a table, if that is possible within a second.
func (p *process) try(t *testing.T, x workernode.Table) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Second)
	defer cancel()
	if p.generators[x] == nil {
		leases, err := p.Assign(ctx, []workernode.Table{x}, nil)
		if err != nil {
			return
		}
		if rand.IntN(4) == 0 {
			leases[0].Release()
			return
		}
		p.attach(leases[0])
	}
	for range 10 {
		id, err := p.generators[x].Next(ctx)
		if err != nil {
			return
		}
		p.world.ledger.Add(x.String(), id)
	}
}
