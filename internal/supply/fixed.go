package supply

import (
	"context"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/uidplugin/uidplugin/generator"
)

// Fixed is a worker id from the options instead of the database. One source for all tables uses it.
type Fixed struct {
	lease  generator.Lease
	backup int64     // worker id of a second lane
	begins time.Time // first instant of use
	now    func() time.Time
}

// NewFixed returns the worker id of a process that starts now. An earlier process may have stamped ticks up to lead
// ahead of the clock, the last one in part. So the lease begins with the next tick. We wait for the end of the present
// tick, because then the lease begins exactly lead ahead. A lead of 0 starts at once.
func NewFixed(l generator.Layout, workerID int64, lead time.Duration, now func() time.Time) *Fixed {
	start := now()
	f := &Fixed{lease: l.FullLease(workerID, start), backup: l.BackupWorker(workerID), begins: start, now: now}
	if lead > 0 {
		next := f.lease.From + 1
		f.lease.From = next + int64((lead-1)/l.Tick) + 1
		f.begins = start.Add(l.TimeOf(next).Sub(start)) // on the monotonic clock
	}
	return f
}

// wait blocks until the worker id may be used.
func (f *Fixed) wait(ctx context.Context) error {
	if d := f.begins.Sub(f.now()); d > 0 {
		select {
		case <-time.After(d):
		case <-ctx.Done():
			return fmt.Errorf("worker id %d must not be used before %s, because an earlier process may have made ids up to then: %w",
				f.lease.WorkerID, FormatTime(f.begins), ctx.Err())
		}
	}
	return nil
}

// leases returns a lease for each lane.
func (f *Fixed) leases(lanes int) []generator.Lease {
	leases := make([]generator.Lease, lanes)
	for i := range leases {
		leases[i] = f.lease
		if i > 0 {
			leases[i].WorkerID = f.backup
		}
	}
	return leases
}

// farAhead is how far ids run ahead of the clock before the log says that a fixed worker id makes too few.
const farAhead = 250 * time.Millisecond

// noteFar returns a function that logs once that ids are far ahead of the clock, and of the first tick of their lease,
// because a fixed worker id has no lanes.
func (s *Supply) noteFar(from int64) func(id int64) {
	var logged atomic.Bool
	return func(id int64) {
		if logged.Load() {
			return
		}
		begin := max(s.Layout.TickAt(s.Now()), from)
		parts, err := s.Layout.Decompose(id)
		if err == nil && parts.Time.Sub(s.Layout.TimeOf(begin)) > max(farAhead, s.Layout.Tick) && !logged.Swap(true) {
			s.log.Warn("uidplugin: rows are created faster than the fixed worker id makes ids: ids run ahead of the clock, and creates wait when they" +
				" are Lead ahead (without WithWorkerID a table has up to 16 worker ids)")
		}
	}
}
