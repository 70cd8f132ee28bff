package workernode

import (
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/uidplugin/uidplugin/generator"
	"github.com/uidplugin/uidplugin/workernode/internal/lease"
)

// A worker is a worker id of the slot. The allocator's mu guards it.
type worker struct {
	id    int64
	table Table
	start int64       // START_TICK: no tick up to it is stamped
	user  *TableLease // the lease that has it as a lane; nil if none

	retired int64 // last tick that a closed generator may have stamped; 0: none
}

// An allocator divides the slot's worker ids among the generators, and passes the slot's grants on to them. It
// sends no statement. Its methods lock mu, except those whose caller must hold mu.
type allocator struct {
	clock   *clock
	params  lease.Params
	most    int   // limit of lanes for a generator
	first   int64 // FIRST_ID of the registry
	sparing bool  // generators get lanes late, as after [TableLease.Spare], because no later process can use the lanes

	log *slog.Logger

	mu      sync.Mutex
	slot    lease.Slot     // the slotHolder's lease after the latest statement
	workers []*worker      // the slot's worker ids
	leases  []*TableLease  // the generators' shares of the slot
	given   int64          // the largest worker id known to be given out, 0 if none
	failure error          // why the lease cannot be renewed; nil if it can
	ignored map[int64]bool // unusable worker ids that were logged
}

// noteSlot records the slot after a statement, and passes grants on to the generators.
func (a *allocator) noteSlot(slot lease.Slot) {
	a.mu.Lock()
	defer a.mu.Unlock()
	granted := slot.Start != a.slot.Start || slot.Granted != a.slot.Granted
	a.slot = slot
	switch {
	case !slot.Held:
		a.forget()
	case granted:
		for _, l := range a.leases {
			l.publish()
		}
	}
}

// forget takes the worker ids from all generators, which use up their leases. The caller holds mu.
func (a *allocator) forget() {
	a.workers = nil
	for _, l := range a.leases {
		l.want = max(l.want, len(l.lanes), 1)
		l.lanes = nil
	}
}

// noteRead records the slot's worker ids after all of their rows were read.
func (a *allocator) noteRead(nodes []*Node) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.addRead(nodes)
	a.dropDeleted(nodes)
}

// addRead adds worker ids whose rows were read, and logs unusable ones once. The caller holds mu.
func (a *allocator) addRead(nodes []*Node) {
	have := make(map[int64]bool, len(a.workers))
	for _, w := range a.workers {
		have[w.id] = true
	}
	layout := a.clock.layout
	for _, n := range nodes {
		if have[n.WorkerID] || a.ignored[n.WorkerID] {
			continue
		}
		reason := ""
		switch {
		case n.WorkerID < 1 || n.WorkerID > layout.MaxWorkerID():
			reason = "it is outside the layout"
		case n.WorkerID < a.first:
			reason = "it is below FIRST_ID, so a process may have been given it by hand"
		case n.Layout != layout.String():
			reason = "its LAYOUT is " + printable(n.Layout)
		case n.Start > a.params.FenceAt(a.clock.tick(), 0):
			reason = "its START_TICK is ahead of the clock"
		}
		if reason == "" {
			a.workers = append(a.workers, &worker{id: n.WorkerID, table: n.Table, start: n.Start})
		} else {
			a.ignored[n.WorkerID] = true
			a.log.Error("uidplugin: a row of "+NodeTable+" is not used: "+reason, "worker_id", n.WorkerID, "slot", n.Slot)
		}
	}
}

// dropDeleted gives up worker ids whose rows were deleted, because ids that they make cannot be located. A row that
// names another table shows that an operator has renamed the table. Then an unused worker id serves the new name. A
// worker id in use is given up, because its generator makes ids for the old name. The caller holds mu.
func (a *allocator) dropDeleted(nodes []*Node) {
	known := make(map[int64]Table, len(nodes))
	for _, n := range nodes {
		known[n.WorkerID] = n.Table
	}
	a.workers = slices.DeleteFunc(a.workers, func(w *worker) bool {
		table, ok := known[w.id]
		if ok && w.user == nil {
			w.table = table
		}
		if ok && table == w.table {
			return false
		}
		a.ignored[w.id] = true // even if the row comes back, because we forget which ticks were stamped
		a.log.Error("uidplugin: the row of a worker id was deleted from "+NodeTable+", or names another table: its ids cannot be located, and its table gets another worker id",
			"table", w.table.String(), "worker_id", w.id, "slot", a.slot.ID)
		if l := w.user; l != nil {
			l.giveUpLanes()
		}
		return true
	})
}

func (a *allocator) add(nodes []newNode, start int64) {
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, n := range nodes {
		a.workers = append(a.workers, &worker{id: n.worker, table: n.table, start: start})
	}
	a.given = max(a.given, nodes[len(nodes)-1].worker)
}

func (a *allocator) counts() (workers int, largest int64) {
	a.mu.Lock()
	defer a.mu.Unlock()
	return len(a.workers), a.given
}

// generatorNeeds sums up the generators' needs.
type generatorNeeds struct {
	leases   int       // number of generators
	lastUse  time.Time // the latest use of a generator
	pressing bool      // a generator needs more ticks
	starving bool      // a generator has callers that wait for ticks
}

// look reads the usage of all generators and decides which want more lanes. It reads the clock after the usage,
// because otherwise ids made in a pause of this goroutine would seem to be ahead of the clock.
func (a *allocator) look(now time.Time) (d generatorNeeds, tick int64) {
	a.mu.Lock()
	defer a.mu.Unlock()
	d.leases = len(a.leases)
	for _, l := range a.leases {
		l.look(now)
	}
	tick = a.clock.tick()
	for _, l := range a.leases {
		l.grow(now, tick)
		if l.lastUse.After(d.lastUse) {
			d.lastUse = l.lastUse
		}
		d.starving = d.starving || l.usage.Waiting && l.usage.Left == 0
		d.pressing = d.pressing || lease.InNeed(l.usage, a.slot.Granted, tick, uint64(a.clock.layout.MaxSequence()+1))
	}
	return d, tick
}

// provide gives generators the free worker ids that they need. It returns how many worker ids each table still needs.
func (a *allocator) provide(now time.Time) (lack map[Table]int) {
	a.mu.Lock()
	defer a.mu.Unlock()
	lack = map[Table]int{}
	for _, l := range a.leases {
		n := max(l.want, 1) - len(l.lanes)
		if n <= 0 {
			continue
		}
		free := a.free(l.table)
		switch {
		case len(free)-lack[l.table] >= n && a.slot.Held:
			l.replace(free, n)
		case !now.Before(l.again):
			lack[l.table] += n
		}
	}
	return lack
}

// assign returns a lease for each table, or nil if the slot lacks worker ids or ticks, or a statement about it has
// an unknown outcome. lanes[i] is the number of worker ids for tables[i].
func (a *allocator) assign(tables []Table, lanes []int) []*TableLease {
	a.mu.Lock()
	defer a.mu.Unlock()
	if !a.slot.Held || a.slot.InDoubt || a.clock.tick() > a.slot.Granted {
		return nil
	}
	leases := make([]*TableLease, len(tables))
	for i, t := range tables {
		l := &TableLease{allocator: a, table: t, least: lanes[i], want: lanes[i], lastUse: a.clock.now()}
		leases[i] = l
		if free := a.free(t); len(free) >= l.want {
			l.take(free, l.want)
			l.publish()
		}
		if l.published == nil {
			for _, l := range leases[:i+1] {
				l.giveBack()
			}
			return nil
		}
	}
	a.leases = append(a.leases, leases...)
	return leases
}

// remove forgets a lease. The caller holds mu.
func (a *allocator) remove(l *TableLease) {
	a.leases = slices.DeleteFunc(a.leases, func(other *TableLease) bool { return other == l })
}

func (a *allocator) missing(lack map[Table]int) []Table {
	a.mu.Lock()
	defer a.mu.Unlock()
	return missing(lack, func(t Table) int { return len(a.free(t)) })
}

// missing returns the table of each worker id that a slot has to get; it repeats a table that needs several. Table
// t needs lack[t] worker ids, and has free(t) unused ones.
func missing(lack map[Table]int, free func(Table) int) (tables []Table) {
	for t, n := range lack {
		for range n - free(t) {
			tables = append(tables, t)
		}
	}
	slices.SortFunc(tables, func(a, b Table) int { return strings.Compare(a.String(), b.String()) })
	return tables
}

// free returns a table's worker ids that a generator may get now. The caller holds mu.
func (a *allocator) free(t Table) (free []*worker) {
	for _, w := range a.workers {
		if w.table == t && w.user == nil && (w.retired == 0 || w.retired < a.clock.tick()) {
			free = append(free, w)
		}
	}
	return free
}

// soonFree counts worker ids of the given tables that become free when the clock passes their last user's lease.
func (a *allocator) soonFree(tables []Table) (n int) {
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, w := range a.workers {
		if w.user == nil && w.retired >= a.clock.tick() && slices.Contains(tables, w.table) {
			n++
		}
	}
	return n
}

// leasesOf returns leases with the ticks of the session that all lanes may stamp. The caller holds mu.
func (a *allocator) leasesOf(lanes []*worker) []generator.Lease {
	from := a.slot.Start + 1
	for _, w := range lanes {
		from = max(from, w.start+1, w.retired+1)
	}
	if !a.slot.Held || len(lanes) == 0 || from > a.slot.Granted {
		return nil
	}
	leases := make([]generator.Lease, len(lanes))
	for i, w := range lanes {
		leases[i] = generator.Lease{WorkerID: w.id, From: from, Until: a.slot.Granted}
	}
	return leases
}

// postpone makes generators wait until the time retry before they get further lanes, because adding worker ids has
// failed. It reports false, and does nothing, if a generator of one of the given tables has no worker id.
func (a *allocator) postpone(tables []Table, retry time.Time) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, l := range a.leases {
		if len(l.lanes) == 0 && slices.Contains(tables, l.table) {
			return false
		}
	}
	for _, l := range a.leases {
		if n := len(l.lanes); n > 0 && l.want > n {
			l.want, l.again = n, retry
		}
	}
	return true
}

// limit restricts generators to the worker ids that they have, or that are free for them, until the time retry.
// changed reports whether a generator now wants fewer lanes, and used whether any generator has a worker id.
func (a *allocator) limit(cause error, retry time.Time) (changed, used bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, l := range a.leases {
		n := len(l.lanes)
		used = used || n > 0
		if n == 0 { // its slot was lost, and the new slot may have fewer worker ids
			n = lease.FloorPower(len(a.free(l.table)))
		}
		if n >= l.least && l.want > n {
			changed, l.want, l.again = true, n, retry
			l.limit(cause)
		}
	}
	return changed, used
}

// exhaust records that generators without worker ids get none until the time retry.
func (a *allocator) exhaust(cause error, retry time.Time) {
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, l := range a.leases {
		if len(l.lanes) == 0 {
			l.exhaust(fmt.Errorf("the table %s has lost its worker id: %w", l.table, cause), retry)
		}
	}
}

// noteFailure records an error of a statement. Callers get the error once the leases of their generator are used up.
func (a *allocator) noteFailure(err error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.failure = err
	for _, l := range a.leases {
		if l.generator != nil {
			l.generator.Suspend(err)
		}
	}
}

// noteNotAdded records why worker ids could not be added. Generators with worker ids are not affected, because the
// slot's grants are renewed before worker ids are added.
func (a *allocator) noteNotAdded(err error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.failure = nil
	for _, l := range a.leases {
		switch {
		case l.generator == nil:
		case len(l.lanes) == 0:
			l.generator.Suspend(err)
		default:
			l.generator.Suspend(nil)
		}
	}
}

// noteRecovery undoes noteFailure and noteNotAdded. A generator that [TableLease.exhaust] has suspended keeps that
// error until [TableLease.replace] gives it worker ids.
func (a *allocator) noteRecovery() {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.failure = nil
	for _, l := range a.leases {
		if l.generator != nil {
			l.generator.Suspend(l.noWorkerID)
		}
	}
}
