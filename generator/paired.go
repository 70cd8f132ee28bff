package generator

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"
)

// PairedConfig configures [NewPaired].
type PairedConfig struct {
	Layout Layout // required

	// Main is the lease of the lane that bears the clock's time, Backup that of the lane
	// that stands in for it, with another worker id: [Layout.BackupWorker] is the
	// article's. The zero Backup means that there is none until Renew brings one; until
	// then it is a [Default].
	Main, Backup Lease

	// MaxBorrow bounds how far ahead of the clock the backup lane may stamp; 0 means
	// [DefaultMaxBorrow]. The article's BACK_TIME_MAX is a second.
	MaxBorrow time.Duration

	// Low is as in [CachedConfig].
	Low func()

	// Clock is what the generators of a process share; nil means one of its own.
	Clock *Clock
}

// Paired is the 53-bit variant of snowflake with a backup worker. Its main lane bears
// the time that the clock shows. When that lane has used up its tick, or the clock has
// gone back, the backup lane makes ids instead: of the present tick, and then of the
// next ones, which it borrows, up to MaxBorrow. When the clock has caught up the main
// lane goes on. So callers wait only when both are used up, and then in the order of
// their arrival; the published code of the variant stops there, after three ticks of ids.
//
// Ids of each lane strictly ascend. Those of both together do not while the backup lane
// is ahead of the clock, except within a call of Fill. Whoever wants them to takes a
// [Cached] with two lanes, which is the same idea with an order, and cheaper.
//
// A Paired must be made by [NewPaired]. With a [JSSafeLayout] all ids are at most 2^53-1.
type Paired struct {
	config PairedConfig
	main   *Default

	// backup is nil until there is a lease for it, and does not change afterwards.
	backup atomic.Pointer[Cached]

	mu      sync.Mutex // guards the making of backup, and what follows
	workers [2]int64   // worker ids of main and backup
	closed  bool
}

var _ Renewable = (*Paired)(nil)

// BackupWorker returns the worker id that the 53-bit variant keeps in reserve for
// another one: the same with the highest bit turned over. Whoever uses both must give
// no worker id from the middle of the range on to anybody else.
func (l Layout) BackupWorker(worker int64) int64 { return worker ^ 1<<(l.WorkerBits-1) }

// NewPaired returns a generator, or an error that wraps [ErrLayout] or [ErrConfig].
func NewPaired(c PairedConfig) (*Paired, error) {
	if c.Clock == nil {
		c.Clock = NewClock(nil)
	}
	g := &Paired{config: c, workers: [2]int64{c.Main.WorkerID, c.Backup.WorkerID}}
	var err error
	if g.main, err = NewDefault(DefaultConfig{Layout: c.Layout, Lease: c.Main, Low: c.Low, Now: c.Clock.now}); err != nil {
		return nil, err
	}
	backup := c.Backup
	if backup == (Lease{}) {
		// What MaxBorrow may be is found out now.
		backup = c.Main
	} else if backup.WorkerID == c.Main.WorkerID {
		return nil, fmt.Errorf("%w: both lanes have the worker id %d", ErrConfig, backup.WorkerID)
	}
	lane, err := g.newBackup(backup)
	if err != nil {
		return nil, err
	}
	if c.Backup != (Lease{}) {
		g.backup.Store(lane)
	}
	return g, nil
}

func (g *Paired) newBackup(lease Lease) (*Cached, error) {
	return NewCached(CachedConfig{Layout: g.config.Layout, Lease: lease, MaxBorrow: g.config.MaxBorrow, Low: g.config.Low, Clock: g.config.Clock})
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
		c, err := g.main.claim(ids[done:])
		backup := g.backup.Load()
		switch {
		case errors.Is(err, ErrClosed):
			clear(ids)
			return err
		case err == nil && c.n > 0:
			// Another lane may be ahead.
			sorted = sorted && (done == 0 || ids[done-1] < ids[done])
			done += c.n
			continue
		case backup == nil:
			if err := g.main.Fill(ctx, ids[done:]); err != nil {
				clear(ids)
				return err
			}
			return nil
		}
		// Not more than a tick's, for the main lane may have more by then.
		part := ids[done:min(done+int(g.config.Layout.MaxSequence())+1, len(ids))]
		if lease := backup.Fill(ctx, part); errors.Is(lease, ErrLeaseExpired) && err == nil && !c.lease {
			// The main lane has ticks left, which come in their time.
			err := g.main.Fill(ctx, part)
			if errors.Is(err, ErrClockBackwards) {
				err = lease // the clock went back meanwhile, and there is no other lane
			}
			if err != nil {
				clear(ids)
				return err
			}
		} else if lease != nil {
			clear(ids)
			return lease
		}
		sorted = sorted && (done == 0 || ids[done-1] < ids[done])
		done += len(part)
	}
	if !sorted {
		slices.Sort(ids)
	}
	return nil
}

// Close implements [Generator].
func (g *Paired) Close() {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.closed = true
	g.main.Close()
	if backup := g.backup.Load(); backup != nil {
		backup.Close()
	}
}

// Renew implements [Renewable]. It takes two leases, or one, for the lane that has its
// worker id, or else the main one. A worker id never goes from one lane to the other,
// which knows nothing of the ids that bear it; new ones go to the lanes that have none
// of the others, the lower to the main lane.
func (g *Paired) Renew(leases ...Lease) error {
	if _, err := workers(g.config.Layout, leases); err != nil {
		return err
	}
	if len(leases) > 2 {
		return fmt.Errorf("%w: %d leases; this generator has two lanes", ErrConfig, len(leases))
	}
	leases = slices.Clone(leases)
	slices.SortFunc(leases, func(a, b Lease) int { return cmp.Compare(a.WorkerID, b.WorkerID) })
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.closed {
		return ErrClosed
	}
	backup := g.backup.Load()
	if last := leases[len(leases)-1]; last.WorkerID == g.workers[0] || backup != nil && leases[0].WorkerID == g.workers[1] {
		slices.Reverse(leases) // of one lease: nothing
	}
	if len(leases) == 1 && backup != nil && leases[0].WorkerID == g.workers[1] {
		return backup.Renew(leases[0])
	}
	switch {
	case len(leases) == 1:
	case backup == nil:
		lane, err := g.newBackup(leases[1])
		if err != nil {
			return err
		}
		g.backup.Store(lane)
		g.workers[1] = leases[1].WorkerID
	default:
		if err := backup.Renew(leases[1]); err != nil {
			return err
		}
		g.workers[1] = leases[1].WorkerID
	}
	if err := g.main.Renew(leases[0]); err != nil {
		return err
	}
	g.workers[0] = leases[0].WorkerID
	return nil
}

// Suspend implements [Renewable].
func (g *Paired) Suspend(cause error) {
	g.main.Suspend(cause)
	if backup := g.backup.Load(); backup != nil {
		backup.Suspend(cause)
	}
}

// Usage implements [Renewable]: of both lanes together.
func (g *Paired) Usage() Usage {
	u := g.main.Usage()
	u.MinLanes, u.MaxLanes = 2, 2
	if backup := g.backup.Load(); backup != nil {
		b := backup.Usage()
		u.Tick, u.Left, u.Lanes = max(u.Tick, b.Tick), u.Left+b.Left, 2
		u.Waiting, u.Used = u.Waiting || b.Waiting, u.Used || b.Used
	}
	return u
}
