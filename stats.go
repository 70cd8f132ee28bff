package uidplugin

import (
	"cmp"
	"context"
	"fmt"
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
	Leases  workernode.LeaseStats // zero with WithDisposable and WithWorkerID
}

// TableStats is the state of the ids of one table, or of all with WithWorkerID.
type TableStats struct {
	Table     string        // "*" with WithWorkerID and WithOneWorkerID
	Generator string        // its name, such as [Cached]
	WorkerIDs []int64       // in ascending order; more than one if one is not enough, none if its ids are not of the layout
	From      time.Time     // since when this process may stamp ids with the worker ids
	Until     time.Time     // until when, unless they are renewed
	Lead      time.Duration // how far the next id lies ahead of the clock, if the generator tells (its method Lead)
}

// Stats returns the state of the plugin: the tables that have a worker id, in
// alphabetical order. It asks no database.
func (p *Plugin) Stats() Stats {
	c, err := p.ready()
	if err != nil {
		return Stats{}
	}
	s := Stats{Layout: c.layout, Expires: c.layout.Expires()}
	if c.leased != nil {
		s.Leases = c.leased.Stats()
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, source := range c.sources {
		m := source.made.Load()
		if m == nil {
			continue
		}
		t := TableStats{Table: source.tag, Generator: source.kind}
		leases := m.leases
		if c.leased != nil && len(leases) > 0 {
			leases = c.leased.Leases(leases[0])
		}
		for _, lease := range leases {
			t.WorkerIDs = append(t.WorkerIDs, lease.WorkerID)
		}
		if len(leases) > 0 {
			t.From, t.Until = c.layout.TimeOf(leases[0].From), c.layout.TimeOf(leases[0].Until+1)
		}
		if g, ok := m.Generator.(interface{ Lead() time.Duration }); ok {
			t.Lead = g.Lead()
		}
		s.Tables = append(s.Tables, t)
	}
	slices.SortFunc(s.Tables, func(a, b TableStats) int {
		return cmp.Or(cmp.Compare(a.Table, b.Table), cmp.Compare(a.Generator, b.Generator))
	})
	return s
}

// Health returns nil if ids can be made, and go on being made. The error wraps
// [ErrNotRegistered] or [ErrClosed], or says since when worker ids could not be
// renewed, and why: then ids are made until what was renewed before is used up. It
// asks no database.
func (p *Plugin) Health() error {
	c, err := p.ready()
	if err != nil {
		return err
	}
	c.mu.Lock()
	closed := c.closed
	c.mu.Unlock()
	if closed {
		return ErrClosed
	}
	if c.leased == nil {
		return nil
	}
	if s := c.leased.Stats(); s.LastError != nil {
		return fmt.Errorf("uidplugin: worker ids could not be renewed since %s: %w", format(s.Since), s.LastError)
	}
	return nil
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
