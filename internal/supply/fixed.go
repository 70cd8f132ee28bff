package supply

import (
	"context"
	"fmt"
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
