package uidplugin_test

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/uidplugin/uidplugin"
	"github.com/uidplugin/uidplugin/workernode"
)

// Processes with slots of their own write at the same time. One worker id serves one table of one process.
func TestPluginSlots_ListsTheProcessesThatRun(t *testing.T) {
	t.Parallel()

	name := fileOf(t, bare(t))
	var p *uidplugin.Plugin
	for i := range 3 {
		host := workernode.Host{Application: "shop", Name: fmt.Sprint("web-", i)}
		p = use(t, file(t, name, nil), uidplugin.WithHost(host), uidplugin.WithModels(&part{}))
		if id := p.Stats().Slot.ID; id != int64(i+1) {
			t.Errorf("process %d has the slot %d", i, id)
		}
	}
	use(t, file(t, name, nil), uidplugin.WithHost(workernode.Host{Application: "job", Name: "web-3"}),
		uidplugin.WithModels(&part{}), uidplugin.WithDisposable())
	slots, err := p.Slots(t.Context(), 0, 10)
	must(t, err)
	if len(slots) != 4 {
		t.Fatalf("slots: %+v", slots)
	}
	for i, s := range slots {
		application := "shop"
		if i == 3 {
			application = "job"
		}
		if s.ID != int64(i+1) || !s.Held || s.Reusable != (i < 3) || s.Host != fmt.Sprint("web-", i) ||
			s.Application != application || s.Fence.Before(s.Seen) {
			t.Errorf("slot %d: %+v", i, s)
		}
	}
	if rest, err := p.Slots(t.Context(), 2, 1); err != nil || len(rest) != 1 || rest[0] != slots[2] {
		t.Errorf("the slot after 2: %+v, %v", rest, err)
	}
	nodes, err := p.Nodes(t.Context(), 0, 100)
	must(t, err)
	of := map[int64]int64{} // slot to worker id of parts
	for _, n := range nodes {
		if n.Table.Name == "parts" {
			of[n.Slot] = n.WorkerID
		}
	}
	if len(of) != 4 {
		t.Errorf("worker ids of parts, by slot: %v", of)
	}
}

func TestPluginLocate_NodesListsWhoWasGivenAWorkerID(t *testing.T) {
	t.Parallel()

	db := open(t, withoutSpares(), uidplugin.WithModels(&part{}, &article{}, &invoice{}))
	p := uidplugin.From(db)
	var tables []string
	for after := int64(0); ; {
		nodes, err := p.Nodes(t.Context(), after, 2)
		must(t, err)
		if len(nodes) == 0 {
			break
		}
		for _, n := range nodes {
			tables = append(tables, n.Table.Name)
			after = n.WorkerID
		}
	}
	if !slices.Equal(tables, []string{"articles", "invoices", "parts"}) {
		t.Errorf("the tables are %q", tables)
	}
}

func TestSlotState_SaysWhatBecameOfASlot(t *testing.T) {
	t.Parallel()

	now := time.Date(2026, 6, 1, 12, 0, 0, 0, time.UTC)
	later, before, long := now.Add(time.Second), now.Add(-time.Second), now.Add(-time.Minute)
	for _, tt := range []struct {
		held, reusable bool
		fence, seen    time.Time
		want           string
	}{
		{true, true, later, before, "live"},
		{true, true, later, long, "live"},
		{true, false, later, before, "live"},
		{true, true, before, before, "idle"},
		{true, true, now, later, "idle"},
		{true, false, before, before, "idle"},
		{true, true, before, long, "expired"},
		{true, true, now, long, "expired"},
		{false, true, later, before, "free"},
		{false, true, before, long, "free"},
		{true, false, before, long, "retired"},
		{false, false, later, before, "retired"},
	} {
		slot := uidplugin.Slot{Held: tt.held, Reusable: tt.reusable, Fence: tt.fence, Seen: tt.seen}
		if got := slot.State(now); got != tt.want {
			t.Errorf("%+v: %s", tt, got)
		}
	}
}
