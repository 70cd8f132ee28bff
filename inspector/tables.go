package inspector

import (
	"context"
	"net/url"
	"time"

	"github.com/uidplugin/uidplugin"
	"github.com/uidplugin/uidplugin/internal/admin" // wing: follow
	"github.com/uidplugin/uidplugin/workernode"
)

// A tablesPage contains the tables of this process, and one page of the worker ids.
type tablesPage struct {
	Process []uidplugin.TableStats `json:"process"`
	Rates   []rate                 `json:"rates"`      // of Process
	Tables  []table                `json:"-"`          // Process with rates
	Workers []worker               `json:"worker_ids"` // of all processes
	After   int64                  `json:"-"`
	Next    string                 `json:"next,omitempty"` // relative address; empty on the last page

	Followed  []admin.Followed `json:"followed,omitempty"`  // on the first page; wing: follow
	Consumers []admin.Consumer `json:"consumers,omitempty"` // on the first page; wing: follow
}

// A worker is a row of WORKER_NODE.
type worker struct {
	ID       int64     `json:"worker_id"`
	State    string    `json:"state"` // assigned (to a table), no table, another layout, or another program
	Database string    `json:"database,omitempty"`
	Table    string    `json:"table,omitempty"`
	Slot     int64     `json:"slot,omitempty"`
	From     time.Time `json:"from,omitzero"` // no id with this worker id is older
	Layout   string    `json:"layout,omitempty"`
}

func (h *handler) tables(ctx context.Context, query url.Values) answer {
	a := answer{template: "tables", title: "Tables"}
	after, problem := number(query, "after")
	if problem != nil {
		a.problem = problem
		return a
	}
	var nodes []*workernode.Node
	var err error
	if h.nodes != nil {
		if nodes, err = h.nodes.Nodes(ctx, after, h.pageSize+1); err != nil {
			return h.failed(ctx, a, err)
		}
	}
	stats := h.plugin.Stats()
	p := tablesPage{Process: stats.Tables, Tables: h.meter.tables(stats), Workers: []worker{}, After: after}
	p.Followed, p.Consumers, err = h.followed(ctx, p) // wing: follow
	if err != nil {
		return h.failed(ctx, a, err)
	}
	p.Rates = ratesOf(p.Tables)
	if p.Process == nil {
		p.Process = []uidplugin.TableStats{}
	}
	nodes, p.Next = firstPage(nodes, h.pageSize, "tables", query, func(n *workernode.Node) int64 { return n.WorkerID })
	for _, n := range nodes {
		p.Workers = append(p.Workers, h.worker(n))
	}
	a.data = p
	return a
}

func (h *handler) worker(n *workernode.Node) worker {
	w := worker{
		ID: n.WorkerID, State: "assigned", Database: n.Table.Database, Table: n.Table.Name, Slot: n.Slot, Layout: n.Layout,
	}
	switch {
	case n.Slot == 0 || n.Layout == "":
		w.State = "another program"
		return w
	case n.Layout != h.layout.String():
		w.State = "another layout"
		return w
	case n.Table.Name == "":
		w.State = "no table"
	}
	w.From = h.timeOf(max(n.Start, -1) + 1).UTC()
	return w
}

// Pager returns the links to other pages.
func (p tablesPage) Pager() pager { return pagerAfter("tables", p.After, p.Next) }
