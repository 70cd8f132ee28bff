package workernode_test

import (
	"context"
	"testing"
	"time"

	"github.com/uidplugin/uidplugin/generator"
	"github.com/uidplugin/uidplugin/workernode"
)

type twoLanes struct{ *generator.Cached }

func (g twoLanes) Usage() generator.Usage {
	u := g.Cached.Usage()
	u.MinLanes = 2
	return u
}

// One of two lanes is lost, and there is no other worker id: the other lane does not go on.
func TestOneLaneLost(t *testing.T) {
	for _, kind := range []string{"cached", "paired"} {
		t.Run(kind, func(t *testing.T) {
			db, c := tables(t), &clock{now: noon}
			few := narrow(2) // worker ids 1 to 3
			start := func() *workernode.Leased {
				k, err := workernode.NewLeased(open(t, db), few, web1, workernode.LeasedConfig{Now: c.read})
				must(t, err)
				t.Cleanup(func() { _ = k.Close(context.Background()) })
				return k
			}
			other := start()
			_, err := other.Assign(t.Context(), "z")
			must(t, err)
			k := start()
			l, err := k.Assign(t.Context(), "a")
			must(t, err)
			var g generator.Renewable
			if kind == "cached" {
				cached, err := generator.NewCached(generator.CachedConfig{Layout: few, Lease: l[0], Clock: generator.NewClock(c.read), Low: k.Need})
				must(t, err)
				g = twoLanes{cached}
			} else {
				g, err = generator.NewPaired(generator.PairedConfig{Layout: few, Main: l[0], Clock: generator.NewClock(c.read), Low: k.Need})
				must(t, err)
			}
			k.Keep(l[0], g)
			for end := time.Now().Add(5 * time.Second); g.Usage().Lanes < 2 && time.Now().Before(end); time.Sleep(10 * time.Millisecond) {
				k.Need()
				c.move(time.Millisecond * 20)
			}
			t.Logf("%+v %v", g.Usage(), k.Leases(l[0]))
			// Another process has taken worker id 3.
			run(t, db, `UPDATE WORKER_NODE SET HOLDER = 'other', FENCE = FENCE + 1000 WHERE ID = 3`)
			for range 30 { // a minute and a half
				c.move(3 * time.Second)
				k.Need()
				time.Sleep(50 * time.Millisecond)
			}
			time.Sleep(600 * time.Millisecond)
			_, _ = g.Next(t.Context())
			time.Sleep(600 * time.Millisecond)
			t.Logf("%+v %v, %+v", g.Usage(), k.Leases(l[0]), k.Stats())
			ctx, cancel := context.WithTimeout(t.Context(), 4*time.Second)
			defer cancel()
			begin := time.Now()
			ids := make([]int64, 180_223)
			err = g.Fill(ctx, ids)
			var id int64
			if err == nil {
				id, err = g.Next(ctx)
			}
			p, _ := few.Decompose(id)
			t.Logf("after %v: %v %v; now %v; stats %+v", time.Since(begin), p, err, c.read(), k.Stats())
			run(t, db, `UPDATE WORKER_NODE SET HOLDER = 'x' WHERE 1 = 0`)
		})
	}
}
