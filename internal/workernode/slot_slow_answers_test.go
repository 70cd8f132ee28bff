package workernode_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/uidplugin/uidplugin/internal/testkit"
	"github.com/uidplugin/uidplugin/internal/workernode"
)

// A database whose answers take longer than the lead: who waits is told, and so are the log and Health. Sessions were
// begun again and again, and slots taken, and nobody saw it.
func TestManager_SaysThatAnswersTakeLongerThanTheLead(t *testing.T) {
	for _, answer := range []time.Duration{20 * time.Millisecond, 60 * time.Millisecond, 110 * time.Millisecond} {
		t.Run(answer.String(), func(t *testing.T) {
			bubble(t, func(t *testing.T, w *world) {
				change := func(c *workernode.Config, _ *workernode.Host) { c.Lead = 100 * time.Millisecond }
				slow := func(c *testkit.Crossing) error { return errors.Join(c.Sleep(answer), c.Run()) }
				const reason = "took longer than the lead of 100ms"

				p := w.start(change)
				p.wire.Set(slow)
				ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
				defer cancel()
				_, err := p.Assign(ctx, []workernode.Table{table("a")}, nil)
				if err == nil || p.Stats().LastError == nil {
					t.Fatalf("%v, %+v", err, p.Stats())
				}
				saysAll(t, err.Error(), reason)
				w.logs(reason)
				if n := len(p.wire.Take()); n > 510 {
					t.Errorf("%d statements in 10 s", n)
				}

				p.wire.Set(nil)
				p.assign(table("a"))
				p.make(table("a"), 100)
				p.wire.Set(slow)
				time.Sleep(5 * time.Second)
				few := answer == 20*time.Millisecond // then renewals, of one statement, are in time
				if !few && p.Stats().LastError == nil {
					t.Error("Health does not tell")
				}
				ctx, cancel = context.WithTimeout(t.Context(), 10*time.Second)
				defer cancel()
				ids := make([]int64, 5000) // more than are left
				if err := p.generators[table("a")].Fill(ctx, ids); few {
					must(t, err)
					w.ledger.Add("a", ids...)
				} else {
					saysAll(t, fmt.Sprint(err), reason)
				}
				p.wire.Set(nil)
				time.Sleep(time.Second)
				p.make(table("a"), 100)
				if err := p.Stats().LastError; err != nil {
					t.Error(err)
				}
				w.check()
			})
		})
	}
}
