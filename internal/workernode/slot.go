package workernode

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"regexp"
	"time"

	"github.com/uidplugin/uidplugin/internal/sqldb"
)

// The lease manager's statements about its slot. lease.go decides. Each function here sends one statement or
// transaction and records the outcome. Only the Manager's goroutine calls them, or Close after it has ended. They hold
// the mutex while they change guarded fields.

// acquire gets a slot: a former process's, or a new one.
func (m *Manager) acquire(ctx context.Context, tables []Table) error {
	if err := m.layout.ValidAt(m.clock.now()); err != nil {
		return err
	}
	if err := m.clockCheck.check(ctx); err != nil {
		return err
	}
	if !m.config.Disposable {
		if ok, err := m.reclaim(ctx, tables); ok || err != nil {
			return err
		}
	}
	slot, err := m.store.db.nextSlot(ctx, m.registry.Space, m.leastSlot)
	if err != nil {
		return fmt.Errorf("workernode: reserve a slot: %w", err)
	}
	c := m.slot.allocateChange(m.params, slot, m.tick(), m.me)
	ok, err := m.beginSession(ctx, &c)
	if errors.Is(err, errTaken) && m.slotsTaken < maxTries {
		m.slotsTaken++ // NEXT_SLOT is behind, because its latest commits were lost or the row was restored
		m.leastSlot = slot + 1<<m.slotsTaken
		return pause(ctx, m.slotsTaken)
	}
	m.slotsTaken = 0
	if ok {
		m.mu.Lock()
		m.stats.Allocated++
		m.mu.Unlock()
	}
	return err
}

// reclaim tries to get a slot of a former process, and reports whether it did.
func (m *Manager) reclaim(ctx context.Context, tables []Table) (bool, error) {
	for look := 1; ; look++ {
		rows, err := m.candidates(ctx, tables)
		if err != nil {
			return false, err
		}
		rows = inOrder(rows, rand.Shuffle)
		got, refused, err := m.reclaimOne(ctx, rows)
		if got || err != nil || !looksAgain(len(rows), refused, look) {
			return got, err
		}
	}
}

// reclaimOne tries to get a slot of rows. refused counts those that another process has changed since.
func (m *Manager) reclaimOne(ctx context.Context, rows []slotRow) (got bool, refused int, err error) {
	failures := 0
	for _, r := range rows {
		if time.Since(m.avoid[r.id]) < grace && !m.avoid[r.id].IsZero() {
			continue
		}
		c := m.slot.reclaimChange(m.params, r, m.tick(), m.me)
		ok, err := m.beginSession(ctx, &c)
		if errors.Is(err, sqldb.ErrNoConnection) || errors.Is(err, ErrTable) || sqldb.IsTransient(err) && !lockWait.MatchString(err.Error()) {
			return false, refused, err // another slot would not help: no connection, or another process interfered
		}
		if err != nil {
			// The row may be locked or unreadable, so try another slot or a new one.
			m.avoid[r.id] = time.Now()
			if timedOut(err) {
				failures++
			}
			if failures > 1 || ctx.Err() != nil || !timedOut(err) && sqldb.IsUnreachable(err) {
				return false, refused, err
			}
			continue
		}
		if ok {
			m.mu.Lock()
			m.stats.Reclaimed++
			m.mu.Unlock()
			return true, refused, nil
		}
		refused++
	}
	return false, refused, nil
}

// candidates returns reclaimable slots of this application or, when worker ids are used up, of any application that has
// worker ids for tables.
func (m *Manager) candidates(ctx context.Context, tables []Table) ([]slotRow, error) {
	if m.exhausted && len(tables) > 0 {
		return m.store.candidatesWithTables(ctx, m.params, m.tick(), tables)
	}
	return m.store.candidatesOfApplication(ctx, m.params, m.tick())
}

// beginSession begins a session with c, in the same slot or another one. It reports false if c was refused.
func (m *Manager) beginSession(ctx context.Context, c *change) (bool, error) {
	nodes, floor, ok, err := m.store.beginSession(ctx, c, m.tick)
	m.mu.Lock()
	defer m.mu.Unlock()
	if !ok {
		if m.slot.held {
			m.slot.doubt()
			m.giveUpIfLocked(err)
		}
		if err == nil && floor >= c.newFence {
			err = fmt.Errorf("%w: FLOOR_TICK in %s is %d, which is %s; now is %s, and ids are stamped at most %v ahead",
				ErrClock, RegistryTable, floor, m.layout.TimeOf(min(floor, m.layout.MaxTick())), m.clock.now().UTC().Format(time.RFC3339), m.config.Lead)
		} else if err == nil && c.first > c.newFence {
			err = m.tooLate()
		}
		return false, err
	}
	if !m.slot.held || m.slot.id != c.slot {
		m.workers = nil
	}
	if c.insert {
		nodes = nil // no process has held the slot, so it owns no worker ids
	}
	m.slot.noteSession(*c, floor)
	m.noteAck()
	m.stats.Sessions++
	m.mustReread = false
	m.noteRead(nodes)
	m.publish()
	args := []any{"slot", c.slot, "id_space", m.registry.Space, "from", m.layout.TimeOf(c.first), "until", m.layout.TimeOf(c.newFence + 1)}
	if n := len(m.workers); n > 0 { // a new slot gets its first one with the first table
		args = append(args, "worker_ids", n)
	}
	m.log.Info("uidplugin: this process has a slot", args...)
	return true, nil
}

// tooLate is the error for a session whose ticks have passed before it could be used.
func (m *Manager) tooLate() error {
	return fmt.Errorf("workernode: begin a session: the database's answers took longer than the lead of %v (LEAD_TICKS in %s): %w",
		m.config.Lead, RegistryTable, context.DeadlineExceeded)
}

func (m *Manager) begin(ctx context.Context) error {
	if err := m.clockCheck.check(ctx); err != nil {
		return err
	}
	c := m.slot.beginChange(m.params, m.tick(), m.me)
	ok, err := m.beginSession(ctx, &c)
	if err == nil && !ok {
		return m.refuse(ctx, "begin a session")
	}
	return err
}

// refuse records that a statement about the held slot changed no row. It waits briefly, or returns an error after too
// many in a row.
func (m *Manager) refuse(ctx context.Context, what string) error {
	m.mu.Lock()
	m.slot.doubt()
	slot := m.slot.id
	m.mu.Unlock()
	m.refused++
	if m.refused <= maxRefused {
		return pause(ctx, m.refused)
	}
	m.refused = maxRefused // until a statement succeeds, each pass tries once
	r, found, _, err := m.store.read(ctx, slot)
	switch {
	case err != nil:
		return err
	case !found:
		return fmt.Errorf("workernode: %s: slot %d has no row in %s any more", what, slot, SlotTable)
	}
	return fmt.Errorf("workernode: %s: the database changed no row %d times in a row, and reports no error: slot %d has VERSION %d, FENCE %d and HOLDER %s; something else changes %s, or undoes the change",
		what, maxRefused+1, slot, r.version, r.fence, printable(r.holder), SlotTable)
}

// lockWait matches errors of the server's own lock timeout, on MySQL and PostgreSQL.
var lockWait = regexp.MustCompile(`Error 1205\b|SQLSTATE 55P03`)

// giveUpIfLocked gives up a slot whose row seems to be locked: statements time out although the row can be read, and
// its grants are used up. Giving up a slot is always safe. The caller holds the mutex.
func (m *Manager) giveUpIfLocked(err error) {
	if err == nil || !timedOut(err) && !lockWait.MatchString(err.Error()) || !m.slot.held {
		m.timeouts = 0
		return
	}
	m.timeouts++
	if m.timeouts > 2 && m.tick() > m.slot.granted {
		m.timeouts = 0
		m.avoid[m.slot.id] = time.Now()
		m.noteLost(m.slot.id, "its row can be read and not be changed; another transaction may hold a lock")
	}
}

// noteAck records that any statement about the slot was acknowledged, and schedules the next. The caller holds the
// mutex.
func (m *Manager) noteAck() {
	m.refused, m.timeouts = 0, 0
	m.lastAck = time.Now()
	m.setRenewAfter()
}

// publish passes their leases to all generators. The caller holds the mutex.
func (m *Manager) publish() {
	for _, l := range m.tableLeases {
		l.publish()
	}
}

func (m *Manager) renew(ctx context.Context) error {
	if err := m.clockCheck.check(ctx); err != nil {
		return err
	}
	c := m.slot.renewChange(m.params, m.tick(), m.me)
	ok, err := m.store.update(ctx, c, m.tick())
	if ok, err := m.counts(ctx, ok, err, "renew the slot"); !ok {
		return err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	m.noteRenewal(c)
	return nil
}

// counts reports whether a statement counts: it returned without an error and changed the expected rows, as changed
// indicates. Otherwise it records the outcome and returns an error, or nil to retry a refused statement. what names the
// statement in errors.
func (m *Manager) counts(ctx context.Context, changed bool, err error, what string) (bool, error) {
	switch {
	case err != nil:
		m.doubt()
		return false, err
	case !changed:
		return false, m.refuse(ctx, what)
	}
	return true, nil
}

// doubt records that the outcome of a statement is unknown.
func (m *Manager) doubt() {
	m.mu.Lock()
	m.slot.doubt()
	m.mu.Unlock()
}

// noteRenewal records an acknowledged renewal, or an add, which also renews. The caller holds the mutex.
func (m *Manager) noteRenewal(c change) {
	if m.slot.noteRenewal(c, m.tick()) {
		m.stats.Renewals++
	}
	m.noteAck()
	m.publish()
}

// keepAlive prevents other processes from reclaiming an idle process's slot. It grants nothing.
func (m *Manager) keepAlive(ctx context.Context) error {
	c, now := m.slot.keepAliveChange(m.me), m.tick()
	ok, err := m.store.update(ctx, c, now)
	if ok, err := m.counts(ctx, ok, err, "keep the slot alive"); !ok {
		return err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	m.seen = now
	m.slot.noteAck(c)
	m.noteAck()
	return nil
}

// read reads the slot's row after a statement with an unknown outcome.
func (m *Manager) read(ctx context.Context) error {
	r, found, floor, err := m.store.read(ctx, m.slot.id)
	if err != nil {
		return err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	slot, acked := m.slot.id, m.slot.ackedVersion
	if held := m.slot.noteRow(r, found, m.me); held {
		m.slot.floor = max(m.slot.floor, floor)
		if m.slot.altered() {
			return errFence(slot, m.slot.granted)
		}
		return nil
	}
	if found && r.holder == "" && r.version == m.slot.used { // a release was executed, but its answer was lost
		m.noteLost(slot, "it was released")
		return nil
	}
	if !found || r.version < acked { // no process deletes a slot, or lowers VERSION
		m.stats.LostCommits++
		m.noteLost(slot, "the database has lost commits that it had acknowledged, or somebody deleted, changed or restored the row")
		return nil
	}
	m.stats.Lost++
	m.noteLost(slot, "another process has the slot now, because it was not renewed in time")
	return nil
}
