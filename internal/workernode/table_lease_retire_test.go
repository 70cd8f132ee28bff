package workernode_test

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/uidplugin/uidplugin/internal/workernode"
)

// A plugin that is closed gives its worker ids back, and another one of the process gets them: at once it would stamp
// what the first has stamped ahead of the clock. Without giving back, each tenant that is opened and closed would use up
// worker ids.
func TestTableLeaseRetire_WorkerIDsAreUsedAgainWhenTheClockHasPassed(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		p := w.start(nil)
		a := table("a")
		seen := map[int64]int{}
		for round := range 20 {
			lease := p.assign(a)[0]
			worker := lease.Leases()[0].WorkerID
			p.make(a, 1000) // far ahead of the clock
			p.generators[a].Close()
			lease.Retire()
			lease.Retire() // counts once
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

// All worker ids are given out, and one of them is of a plugin that was closed just now. The error must not advise to end
// processes: it is enough to wait.
func TestTableLeaseRetire_ErrExhaustedSaysWhatComesFree(t *testing.T) {
	bubbleWith(t, narrow(1), func(t *testing.T, w *world) {
		p := w.start(nil)
		a := table("a")
		lease := p.assign(a)[0]
		p.make(a, 10)
		p.generators[a].Close()
		lease.Retire()
		_, err := p.Assign(t.Context(), []workernode.Table{a}, nil)
		if !errors.Is(err, workernode.ErrExhausted) {
			t.Fatal(err)
		}
		saysAll(t, err.Error(), "become free within 1.001s")
		if _, err := p.Assign(t.Context(), []workernode.Table{table("b")}, nil); !errors.Is(err, workernode.ErrExhausted) || strings.Contains(err.Error(), "become free") {
			t.Errorf("of another table: %v", err)
		}
		time.Sleep(2 * time.Second)
		p.assign(a)
		p.make(a, 10)
		w.check()
	})
}
