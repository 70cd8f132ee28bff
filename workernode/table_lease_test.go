package workernode_test

import (
	"context"
	"errors"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/uidplugin/uidplugin/generator"
	"github.com/uidplugin/uidplugin/internal/testkit"
	"github.com/uidplugin/uidplugin/workernode"
)

// A stamper is a generator as the lease manager sees it.
type stamper struct {
	generator.Renewable
	mu        sync.Mutex
	leases    []generator.Lease
	renewals  int
	usage     generator.Usage
	suspended error
	refuses   error
}

func (s *stamper) Renew(leases ...generator.Lease) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.refuses != nil {
		return s.refuses
	}
	s.leases, s.suspended = slices.Clone(leases), nil
	s.renewals++
	return nil
}

func (s *stamper) Suspend(cause error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.suspended = cause
}

func (s *stamper) Usage() generator.Usage {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.usage
}

func (s *stamper) has() (leases []generator.Lease, suspended error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.leases, s.suspended
}

// busy is the usage of a generator that keeps up with the clock.
var busy = generator.Usage{Used: true, Lanes: 1, Left: 1 << 60}

// A generator gets each renewal, contiguous with the one before, and nothing else.
func TestTableLeaseAttach_RenewsTheGenerator(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		p := w.start(nil)
		leases := p.leases(table("orders"))
		s := &stamper{usage: busy}
		leases[0].Attach(s)
		first := leases[0].Leases()[0]
		for range 20 {
			time.Sleep(time.Second)
			got, suspended := s.has()
			if len(got) != 1 || got[0].WorkerID != first.WorkerID || got[0].From != first.From || got[0].Until < w.tick()+500 || got[0].Until > w.tick()+1000 || suspended != nil {
				t.Fatalf("%+v, %v, first %+v, now is %d", got, suspended, first, w.tick())
			}
			if !slices.Equal(got, leases[0].Leases()) {
				t.Errorf("Leases returns %+v", leases[0].Leases())
			}
		}
	})
}

// Callers of a generator whose lease is used up get the database's reason, and the generator learns when that is over.
func TestTableLeaseAttach_TellsWhyALeaseIsNotRenewed(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		p := w.start(nil)
		leases := p.leases(table("orders"), table("items"))
		first, late := &stamper{usage: busy}, &stamper{usage: busy}
		leases[0].Attach(first)
		p.wire.Set(func(*testkit.Crossing) error { return testkit.ErrLost })
		time.Sleep(time.Second)
		leases[1].Attach(late)
		for _, s := range []*stamper{first, late} {
			if _, suspended := s.has(); !errors.Is(suspended, testkit.ErrLost) {
				t.Errorf("suspended: %v", suspended)
			}
		}
		if s := p.Stats(); !errors.Is(s.LastError, testkit.ErrLost) || s.Since.IsZero() || s.Since.After(now()) {
			t.Errorf("%+v", s)
		}
		p.wire.Set(nil)
		time.Sleep(3 * time.Second)
		for _, s := range []*stamper{first, late} {
			if got, suspended := s.has(); suspended != nil || len(got) != 1 || got[0].Until < w.tick() {
				t.Errorf("%+v, suspended: %v", got, suspended)
			}
		}
		if s := p.Stats(); s.LastError != nil || !s.Since.IsZero() {
			t.Errorf("%+v", s)
		}
		w.logs("cannot be renewed", "renewed again")
		if n := len(w.log.Lines("cannot be renewed")); n != 1 {
			t.Errorf("%d lines", n)
		}
	})
}

// A generator that refuses its lease is reported; one that is closed is not.
func TestTableLeasePublish_ReportsAGeneratorThatRefuses(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		p := w.start(nil)
		leases := p.leases(table("orders"), table("items"))
		leases[0].Attach(&stamper{usage: busy, refuses: generator.ErrClosed})
		time.Sleep(2 * time.Second)
		if w.log.Lines("refuses") != nil {
			t.Error("a closed generator is reported")
		}
		leases[1].Attach(&stamper{usage: busy, refuses: errors.New("not mine")})
		time.Sleep(2 * time.Second)
		w.logs("a generator refuses its lease", "table=items", "not mine")
	})
}

// Worker ids of a lease that found no generator go to the next one; otherwise each failed attempt would take some.
func TestTableLeaseRelease_GivesWorkerIDsBack(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		p := w.start(nil)
		for range 5 {
			leases, err := p.Assign(t.Context(), []workernode.Table{table("orders"), table("items")}, []int{2, 1})
			must(t, err)
			for _, l := range leases {
				l.Release()
				l.Release()
			}
		}
		if s := p.Stats(); s.WorkerIDs != 3 {
			t.Errorf("%+v", s)
		}
		p.use(t, table("orders"), 5)
		p.use(t, table("items"), 5)
		w.check()
	})
}

// After the slot is lost, a generator uses up what was granted to it, and gets as many lanes as it had.
func TestTableLease_GetsOtherLanesAfterTheSlotIsLost(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		p := w.start(nil)
		leases, err := p.Assign(t.Context(), []workernode.Table{table("orders")}, []int{4})
		must(t, err)
		s := &stamper{usage: busy}
		leases[0].Attach(s)
		before := leases[0].Leases()
		run(t, w.db, `UPDATE "WORKER_SLOT" SET "HOLDER" = 'other'`)
		time.Sleep(3 * time.Second)
		after, _ := s.has()
		if len(after) != 4 || after[0].WorkerID <= before[3].WorkerID || after[0].Until < w.tick() {
			t.Errorf("%+v, then %+v", before, after)
		}
		if st := p.Stats(); st.Lost != 1 || st.ID != 2 || st.WorkerIDs != 4 {
			t.Errorf("%+v", st)
		}
	})
}

// A handler is code of the application, which may look at the statistics; the lease manager holds no lock meanwhile.
func TestManager_LogHandlersMayCallBack(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		var p *process
		calls := 0
		p = w.start(func(c *workernode.Config, _ *workernode.Host) {
			c.Log = slog.New(handler{func() {
				if p != nil {
					calls++
					p.Stats()
					p.RequestRenewal()
				}
			}})
		})
		p.use(t, table("orders"), 5)
		run(t, w.db, `UPDATE "WORKER_SLOT" SET "HOLDER" = 'other'`)
		p.work(t, 30, 5, table("orders"))
		if calls < 3 {
			t.Errorf("%d calls", calls)
		}
	})
}

type handler struct{ called func() }

func (h handler) Enabled(context.Context, slog.Level) bool { return true }
func (h handler) Handle(context.Context, slog.Record) error {
	h.called()
	return nil
}
func (h handler) WithAttrs([]slog.Attr) slog.Handler { return h }
func (h handler) WithGroup(string) slog.Handler      { return h }

// A table that lost its worker id with the slot, and can get no other, says why, and gets one as soon as there is one.
// The slot has no error, because its lease is renewed.
func TestTableLease_SaysWhyItGetsNoWorkerID(t *testing.T) {
	bubbleWith(t, narrow(2), func(t *testing.T, w *world) {
		p := w.start(nil)
		leases := p.leases(table("a"), table("b"))
		a, b := &stamper{usage: busy}, &stamper{usage: busy}
		leases[0].Attach(a)
		leases[1].Attach(b)
		run(t, w.db, `UPDATE "WORKER_SLOT" SET "HOLDER" = 'other', "SEEN_TICK" = 1 << 40`)
		time.Sleep(5 * time.Second)
		why := ""
		for _, s := range []*stamper{a, b} {
			if _, suspended := s.has(); suspended != nil {
				why += suspended.Error()
			}
		}
		saysAll(t, why, "has lost its worker id", "1 to 3")
		if s := p.Stats(); s.LastError != nil || w.log.Lines("no replacement is available") == nil {
			t.Errorf("%+v", s)
		}
		testkit.IsError(t, errors.Join(leases[0].Err(), leases[1].Err()), workernode.ErrExhausted, "the table ", "has lost its worker id")
		run(t, w.db, `UPDATE "WORKER_SLOT" SET "HOLDER" = '', "SEEN_TICK" = 0 WHERE "ID" = 1`)
		testkit.Eventually(t, "the free slot", 10*time.Minute, func() bool {
			time.Sleep(time.Second)
			for _, s := range []*stamper{a, b} {
				if got, suspended := s.has(); suspended != nil || got[0].Until < w.tick() {
					return false
				}
			}
			return true
		})
		if err := errors.Join(leases[0].Err(), leases[1].Err()); err != nil {
			t.Error(err)
		}
	})
}

// A plugin that is closed gives its worker ids back, and another plugin of the process gets them, but not at once,
// because it would stamp ticks that the first has stamped ahead of the clock. Otherwise each tenant that is opened and
// closed would use up worker ids.
func TestTableLeaseRelease_WorkerIDsAreUsedAgainWhenTheClockHasPassed(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		p := w.start(nil)
		a := table("a")
		seen := map[int64]int{}
		for round := range 20 {
			lease := p.assign(a)[0]
			worker := lease.Leases()[0].WorkerID
			p.make(a, 1000) // far ahead of the clock
			p.generators[a].Close()
			lease.Release()
			lease.Release() // counts once
			seen[worker]++
			if round%2 == 1 { // else the next one comes at once
				time.Sleep(600 * time.Millisecond) // Lead is a second
			}
		}
		if len(seen) > 8 {
			t.Errorf("20 generators of one table used up %d worker ids", len(seen))
		}
		time.Sleep(3 * time.Second)
		lease := p.assign(a)[0]
		if _, ok := seen[lease.Leases()[0].WorkerID]; !ok {
			t.Errorf("a new worker id, %d, although others are free", lease.Leases()[0].WorkerID)
		}
		p.make(a, 1000)
		w.check()
	})
}

// All worker ids are given out, and one of them is of a plugin that was closed just now. The error must not advise to
// end processes: it is enough to wait.
func TestTableLeaseRelease_ErrExhaustedSaysWhatComesFree(t *testing.T) {
	bubbleWith(t, narrow(1), func(t *testing.T, w *world) {
		p := w.start(nil)
		a := table("a")
		lease := p.assign(a)[0]
		p.make(a, 10)
		p.generators[a].Close()
		lease.Release()
		p.refused(time.Minute, a, workernode.ErrExhausted, "become free within 1.001s")
		if _, err := p.Assign(t.Context(), []workernode.Table{table("b")}, nil); !errors.Is(err, workernode.ErrExhausted) || strings.Contains(err.Error(), "become free") {
			t.Errorf("of another table: %v", err)
		}
		time.Sleep(2 * time.Second)
		p.assign(a)
		p.make(a, 10)
		w.check()
	})
}
