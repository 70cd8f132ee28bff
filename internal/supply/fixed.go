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
	layout generator.Layout
	lease  generator.Lease
	backup int64     // worker id of a second lane
	ahead  int64     // how many ticks after f.begins the lease begins
	start  time.Time // when the Fixed was made
	begins time.Time // the first instant at which the worker id may be used
	now    func() time.Time
	share  *share // nil if no other plugin may use it
}

// NewFixed returns the worker id of a process that starts now. An earlier process may have stamped ticks up to lead
// ahead of the clock, so the lease begins above these ticks. The worker id may be used when the present tick has
// ended. The lease is then ahead of the clock by lead, rounded up to ticks. If lead is 0, it may be used at once.
func NewFixed(l generator.Layout, workerID int64, lead time.Duration, now func() time.Time) *Fixed {
	start := now()
	f := &Fixed{layout: l, lease: l.FullLease(workerID, start), backup: l.BackupWorker(workerID), start: start, begins: start, now: now}
	if lead > 0 {
		next := f.lease.From + 1
		f.ahead = int64((lead-1)/l.Tick) + 1
		f.lease.From = next + f.ahead
		f.begins = start.Add(l.TimeOf(next).Sub(start)) // on the monotonic clock
	}
	return f
}

// beginAfter makes the lease begin above a tick that this process may have stamped. The first use moves with it.
func (f *Fixed) beginAfter(last int64) {
	if last >= f.lease.From {
		f.lease.From = last + 1
		f.begins = f.start.Add(f.layout.TimeOf(f.lease.From - f.ahead).Sub(f.start))
	}
}

// open returns the generator and its leases. If f.share is set, plugins with this worker id share the generator.
func (f *Fixed) open(lanes int, make func([]generator.Lease) (generator.Renewable, error)) (generator.Generator, []generator.Lease, error) {
	if f.share == nil {
		leases := f.leases(lanes)
		g, err := make(leases)
		return g, leases, err
	}
	if f.share.ctx.Err() != nil {
		return nil, nil, generator.ErrClosed
	}
	g, leases, err := f.share.worker.open(lanes, make)
	return g, leases, err
}

// close ends the use of the worker id. It may be called again.
func (f *Fixed) close() {
	if f != nil && f.share != nil {
		f.share.close()
	}
}

// late returns an error if the worker id may be used only after a wait of more than limit.
func (f *Fixed) late(limit time.Duration) error {
	if f.begins.Sub(f.now()) <= limit {
		return nil
	}
	return fmt.Errorf("uidplugin: worker id %d must not be used before %s, because an earlier process may have made ids up to that time", f.lease.WorkerID, FormatTime(f.begins))
}

func (f *Fixed) wait(ctx context.Context) error {
	if d := f.begins.Sub(f.now()); d > 0 {
		select {
		case <-time.After(d):
		case <-ctx.Done():
			return fmt.Errorf("worker id %d must not be used before %s, because an earlier process may have made ids up to that time: %w",
				f.lease.WorkerID, FormatTime(f.begins), ctx.Err())
		}
	}
	return nil
}

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

// noteFar returns a function that logs once if ids are far ahead of the clock and of the first tick of their lease.
func (s *Supply) noteFar(from int64) func(id int64) {
	var logged atomic.Bool
	return func(id int64) {
		if logged.Load() {
			return
		}
		begin := max(s.Layout.TickAt(s.Now()), from)
		parts, err := s.Layout.Decompose(id)
		ahead := parts.Time.Sub(s.Layout.TimeOf(begin))
		if err != nil || s.MaxBorrow > 0 && ahead > s.MaxBorrow+s.Layout.Tick { // the clock was set back
			return
		}
		if ahead > max(farAhead, s.Layout.Tick) && !logged.Swap(true) {
			s.log.Warn("uidplugin: rows are created faster than the fixed worker id makes ids: ids run ahead of the clock, and creates wait once ids" +
				" are Lead ahead (without WithWorkerID a table has up to 16 worker ids)")
		}
	}
}
