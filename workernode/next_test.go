package workernode

import (
	"testing"
)

// The order decides whether a process keeps its slot under load: requests that went before a renewal would let it
// lapse, and a renewal without need would keep the database busy.
func TestNeedsNext_DecidesTheOrder(t *testing.T) {
	t.Parallel()

	none := func(l *slotLease) { *l = slotLease{} }
	unknown := func(l *slotLease) { l.doubt() }
	for _, tt := range []struct {
		name   string
		needs  needs
		change func(*slotLease)
		now    int64
		want   action
	}{
		{"nothing at all", needs{wanted: true}, nil, 10_050, doNothing},
		{"no slot, and nobody wants one", needs{}, none, 10_050, doNothing},
		{"no slot, and idle", needs{idle: true, keepAlive: true}, none, 10_050, doNothing},
		{"no slot", needs{wanted: true}, none, 10_050, doSlot},
		{"a renewal is due", needs{wanted: true, due: true}, nil, 10_050, doRenew},
		{"ticks are needed", needs{wanted: true, stale: true}, nil, 10_050, doRenew},
		{"a renewal before requests", needs{wanted: true, due: true, add: true}, nil, 10_050, doRenew},
		{"a renewal that would grant nothing", needs{wanted: true, due: true}, nil, 10_000, doNothing},
		{"then requests go first", needs{wanted: true, due: true, add: true}, nil, 10_000, doAdd},
		{"worker ids are missing", needs{wanted: true, add: true}, nil, 10_050, doAdd},
		{"the outcome is unknown", needs{wanted: true, due: true, add: true}, unknown, 10_050, doSlot},
		{"the clock has passed the lease", needs{wanted: true, stale: true, add: true}, nil, 10_200, doSlot},
		{"idle", needs{idle: true}, nil, 10_200, doNothing},
		{"idle, and a keep-alive is due", needs{idle: true, keepAlive: true}, nil, 10_200, doKeepAlive},
		{"idle, and the outcome is unknown", needs{idle: true, keepAlive: true}, unknown, 10_200, doSlot},
		{"idle, and an older row was read", needs{idle: true, keepAlive: true}, func(l *slotLease) { l.regressed = true }, 10_200, doSlot},
	} {
		l := leaseTestHeld()
		if tt.change != nil {
			tt.change(&l)
		}
		if got, _ := tt.needs.next(&l, leaseTestParams, tt.now); got != tt.want {
			t.Errorf("%s: %d, want %d", tt.name, got, tt.want)
		}
	}
}
