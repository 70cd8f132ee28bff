package uidplugin

import (
	"cmp"
	"context"
	"slices"
	"time"

	"github.com/uidplugin/uidplugin/generator"
	"github.com/uidplugin/uidplugin/workernode"
)

// Stats is the state of a plugin at one moment.
type Stats struct {
	Layout  generator.Layout
	Expires time.Time // when the layout ends
	Tables  []TableStats
}

// TableStats is the state of the ids of one table, or of all with WithWorkerID.
type TableStats struct {
	Table     string // "*" with WithWorkerID
	Generator string // [Cached] or [Default]
	WorkerID  int64
	From      time.Time     // since when this process may stamp ids with the worker id
	Until     time.Time     // until when
	Lead      time.Duration // how far the next id lies ahead of the clock
}

// Stats returns the state of the plugin: the tables that have a worker id, in
// alphabetical order. It asks no database.
func (p *Plugin) Stats() Stats {
	c, err := p.ready()
	if err != nil {
		return Stats{}
	}
	s := Stats{Layout: c.layout, Expires: c.layout.Expires()}
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, source := range c.sources {
		m := source.made.Load()
		if m == nil {
			continue
		}
		t := TableStats{Table: source.table, Generator: source.kind, WorkerID: m.lease.WorkerID,
			From: c.layout.TimeOf(m.lease.From), Until: c.layout.TimeOf(m.lease.Until + 1)}
		if g, ok := m.Generator.(*generator.Cached); ok {
			t.Lead = g.Lead()
		}
		s.Tables = append(s.Tables, t)
	}
	slices.SortFunc(s.Tables, func(a, b TableStats) int {
		return cmp.Or(cmp.Compare(a.Table, b.Table), cmp.Compare(a.Generator, b.Generator))
	})
	return s
}

// Nodes returns up to limit rows of WORKER_NODE with worker ids above after, in
// ascending order: who was ever given a worker id. It returns none with
// WithWorkerID.
func (p *Plugin) Nodes(ctx context.Context, after int64, limit int) ([]*workernode.Node, error) {
	c, err := p.ready()
	if err != nil || c.fixed {
		return nil, err
	}
	return c.wdb.Nodes(ctx, after, limit)
}
