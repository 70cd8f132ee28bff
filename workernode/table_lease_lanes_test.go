package workernode_test

import (
	"context"
	"testing"
	"time"

	"github.com/uidplugin/uidplugin/generator"
	"github.com/uidplugin/uidplugin/workernode"
)

// A table that needs ids faster than a worker id makes them gets lanes, a power of two of them, and keeps them. Another
// process that gets the slot has their worker ids, too.
func TestTableLease_GetsLanes(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		p := w.start(leadOf(10 * time.Second))
		leases := p.assign(table("orders"), table("items"))
		for range 300 { // 80,000 ids a second; a lane makes 16,000
			p.make(table("orders"), 800)
			time.Sleep(10 * time.Millisecond)
		}
		got := leases[0].Leases()
		if len(got) != 16 || len(leases[1].Leases()) != 1 {
			t.Errorf("%d lanes, and %d of a table that is in no need", len(got), len(leases[1].Leases()))
		}
		for _, l := range got {
			if l.From != got[0].From || l.Until != got[0].Until {
				t.Errorf("%+v", got)
			}
		}
		w.logs("a table has more worker ids now")
		p.end(t)
		time.Sleep(12 * time.Second)
		next := w.start(nil)
		next.assign(table("orders"))
		if s := next.Stats(); s.WorkerIDs != 17 || s.ID != 1 {
			t.Errorf("%+v", s)
		}
		w.check()
	})
}

// Only ids that run ahead of the clock need lanes. Those of one batch do not, nor those of single creates. A disposable
// slot and a table with gaps need ids for five seconds first, because lanes cost them more.
func TestTableLease_GetsLanesOnlyWhenIDsAreAhead(t *testing.T) {
	each(t, map[string]struct {
		batch, lanes      int
		disposable, spare bool
	}{
		"a batch of 600":               {600, 1, false, false},
		"a batch of 1000":              {1000, 16, false, false},
		"1000 in a disposable slot":    {1000, 1, true, false},
		"1000 with gaps":               {1000, 1, false, true},
		"100,000 in a disposable slot": {100_000, 2, true, false},
		"100,000 with gaps":            {100_000, 2, false, true},
	}, func(t *testing.T, w *world, tt struct {
		batch, lanes      int
		disposable, spare bool
	}) {
		p := w.start(func(c *workernode.Config, _ *workernode.Host) { c.Lead, c.Disposable = 10*time.Second, tt.disposable })
		lease := p.assign(table("orders"))[0]
		if tt.spare {
			lease.Spare()
		}
		for range 1500 { // 15,000 a second
			p.make(table("orders"), 15)
			time.Sleep(time.Millisecond)
		}
		time.Sleep(time.Second)
		p.make(table("orders"), tt.batch)
		p.RequestRenewal() // also if the generator requests nothing
		time.Sleep(20 * time.Millisecond)
		if n := len(lease.Leases()); n != tt.lanes {
			t.Errorf("%d lanes, want %d", n, tt.lanes)
		}
		w.check()
	})
}

// The line must neither come for a burst that the lanes absorb, nor again and again.
func TestTableLease_LogsOnceThatIDsRunFarAhead(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		p := w.start(leadOf(10 * time.Second))
		leases := p.leases(table("orders"))
		s := &stamper{}
		leases[0].Attach(s)
		look := func(ahead int64, lines int) {
			t.Helper()
			s.mu.Lock()
			s.usage = generator.Usage{Used: true, Lanes: len(leases[0].Leases()), MaxLanes: 2, Left: 1 << 60, Tick: w.tick() + ahead}
			s.mu.Unlock()
			p.RequestRenewal()
			time.Sleep(40 * time.Millisecond) // no renewal is due during the test
			if n := len(w.log.Lines("run ahead of the clock")); n != lines {
				t.Errorf("%d ms ahead: %d lines, want %d", ahead, n, lines)
			}
		}
		look(600, 0) // a second worker id comes
		if n := len(leases[0].Leases()); n != 2 {
			t.Fatalf("%d lanes", n)
		}
		look(500, 0)
		look(100, 0)
		look(240, 0)
		look(300, 1)
		look(400, 1)
	})
}

// In a layout with ticks of a second, such as UidGenerator's, ids are some ticks ahead when the lanes come. Then the lanes
// make more ids than are needed, so the line must not come.
func TestTableLease_LogsNothingWhenLanesAreEnough(t *testing.T) {
	seconds := generator.Layout{TimeBits: 29, WorkerBits: 21, SequenceBits: 13, Tick: time.Second, Epoch: layout.Epoch}
	bubbleWith(t, seconds, func(t *testing.T, w *world) {
		p := w.start(leadOf(10 * time.Second))
		lease := p.assign(table("orders"))[0]
		for range 250 { // 25,000 ids a second; a lane makes 8,192
			p.make(table("orders"), 1000)
			time.Sleep(40 * time.Millisecond)
		}
		if n := len(lease.Leases()); n != 16 {
			t.Errorf("%d lanes", n)
		}
		if lines := w.log.Lines("run ahead of the clock"); len(lines) > 0 {
			t.Errorf("%q", lines)
		}
		w.check()
	})
}

// Where more than half of the worker ids are given out, lanes would take those of other tables and processes. Callers
// then wait, and the log says so once.
func TestTableLease_GetsNoLanesWhereWorkerIDsAreFew(t *testing.T) {
	bubbleWith(t, narrow(4), func(t *testing.T, w *world) {
		p := w.start(nil)
		p.assign(tablesNamed(8)...)
		ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
		defer cancel()
		for ctx.Err() == nil {
			ids := make([]int64, 8000)
			if err := p.generators[table("t000")].Fill(ctx, ids); err == nil {
				w.ledger.Add("t000", ids...)
			}
		}
		if s := p.Stats(); s.WorkerIDs != 8 {
			t.Errorf("%+v", s)
		}
		if n := len(w.log.Lines("creates wait once")); n != 1 {
			t.Errorf("the log says %d times that creates wait", n)
		}
		w.check()
	})
}
