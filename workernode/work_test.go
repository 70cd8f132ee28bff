package workernode

import (
	"testing"
)

// The order decides whether a process keeps its slot under load: requests that went before a renewal would let it
// lapse, and a renewal without need would keep the database busy.
func TestWorkNext_DecidesTheOrder(t *testing.T) {
	t.Parallel()

	missing := []Table{{Name: "items"}}
	none := func(l *slotLease) { *l = slotLease{} }
	unknown := func(l *slotLease) { l.doubt() }
	for _, tt := range []struct {
		name   string
		work   work
		change func(*slotLease)
		now    int64
		want   action
	}{
		{"nothing at all", work{wanted: true}, nil, 10_050, doNothing},
		{"no slot, and nobody wants one", work{}, none, 10_050, doNothing},
		{"no slot, and idle", work{idle: true, keepAlive: true}, none, 10_050, doNothing},
		{"no slot", work{wanted: true}, none, 10_050, doSlot},
		{"a renewal is due", work{wanted: true, due: true}, nil, 10_050, doRenew},
		{"ticks are needed", work{wanted: true, stale: true}, nil, 10_050, doRenew},
		{"a renewal before requests", work{wanted: true, due: true, missing: missing}, nil, 10_050, doRenew},
		{"a renewal that would grant nothing", work{wanted: true, due: true}, nil, 10_000, doNothing},
		{"then requests go first", work{wanted: true, due: true, missing: missing}, nil, 10_000, doAdd},
		{"worker ids are missing", work{wanted: true, missing: missing}, nil, 10_050, doAdd},
		{"the outcome is unknown", work{wanted: true, due: true, missing: missing}, unknown, 10_050, doSlot},
		{"the clock has passed the lease", work{wanted: true, stale: true, missing: missing}, nil, 10_200, doSlot},
		{"idle", work{idle: true}, nil, 10_200, doNothing},
		{"idle, and a keep-alive is due", work{idle: true, keepAlive: true}, nil, 10_200, doKeepAlive},
		{"idle, and the outcome is unknown", work{idle: true, keepAlive: true}, unknown, 10_200, doSlot},
		{"idle, and an older row was read", work{idle: true, keepAlive: true}, func(l *slotLease) { l.regressed = true }, 10_200, doSlot},
	} {
		l := leaseTestHeld()
		if tt.change != nil {
			tt.change(&l)
		}
		if got, _ := tt.work.next(&l, leaseTestParams, tt.now); got != tt.want {
			t.Errorf("%s: %d, want %d", tt.name, got, tt.want)
		}
	}
}
