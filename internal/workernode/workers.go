package workernode

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"
)

// How the lease manager adds missing worker ids to its slot, or goes on without them. As in slot.go, only the Manager's
// goroutine calls these functions.

func (m *Manager) add(ctx context.Context, tables []Table) error {
	if !m.mayInsert {
		if err := m.store.db.mayInsert(ctx); err != nil {
			return err
		}
		m.mayInsert = true
	}
	if err := m.reserve(ctx, len(tables)); errors.Is(err, ErrExhausted) {
		return m.usedUp(ctx, err, tables)
	} else if err != nil {
		return fmt.Errorf("workernode: reserve worker ids: %w", err)
	}
	nodes := make([]newNode, len(tables))
	for i, t := range tables {
		nodes[i] = newNode{m.unspent[i], t}
	}
	c := m.slot.renewChange(m.params, m.tick(), m.me)
	start, ok, err := m.store.add(ctx, c, nodes, m.tick)
	if err != nil {
		return m.notAdded(ctx, tables, err)
	}
	if !ok {
		return m.refuse(ctx, "add worker ids")
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	m.unspent = m.unspent[len(nodes):]
	for _, n := range nodes {
		m.workers = append(m.workers, &worker{id: n.worker, table: n.table, start: start})
	}
	m.exhausted, m.idsTaken = false, 0
	m.given = max(m.given, nodes[len(nodes)-1].worker)
	m.slot.floor = max(m.slot.floor, start) // FLOOR_TICK, if that is ahead of the clock: then a new session follows
	m.noteRenewal(c)
	if last, most := nodes[len(nodes)-1].worker, m.layout.MaxWorkerID(); last > most-most/10 {
		m.log.Warn("uidplugin: more than nine tenths of the worker ids were given out; when all are, new processes and tables get those of slots that are free, or none",
			"worker_id", last, "of", most, "layout", m.layout.String())
	}
	return nil
}

// reserve ensures that m.unspent holds at least n worker ids, and reuses those that failed adds left there.
func (m *Manager) reserve(ctx context.Context, n int) error {
	n -= len(m.unspent)
	if n <= 0 {
		return nil
	}
	b, err := m.store.db.reserve(ctx, m.layout, m.registry.Space, int64(n), m.atLeast)
	for i := 0; i < n && err == nil; i++ {
		m.unspent = append(m.unspent, b.worker(i))
	}
	return err
}

// notAdded handles a failed add.
func (m *Manager) notAdded(ctx context.Context, tables []Table, why error) error {
	m.mu.Lock()
	m.slot.doubt()
	m.mustReread = true
	optional := !m.needed(tables)
	if optional {
		later := m.clock.now().Add(grace / 2)
		for _, l := range m.tableLeases {
			if n := len(l.lanes); n > 0 && l.want > n {
				l.want, l.again = n, later
			}
		}
	}
	m.mu.Unlock()
	if errors.Is(why, errTaken) { // UidGenerator inserts into the same table
		largest, err := m.store.db.largest(ctx, m.layout)
		if err != nil {
			return err
		}
		m.unspent, m.atLeast = nil, largest+1
		m.idsTaken++
		if m.idsTaken <= 2*maxRefused {
			return pause(ctx, m.idsTaken)
		}
		m.idsTaken = 0
	}
	if !optional {
		return why
	}
	m.log.Warn("uidplugin: further worker ids of a table could not be added; trying again later", "error", why)
	return nil
}

// needed reports whether a caller, or a generator without worker ids, waits for missing ones. Further lanes do not
// count. The caller holds the mutex.
func (m *Manager) needed(missing []Table) bool {
	return len(m.requests) > 0 || slices.ContainsFunc(m.tableLeases, func(l *TableLease) bool {
		return len(l.lanes) == 0 && slices.Contains(missing, l.table)
	})
}

// usedUp handles missing worker ids when the layout has none left. The process continues without further lanes. Without
// any worker id it tries a slot that has some. Otherwise requests fail.
func (m *Manager) usedUp(ctx context.Context, why error, tables []Table) error {
	m.mu.Lock()
	later := m.clock.now().Add(grace / 2)
	more, idle := false, true
	for _, l := range m.tableLeases {
		n := len(l.lanes)
		idle = idle && n == 0
		if n == 0 { // its slot was lost, and the new one may have fewer
			n = floorPower(len(m.free(l.table)))
		}
		if n >= l.least && l.want > n {
			more, l.want, l.again = true, n, later
			l.limit(why)
		}
	}
	m.mu.Unlock()
	if more {
		return nil // the next pass tries the rest, without the optional ones
	}
	if idle && !m.exhausted && !m.config.Disposable {
		others, err := m.store.candidatesWithTables(ctx, m.params, m.tick(), tables)
		if err != nil {
			return err
		}
		if len(others) > 0 {
			m.exhausted = true
			return m.release(ctx, func(int64) { m.forget() })
		}
	}
	m.exhausted = false
	err := m.explain(ctx, why, tables)
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, l := range m.tableLeases {
		if len(l.lanes) == 0 {
			m.exhaust(l, err, later)
		}
	}
	m.endRequests(err, slices.Clone(m.requests)...)
	return nil
}

// exhaust records that a lease has lost its worker ids without a replacement.
func (m *Manager) exhaust(l *TableLease, why error, again time.Time) {
	why = fmt.Errorf("the table %s has lost its worker id: %w", l.table, why)
	if l.noWorkerID == nil {
		m.log.Error("uidplugin: a table has lost its worker id, and gets no other: creates fail", "table", l.table.String(), "error", why)
	}
	l.noWorkerID, l.again = why, again
	if l.generator != nil {
		l.generator.Suspend(why)
	}
}

// soonFree counts unused worker ids of tables that become free once the clock has passed the leases of their last user.
func (m *Manager) soonFree(tables []Table) (n int) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, w := range m.workers {
		if w.user == nil && w.retired >= m.tick() && slices.Contains(tables, w.table) {
			n++
		}
	}
	return n
}

// explain adds to an ErrExhausted the tables with the most worker ids, and a remedy. tables are those that lack some.
func (m *Manager) explain(ctx context.Context, err error, tables []Table) error {
	owners, e := m.store.owners(ctx)
	if e != nil {
		return errors.Join(err, e)
	}
	if m.config.Disposable {
		return fmt.Errorf("%w (most have: %s); each start of a process takes one for each table, and none is given out again:"+
			" use a layout with more worker bits in a new id space, write to fewer tables, or drop WithDisposable", err, owners)
	}
	if n := m.soonFree(tables); n > 0 {
		return fmt.Errorf("%w (most have: %s); worker ids of plugins of this process that were closed, %d, come free within %v: try again then",
			err, owners, n, m.config.Lead+m.layout.Tick)
	}
	return fmt.Errorf("%w (most have: %s), and no free slot has one of these tables: a slot is free when its process has ended and the clock has passed its FENCE;"+
		" end processes that are not needed, write to fewer tables, or use a layout with more worker bits in a new id space", err, owners)
}

// rereadWorkers reads the slot's worker ids every ten minutes, because somebody may have deleted their rows, and after
// some were added with an unknown outcome. The latest statement must have been acknowledged.
func (m *Manager) rereadWorkers(ctx context.Context) error {
	m.mu.Lock()
	must := m.mustReread
	due := (must || time.Since(m.lastRead) > rereadAfter) &&
		m.slot.held && !m.slot.inDoubt && !m.slot.regressed && m.slot.version == m.slot.ackedVersion
	renewal := time.Since(m.lastAck) >= m.renewAfter && m.params.fenceAt(m.tick(), m.slot.fence) > m.slot.granted
	m.mu.Unlock()
	if !due || renewal { // a renewal that is due goes first: the table may be locked
		return nil
	}
	// The same SELECT compares the row of the slot. A late COMMIT of these worker ids would have changed its version,
	// and a replaced server has an old one.
	nodes, ok, err := m.store.db.nodesAt(ctx, m.slot.id, m.me, m.slot.ackedVersion)
	if err == nil {
		_, err = m.store.db.floor(ctx, m.registry.Space)
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	switch {
	case err == nil && ok:
		m.mustReread = false
		m.noteRead(nodes)
	case !must && !errors.Is(err, errSpace):
		m.lastRead, err = time.Now(), nil // nothing depends on it
	}
	return err
}

// noteRead records the rows of all worker ids of the slot. The caller holds the mutex.
func (m *Manager) noteRead(nodes []*Node) {
	m.lastRead = time.Now()
	m.addRead(nodes)
	m.dropDeleted(nodes)
}

// dropDeleted gives up worker ids whose rows were deleted or name another table, because their ids cannot be located.
// Their tables get others. The caller holds the mutex.
func (m *Manager) dropDeleted(nodes []*Node) {
	there := make(map[int64]Table, len(nodes))
	for _, n := range nodes {
		there[n.WorkerID] = n.Table
	}
	m.workers = slices.DeleteFunc(m.workers, func(w *worker) bool {
		if there[w.id] == w.table {
			return false
		}
		m.ignored[w.id] = true // even if the row comes back, because its stamped ticks are no longer recorded
		m.log.Error("uidplugin: the row of a worker id was deleted from "+NodeTable+", or names another table: its ids cannot be located, and its table gets another worker id",
			"table", w.table.String(), "worker_id", w.id, "slot", m.slot.id)
		if l := w.user; l != nil {
			l.giveUpLanes()
		}
		return true
	})
}

// addRead adds worker ids that were read to the slot's. It skips and reports unusable ones. The caller holds the mutex.
func (m *Manager) addRead(nodes []*Node) {
	have := make(map[int64]bool, len(m.workers))
	for _, w := range m.workers {
		have[w.id] = true
	}
	for _, n := range nodes {
		if have[n.WorkerID] || m.ignored[n.WorkerID] {
			continue
		}
		m.unspent = slices.DeleteFunc(m.unspent, func(id int64) bool { return id == n.WorkerID })
		why := ""
		switch {
		case n.WorkerID < 1 || n.WorkerID > m.layout.MaxWorkerID():
			why = "it is outside the layout"
		case n.Layout != m.layout.String():
			why = "its LAYOUT is " + printable(n.Layout)
		case n.Start > m.params.fenceAt(m.tick(), 0):
			why = "its START_TICK is ahead of the clock"
		}
		if why == "" {
			m.workers = append(m.workers, &worker{id: n.WorkerID, table: n.Table, start: n.Start})
		} else {
			m.ignored[n.WorkerID] = true
			m.log.Error("uidplugin: a row of "+NodeTable+" is not used: "+why, "worker_id", n.WorkerID, "slot", n.Slot)
		}
	}
}
