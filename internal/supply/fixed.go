package supply

import (
	"context"
	"fmt"
	"time"

	"github.com/uidplugin/uidplugin/generator"
)

// Fixed is a worker id that the options give, and not the database. One source of all tables has it.
type Fixed struct {
	lease  generator.Lease
	backup int64     // worker id of a second lane
	begins time.Time // not to be used before
	now    func() time.Time
}

// NewFixed returns the worker id of a process that starts now. A process that had the worker id before may have stamped
// ticks up to lead ahead of the clock, the last of them in part. So the lease begins with the tick after these, and is
// used when the present tick has ended. Then its first tick is exactly lead ahead. A lead of 0 begins at the present.
func NewFixed(l generator.Layout, workerID int64, lead time.Duration, now func() time.Time) *Fixed {
	start := now()
	f := &Fixed{lease: l.FullLease(workerID, start), backup: l.BackupWorker(workerID), begins: start, now: now}
	if lead > 0 {
		next := f.lease.From + 1
		f.lease.From = next + int64((lead-1)/l.Tick) + 1
		f.begins = start.Add(l.TimeOf(next).Sub(start)) // by the monotonic clock
	}
	return f
}

// wait returns when the worker id may be used.
func (f *Fixed) wait(ctx context.Context) error {
	if d := f.begins.Sub(f.now()); d > 0 {
		select {
		case <-time.After(d):
		case <-ctx.Done():
			return fmt.Errorf("worker id %d must not be used before %s, when a tick begins that no process before can have stamped: %w",
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
