package integration_test

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/uidplugin/uidplugin"
	"github.com/uidplugin/uidplugin/generator"
	"github.com/uidplugin/uidplugin/internal/testkit"
	"github.com/uidplugin/uidplugin/workernode"
)

// few is a layout of few worker ids. With fewer than 16 bits for them a process has no spares.
func few(workerBits uint8) generator.Layout {
	l := generator.DefaultLayout()
	l.WorkerBits = workerBits
	return l
}

// When all worker ids are held, the next process is refused and learns how many there are. None is given out twice.
// They are free again when their processes have ended, for the same tables only.
func TestExhausted_WorkerIDsAreReusedNeverShared(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, d *database) {
		c := newMovedClock(0)
		start := func(models ...any) (*uidplugin.Plugin, error) {
			p := uidplugin.New(quiet, uidplugin.WithLayout(few(4)), uidplugin.WithClock(c.now), uidplugin.WithModels(models...))
			return p, open(t, d).Use(p)
		}
		var plugins []*uidplugin.Plugin
		held := map[int64]bool{}
		ledger := testkit.NewLedger(t)
		fifteen := func() {
			t.Helper()
			plugins = nil
			for range 15 { // 1 to 15
				p, err := start(&T1{})
				must(t, err)
				plugins = append(plugins, p)
				worker := p.Stats().Tables[0].WorkerIDs[0]
				if worker < 1 || worker > 15 || held[worker] {
					t.Fatalf("worker id %d", worker)
				}
				held[worker] = true
				id, err := nextID(p)
				must(t, err)
				ledger.Add("t1", id)
			}
		}
		fifteen()
		_, err := start(&T1{})
		says(t, err, workernode.ErrExhausted, "15", "t1")
		if _, err := nextID(plugins[3]); err != nil {
			t.Errorf("a process that has its worker id: %v", err)
		}
		must(t, plugins[7].Close(t.Context()))
		_, err = start(&T1{})
		says(t, err, workernode.ErrExhausted) // its last tick is still to come
		for _, p := range plugins {
			must(t, p.Close(t.Context()))
		}
		c.move(2 * time.Hour)
		_, err = start(&T2{})
		says(t, err, workernode.ErrExhausted, "t2") // they are of T1 permanently
		clear(held)
		c.move(2 * time.Hour)
		fifteen()
		_, err = start(&T1{})
		says(t, err, workernode.ErrExhausted)
		for _, p := range plugins {
			must(t, p.Close(t.Context()))
		}
		if n := len(rows(t, open(t, d))); n != 15 {
			t.Errorf("%d rows", n)
		}
	})
}

// A process has all worker ids and crashes. The next one is refused until the fence has passed, and then gets them
// all with its slot.
func TestExhausted_WorkerIDsOfACrashedProcess(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, d *database) {
		c := newMovedClock(0)
		options := func(models ...any) []uidplugin.Option {
			return []uidplugin.Option{quiet, uidplugin.WithLayout(few(8)), uidplugin.WithClock(c.now),
				uidplugin.WithModels(models...)}
		}
		models := thousand()[:255]
		ledger := testkit.NewLedger(t)
		take := func(p *uidplugin.Plugin) {
			t.Helper()
			for _, model := range models {
				id, err := p.NextID(t.Context(), model)
				must(t, err)
				ledger.Add("n", int64(id))
			}
		}
		crashed, tap := tapped(t, d)
		p := uidplugin.New(options(models...)...)
		must(t, crashed.Use(p))
		take(p)
		tap.shut.Store(true)
		refused := func(when string, model any) {
			t.Helper()
			err := open(t, d).Use(uidplugin.New(options(model)...))
			if !errors.Is(err, workernode.ErrExhausted) || !strings.Contains(err.Error(), "255") {
				t.Errorf("%s: %v", when, err)
			}
		}
		refused("while they are held", models[0])
		c.move(15 * time.Second)
		refused("before the fence has passed", models[0])
		c.move(map[bool]time.Duration{false: 2 * time.Minute, true: 12 * time.Minute}[d.name == "sqlite"])
		refused("for a table that has none", &T1{})
		c.move(map[bool]time.Duration{false: 2 * time.Minute, true: 12 * time.Minute}[d.name == "sqlite"])
		q := use(t, open(t, d), options(models...)...)
		take(q)
		if n := len(rows(t, open(t, d))); n != 255 {
			t.Errorf("%d rows", n)
		}
	}, "sqlite", "mariadb")
}
