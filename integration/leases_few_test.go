package integration_test

import (
	"testing"
	"time"

	"github.com/uidplugin/uidplugin"
	"github.com/uidplugin/uidplugin/generator"
	"github.com/uidplugin/uidplugin/workernode"
)

// few is a layout of few worker ids.
func few(workerBits uint8) generator.Layout {
	l := generator.DefaultLayout()
	l.WorkerBits = workerBits
	return l
}

// When all worker ids are held, the next process is refused and told how many there
// are; none is given out twice. They are free again when their processes have ended,
// or are gone.
func TestTheEndOfWorkerIDs(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, d *database) {
		c := newMovedClock(0)
		layout := few(4) // 1 to 15
		start := func(models ...any) (*uidplugin.Plugin, error) {
			p := uidplugin.New(quiet, uidplugin.WithLayout(layout), uidplugin.WithClock(c.now), uidplugin.WithModels(models...))
			return p, open(t, d).Use(p)
		}
		var plugins []*uidplugin.Plugin
		held := map[int64]bool{}
		var ids used
		for range 15 {
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
			ids.add(t, id, "the first ones")
		}
		_, err := start(&T1{})
		says(t, err, workernode.ErrExhausted, "15", "t1")
		if _, err := nextID(plugins[3]); err != nil {
			t.Errorf("a process that has its worker id: %v", err)
		}

		must(t, plugins[7].Close(t.Context()))
		_, err = start(&T1{})
		says(t, err, workernode.ErrExhausted) // its last tick is still to come
		// Nobody is heard of any more; the keepers may renew now, but not before.
		for _, p := range plugins {
			must(t, p.Close(t.Context()))
		}
		c.move(2 * time.Hour)
		_, err = start(&T2{})
		says(t, err, workernode.ErrExhausted, "t2") // they are T1's for ever
		for range 15 {
			p, err := start(&T1{})
			must(t, err)
			plugins = append(plugins, p)
			id, err := nextID(p)
			must(t, err)
			ids.add(t, id, "the second ones")
		}
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
