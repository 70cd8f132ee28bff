package workernode_test

import (
	"maps"
	"testing"
	"time"

	"github.com/uidplugin/uidplugin/internal/testkit"
)

// Rows of the tables as they were once, to restore them.
type snapshot map[string][]map[string]any

func (w *world) snapshot() snapshot {
	w.tb.Helper()
	s := snapshot{}
	for _, name := range []string{"WORKER_NODE", "WORKER_SLOT", "WORKER_SESSION", "WORKER_REGISTRY"} {
		var rows []map[string]any
		must(w.tb, w.db.Table(name).Find(&rows).Error)
		s[name] = rows
	}
	return s
}

func (w *world) restore(s snapshot) {
	w.tb.Helper()
	for name, rows := range s {
		run(w.tb, w.db, `DELETE FROM "`+name+`"`)
		for _, row := range rows {
			must(w.tb, w.db.Table(name).Create(maps.Clone(row)).Error)
		}
	}
}

// A promoted replica or a restored backup has old rows. If it was unreachable for longer than the lead, no tick is
// stamped twice, and the holder notices.
func TestManager_NoticesLostCommits(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		p := w.start(nil)
		p.use(t, table("orders"), 10)
		old := w.snapshot()
		p.work(t, 10, 10, table("orders"), table("items"))
		down := func(d time.Duration) {
			p.wire.Set(func(*testkit.Crossing) error { return testkit.ErrLost })
			for range 10 {
				time.Sleep(d / 10)
				_, _ = p.generators[table("orders")].Next(t.Context())
			}
			p.wire.Set(nil)
		}
		down(2100 * time.Millisecond)
		w.restore(old)
		p.work(t, 20, 10, table("orders"), table("items"))
		if s := p.Stats(); s.LostCommits != 1 || s.Lost != 0 {
			t.Errorf("%+v", s)
		}
		w.logs("the database has lost commits")
		// Another process may get the slot that was given up: it stamps ticks that nobody has.
		time.Sleep(2 * time.Second)
		next := w.start(nil)
		for range 5 {
			next.use(t, table("orders"), 10)
			next.use(t, table("items"), 10)
		}
	})
}

// The same when another process sees the old rows first, and takes the slot with a VERSION below the acknowledged one.
// Formerly nothing named the lost commits then.
func TestManager_NoticesLostCommitsAfterAnotherProcess(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		p := w.start(nil)
		p.use(t, table("orders"), 10)
		p.end(t)
		time.Sleep(3 * time.Second)
		old := w.snapshot() // the slot is free
		p = w.start(nil)
		p.use(t, table("orders"), 10)
		p.work(t, 10, 5000, table("orders"))
		p.wire.Set(func(*testkit.Crossing) error { return testkit.ErrLost })
		time.Sleep(2100 * time.Millisecond)
		w.restore(old)
		next := w.start(nil)
		next.use(t, table("orders"), 5000)
		if s := next.Stats(); s.Reclaimed != 1 || s.ID != 1 {
			t.Errorf("%+v", s)
		}
		p.wire.Set(nil)
		for range 10 {
			time.Sleep(100 * time.Millisecond)
			p.use(t, table("orders"), 500)
			next.use(t, table("orders"), 500)
		}
		if s := p.Stats(); s.Lost != 0 || s.LostCommits != 1 || s.ID == 1 {
			t.Errorf("%+v", s)
		}
		w.logs("the database has lost commits")
	})
}
