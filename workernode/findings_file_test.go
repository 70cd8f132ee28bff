package workernode_test

import (
	"context"
	"database/sql"
	"errors"
	"path/filepath"
	"testing"
	"time"

	"github.com/uidplugin/uidplugin/generator"
	"github.com/uidplugin/uidplugin/workernode"
)

// The database is away when the first process closes, and it closes twice.
func TestLeaseFileTwice(t *testing.T) {
	c := &clock{now: noon}
	db, pool := meddled(tables(t))
	path := filepath.Join(t.TempDir(), "leases.json")
	k, err := workernode.NewLeased(open(t, db), layout, web1, workernode.LeasedConfig{Now: c.read, File: path, Database: "db1"}.OnBoot("b1"))
	must(t, err)
	leases, err := k.Assign(t.Context(), "orders")
	must(t, err)
	g, err := generator.NewCached(generator.CachedConfig{Layout: layout, Lease: leases[0], Low: k.Need, Clock: generator.NewClock(c.read)})
	must(t, err)
	k.Keep(leases[0], g)
	g.Close()
	pool.exec = func(string, func() (sql.Result, error)) (sql.Result, error) {
		return nil, errors.New("dial tcp: connection refused")
	}
	t.Log("first Close:", k.Close(t.Context()))

	seen := map[int64]bool{}
	start := func() {
		t.Helper()
		n := successor(t, c, path, nil, "b1")
		if _, err := n.TakeFile(); err != nil {
			t.Log(err)
			return
		}
		l, _ := n.Adopt("orders")
		g, err := generator.NewCached(generator.CachedConfig{Layout: layout, Lease: l, Low: func() {}, Clock: generator.NewClock(c.read)})
		must(t, err)
		defer g.Close()
		ids := make([]int64, 100)
		must(t, g.Fill(t.Context(), ids))
		for _, id := range ids {
			if seen[id] {
				t.Fatalf("twice: %d", id)
			}
			seen[id] = true
		}
	}
	start()
	t.Log("second Close:", k.Close(context.Background()))
	start()
	_ = time.Now
}
