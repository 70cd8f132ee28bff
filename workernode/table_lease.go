package workernode

import (
	"cmp"
	"errors"
	"slices"
	"time"

	"github.com/uidplugin/uidplugin/generator"
)

// A worker is a worker id of the slot. The mutex of the Manager guards it.
type worker struct {
	id     int64
	table  Table       // the zero Table for a spare
	start  int64       // START_TICK: no tick up to it is stamped
	user   *TableLease // whose lane it is, or was; nil if no generator ever stamped with it
	toBind bool        // a spare in use whose table is not in its row yet

	retired int64 // last tick that a generator may have stamped which was closed; 0: none
}

// A TableLease is what one generator stamps with: worker ids of the process's slot for one table, one for each lane.
// [Manager.Assign] and [Manager.Spare] return it. [TableLease.Attach] names the generator, which then gets every
// change. All methods may be called concurrently.
type TableLease struct {
	manager *Manager
	table   Table

	// The mutex of the manager guards the rest.
	lanes      []*worker           // ascending; empty after the slot was lost, until others replace them
	least      int                 // how many lanes its generator needs
	want       int                 // how many it should have
	published  []generator.Lease   // what the generator has
	generator  generator.Renewable // nil until Attach
	lastUse    time.Time           // when the generator was last seen in use
	usage      generator.Usage     // as it was then looked at
	sample     laneSample
	unknown    bool      // it is in need, and its rate is not known
	noWorkerID error     // why it gets no worker id
	again      time.Time // when to try again to get the worker ids that it wants
	limited    bool      // the log has said that it cannot have more lanes
}

// Table returns whose ids they are.
func (l *TableLease) Table() Table { return l.table }

// Leases returns what the generator may stamp now, one lease for each lane.
func (l *TableLease) Leases() []generator.Lease {
	l.manager.mu.Lock()
	defer l.manager.mu.Unlock()
	return slices.Clone(l.published)
}

// Attach names the generator that was created from [TableLease.Leases]. From then on the generator gets each renewal,
// and more worker ids when it needs them.
func (l *TableLease) Attach(g generator.Renewable) {
	m := l.manager
	m.mu.Lock()
	defer m.mu.Unlock()
	l.generator, l.lastUse = g, m.clock.now()
	made := l.published
	l.published = nil // the lease may have been renewed since the generator was created
	l.publish()
	if l.published == nil {
		l.published = made // the slot was lost meanwhile, or the generator refuses: it has what it was made of
	}
	if m.stats.LastError != nil {
		g.Suspend(m.stats.LastError)
	}
}

// Release gives the worker ids back to the slot. It is for a lease without a generator.
func (l *TableLease) Release() {
	m := l.manager
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, w := range l.lanes {
		w.user = nil
	}
	l.lanes = nil
	m.tableLeases = slices.DeleteFunc(m.tableLeases, func(other *TableLease) bool { return other == l })
}

// Retire gives the worker ids back to the slot after the generator was closed. The process uses them again when the
// clock has passed all that the generator may have stamped.
func (l *TableLease) Retire() {
	m := l.manager
	m.mu.Lock()
	defer m.mu.Unlock()
	l.giveUpLanes()
	m.tableLeases = slices.DeleteFunc(m.tableLeases, func(other *TableLease) bool { return other == l })
}

// giveUpLanes gives the worker ids back to the slot. Nothing else stamps with them before the clock has passed all that
// the generator may have stamped. The caller holds the mutex.
func (l *TableLease) giveUpLanes() {
	for _, w := range l.lanes {
		if w.user = nil; len(l.published) > 0 {
			w.retired = max(w.retired, l.published[0].Until)
		}
	}
	l.want, l.lanes = max(l.want, len(l.lanes)), nil
}

// leasesOf returns what may be stamped with lanes: the ticks that they have in common, in the session. It is nil if
// they have no tick in common.
func (m *Manager) leasesOf(lanes []*worker) []generator.Lease {
	from := m.slot.start + 1
	for _, w := range lanes {
		from = max(from, w.start+1, w.retired+1)
	}
	if !m.slot.held || len(lanes) == 0 || from > m.slot.granted {
		return nil
	}
	leases := make([]generator.Lease, len(lanes))
	for i, w := range lanes {
		leases[i] = generator.Lease{WorkerID: w.id, From: from, Until: m.slot.granted}
	}
	return leases
}

// publish passes to the generator what it may stamp, if that has changed. Lanes of a slot that was lost stay until
// others replace them: what was granted to them is this process's. The caller holds the mutex.
func (l *TableLease) publish() {
	m := l.manager
	leases := m.leasesOf(l.lanes)
	if leases == nil || slices.Equal(leases, l.published) {
		return
	}
	if l.generator != nil {
		if err := l.generator.Renew(leases...); errors.Is(err, generator.ErrClosed) {
			return
		} else if err != nil {
			m.log.Error("uidplugin: a generator refuses its lease", "table", l.table.String(), "error", err)
			return
		}
	}
	l.published = leases
}

// free returns the worker ids of a table that nothing uses, in ascending order. The caller
// holds the mutex.
func (m *Manager) free(t Table) (free []*worker) {
	for _, w := range m.workers {
		if w.table == t && w.user == nil && (w.retired == 0 || w.retired < m.tick()) {
			free = append(free, w)
		}
	}
	return free
}

// take gives l the first n of free, in addition to the lanes that it has.
func (l *TableLease) take(free []*worker, n int) {
	for _, w := range free[:n] {
		w.user = l
		l.lanes = append(l.lanes, w)
	}
	slices.SortFunc(l.lanes, func(a, b *worker) int { return cmp.Compare(a.id, b.id) })
}

// look notes how the generator stands. The caller holds the mutex.
func (l *TableLease) look(now time.Time) {
	if l.generator == nil {
		l.lastUse = now // it is being made
		return
	}
	l.usage = l.generator.Usage()
	if l.usage.Used || l.usage.Waiting {
		l.lastUse = now
	}
}

// grow samples how fast the generator takes ids while it is in need, and sets how many lanes it should have. lanes.go
// decides. The caller holds the mutex.
func (l *TableLease) grow(now time.Time, tick int64) {
	m, u := l.manager, l.usage
	l.unknown = false
	if l.generator == nil || len(l.published) == 0 || len(l.lanes) == 0 || l.want > len(l.lanes) {
		return
	}
	perTick, until := uint64(m.layout.MaxSequence()+1), l.published[0].Until
	if !inNeed(u, until, tick, perTick) {
		l.sample = laneSample{}
		return
	}
	last, next := l.sample, laneSample{at: now, left: u.Left, until: until, lanes: u.Lanes}
	perSecond, known := last.rate(next, perTick)
	if known || now.Sub(last.at) > sampleInterval {
		l.sample = next
	}
	l.unknown = !known
	if !known || now.Before(l.again) {
		return
	}
	most := m.most
	if u.MaxLanes > 0 {
		most = min(most, u.MaxLanes)
	}
	have, perLane := len(l.lanes), float64(perTick)/m.layout.Tick.Seconds()
	most = mostLanes(most, have, len(m.free(l.table)), m.given, m.layout)
	l.want = wantedLanes(have, most, perSecond, perLane, now.Sub(last.at))
	if u.Waiting && have >= most && perSecond > 0.9*perLane*float64(have) {
		l.limit(nil)
	}
}

// limit logs once that the generator needs more lanes than it can have.
func (l *TableLease) limit(why error) {
	if l.limited {
		return
	}
	l.limited = true
	args := []any{"table", l.table.String(), "lanes", len(l.lanes), "most", l.manager.most}
	if why != nil {
		args = append(args, "error", why)
	}
	l.manager.log.Warn("uidplugin: a table needs ids faster than its worker ids make them, and cannot have more worker ids: creates wait"+
		" (a layout with more sequence bits makes more ids per worker id)", args...)
}
