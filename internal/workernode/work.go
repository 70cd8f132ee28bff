package workernode

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/uidplugin/uidplugin/generator"
)

// This file decides the lease manager's next statement, and serves requests from worker ids that the slot already has.

// An action is the next thing that the lease manager does. For doSlot see the [step] of the lease.
type action int

const (
	doNothing action = iota
	doSlot           // the step of the lease: acquire, read, begin ...
	doRenew
	doAdd
	doKeepAlive
)

// work describes the needs of one moment.
type work struct {
	idle      bool    // no ids were made for a long time
	wanted    bool    // the process needs a slot
	due       bool    // a renewal is due
	keepAlive bool    // a keep-alive is due
	stale     bool    // ticks are needed, and the grants have passed or are nearly used up
	missing   []Table // tables of the worker ids to add
	tables    []Table // that lack worker ids, or wait for some
	stuck     error   // callers wait, but the clock stands still
	wait      time.Duration
}

// next decides the order of the work. The step is for doSlot. It is pure.
func (w *work) next(l *slotLease, p leaseParams, now int64) (action, step) {
	if !l.held && !w.wanted {
		return doNothing, stepReady
	}
	if w.idle && l.held && !l.inDoubt && !l.regressed {
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
	case len(w.missing) > 0:
		return doAdd, stepReady
	}
	return doNothing, stepReady
}

func (a action) sends(s step) bool {
	return a != doNothing && (a != doSlot || s != stepWait && s != stepExhausted)
}

// lookAndServe looks at generators and requests. It serves them from the slot's worker ids where possible, decides
// which generators get more lanes, and returns the work that needs a statement.
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
	since := time.Since(m.lastAck)
	w.idle = len(m.requests) == 0 && now.Sub(lastUse) > idleAfter
	w.wanted = len(m.requests) > 0 || !w.idle && len(m.tableLeases) > 0
	if w.idle {
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

// stillness tracks how long the clock has shown the same tick.
type stillness struct {
	tick  int64
	since time.Time
}

// check returns an error if the clock has not moved for long, because then nothing can be granted.
func (s *stillness) check(tick int64, layout generator.Layout) error {
	if now := time.Now(); tick != s.tick || s.since.IsZero() {
		s.tick, s.since = tick, now
	} else if now.Sub(s.since) > time.Second+2*layout.Tick {
		return fmt.Errorf("%w: the clock stands still at %s, so no tick can be granted", ErrClock, layout.TimeOf(tick))
	}
	return nil
}

// provide serves requests and generators from the slot's worker ids, and notes in w those that are missing. The caller
// holds the mutex.
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
	w.missing = missing(lack, func(t Table) int { return len(m.free(t)) })
}

// missing returns the table of each worker id that a slot has to get. lack is the need of each table, and free counts
// its unused worker ids. It is pure.
func missing(lack map[Table]int, free func(Table) int) (tables []Table) {
	for t, n := range lack {
		for range n - free(t) {
			tables = append(tables, t)
		}
	}
	slices.SortFunc(tables, func(a, b Table) int { return strings.Compare(a.String(), b.String()) })
	return tables
}

// replace gives a lease more lanes, or others in place of lost ones.
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

// serve gives a request its leases if the slot has enough worker ids.
func (m *Manager) serve(r *request) bool {
	if !m.slot.held || m.slot.inDoubt || m.tick() > m.slot.granted {
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
