package lifecycle_test

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/uidplugin/uidplugin"
	"github.com/uidplugin/uidplugin/internal/plugintest"
	"github.com/uidplugin/uidplugin/workernode"
)

// Processes with slots of their own write at the same time. One worker id serves one table of one process.
func TestPluginSlots_ListsTheProcessesThatRun(t *testing.T) {
	t.Parallel()

	name := plugintest.FileOf(t, plugintest.Bare(t))
	var p *uidplugin.Plugin
	for i := range 3 {
		host := workernode.Host{Application: "shop", Name: fmt.Sprint("web-", i)}
		p = plugintest.Use(t, plugintest.File(t, name, nil), uidplugin.WithHost(host), uidplugin.WithModels(&plugintest.Part{}))
		if id := p.Stats().Slot.ID; id != int64(i+1) {
			t.Errorf("process %d has the slot %d", i, id)
		}
	}
	plugintest.Use(t, plugintest.File(t, name, nil), uidplugin.WithHost(workernode.Host{Application: "job", Name: "web-3"}),
		uidplugin.WithModels(&plugintest.Part{}), uidplugin.WithDisposable())
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

	db := plugintest.Open(t, uidplugin.WithModels(&plugintest.Part{}, &plugintest.Article{}, &plugintest.Invoice{}))
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

// The states of a process that is killed or paused must not look like those of one that is well: with a Lead of 10 s
// it renews every 3.3 s, of 10 min every 200 s, and when it is idle it sends a keep-alive every 30 s.
func TestSlotState_SaysWhatBecameOfASlot(t *testing.T) {
	t.Parallel()

	now := time.Date(2026, 6, 1, 12, 0, 0, 0, time.UTC)
	for _, tt := range []struct {
		what           string
		held, reusable bool
		fence, seen    int // seconds from now
		want           string
	}{
		{"just renewed", true, true, 10, 0, "live"},
		{"a renewal is due", true, true, 6, -4, "live"},
		{"its fence is about to pass", true, true, 1, -9, "live"},
		{"disposable", true, false, 9, -1, "live"},
		{"a long Lead", true, true, 395, -205, "live"},
		{"a long Lead, and two renewals are missing", true, true, 199, -401, "overdue"},
		{"a long Lead, and nothing since", true, true, -59, -659, "overdue"},
		{"a long Lead, and reclaimable", true, true, -60, -660, "expired"},
		{"a long Lead, and idle since the last keep-alive", true, true, 20, -30, "live"},
		{"its fence has just passed", true, true, 0, -10, "overdue"},
		{"paused for half a minute", true, true, -20, -30, "overdue"},
		{"its process ended", true, true, -59, -69, "overdue"},
		{"its process ended a while ago", true, true, -60, -70, "expired"},
		{"disposable, and its process ended", true, false, -59, -69, "overdue"},
		{"disposable, and nothing for long", true, false, -60, -70, "retired"},
		{"idle, with a first keep-alive", true, true, -1, 0, "idle"},
		{"idle", true, true, -3600, -32, "idle"},
		{"idle, and the clock of the process is ahead", true, true, -3600, 1, "idle"},
		{"idle and disposable", true, false, -3600, -30, "idle"},
		{"idle, and a keep-alive is missing", true, true, -3600, -46, "overdue"},
		{"idle, and none for long", true, true, -3600, -60, "expired"},
		{"released", false, true, 9, -1, "free"},
		{"released long ago", false, true, -90, -100, "free"},
		{"disposable, and released", false, false, 9, -1, "retired"},
	} {
		after := func(seconds int) time.Time { return now.Add(time.Duration(seconds) * time.Second) }
		slot := uidplugin.Slot{Held: tt.held, Reusable: tt.reusable, Fence: after(tt.fence), Seen: after(tt.seen)}
		if got := slot.State(now); got != tt.want {
			t.Errorf("%s: %s, want %s", tt.what, got, tt.want)
		}
	}
}
