package workernode_test

import (
	"context"
	"testing"
	"time"

	"github.com/uidplugin/uidplugin/generator"
	"github.com/uidplugin/uidplugin/workernode"
)

// A table that has lost its worker id, and is not used any more.
func TestStarvedForEver(t *testing.T) {
	db, c := tables(t), &clock{now: noon}
	few := narrow(2) // worker ids 1 to 3
	start := func() *workernode.Leased {
		k, err := workernode.NewLeased(open(t, db), few, web1, workernode.LeasedConfig{Now: c.read})
		must(t, err)
		t.Cleanup(func() { _ = k.Close(context.Background()) })
		return k
	}
	k := start()
	gen := func(table string) *generator.Cached {
		l, err := k.Assign(t.Context(), table)
		must(t, err)
		g, err := generator.NewCached(generator.CachedConfig{Layout: few, Lease: l[0], Clock: generator.NewClock(c.read), Low: k.Need})
		must(t, err)
		k.Keep(l[0], g)
		return g
	}
	a, b := gen("a"), gen("b")
	c.move(2 * time.Minute) // paused
	other := start()
	_, err := other.Assign(t.Context(), "a")
	must(t, err)
	_, err = other.Assign(t.Context(), "c")
	must(t, err)
	ids := make([]int64, 200_000) // more than the old lease has
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
	defer cancel()
	t.Log("a:", a.Fill(ctx, ids))
	must(t, other.Close(t.Context())) // a's worker id is free again
	for range 4 {
		c.move(3 * time.Minute) // nobody wants ids of a
		_, err := b.Next(t.Context())
		must(t, err)
		k.Need()
		time.Sleep(600 * time.Millisecond)
	}
	s := k.Stats()
	t.Logf("%+v", s)
	if s.LastError != nil {
		t.Errorf("15 minutes later: LastError is %v, since %v", s.LastError, s.Since)
	}
}
