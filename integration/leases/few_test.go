package leases_test

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/uidplugin/uidplugin"
	"github.com/uidplugin/uidplugin/integration/internal/harness"
	"github.com/uidplugin/uidplugin/internal/testkit"
	"github.com/uidplugin/uidplugin/workernode"
)

// When all worker ids are held, the next process is refused and learns how many there are. None is given out twice.
// They are free again when their processes have ended, for the same tables only.
func TestExhausted_WorkerIDsAreReusedNeverShared(t *testing.T) {
	t.Parallel()
	testkit.Each(t, func(t *testing.T, d *testkit.Database) {
		c := testkit.NewClock(time.Now())
		start := func(models ...any) (*uidplugin.Plugin, error) {
			p := uidplugin.New(harness.Quiet, uidplugin.WithLayout(harness.FewWorkers(4)), uidplugin.WithClock(c.Now), uidplugin.WithModels(models...))
			return p, d.Open(t, nil).Use(p)
		}
		var plugins []*uidplugin.Plugin
		held := map[int64]bool{}
		ledger := testkit.NewLedger(t)
		fifteen := func() {
			t.Helper()
			plugins = nil
			for range 15 { // 1 to 15
				p, err := start(&harness.T1{})
				testkit.Must(t, err)
				plugins = append(plugins, p)
				worker := p.Stats().Tables[0].WorkerIDs[0]
				if worker < 1 || worker > 15 || held[worker] {
					t.Fatalf("worker id %d", worker)
				}
				held[worker] = true
				id, err := harness.NextID(p)
				testkit.Must(t, err)
				ledger.Add("t1", id)
			}
		}
		fifteen()
		_, err := start(&harness.T1{})
		testkit.IsError(t, err, workernode.ErrExhausted, "15", "t1")
		if _, err := harness.NextID(plugins[3]); err != nil {
			t.Errorf("a process that has its worker id: %v", err)
		}
		harness.Close(t, plugins[7])
		_, err = start(&harness.T1{})
		testkit.IsError(t, err, workernode.ErrExhausted) // its last tick is still to come
		for _, p := range plugins {
			harness.Close(t, p)
		}
		c.Add(2 * time.Hour)
		_, err = start(&harness.T2{})
		testkit.IsError(t, err, workernode.ErrExhausted, "t2") // they are of T1 permanently
		clear(held)
		c.Add(2 * time.Hour)
		fifteen()
		_, err = start(&harness.T1{})
		testkit.IsError(t, err, workernode.ErrExhausted)
		for _, p := range plugins {
			harness.Close(t, p)
		}
		if n := len(harness.Nodes(t, d.Open(t, nil))); n != 15 {
			t.Errorf("%d rows", n)
		}
	})
}

// A process has all worker ids and crashes. The next one is refused until the fence has passed, and then gets them
// all with its slot.
func TestExhausted_WorkerIDsOfACrashedProcess(t *testing.T) {
	t.Parallel()
	testkit.Each(t, func(t *testing.T, d *testkit.Database) {
		c := testkit.NewClock(time.Now())
		options := func(models ...any) []uidplugin.Option {
			return []uidplugin.Option{harness.Quiet, uidplugin.WithLayout(harness.FewWorkers(8)), uidplugin.WithClock(c.Now),
				uidplugin.WithModels(models...)}
		}
		models := harness.Thousand()[:240] // as many as the registry has worker ids
		ledger := testkit.NewLedger(t)
		take := func(p *uidplugin.Plugin) {
			t.Helper()
			for _, model := range models {
				id, err := p.NextID(t.Context(), model)
				testkit.Must(t, err)
				ledger.Add("n", int64(id))
			}
		}
		crashed, wire := testkit.OpenWire(t, d)
		p := uidplugin.New(options(models...)...)
		testkit.Must(t, crashed.Use(p))
		take(p)
		wire.Shut.Store(true)
		refused := func(when string, model any) {
			t.Helper()
			err := d.Open(t, nil).Use(uidplugin.New(options(model)...))
			if !errors.Is(err, workernode.ErrExhausted) || !strings.Contains(err.Error(), "255") {
				t.Errorf("%s: %v", when, err)
			}
		}
		refused("while they are held", models[0])
		c.Add(15 * time.Second)
		refused("before the fence has passed", models[0])
		c.Add(map[bool]time.Duration{false: 2 * time.Minute, true: 12 * time.Minute}[d.Name == "sqlite"])
		refused("for a table that has none", &harness.T1{})
		c.Add(map[bool]time.Duration{false: 2 * time.Minute, true: 12 * time.Minute}[d.Name == "sqlite"])
		q := harness.Use(t, d.Open(t, nil), options(models...)...)
		take(q)
		if n := len(harness.Nodes(t, d.Open(t, nil))); n != 240 {
			t.Errorf("%d rows", n)
		}
	}, "sqlite", "mariadb")
}
