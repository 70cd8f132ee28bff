package workernode

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/uidplugin/uidplugin/generator"
	"github.com/uidplugin/uidplugin/internal/sqldb"
	"github.com/uidplugin/uidplugin/workernode/internal/lease"
)

func (m *Manager) run() {
	defer close(m.done)
	for failures := 0; m.ctx.Err() == nil; { // after Close no statement begins, because Close would interrupt it
		select {
		case <-m.wake: // the next pass serves all earlier requests
		default:
		}
		wait, err := m.pass(m.ctx)
		if m.ctx.Err() != nil {
			return
		}
		if err == nil {
			failures = 0
			m.noteRecovery()
			m.sleep(wait)
			continue
		}
		if sqldb.IsPoolClosed(err) && m.store.db.sql.PoolError() != nil { // this pool is closed, and not another one
			m.noteFailure(err, fatal)
			m.requests.end(err)
			return // permanently, because applications that close the pool seldom close the plugin
		}
		failures++
		m.noteFailure(err, severityOf(err, failures))
		m.rest(rand.N(min(20*time.Millisecond<<min(failures, 10), maxPause)) + time.Millisecond)
	}
}

// rest waits for a time, and ignores requests meanwhile.
func (m *Manager) rest(wait time.Duration) {
	select {
	case <-m.ctx.Done():
	case <-time.After(wait):
	}
}

// sleep waits for a time, or until a caller or a generator needs something. It serves generators at most every
// wakePause, so that they do not keep the processor busy. While a caller of Assign waits, sleep takes at most 2 ms.
func (m *Manager) sleep(wait time.Duration) {
	pause := min(wait, wakePause)
	if m.requests.any() {
		wait = min(wait, 2*time.Millisecond)
	}
	timer := time.NewTimer(wait)
	defer timer.Stop()
	select {
	case <-m.ctx.Done():
		return
	case <-timer.C:
		return
	case <-m.wake:
	}
	if !m.requests.any() {
		m.rest(pause - time.Since(m.woken))
		m.woken = time.Now()
	}
}

// pass sends all due statements on one connection, and returns the time until the next one is due.
func (m *Manager) pass(ctx context.Context) (time.Duration, error) {
	defer m.store.hold()()
	for ctx.Err() == nil {
		more, wait, err := m.one(ctx)
		if err != nil || !more {
			return wait, err
		}
	}
	return 0, ctx.Err()
}

// one sends the next statement. more is false if no statement is due now.
func (m *Manager) one(ctx context.Context) (more bool, wait time.Duration, err error) {
	w, tick := m.lookAndServe(), m.clock.tick()
	next, step := w.Next(&m.slot.lease, m.slot.params, tick)
	if next.Sends(step) {
		if err := m.store.db.sql.Ready(ctx); err != nil {
			return false, 0, err
		}
		tick = m.clock.tick() // the wait for a connection may have been long
		next, step = w.Next(&m.slot.lease, m.slot.params, tick)
	}
	switch {
	case next == lease.DoNothing:
		return false, w.wait, w.stuck
	case next == lease.DoSlot && step == lease.StepWait:
		return false, min(w.wait, max(m.layout.TimeOf(tick+1).Sub(m.clock.now()), time.Millisecond)), w.stuck
	}
	sessions := m.slot.stats.Sessions
	err = m.send(ctx, w, next, step)
	began := sessions != m.slot.stats.Sessions
	m.share(began)
	if err == nil && began && m.clock.tick() > m.slot.lease.Granted {
		m.noteDegraded(m.slot.tooLate())
	}
	if err == nil {
		err = m.reread(ctx)
	}
	return true, 0, err
}

func (m *Manager) send(ctx context.Context, w *agenda, next lease.Action, step lease.Step) error {
	switch next {
	case lease.DoKeepAlive:
		return m.slot.keepAlive(ctx)
	case lease.DoAdd:
		if err := m.add(ctx, w.missing); err != nil {
			return addError{err}
		}
		return nil
	case lease.DoRenew:
		return m.slot.renew(ctx)
	}
	switch step {
	case lease.StepAcquire:
		var tables []Table
		if m.exhausted {
			tables = slices.Compact(slices.Clone(w.missing))
		}
		return m.slot.acquire(ctx, tables)
	case lease.StepRead:
		return m.slot.read(ctx)
	case lease.StepCheckCommits:
		return m.slot.checkLostCommits(ctx)
	case lease.StepBegin:
		return m.slot.begin(ctx)
	case lease.StepAbandon:
		return m.slot.abandon(ctx)
	}
	return fmt.Errorf("%w: the layout %v ends at %s", generator.ErrTimeExhausted, m.layout, m.layout.Expires())
}

// share passes the outcome of a statement about the slot to the generators and to Stats.
func (m *Manager) share(newSession bool) {
	h := m.slot
	if newSession { // before grants are passed on, because the row of a worker id may have been deleted
		m.rows.noteRead(h.nodes)
		m.allocator.noteRead(h.nodes)
	}
	m.allocator.noteSlot(h.lease)
	m.showStats()
	if !newSession {
		return
	}
	args := []any{"slot", h.lease.ID, "id_space", m.registry.Space, "until", m.layout.TimeOf(h.lease.Granted + 1)}
	if workers, _ := m.allocator.counts(); workers > 0 { // a new slot gets its first worker id with the first table
		args = append(args, "worker_ids", workers)
	}
	m.log.Info("uidplugin: this process has a slot", args...)
}

// showStats makes Stats return the present state.
func (m *Manager) showStats() {
	s, l := m.slot.stats, &m.slot.lease
	if l.Held {
		s.ID, s.From, s.Until = l.ID, m.layout.TimeOf(l.Start+1), m.layout.TimeOf(l.Granted+1)
	}
	m.stats.Store(&s)
}

// reread reads the rows of worker ids if that is due. A due renewal goes first, because WORKER_NODE may be locked.
func (m *Manager) reread(ctx context.Context) error {
	h := m.slot
	if !m.rows.due(&h.lease) || time.Since(h.lastAck) >= h.renewInterval && h.params.FenceAt(m.clock.tick(), h.lease.Fence) > h.lease.Granted {
		return nil
	}
	nodes, ok, err := m.rows.reread(ctx, &h.lease, h.me)
	if ok {
		m.allocator.noteRead(nodes)
	}
	return err
}

// A severity decides how an error affects waiting callers.
type severity int

const (
	brief   severity = iota // the next attempt may succeed
	serious                 // suspends generators: callers that find their leases used up get the error
	fatal                   // also fails waiting requests; the manager goes on trying
)

// severityOf returns the severity of an error. failures counts consecutive failures, including this one.
func severityOf(err error, failures int) severity {
	again := failures > 2
	switch {
	case sqldb.IsTransient(err) && !again:
		return brief
	case sqldb.IsTransient(err), timedOut(err), sqldb.IsUnreachable(err) && !again:
		return serious
	}
	return fatal
}

// noteFailure records an error of a pass.
func (m *Manager) noteFailure(err error, s severity) {
	m.slot.stats.Failures++
	if errors.Is(err, errSpace) { // forget the slot, because its renewals would succeed: they do not read ID_SPACE
		m.slot.lease.Lose()
		m.share(false)
	}
	m.requests.note(err)
	var adding addError
	switch {
	case s == brief:
	case errors.As(err, &adding):
		m.showError(err)
		m.allocator.noteNotAdded(err)
	default:
		m.showError(err)
		m.allocator.noteFailure(err)
	}
	m.showStats()
	if s == fatal {
		m.requests.fail(err)
	}
}

// noteDegraded records an error that does not suspend generators: their callers wait.
func (m *Manager) noteDegraded(err error) {
	m.requests.note(err)
	m.showError(err)
	m.showStats()
}

// showError shows an error in the log and in Stats.
func (m *Manager) showError(err error) {
	stats := &m.slot.stats
	last := stats.LastError
	if last == nil {
		stats.Since = m.clock.now()
	}
	if unusable := errors.Is(err, ErrTable); last == nil || unusable && !errors.Is(last, ErrTable) {
		var adding addError
		switch {
		case unusable: // permanent until somebody fixes the table
			m.log.Error("uidplugin: the plugin's tables cannot be used, so this process is granted no more ids", "error", err)
		case stats.Sessions == 0:
			m.log.Warn("uidplugin: this process cannot get a lease, so no ids can be made", "error", err)
		case errors.As(err, &adding):
			m.log.Warn("uidplugin: this process cannot add worker ids; tables that have some are not affected", "error", err)
		default:
			m.log.Warn("uidplugin: the lease of this process cannot be renewed; ids are made until what was granted is used up", "error", err)
		}
	}
	stats.LastError = err
}

// noteRecovery undoes noteFailure and noteDegraded.
func (m *Manager) noteRecovery() {
	stats := &m.slot.stats
	if stats.LastError == nil {
		return
	}
	m.log.Info("uidplugin: the lease of this process is renewed again", "after", m.clock.now().Sub(stats.Since))
	stats.LastError, stats.Since = nil, time.Time{}
	m.allocator.noteRecovery()
	m.showStats()
}
