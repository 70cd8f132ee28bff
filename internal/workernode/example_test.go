package workernode_test

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"github.com/glebarez/sqlite"
	"github.com/uidplugin/uidplugin/generator"
	"github.com/uidplugin/uidplugin/internal/workernode"
	"github.com/uidplugin/uidplugin/migrations"
	"gorm.io/gorm"
)

// A process leases a worker id for a table, makes ids with it, and releases it. The plugin does the same.
func ExampleNewManager() {
	dir, err := os.MkdirTemp("", "workernode")
	if err != nil {
		panic(err)
	}
	defer os.RemoveAll(dir)
	db, err := gorm.Open(sqlite.Open(filepath.Join(dir, "shop.db")), &gorm.Config{})
	if err != nil {
		panic(err)
	}
	ctx, layout := context.Background(), generator.DefaultLayout()
	if err := migrations.Up(ctx, db); err != nil {
		panic(err)
	}
	nodes, err := workernode.Open(db, 10*time.Second)
	if err != nil {
		panic(err)
	}
	m, err := workernode.NewManager(ctx, nodes, layout, workernode.DetectHost(), workernode.Config{})
	if err != nil {
		panic(err)
	}
	leases, err := m.Assign(ctx, []workernode.Table{{Name: "orders"}}, nil)
	if err != nil {
		panic(err)
	}
	g, err := generator.NewCached(generator.CachedConfig{
		Layout: layout, Lease: leases[0].Leases()[0], OnLow: m.RequestRenewal, Clock: generator.NewClock(m.Now),
	})
	if err != nil {
		panic(err)
	}
	leases[0].Attach(g) // from now on the manager renews it

	id, err := g.Next(ctx)
	if err != nil {
		panic(err)
	}
	parts, err := layout.Decompose(id)
	if err != nil {
		panic(err)
	}
	found, err := nodes.Lookup(ctx, parts.WorkerID)
	if err != nil {
		panic(err)
	}
	fmt.Println(found[parts.WorkerID].Table.Name)

	g.Close()
	if err := m.Close(ctx); err != nil {
		panic(err)
	}
	slots, err := nodes.Slots(ctx, 0, 10)
	if err != nil {
		panic(err)
	}
	fmt.Println(len(slots), slots[0].Holder == "")
	// Output:
	// orders
	// 1 true
}
