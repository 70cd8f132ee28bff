package workernode_test

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"time"

	"github.com/uidplugin/uidplugin/internal/testkit"
	"github.com/uidplugin/uidplugin/internal/workernode"
)

// The answer of a COMMIT is lost, and the clock stands still: the ticks of the moment are used up, and no other can be
// granted. Assign waited without a reason, and said that the database had not answered.
func TestManagerAssign_SaysThatTheClockStandsStill(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		var frozen atomic.Pointer[time.Time]
		clock := func() time.Time {
			if at := frozen.Load(); at != nil {
				return *at
			}
			return now()
		}
		p := w.start(func(c *workernode.Config, _ *workernode.Host) { c.Now = clock })
		p.assign(table("a"))
		time.Sleep(100 * time.Millisecond)
		at := now()
		frozen.Store(&at)
		var adds, lost atomic.Bool
		p.wire.Set(func(c *testkit.Crossing) error {
			if c.Is("INSERT INTO WORKER_NODE") {
				adds.Store(true)
			}
			if lost.Load() || !adds.Load() || c.SQL != "COMMIT" {
				return c.Run()
			}
			lost.Store(true)
			return errors.Join(c.Run(), testkit.ErrLost)
		})
		ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
		defer cancel()
		_, err := p.Assign(ctx, []workernode.Table{table("b")}, nil)
		if err == nil || !lost.Load() {
			t.Fatalf("%v; the answer was lost: %t", err, lost.Load())
		}
		_, err = p.Assign(ctx, []workernode.Table{table("b")}, nil) // the caller tries again
		if err == nil {
			t.Fatal("a worker id although no tick can be granted")
		}
		saysAll(t, err.Error(), "the clock stands still at ")

		frozen.Store(nil)
		p.wire.Set(nil)
		p.assign(table("b"))
		p.make(table("b"), 100)
		w.check()
	})
}
