package workernode_test

import (
	"context"
	"errors"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/uidplugin/uidplugin/generator"
	"github.com/uidplugin/uidplugin/internal/testkit"
	"github.com/uidplugin/uidplugin/workernode"
)

// closeWithin calls Close with a context of a limited time, and returns how long it took.
func (p *process) closeWithin(t *testing.T, limit time.Duration) (took time.Duration, err error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), limit)
	defer cancel()
	begin := time.Now()
	err = p.Close(ctx)
	return time.Since(begin), err
}

// A closed process has given its slot back, so the next one gets it as soon as the clock has passed its fence.
func TestManagerClose_ReleasesTheSlot(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		p := w.start(nil)
		p.assign(table("orders"))
		p.make(table("orders"), 5)
		p.generators[table("orders")].Close()
		fence := w.slot(1).Fence
		must(t, p.Close(t.Context()))
		must(t, p.Close(t.Context()))
		if s := w.slot(1); s.Holder != "" || s.Fence != fence {
			t.Errorf("%+v", s)
		}
		p.refused(time.Minute, table("items"), generator.ErrClosed)
		early := w.start(nil)
		early.assign(table("orders"))
		time.Sleep(2*time.Second + 2*time.Millisecond)
		next := w.start(nil)
		next.assign(table("orders"))
		if early.Stats().ID != 2 || next.Stats().ID != 1 {
			t.Errorf("early %+v, later %+v", early.Stats(), next.Stats())
		}
	})
}

// A release that was executed, but whose answer was lost, must not be reported as a slot that another process has
// taken.
func TestManagerClose_WhoseAnswerIsLostLosesNoSlot(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		p := w.start(nil)
		p.use(t, table("orders"), 10)
		p.generators[table("orders")].Close()
		lost := false
		p.wire.Set(func(c *testkit.Crossing) error {
			if err := c.Run(); err != nil || lost || c.SQL != "COMMIT" {
				return err
			}
			lost = true
			return testkit.ErrLost
		})
		if err := p.Close(t.Context()); err != nil {
			must(t, p.Close(t.Context()))
		}
		if r := w.slot(1); r.Holder != "" {
			t.Errorf("%+v", r)
		}
		if s := p.Stats(); !lost || s.Lost != 0 || s.LostCommits != 0 || s.ID != 0 {
			t.Errorf("an answer was lost: %v; %+v", lost, s)
		}
		if lines := w.log.Lines("level=WARN"); len(lines) > 0 {
			t.Errorf("%q", lines)
		}
	})
}

func TestManagerClose_WithoutASlotSendsNothing(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		p := w.start(nil)
		p.wire.Take()
		must(t, p.Close(t.Context()))
		if s := p.wire.Take(); len(s) != 0 {
			t.Errorf("statements %q", s)
		}
	})
}

// Applications close from signal handlers and deferred calls at once, and a caller of Assign may wait meanwhile. Each
// must end.
func TestManagerClose_EndsForManyCallersAtOnce(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		p := w.start(nil)
		p.assign(table("orders"))
		p.wire.Set(func(c *testkit.Crossing) error { return errors.Join(c.Sleep(50*time.Millisecond), c.Run()) })
		var group sync.WaitGroup
		for i := range 8 {
			group.Go(func() {
				time.Sleep(time.Duration(i) * 20 * time.Millisecond)
				if i%2 == 0 {
					if err := p.Close(t.Context()); err != nil {
						t.Error(err)
					}
				} else if _, err := p.Assign(t.Context(), []workernode.Table{table("items")}, nil); !errors.Is(err, generator.ErrClosed) {
					t.Error(err)
				}
			})
		}
		group.Wait()
		if s := w.slot(1); s.Holder != "" {
			t.Errorf("%+v", s)
		}
	})
}

// A database that does not answer must not keep a process from ending, even if the driver does not notice that the
// context has ended: SQLite's waits for a lock, and formerly Close took as long as the lock was held. When the database
// answers again, a second Close releases the slot.
func TestManagerClose_EndsWhileTheDatabaseHangs(t *testing.T) {
	each(t, map[string]func(*testkit.Crossing) error{
		"until its context ends": func(c *testkit.Crossing) error {
			<-c.Context.Done()
			return c.Context.Err()
		},
		"beyond the end of its context": func(c *testkit.Crossing) error {
			time.Sleep(30 * time.Second)
			return c.Run()
		},
	}, func(t *testing.T, w *world, hangs func(*testkit.Crossing) error) {
		p := w.start(nil)
		p.assign(table("orders"))
		p.wire.Set(hangs)
		for range 2 {
			if took, err := p.closeWithin(t, 3*time.Second); err == nil || took > 4*time.Second {
				t.Errorf("after %v: %v", took, err)
			}
		}
		p.wire.Set(nil)
		must(t, p.Close(t.Context()))
		if s := w.slot(1); s.Holder != "" {
			t.Errorf("%+v", s)
		}
	})
}

// Close ends the statement that adds further worker ids for a table after a large batch. The log must not warn that it
// will be tried again.
func TestManagerClose_WhileWorkerIDsAreAddedWarnsOfNothing(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		p := w.start(leadOf(10 * time.Second))
		p.assign(table("orders"))
		adds := make(chan struct{})
		p.wire.Set(func(c *testkit.Crossing) error {
			if !c.Is("INSERT INTO WORKER_NODE") {
				return c.Run()
			}
			close(adds)
			<-c.Context.Done()
			return c.Context.Err()
		})
		p.make(table("orders"), 100_000)
		p.RequestRenewal()
		<-adds
		must(t, p.Close(t.Context()))
		if lines := w.log.Lines("level=WARN"); len(lines) > 0 {
			t.Errorf("%q", lines)
		}
	})
}

// A stuck is a writer for a log that accepts nothing more, such as a full pipe.
type stuck chan struct{}

func (s stuck) Write(b []byte) (int, error) {
	<-s
	return len(b), nil
}

// A handler of the log that never returns must not keep Close, and so the application, waiting.
func TestManagerClose_EndsWhileTheLogHangs(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		log := make(stuck)
		defer close(log)
		p := w.start(func(c *workernode.Config, _ *workernode.Host) { c.Log = slog.New(slog.NewTextHandler(log, nil)) })
		p.assign(table("orders"))
		for range 2 {
			if took, err := p.closeWithin(t, time.Minute); err != nil || took > 2*time.Second {
				t.Errorf("after %v: %v", took, err)
			}
		}
		if s := w.slot(1); s.Holder != "" {
			t.Errorf("%+v", s)
		}
	})
}

// Somebody who closes the pool and not the plugin must not leave a goroutine that tries again and again.
func TestManager_EndsWithItsPool(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		p := w.start(nil)
		p.assign(table("orders"))
		pool, err := p.db.DB()
		must(t, err)
		must(t, pool.Close())
		time.Sleep(5 * time.Second)
		if s := p.Stats(); s.LastError == nil || !strings.Contains(s.LastError.Error(), "closed") {
			t.Errorf("%+v", s)
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		begin := time.Now()
		if _, err := p.Assign(ctx, []workernode.Table{table("items")}, nil); err == nil || time.Since(begin) > time.Second {
			t.Errorf("Assign after %v: %v", time.Since(begin), err)
		}
		if err := p.Close(ctx); err == nil || time.Since(begin) > time.Second {
			t.Errorf("Close after %v: %v", time.Since(begin), err)
		}
	})
}
