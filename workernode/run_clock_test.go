package workernode_test

import (
	"context"
	"testing"
	"time"

	"github.com/uidplugin/uidplugin/internal/testkit"
	"github.com/uidplugin/uidplugin/workernode"
)

// The answer of a COMMIT is lost, and the clock stands still: the ticks of the moment are used up, and no other can be
// granted. Assign waited without a reason, and said that the database had not answered.
func TestManagerAssign_SaysThatTheClockStandsStill(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		var frozen time.Time
		clock := func() time.Time {
			if !frozen.IsZero() {
				return frozen
			}
			return now()
		}
		p := w.start(func(c *workernode.Config, _ *workernode.Host) { c.Now = clock })
		p.assign(table("a"))
		time.Sleep(100 * time.Millisecond)
		frozen = now()
		adds, lost := false, false
		p.wire.Set(func(c *testkit.Crossing) error {
			adds = adds || c.Is("INSERT INTO WORKER_NODE")
			if lost || !adds || c.SQL != "COMMIT" {
				return c.Run()
			}
			lost = true
			must(t, c.Run())
			return testkit.ErrLost
		})
		ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
		defer cancel()
		_, err := p.Assign(ctx, []workernode.Table{table("b")}, nil)
		if err == nil || !lost {
			t.Fatalf("%v; the answer was lost: %t", err, lost)
		}
		_, err = p.Assign(ctx, []workernode.Table{table("b")}, nil) // the caller tries again
		if err == nil {
			t.Fatal("a worker id although no tick can be granted")
		}
		saysAll(t, err.Error(), "the clock stands still at ")

		frozen = time.Time{}
		p.wire.Set(nil)
		p.assign(table("b"))
		p.make(table("b"), 100)
		w.check()
	})
}
