package workernode_test

import (
	"sync/atomic"
	"testing"
	"time"
	"unsafe"

	"github.com/uidplugin/uidplugin/workernode"
)

// settable is a clock whose wall clock is set while the monotonic one goes on, as
// when somebody sets the time of a machine.
type settable struct{ ahead atomic.Int64 } // in seconds

// now is time.Now with the seconds added to the bits of the wall clock, which a time
// with a monotonic reading has from bit 30 on.
func (s *settable) now() time.Time {
	t := time.Now()
	*(*uint64)(unsafe.Pointer(&t)) += uint64(s.ahead.Load()) << 30
	return t
}

// A wall clock that is set neither stops the renewals of a running process nor moves
// its fences back.
func TestAWallClockThatIsSetDoesNotStopRenewals(t *testing.T) {
	t.Parallel()

	s := &settable{}
	before := s.now()
	s.ahead.Store(3600)
	if after := s.now(); after.Sub(before) > time.Minute || after.Round(0).Sub(before.Round(0)) < 59*time.Minute {
		t.Fatalf("time.Time is not built as this test expects: %v, %v", after.Sub(before), after.Round(0).Sub(before.Round(0)))
	}
	s.ahead.Store(0)
	db := tables(t)
	k, err := workernode.NewLeased(open(t, db), layout, web1, workernode.LeasedConfig{Now: s.now, MaxSkew: workernode.DefaultMaxSkew})
	must(t, err)
	t.Cleanup(func() { _ = k.Close(t.Context()) })
	leases, err := k.Assign(t.Context(), "orders")
	must(t, err)
	g := &stamper{}
	g.want(true, false, 1)
	k.Keep(leases[0], g)
	last := leases[0].Until
	for _, ahead := range []int64{-3600, -30, 0, 3600, 0, -3600} { // SQLite has no clock that could object
		s.ahead.Store(ahead)
		time.Sleep(1100 * time.Millisecond)
		must(t, k.Pass(t.Context()))
		got, _ := g.has()
		if len(got) == 0 || got[0].Until <= last {
			t.Fatalf("set to %+d s: the fence was %d and is not moved on: %+v", ahead, last, got)
		}
		last = got[0].Until
	}
}
