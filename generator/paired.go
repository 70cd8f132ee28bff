package generator

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"sync"
	"time"
)

// PairedConfig configures [NewPaired].
type PairedConfig struct {
	Layout Layout // required

	// Main is the lease of the lane that carries the clock's time. Backup is the lease of the lane that stands in for
	// the main lane, with another worker id: [Layout.BackupWorker] returns one. Both are required; Renew replaces them.
	Main, Backup Lease

	// MaxBorrow limits how far ahead of the clock the backup lane may stamp; 0 means an hour.
	MaxBorrow time.Duration

	// OnLow is as in [CachedConfig].
	OnLow func()

	// Clock is the clock that the generators of a process share; nil means a clock of its own.
	Clock *Clock
}

// Paired is a snowflake with a second worker id, the backup. Its main lane carries the time that the clock shows.
// When that lane has used up its tick, or the clock has gone back, the backup lane makes ids instead. It uses the
// present tick and then borrows the next ones, up to MaxBorrow. When the clock has caught up, the main lane continues.
// So callers wait, in the order of their arrival, only when both lanes are used up.
//
// Ids of each lane strictly ascend. While the backup lane is ahead of the clock, ids of both lanes together do not
// ascend, except within a call of Fill. If ids must ascend, use a [Cached] with two lanes, which is also cheaper.
//
// Create a Paired with [NewPaired]. With a [JSSafeLayout] all ids are at most 2^53-1.
type Paired struct {
	tick   int // number of ids of one lane in a tick
	main   *Snowflake
	backup *Cached

	mu      sync.Mutex // held by Renew; guards workers
	workers [2]int64   // worker ids of main and backup
}

var _ Renewable = (*Paired)(nil)

// BackupWorker returns a second worker id for a [Paired] whose worker ids are given out by hand: the number worker
// with its highest bit flipped. Keep the upper half of the worker ids for backups.
func (l Layout) BackupWorker(worker int64) int64 { return worker ^ 1<<(l.WorkerBits-1) }

// NewPaired returns a generator, or an error that wraps [ErrLayout] or [ErrConfig].
func NewPaired(c PairedConfig) (*Paired, error) {
	if c.Clock == nil {
		c.Clock = NewClock(nil)
	}
	main, err := NewSnowflake(SnowflakeConfig{Layout: c.Layout, Lease: c.Main, OnLow: c.OnLow, Now: c.Clock.now})
	if err != nil {
		return nil, err
	}
	switch {
	case c.Backup == (Lease{}):
		return nil, fmt.Errorf("%w: Backup is not set; give it the lease of a second worker id", ErrConfig)
	case c.Backup.WorkerID == c.Main.WorkerID:
		return nil, fmt.Errorf("%w: both lanes have the worker id %d", ErrConfig, c.Main.WorkerID)
	}
	backup, err := NewCached(CachedConfig{Layout: c.Layout, Lease: c.Backup, MaxBorrow: c.MaxBorrow, OnLow: c.OnLow, Clock: c.Clock})
	if err != nil {
		return nil, err
	}
	return &Paired{
		tick:    int(min(c.Layout.MaxSequence()+1, math.MaxInt32)),
		main:    main,
		backup:  backup,
		workers: [2]int64{c.Main.WorkerID, c.Backup.WorkerID},
	}, nil
}

// Next implements [Generator].
func (g *Paired) Next(ctx context.Context) (int64, error) {
	var id [1]int64
	err := g.Fill(ctx, id[:])
	return id[0], err
}

// Fill implements [Generator].
func (g *Paired) Fill(ctx context.Context, ids []int64) error {
	sorted := true
	for done := 0; done < len(ids); {
		n, err := g.fillSome(ctx, ids[done:])
		if err != nil {
			clear(ids)
			return err
		}
		sorted = sorted && (done == 0 || ids[done-1] < ids[done]) // the ids before may be of the lane that is ahead
		done += n
	}
	if !sorted {
		slices.Sort(ids)
	}
	return nil
}

// fillSome sets some of ids, all from one lane, and returns how many. It may wait.
func (g *Paired) fillSome(ctx context.Context, ids []int64) (n int, err error) {
	n, o, err := g.main.claim(ids)
	if errors.Is(err, ErrClosed) || n > 0 {
		return n, err
	}
	// Fill at most the ids of one tick, because in the next tick the main lane may have ids again.
	ids = ids[:min(g.tick, len(ids))]
	if err != nil || o.lease {
		return len(ids), g.backup.Fill(ctx, ids)
	}
	// Do not wait for a lease of the backup lane, because the clock will reach later ticks of the main lane.
	lease := g.backup.fill(ctx, ids, failAtOnce)
	if !errors.Is(lease, ErrLeaseExpired) && !errors.Is(lease, ErrTimeExhausted) {
		return len(ids), lease
	}
	if err = g.main.Fill(ctx, ids); errors.Is(err, ErrClockBackwards) {
		err = lease // the clock went back meanwhile, and the backup lane is used up
	}
	return len(ids), err
}

// Close implements [Generator].
func (g *Paired) Close() {
	g.main.Close()
	g.backup.Close()
}

// Renew implements [Renewable] for two leases. A worker id never moves between the lanes, because a lane knows nothing
// of the ids of the other. A new worker id takes the lane of the worker id that it replaces. Of two new worker ids, the
// lower goes to the main lane.
func (g *Paired) Renew(leases ...Lease) error {
	if _, err := workers(g.main.layout, leases); err != nil {
		return err
	}
	if len(leases) != 2 {
		return fmt.Errorf("%w: got %d leases, need 2, one for each lane", ErrConfig, len(leases))
	}
	main, backup := leases[0], leases[1]
	if main.WorkerID > backup.WorkerID {
		main, backup = backup, main
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	if backup.WorkerID == g.workers[0] || main.WorkerID == g.workers[1] {
		main, backup = backup, main
	}
	if err := g.backup.Renew(backup); err != nil {
		return err
	}
	if err := g.main.Renew(main); err != nil {
		return err
	}
	g.workers = [2]int64{main.WorkerID, backup.WorkerID}
	return nil
}

// Made returns how many ids both lanes have made, as [Cached.Made] does.
func (g *Paired) Made() int64 { return g.main.Made() + g.backup.Made() }

// Waits returns how many calls have waited for a lane, as [Cached.Waits] does. A call that has waited for both lanes
// counts twice.
func (g *Paired) Waits() int64 { return g.main.Waits() + g.backup.Waits() }

// Suspend implements [Renewable].
func (g *Paired) Suspend(cause error) {
	g.main.Suspend(cause)
	g.backup.Suspend(cause)
}

// Usage implements [Renewable], for both lanes together.
func (g *Paired) Usage() Usage {
	m, b := g.main.Usage(), g.backup.Usage()
	return Usage{
		Tick:     max(m.Tick, b.Tick),
		Left:     m.Left + b.Left,
		Waiting:  m.Waiting || b.Waiting,
		Used:     m.Used || b.Used,
		Lanes:    2,
		MaxLanes: 2,
	}
}
