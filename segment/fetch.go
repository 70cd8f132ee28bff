package segment

import (
	"context"
	"errors"
	"fmt"
	"math"
	"time"

	"github.com/uidplugin/uidplugin/generator"
	"github.com/uidplugin/uidplugin/internal/sqldb"
)

// If a range lasts less than growBelow, the next one is twice as large. If it lasts shrinkFrom or longer, the next one
// is half as large. Leaf does the same.
const (
	growBelow  = 15 * time.Minute
	shrinkFrom = 30 * time.Minute
)

// fetching is the state of the goroutine that fetches. [generator.Buffered] treats a panic as a failure, after which
// the range must still be due. So source changes g.due and g.mark last.
type fetching struct {
	due    bool          // a range is needed, and not fetched yet
	since  time.Time     // when it became due
	lasted time.Duration // how long the previous range lasted
	ranges int64         // fetched ranges

	found int64 // step of the row at Open; least applies while the row has this step
	least int64 // smallest size of a range; 0 means the step of the row
	base  int64 // step of the row, or least if that applies and is larger
	step  int64 // size of the last range
	floor int64 // lower bound of the next id: at first Start, then above all previous ids

	first generator.Run // fetched by Open, not in the buffer yet

	failing bool // the failure is logged
}

// source feeds the buffer. It waits until a range is due, and fetches it.
func (g *Generator) source(ctx context.Context, _ int64) (generator.Run, error) {
	if run := g.first; run.N > 0 {
		g.first = generator.Run{}
		g.mark.Store(run.First + run.N/10)
		return run, nil
	}
	if !g.due {
		select {
		case <-g.wake:
		case <-ctx.Done():
			return generator.Run{}, ctx.Err()
		}
		g.due = true
		now := g.config.Now()
		g.lasted, g.since = now.Sub(g.since), now
	}
	g.mu.Lock()
	if g.began.IsZero() {
		g.began = g.since
	}
	g.mu.Unlock()
	run, err := g.fetch(ctx)
	g.tell(ctx, err)
	if err != nil {
		return generator.Run{}, err
	}
	// The buffer does not have the range yet, and older ids are smaller, so no caller passes the mark unnoticed.
	g.due = false
	g.mark.Store(run.First + run.N/10)
	return run, nil
}

// fetch fetches a range. It retries transient errors and lost races.
func (g *Generator) fetch(ctx context.Context) (generator.Run, error) {
	var last error
	for try, begin := 0, time.Now(); ; try++ {
		run, err := g.try(ctx)
		if err == nil && run.N == 0 {
			err = fmt.Errorf("%w at the tag %q of %s", errConflict, g.table.tag, g.table)
		}
		passes := errors.Is(err, errConflict) || sqldb.IsTransient(err)
		g.mu.Lock()
		g.reason = err
		if err == nil {
			g.began = time.Time{}
		} else if passes {
			g.state.Conflicts++
		}
		g.mu.Unlock()
		switch {
		case passes:
			last = err
		case ctx.Err() != nil && last != nil:
			return run, fmt.Errorf("%w; the attempt before: %w", err, last)
		default:
			return run, err
		}
		if time.Since(begin) > retryLimit || pause(ctx, try) != nil {
			return run, err
		}
	}
}

var errConflict = errors.New("segment: lost the race against other processes")

// try makes one attempt to fetch a range. The range is empty if another process was faster.
func (g *Generator) try(ctx context.Context) (run generator.Run, err error) {
	held, giveBack := g.table.hold() // on a cluster, the node that wrote max_id must also read it back
	defer giveBack()
	r, ok, err := held.read(ctx, "")
	switch {
	case err != nil:
		return run, err
	case !ok:
		// A new row would start again with the same ids.
		return run, fmt.Errorf("%w: the row of the tag %q was deleted from %s; insert it again, with a max_id above all ids of the tag", ErrRow, g.table.tag, g.table)
	case r.step < 1:
		return run, fmt.Errorf("%w: the step of the tag %q of %s is %d, but it must be positive", ErrRow, g.table.tag, g.table, r.step)
	}
	first := max(r.maxID, g.floor)
	if first == math.MaxInt64 {
		return run, fmt.Errorf("%w: max_id of the tag %q of %s is %d, so no ids are left", ErrExhausted, g.table.tag, g.table, r.maxID)
	}
	base := r.step
	if base == g.found {
		base = max(base, g.least)
	}
	step := g.size(base)
	n := min(step, math.MaxInt64-first)
	if moved, err := held.move(ctx, r.maxID, first+n); err != nil || !moved {
		return run, err
	}
	back := g.ranges > 0 && r.maxID < g.floor // r.maxID is not from a stale read, because move has compared it
	g.base, g.step, g.floor = base, step, first+n
	g.ranges++
	g.mu.Lock()
	g.state.First, g.state.Last, g.state.Ranges = first, first+n-1, g.ranges
	g.state.Step, g.state.MinStep = step, r.step
	g.mu.Unlock()
	if back {
		g.config.Log.Warn("segment: max_id went back, so ids of other processes may be made again; check whether the database has lost commits or somebody has lowered max_id",
			"table", g.table.String(), "tag", g.table.tag, "max_id", r.maxID, "above", first)
	}
	return generator.Run{First: first, N: n}, nil
}

// size returns the size of the next range. base is the step of the row, or least.
func (g *Generator) size(base int64) int64 {
	switch {
	case base != g.base || g.ranges < 2: // the first two fetches do not know how long a range lasts
		return base
	case g.lasted < 0: // the clock was set back
		return g.step
	case g.lasted < growBelow:
		return max(g.step, min(2*g.step, g.config.MaxStep))
	case g.lasted >= shrinkFrom:
		return max(g.step/2, base)
	}
	return g.step
}

func (g *Generator) tell(ctx context.Context, err error) {
	switch {
	case err != nil && !g.failing && ctx.Err() == nil:
		g.failing = true
		g.config.Log.Warn("segment: ids cannot be fetched; trying again", "table", g.table.String(), "tag", g.table.tag, "error", err)
	case err == nil && g.failing:
		g.failing = false
		g.config.Log.Info("segment: ids are fetched again", "table", g.table.String(), "tag", g.table.tag)
	}
}
