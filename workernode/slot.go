package workernode

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"regexp"
	"slices"
	"time"

	"github.com/uidplugin/uidplugin/internal/sqldb"
)

// What the lease manager does about its slot. lease.go decides. Each function here sends one statement, or one
// transaction, and notes the outcome. Only the goroutine of the Manager calls them, or Close after that has ended. They
// hold the mutex while they change what it guards.

// acquire gets a slot: one of a process that has ended, or a new one.
func (m *Manager) acquire(ctx context.Context, tables []Table) error {
	if err := m.layout.ValidAt(m.clock.now()); err != nil {
		return err
	}
	if err := m.checkClock(ctx); err != nil {
		return err
	}
	if !m.config.Disposable {
		if ok, err := m.reclaim(ctx, tables); ok || err != nil {
			return err
		}
	}
	slot, err := m.store.db.nextSlot(ctx, m.leastSlot)
	if err != nil {
		return fmt.Errorf("workernode: reserve a slot: %w", err)
	}
	c := m.slot.allocateChange(m.params, slot, m.tick(), m.me)
	ok, err := m.beginSession(ctx, &c)
	if errors.Is(err, errTaken) && m.slotsTaken < maxTries {
		m.slotsTaken++ // NEXT_SLOT is behind: its latest commits were lost, or the row was restored
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

// reclaim tries to get a slot of a former process. It reports false if it got none.
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

// reclaimOne tries to get one of the slots that were read. It returns how many were refused, as another process has
// changed their rows since.
func (m *Manager) reclaimOne(ctx context.Context, rows []slotRow) (got bool, refused int, err error) {
	failures := 0
	for _, r := range rows {
		if time.Since(m.avoid[r.id]) < grace && !m.avoid[r.id].IsZero() {
			continue
		}
		c := m.slot.reclaimChange(m.params, r, m.tick(), m.me)
		ok, err := m.beginSession(ctx, &c)
		if errors.Is(err, sqldb.ErrNoConnection) || errors.Is(err, ErrTable) || sqldb.IsTransient(err) && !lockWait.MatchString(err.Error()) {
			return false, refused, err // no connection, or another process interfered: another slot would not help
		}
		if err != nil {
			// The row may be locked, or hold values that cannot be read. Another slot, or a new one, may work.
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

// candidates returns the slots that may be reclaimed: those of this application, or, when worker ids are used up, those
// with a worker id of one of tables.
func (m *Manager) candidates(ctx context.Context, tables []Table) ([]slotRow, error) {
	if m.exhausted && len(tables) > 0 {
		return m.store.candidatesWithTables(ctx, m.params, m.tick(), tables)
	}
	return m.store.candidatesOfApplication(ctx, m.params, m.tick())
}

// beginSession begins a session with c, of this slot or another one. It reports false if that was
// refused.
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
		nodes = nil // no process has held the slot, so it owns no worker id
	}
	for _, w := range m.workers {
		if w.toBind { // its START_TICK must be that of the new session
			m.log.Error("uidplugin: the table of a spare worker id was not written in time: ids that it made until now cannot be located",
				"table", w.table.String(), "worker_id", w.id, "until", m.layout.TimeOf(c.first))
		}
	}
	m.slot.noteSession(*c, floor)
	m.noteAck()
	m.stats.Sessions++
	m.mustReread = false
	m.noteRead(nodes)
	m.publish()
	args := []any{"slot", c.slot, "id_space", m.registry.Space, "from", m.layout.TimeOf(c.first), "until", m.layout.TimeOf(c.newFence + 1)}
	if n := len(m.workers); n > 0 { // a new slot gets the first with the first table
		args = append(args, "worker_ids", n)
	}
	m.log.Info("uidplugin: this process has a slot", args...)
	return true, nil
}

// tooLate is the error of a session whose ticks have passed before it could be used.
func (m *Manager) tooLate() error {
	return fmt.Errorf("workernode: begin a session: the database's answers took longer than the lead of %v (LEAD_TICKS in %s): %w",
		m.config.Lead, RegistryTable, context.DeadlineExceeded)
}

// begin begins a new session of the slot.
func (m *Manager) begin(ctx context.Context) error {
	if err := m.checkClock(ctx); err != nil {
		return err
	}
	c := m.slot.beginChange(m.params, m.tick(), m.me)
	ok, err := m.beginSession(ctx, &c)
	if err == nil && !ok {
		return m.refuse(ctx, "begin a session")
	}
	return err
}

// refuse notes that a statement changed no row, although its slot is held. It returns an error if that has happened too
// often in a row. Otherwise it waits briefly.
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

// lockWait matches the error of a statement that waited too long for a lock: by the server's own
// limit, on MySQL and PostgreSQL.
var lockWait = regexp.MustCompile(`Error 1205\b|SQLSTATE 55P03`)

// giveUpIfLocked gives the slot up if its row seems to be locked: statements have no answer, although
// the row was read between them, and what was granted is used up. Giving a slot up is always
// safe. The caller holds the mutex.
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

// noteAck notes that a statement about the slot was acknowledged, of whatever kind: the next one is due a while after
// it. The caller holds the mutex.
func (m *Manager) noteAck() {
	m.refused, m.timeouts = 0, 0
	m.lastAck = time.Now()
	m.setRenewAfter()
}

// publish passes to all generators what they may stamp. The caller holds the mutex.
func (m *Manager) publish() {
	for _, l := range m.tableLeases {
		l.publish()
	}
}

// renew moves the fence on.
func (m *Manager) renew(ctx context.Context) error {
	if err := m.checkClock(ctx); err != nil {
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

// counts reports whether a statement counts: it was acknowledged without an error, and changed the rows that it should,
// as changed says. Otherwise counts notes the outcome. Then it returns an error, or nil if the statement was refused
// and may be tried again. what names the statement for the error.
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

// doubt notes that the outcome of a statement is unknown.
func (m *Manager) doubt() {
	m.mu.Lock()
	m.slot.doubt()
	m.mu.Unlock()
}

// noteRenewal notes the acknowledgement of a renewal, or of an Add or Bind, which renew as well. The caller holds the
// mutex.
func (m *Manager) noteRenewal(c change) {
	if m.slot.noteRenewal(c, m.tick()) {
		m.stats.Renewals++
	}
	m.noteAck()
	m.publish()
}

// keepAlive keeps the slot of an idle process from being reclaimed. It grants nothing.
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

// read reads the slot's row after a statement whose outcome is unknown.
func (m *Manager) read(ctx context.Context) error {
	r, found, floor, err := m.store.read(ctx, m.slot.id)
	if err != nil {
		return err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	slot := m.slot.id
	if held := m.slot.noteRow(r, found, m.me); held {
		m.slot.floor = max(m.slot.floor, floor)
		if m.slot.altered() {
			return errNotKept(slot, "FENCE", m.slot.granted)
		}
		return nil
	}
	if found && r.holder == "" && r.version == m.slot.used { // a release was executed, and its answer lost
		m.noteLost(slot, "it was released")
		return nil
	}
	m.stats.Lost++
	m.noteLost(slot, "another process has the slot now, because it was not renewed in time, or the database has lost commits")
	return nil
}

// bind writes the tables of spares that are in use.
func (m *Manager) bind(ctx context.Context, uses []spareUse) error {
	c := m.slot.renewChange(m.params, m.tick(), m.me)
	gone, ok, err := m.store.bind(ctx, c, uses, m.slot.start, m.slot.granted+1, m.tick)
	if ok, err := m.counts(ctx, ok, err, "write the table of a spare worker id"); !ok {
		return err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, w := range m.workers {
		bound := slices.ContainsFunc(uses, func(u spareUse) bool { return u.worker == w.id })
		w.toBind = w.toBind && !bound
		if bound && slices.Contains(gone, w.id) {
			m.log.Error("uidplugin: another program has changed the row of a spare worker id: its ids cannot be located",
				"table", w.table.String(), "worker_id", w.id)
			if l := w.user; l != nil {
				l.want, l.lanes = max(l.want, len(l.lanes)), nil
			}
		}
	}
	m.noteRenewal(c)
	return nil
}
