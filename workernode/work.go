package workernode

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/uidplugin/uidplugin/generator"
)

// What the lease manager wants at one moment: which statement comes next, and whom it serves from the worker ids that
// the slot has.

// An action is what the lease manager does next. For doSlot the [step] of the lease says what that is.
type action int

const (
	doNothing action = iota
	doSlot           // the step of the lease: acquire, read, begin ...
	doRenew
	doBind
	doAdd
	doKeepAlive
)

// work is what is wanted at one moment.
type work struct {
	idle      bool // no ids were made for long
	wanted    bool // the process needs a slot
	due       bool // a renewal is
	keepAlive bool // a keep-alive is
	stale     bool // ticks are needed, and what was granted has passed or is nearly used up
	binds     []spareUse
	missing   []Table // worker ids to add
	tables    []Table // that lack worker ids, or wait for some
	stuck     error   // callers wait, and the clock stands still
	wait      time.Duration
}

// next decides in which order. The step is for doSlot. It is pure.
func (w *work) next(l *slotLease, p leaseParams, now int64) (action, step) {
	if !l.held && !w.wanted {
		return doNothing, stepReady
	}
	if w.idle && len(w.binds) == 0 && l.held && !l.inDoubt && !l.regressed {
		if w.keepAlive {
			return doKeepAlive, stepReady
		}
		return doNothing, stepReady
	}
	if s := l.next(p, now); s != stepReady {
		return doSlot, s
	}
	switch grows := p.fenceAt(now, l.fence) > l.granted; {
	case grows && (w.due || w.stale):
		return doRenew, stepReady // a due renewal goes before requests
	case len(w.binds) > 0:
		return doBind, stepReady
	case len(w.missing) > 0:
		return doAdd, stepReady
	}
	return doNothing, stepReady
}

// sends reports whether an action sends a statement.
func (a action) sends(s step) bool {
	return a != doNothing && (a != doSlot || s != stepWait && s != stepExhausted)
}

// lookAndServe looks at the generators and requests. It serves those that it can from the worker ids of the slot,
// decides which generators get more lanes, and returns what needs a statement.
func (m *Manager) lookAndServe() *work {
	m.mu.Lock()
	defer m.mu.Unlock()
	now, tick := m.clock.now(), m.tick()
	w := &work{wait: m.renewAfter}
	lastUse, pressing, starving := m.lastUse, false, false
	for _, l := range m.tableLeases {
		l.look(now)
		l.grow(now, tick)
		if l.lastUse.After(lastUse) {
			lastUse = l.lastUse
		}
		if l.unknown {
			w.wait = sampleInterval
		}
		starving = starving || l.usage.Waiting && l.usage.Left == 0
		pressing = pressing || inNeed(l.usage, m.slot.granted, tick, uint64(m.layout.MaxSequence()+1))
	}
	w.binds = m.toBind()
	since := time.Since(m.lastAck)
	w.idle = len(m.requests) == 0 && now.Sub(lastUse) > idleAfter
	w.wanted = len(m.requests) > 0 || !w.idle && (len(m.tableLeases) > 0 || m.config.Spares > 0)
	if w.idle && len(w.binds) == 0 {
		w.wait = grace / 2
		if m.slot.held {
			rest := grace/2 - since
			if m.seen <= m.slot.fence { // with SEEN_TICK above FENCE the row shows that the process is idle, and has not ended
				rest = min(rest, m.layout.TimeOf(m.slot.fence+1).Sub(now))
			}
			w.keepAlive = rest <= 0
			w.wait = max(rest, time.Millisecond)
		}
		return w
	}
	pause := min(minPause, m.renewAfter/4)
	w.due = since >= m.renewAfter
	w.stale = (pressing || tick > m.slot.granted) && since >= pause
	switch {
	case pressing && !w.due:
		w.wait = min(w.wait, max(pause-since, time.Millisecond))
	case !w.due:
		w.wait = min(w.wait, max(m.renewAfter-since, time.Millisecond))
	}
	if m.slot.held && m.params.fenceAt(tick, m.slot.fence) <= m.slot.granted {
		// Nothing can be granted before the next tick.
		w.wait = max(w.wait, min(m.layout.TimeOf(tick+1).Sub(now), m.renewAfter))
	}
	if (starving || len(m.requests) > 0) && m.slot.held {
		w.stuck = m.still.check(tick, m.layout)
	}
	m.provide(now, w)
	return w
}

// toBind returns the spares in use whose tables are not written yet. The caller holds the mutex.
func (m *Manager) toBind() (uses []spareUse) {
	for _, w := range m.workers {
		if w.toBind {
			uses = append(uses, spareUse{w.id, w.table})
		}
	}
	return uses
}

// stillness notes since when the clock has shown the same tick.
type stillness struct {
	tick  int64
	since time.Time
}

// check returns an error if the clock has not moved for long. Then nothing can be granted.
func (s *stillness) check(tick int64, layout generator.Layout) error {
	if now := time.Now(); tick != s.tick || s.since.IsZero() {
		s.tick, s.since = tick, now
	} else if now.Sub(s.since) > time.Second+2*layout.Tick {
		return fmt.Errorf("%w: the clock stands still at %s, so no tick can be granted", ErrClock, layout.TimeOf(tick))
	}
	return nil
}

// provide serves requests and generators from the slot's worker ids, and notes in w what is
// missing. The caller holds the mutex.
func (m *Manager) provide(now time.Time, w *work) {
	lack := map[Table]int{}
	short := func(t Table, n int) {
		w.tables = append(w.tables, t)
		lack[t] += n
	}
	for _, l := range m.tableLeases {
		n := max(l.want, 1) - len(l.lanes)
		if n <= 0 {
			continue
		}
		free := m.free(l.table)
		switch {
		case len(free)-lack[l.table] >= n && m.slot.held:
			m.replace(l, free, n)
		case !now.Before(l.again):
			short(l.table, n)
		}
	}
	for _, r := range slices.Clone(m.requests) {
		if !m.serve(r) {
			for i, t := range r.tables {
				short(t, r.lanes[i])
			}
		}
	}
	spares := 0
	if w.wanted && !now.Before(m.again) {
		spares = m.config.Spares
	}
	w.missing = missing(lack, spares, func(t Table) int { return len(m.free(t)) })
}

// missing returns the tables of the worker ids that a slot has to get: lack says how many each table needs, free how many
// of it are unused. Spares come last. It is pure.
func missing(lack map[Table]int, spares int, free func(Table) int) (tables []Table) {
	for t, n := range lack {
		for range n - free(t) {
			tables = append(tables, t)
		}
	}
	slices.SortFunc(tables, func(a, b Table) int { return strings.Compare(a.String(), b.String()) })
	for range spares - free(Table{}) {
		tables = append(tables, Table{})
	}
	return tables
}

// replace gives a lease more lanes, or others if those it had are lost.
func (m *Manager) replace(l *TableLease, free []*worker, n int) {
	had := len(l.published)
	l.take(free, n)
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
		text = "uidplugin: a table has more worker ids now, which it needs"
	}
	m.log.Info(text, "table", l.table.String(), "worker_id", ids)
}

// serve gives a request its leases, if the slot has worker ids for all of them.
func (m *Manager) serve(r *request) bool {
	if !m.slot.held || m.slot.inDoubt || m.tick() > m.slot.granted {
		return false
	}
	if len(r.tables) == 0 && len(m.free(Table{})) < m.config.Spares && !m.clock.now().Before(m.again) {
		return false
	}
	var leases []*TableLease
	undo := func() {
		for _, l := range leases {
			for _, w := range l.lanes {
				w.user = nil
			}
		}
	}
	for i, t := range r.tables {
		l := &TableLease{manager: m, table: t, least: r.lanes[i], want: r.lanes[i], lastUse: m.clock.now()}
		free := m.free(t)
		leases = append(leases, l)
		if len(free) < r.lanes[i] {
			undo()
			return false
		}
		l.take(free, r.lanes[i])
		l.publish()
		if l.published == nil {
			undo()
			return false
		}
	}
	r.leases = leases
	m.tableLeases = append(m.tableLeases, leases...)
	close(r.done)
	m.requests = slices.DeleteFunc(m.requests, func(other *request) bool { return other == r })
	return true
}
