package workernode

import (
	"cmp"
	"errors"
	"slices"
	"time"

	"github.com/uidplugin/uidplugin/generator"
	"github.com/uidplugin/uidplugin/workernode/internal/lease"
)

// farAhead is how far ids run ahead of the clock before the log reports that a generator cannot have more lanes.
const farAhead = 250 * time.Millisecond

// A TableLease is one generator's share of the slot: worker ids for one table, one for each lane. [Manager.Assign]
// returns it. Call [TableLease.Attach] with the generator, which then gets every change. The exported methods may
// be called concurrently.
type TableLease struct {
	allocator *allocator
	table     Table

	// The allocator's mu guards the rest.
	lanes      []*worker           // ascending; empty while the lanes of a lost slot are not replaced
	least      int                 // number of lanes that the generator needs
	want       int                 // number of lanes that the generator should have
	published  []generator.Lease   // the generator's leases
	generator  generator.Renewable // nil until Attach
	lastUse    time.Time           // when the generator was last seen in use
	usage      generator.Usage     // its usage at the last look
	ahead      int64               // how many ticks the generator was ahead of the clock at the last look
	grown      bool                // the generator has got lanes since grow last looked
	sparing    bool                // see [TableLease.Spare]
	noWorkerID error               // the reason why the generator gets no worker id
	again      time.Time           // when to retry to get the wanted worker ids
	limited    bool                // the lack of lanes was logged
}

// Err returns the reason why the table has lost its worker ids and gets no others. It is nil if the table has worker
// ids or soon gets some.
func (l *TableLease) Err() error {
	l.allocator.mu.Lock()
	defer l.allocator.mu.Unlock()
	return l.noWorkerID
}

// Leases returns the current leases of the generator, one for each lane.
func (l *TableLease) Leases() []generator.Lease {
	l.allocator.mu.Lock()
	defer l.allocator.mu.Unlock()
	return slices.Clone(l.published)
}

// Attach names the generator that was created from [TableLease.Leases]. The generator then gets each renewal, and more
// worker ids when it needs them.
func (l *TableLease) Attach(g generator.Renewable) {
	a := l.allocator
	a.mu.Lock()
	defer a.mu.Unlock()
	l.generator, l.lastUse = g, a.clock.now()
	first := l.published
	l.published = nil // the lease may have been renewed since the generator was created
	l.publish()
	if l.published == nil {
		l.published = first // the slot was lost meanwhile, or the generator refuses: it keeps its first leases
	}
	if a.failure != nil {
		g.Suspend(a.failure)
	}
}

// Spare makes the generator double its lanes only when half of its lease is used up. Call it if a row takes several
// ids.
func (l *TableLease) Spare() {
	l.allocator.mu.Lock()
	defer l.allocator.mu.Unlock()
	l.sparing = true
}

// Release gives the worker ids back to the slot. Close the generator first. The process reuses the worker ids once the
// clock has passed the generator's leases, or at once if no generator was attached.
func (l *TableLease) Release() {
	a := l.allocator
	a.mu.Lock()
	defer a.mu.Unlock()
	if l.generator == nil {
		l.giveBack()
	} else {
		l.giveUpLanes()
	}
	a.remove(l)
}

// giveBack gives back worker ids with which no tick was stamped, so they are free at once. The caller holds mu.
func (l *TableLease) giveBack() {
	for _, w := range l.lanes {
		w.user = nil
	}
	l.lanes = nil
}

// giveUpLanes gives the worker ids back. They become free when the clock has passed the generator's leases. The
// caller holds mu.
func (l *TableLease) giveUpLanes() {
	for _, w := range l.lanes {
		if w.user = nil; len(l.published) > 0 {
			w.retired = max(w.retired, l.published[0].Until)
		}
	}
	l.want, l.lanes = max(l.want, len(l.lanes)), nil
}

// publish passes changed leases to the generator. After the slot was lost, the generator keeps its leases until it
// gets others, because their grants remain valid. The caller holds mu.
func (l *TableLease) publish() {
	leases := l.allocator.leasesOf(l.lanes)
	if leases == nil || slices.Equal(leases, l.published) {
		return
	}
	if l.generator != nil {
		if err := l.generator.Renew(leases...); errors.Is(err, generator.ErrClosed) {
			return
		} else if err != nil {
			l.allocator.log.Error("uidplugin: a generator refuses its lease", "table", l.table.String(), "error", err)
			return
		}
	}
	l.published = leases
}

// take gives n of the free worker ids to the lease, as further lanes. The caller holds mu.
func (l *TableLease) take(free []*worker, n int) {
	for _, w := range free[:n] {
		w.user = l
		l.lanes = append(l.lanes, w)
	}
	slices.SortFunc(l.lanes, func(a, b *worker) int { return cmp.Compare(a.id, b.id) })
}

// replace gives the lease more lanes, or new lanes in place of lost ones. The caller holds mu.
func (l *TableLease) replace(free []*worker, n int) {
	had := len(l.published)
	l.take(free, n)
	l.grown = true // its next ids begin further ahead of the clock, and grow must not take this for a lack of lanes
	l.publish()
	if l.noWorkerID != nil && l.generator != nil {
		l.generator.Suspend(nil)
	}
	l.noWorkerID = nil
	ids := make([]int64, len(l.lanes))
	for i, w := range l.lanes {
		ids[i] = w.id
	}
	text := "uidplugin: a table has other worker ids now"
	if len(ids) > had {
		text = "uidplugin: a table has more worker ids now because it needs them"
	}
	l.allocator.log.Info(text, "table", l.table.String(), "worker_id", ids)
}

// exhaust records that the lease has lost its worker ids without a replacement. The caller holds mu.
func (l *TableLease) exhaust(cause error, retry time.Time) {
	if l.noWorkerID == nil {
		l.allocator.log.Error("uidplugin: a table has lost its worker id, and no replacement is available: creates fail", "table", l.table.String(), "error", cause)
	}
	l.noWorkerID, l.again = cause, retry
	if l.generator != nil {
		l.generator.Suspend(cause)
	}
}

// look reads the generator's usage. The caller holds mu.
func (l *TableLease) look(now time.Time) {
	if l.generator == nil {
		l.lastUse = now // the generator is being created
		return
	}
	l.usage = l.generator.Usage()
	if l.usage.Used || l.usage.Waiting {
		l.lastUse = now
	}
}

// grow makes the generator want all lanes that it may have, or twice its lanes if it is sparing, once its ids run
// ahead of the clock. If lanes came in small steps, an import would be far ahead. The caller holds mu.
func (l *TableLease) grow(now time.Time, tick int64) {
	a, u, have := l.allocator, l.usage, len(l.lanes)
	if l.generator == nil || len(l.published) == 0 || have == 0 || l.want > have {
		return
	}
	layout, before, grown := a.clock.layout, l.ahead, l.grown
	l.ahead, l.grown = lease.Ahead(u, l.published[0].From, tick), false
	if l.ahead <= min(layout.LaneAhead(), a.params.Lead/2) || now.Before(l.again) { // Lead may be shorter than LaneAhead
		return
	}
	limit := a.most
	if u.MaxLanes > 0 {
		limit = min(limit, u.MaxLanes)
	}
	given := a.given - max(a.first-1, 0)/2 // so that MostLanes takes the middle of the worker ids from FIRST_ID on
	limit = lease.MostLanes(limit, have, len(a.free(l.table)), given, layout)
	switch {
	case !a.sparing && !l.sparing:
		l.want = limit
	case l.ahead > before && lease.InNeed(u, l.published[0].Until, tick, uint64(layout.MaxSequence()+1)):
		l.want = min(2*have, limit)
	}
	if have >= limit && l.ahead > before && !grown && (u.Waiting || l.ahead > ticks(layout, farAhead)) {
		l.limit(nil)
	}
}

// limit logs once that the generator needs more lanes than it can get.
func (l *TableLease) limit(cause error) {
	if l.limited {
		return
	}
	l.limited = true
	args := []any{"table", l.table.String(), "lanes", len(l.lanes), "most", l.allocator.most}
	if cause != nil {
		args = append(args, "error", cause)
	}
	l.allocator.log.Warn("uidplugin: a table needs ids faster than its worker ids make them, and cannot have more worker ids: its ids run ahead of the"+
		" clock, and creates wait once ids are Lead ahead (a layout with more sequence bits makes more ids per worker id)", args...)
}
