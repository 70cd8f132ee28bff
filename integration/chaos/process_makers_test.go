//go:build unix

package chaos_test

import (
	"context"
	"errors"
	"path/filepath"
	"time"

	"github.com/uidplugin/uidplugin"
	"github.com/uidplugin/uidplugin/generator"
	"github.com/uidplugin/uidplugin/internal/plugintest"
	"github.com/uidplugin/uidplugin/workernode"
	"gorm.io/gorm"
)

// A chaosMaker makes ids: the plugin, or the packages below it.
type chaosMaker interface {
	fill(ctx context.Context, table int, ids []int64) error
	next(ctx context.Context, table int) (int64, error)
	insert(ctx context.Context, table, n int) ([]int64, error) // none if it inserts no rows
	stats() workernode.SlotStats
	close(ctx context.Context) error
}

// pluginMaker makes ids by creating rows, most of them without an INSERT.
type pluginMaker struct {
	db     *gorm.DB
	plugin *uidplugin.Plugin
}

const onlyIDs = "chaos:only_ids"

func (c *chaosProcess) openPlugin(db *gorm.DB) (chaosMaker, error) {
	insert := db.Callback().Create().Get("gorm:create")
	err := db.Callback().Create().Replace("gorm:create", func(db *gorm.DB) {
		if _, only := db.Get(onlyIDs); !only {
			insert(db)
		}
	})
	if err != nil {
		return nil, err
	}
	// The skew is the default, which WithClock alone would turn off.
	p := uidplugin.New(uidplugin.WithLogger(c.logger()), uidplugin.WithClock(c.now), plugintest.WithMaxSkew(c.Skew),
		uidplugin.WithLead(chaosLead),
		uidplugin.WithHost(workernode.Host{Port: filepath.Base(c.Files)}))
	if err := db.Use(p); err != nil {
		return nil, err
	}
	return &pluginMaker{db, p}, nil
}

func (m *pluginMaker) fill(ctx context.Context, table int, ids []int64) error {
	db := m.db.WithContext(ctx).Session(&gorm.Session{SkipDefaultTransaction: true}).Set(onlyIDs, true)
	got, err := chaosTables[table].create(db, len(ids))
	copy(ids, got)
	return err
}

func (m *pluginMaker) next(ctx context.Context, table int) (int64, error) {
	id, err := m.plugin.NextID(ctx, chaosTables[table].model)
	return int64(id), err
}

func (m *pluginMaker) insert(ctx context.Context, table, n int) ([]int64, error) {
	return chaosTables[table].create(m.db.WithContext(ctx), n)
}

func (m *pluginMaker) stats() workernode.SlotStats { return m.plugin.Stats().Slot }

func (m *pluginMaker) close(ctx context.Context) error { return m.plugin.Close(ctx) }

// managerMaker makes ids without the plugin.
type managerMaker struct {
	manager    *workernode.Manager
	generators []*generator.Cached
}

func (c *chaosProcess) openManager(ctx context.Context, db *gorm.DB) (chaosMaker, error) {
	wdb, err := workernode.Open(db, 10*time.Second)
	if err != nil {
		return nil, err
	}
	layout := generator.DefaultLayout()
	host := workernode.DetectHost()
	host.Port = filepath.Base(c.Files)
	k, err := workernode.NewManager(ctx, wdb, layout, host, workernode.Config{Lead: chaosLead, MaxSkew: c.Skew,
		Now: c.now, Log: c.logger()})
	if err != nil {
		return nil, err
	}
	var tables []workernode.Table
	for _, table := range chaosTables[:c.Tables] {
		tables = append(tables, workernode.Table{Name: table.name})
	}
	leases, err := k.Assign(ctx, tables, nil)
	if err != nil {
		return nil, errors.Join(err, k.Close(ctx))
	}
	m := &managerMaker{manager: k}
	clock := generator.NewClock(k.Now)
	for _, lease := range leases {
		g, err := generator.NewCached(generator.CachedConfig{Layout: layout, Lease: lease.Leases()[0], OnLow: k.RequestRenewal,
			Clock: clock})
		if err != nil {
			return nil, errors.Join(err, k.Close(ctx))
		}
		lease.Attach(g)
		m.generators = append(m.generators, g)
	}
	return m, nil
}

func (m *managerMaker) fill(ctx context.Context, table int, ids []int64) error {
	return m.generators[table].Fill(ctx, ids)
}

func (m *managerMaker) next(ctx context.Context, table int) (int64, error) {
	return m.generators[table].Next(ctx)
}

func (m *managerMaker) insert(context.Context, int, int) ([]int64, error) { return nil, nil }

func (m *managerMaker) stats() workernode.SlotStats { return m.manager.Stats() }

func (m *managerMaker) close(ctx context.Context) error {
	for _, g := range m.generators {
		g.Close()
	}
	return m.manager.Close(ctx)
}
