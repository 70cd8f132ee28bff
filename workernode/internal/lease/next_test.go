package lease

import (
	"testing"
)

// The order decides whether a process keeps its slot under load: requests that went before a renewal would let it
// lapse, and a renewal without need would keep the database busy.
func TestNeedsNext_DecidesTheOrder(t *testing.T) {
	t.Parallel()

	none := func(l *Slot) { *l = Slot{} }
	unknown := func(l *Slot) { l.Doubt() }
	for _, tt := range []struct {
		name   string
		Needs  Needs
		Change func(*Slot)
		now    int64
		want   Action
	}{
		{"nothing at all", Needs{Wanted: true}, nil, 10_050, DoNothing},
		{"no slot, and nobody wants one", Needs{}, none, 10_050, DoNothing},
		{"no slot, and idle", Needs{Idle: true, KeepAlive: true}, none, 10_050, DoNothing},
		{"no slot", Needs{Wanted: true}, none, 10_050, DoSlot},
		{"a renewal is due", Needs{Wanted: true, Due: true}, nil, 10_050, DoRenew},
		{"ticks are needed", Needs{Wanted: true, Stale: true}, nil, 10_050, DoRenew},
		{"a renewal before requests", Needs{Wanted: true, Due: true, Add: true}, nil, 10_050, DoRenew},
		{"a renewal that would grant nothing", Needs{Wanted: true, Due: true}, nil, 10_000, DoNothing},
		{"then requests go first", Needs{Wanted: true, Due: true, Add: true}, nil, 10_000, DoAdd},
		{"worker ids are missing", Needs{Wanted: true, Add: true}, nil, 10_050, DoAdd},
		{"the outcome is unknown", Needs{Wanted: true, Due: true, Add: true}, unknown, 10_050, DoSlot},
		{"the clock has passed the lease", Needs{Wanted: true, Stale: true, Add: true}, nil, 10_200, DoSlot},
		{"idle", Needs{Idle: true}, nil, 10_200, DoNothing},
		{"idle, and a keep-alive is due", Needs{Idle: true, KeepAlive: true}, nil, 10_200, DoKeepAlive},
		{"idle, and the outcome is unknown", Needs{Idle: true, KeepAlive: true}, unknown, 10_200, DoSlot},
		{"idle, and an older row was read", Needs{Idle: true, KeepAlive: true}, func(l *Slot) { l.Regressed = true }, 10_200, DoSlot},
	} {
		l := leaseTestHeld()
		if tt.Change != nil {
			tt.Change(&l)
		}
		if got, _ := tt.Needs.Next(&l, leaseTestParams, tt.now); got != tt.want {
			t.Errorf("%s: %d, want %d", tt.name, got, tt.want)
		}
	}
}
