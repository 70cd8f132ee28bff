package uidprom_test

import (
	"context"
	"fmt"
	"log/slog"
	"net/http"
	"os"
	"path/filepath"
	"strings"

	"github.com/glebarez/sqlite"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"github.com/uidplugin/uidplugin"
	"github.com/uidplugin/uidplugin/uidprom"
	"gorm.io/gorm"
)

type Order struct {
	ID    uidplugin.ID `gorm:"primaryKey;uid"`
	Total int
}

func ExampleNewCollector() {
	dir, err := os.MkdirTemp("", "uidprom")
	if err != nil {
		panic(err)
	}
	defer os.RemoveAll(dir)
	db, err := gorm.Open(sqlite.Open(filepath.Join(dir, "shop.db")), &gorm.Config{})
	if err != nil {
		panic(err)
	}
	pool, err := db.DB()
	if err != nil {
		panic(err)
	}
	defer pool.Close()
	p := uidplugin.New(uidplugin.WithModels(&Order{}), uidplugin.WithLogger(slog.New(slog.DiscardHandler)))
	if err := db.Use(p); err != nil {
		panic(err)
	}
	defer p.Close(context.Background())
	if err := p.AutoMigrate(&Order{}); err != nil {
		panic(err)
	}

	registry := prometheus.NewRegistry() // or the default one: prometheus.MustRegister
	registry.MustRegister(uidprom.NewCollector(db, nil))
	http.Handle("/metrics", promhttp.HandlerFor(registry, promhttp.HandlerOpts{}))

	if err := db.Create(&[]Order{{Total: 1}, {Total: 2}}).Error; err != nil {
		panic(err)
	}
	err = testutil.GatherAndCompare(registry, strings.NewReader(`
# HELP uidplugin_ids_made_total Ids handed out, also to creates that failed afterwards.
# TYPE uidplugin_ids_made_total counter
uidplugin_ids_made_total{generator="cached",table="orders"} 2
`), "uidplugin_ids_made_total")
	fmt.Println(err)
	// Output: <nil>
}

// Shards, or tenants with a database each, have a plugin each. A label tells them apart.
func ExampleNewCollector_severalPlugins() {
	registry := prometheus.NewRegistry()
	for shard, db := range map[string]*gorm.DB{"eu": {}, "us": {}} { // the handles of the shards, after db.Use
		registry.MustRegister(uidprom.NewCollector(db, prometheus.Labels{"shard": shard}))
	}
	n, err := testutil.GatherAndCount(registry, "uidplugin_healthy")
	fmt.Println(n, err)
	// Output: 2 <nil>
}
