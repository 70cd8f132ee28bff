package workernode_test

import (
	"testing"
	"time"

	"github.com/uidplugin/uidplugin/workernode"
)

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
		slot := workernode.Slot{Held: tt.held, Reusable: tt.reusable, Fence: after(tt.fence), Seen: after(tt.seen)}
		if got := slot.State(now); got != tt.want {
			t.Errorf("%s: %s, want %s", tt.what, got, tt.want)
		}
	}
}

func TestDBSlots_ListsThoseOfAllProcesses(t *testing.T) {
	t.Parallel()

	d := sessionRows(t)
	slots, err := d.Slots(t.Context(), layout, 0, 10)
	must(t, err)
	want := workernode.Slot{ID: 1, Held: true, Reusable: true, Fence: layout.TimeOf(500), Seen: layout.TimeOf(8), Application: "shop", Host: "h", Port: "p"}
	if len(slots) != 2 || slots[0] != want || slots[1].Reusable || slots[1].ID != 2 || slots[1].Held {
		t.Errorf("%+v", slots)
	}
	if slots, err = d.Slots(t.Context(), layout, 1, 1); err != nil || len(slots) != 1 || slots[0].ID != 2 {
		t.Errorf("%+v, %v", slots, err)
	}
}
