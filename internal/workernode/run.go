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
)

// The goroutine of the lease manager. The statements about the slot are in slot.go and slot_release.go.

func (m *Manager) run() {
	defer close(m.done)
	ended := generator.ErrClosed
	for failures := 0; m.ctx.Err() == nil; { // after Close no statement begins: Close would cut it off and leave a doubt
		wait, err := m.pass(m.ctx)
		if m.ctx.Err() != nil {
			break
		}
		if err == nil {
			failures = 0
			m.noteRecovery()
		} else {
			if sqldb.IsPoolClosed(err) && m.store.db.sql.PoolError() != nil { // not only a connection of another pool
				m.noteFailure(err, fatal)
				ended = err
				break // permanently, because those who close the pool seldom close the plugin
			}
			failures++
			m.noteFailure(err, severityOf(err, failures))
			m.rest(rand.N(min(20*time.Millisecond<<min(failures, 10), maxPause)) + time.Millisecond)
			continue
		}
		m.sleep(wait)
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	m.ended = ended
	m.endRequests(ended, slices.Clone(m.requests)...)
}

// rest waits for a time, and ignores requests meanwhile.
func (m *Manager) rest(wait time.Duration) {
	select {
	case <-m.ctx.Done():
	case <-time.After(wait):
	}
}

// sleep waits for a time, or until a caller or a generator needs something. After a generator's request it rests
// briefly, because repeated requests should not keep the processor busy. While a caller of Assign waits it takes at
// most 2 ms.
func (m *Manager) sleep(wait time.Duration) {
	pause := min(wait, sampleInterval)
	if m.waiting() {
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
	if !m.waiting() {
		m.rest(pause)
	}
}

func (m *Manager) waiting() bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	return len(m.requests) > 0
}

// pass sends all due statements on one connection, and returns the time until the next is due.
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

// one sends the next statement. more is false if nothing is due for a time.
func (m *Manager) one(ctx context.Context) (more bool, wait time.Duration, err error) {
	w, sessions := m.lookAndServe(), m.stats.Sessions // only this goroutine changes that
	tick := m.tick()
	next, step := w.next(&m.slot, m.params, tick)
	if next.sends(step) {
		if err := m.store.db.sql.Ready(ctx); err != nil {
			return false, 0, err
		}
		tick = m.tick() // the wait for a connection may have been long
		next, step = w.next(&m.slot, m.params, tick)
	}
	switch next {
	case doNothing:
		return false, w.wait, w.stuck
	case doKeepAlive:
		err = m.keepAlive(ctx)
	case doAdd:
		err = m.add(ctx, w.missing)
	case doRenew:
		err = m.renew(ctx)
	case doSlot:
		switch step {
		case stepAcquire:
			err = m.acquire(ctx, w.tables)
		case stepRead:
			err = m.read(ctx)
		case stepCheckCommits:
			err = m.checkLostCommits(ctx)
		case stepBegin:
			err = m.begin(ctx)
		case stepAbandon:
			err = m.abandon(ctx)
		case stepWait:
			return false, min(w.wait, max(m.layout.TimeOf(tick+1).Sub(m.clock.now()), time.Millisecond)), w.stuck
		case stepExhausted:
			err = fmt.Errorf("%w: the layout %v ends at %s", generator.ErrTimeExhausted, m.layout, m.layout.Expires())
		}
	}
	if err == nil && sessions != m.stats.Sessions && m.tick() > m.slot.granted {
		m.noteDegraded(m.tooLate())
	}
	if err == nil {
		err = m.rereadWorkers(ctx)
	}
	return true, 0, err
}

// A severity decides how an error affects waiting callers.
type severity int

const (
	brief   severity = iota // the next attempt may succeed
	serious                 // suspends generators: callers that find their leases used up get the error
	fatal                   // also fails waiting requests. The manager goes on trying
)

// severityOf returns the severity of an error, the failures-th in a row. It is pure.
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

// noteFailure records an error of a pass. The severity decides how it affects requests and generators.
func (m *Manager) noteFailure(err error, s severity) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.stats.Failures++
	if errors.Is(err, errSpace) {
		m.forget() // because renewals do not read the registry
	}
	for _, r := range m.requests {
		r.last = err
	}
	if s == brief {
		return
	}
	m.showError(err)
	if s == fatal {
		m.endRequests(err, slices.Clone(m.requests)...)
	}
	for _, l := range m.tableLeases {
		if l.generator != nil {
			l.generator.Suspend(err)
		}
	}
}

// showError shows an error in the log and in Health. The caller holds the mutex.
func (m *Manager) showError(err error) {
	last := m.stats.LastError
	if last == nil {
		m.stats.Since = m.clock.now()
	}
	if unusable := errors.Is(err, ErrTable); last == nil || unusable && !errors.Is(last, ErrTable) {
		switch {
		case unusable: // permanent until somebody fixes the table
			m.log.Error("uidplugin: the plugin's tables cannot be used, so this process is granted no more ids", "error", err)
		case m.stats.Sessions == 0:
			m.log.Warn("uidplugin: this process cannot get a lease, so no ids can be made", "error", err)
		default:
			m.log.Warn("uidplugin: the lease of this process cannot be renewed; ids are made until what was granted is used up", "error", err)
		}
	}
	m.stats.LastError = err
}

// noteDegraded records an error after which generators continue, and wait.
func (m *Manager) noteDegraded(err error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, r := range m.requests {
		r.last = err
	}
	m.showError(err)
}

// noteRecovery undoes noteFailure and noteDegraded after a pass without an error. A generator whose table lacks a
// worker id keeps its own error until [Manager.replace] gives the table another.
func (m *Manager) noteRecovery() {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.stats.LastError == nil {
		return
	}
	m.log.Info("uidplugin: the lease of this process is renewed again", "after", m.clock.now().Sub(m.stats.Since))
	m.stats.LastError, m.stats.Since = nil, time.Time{}
	for _, l := range m.tableLeases {
		if l.generator != nil {
			l.generator.Suspend(l.noWorkerID)
		}
	}
}

// endRequests ends requests with an error. The caller holds the mutex.
func (m *Manager) endRequests(err error, requests ...*request) {
	for _, r := range requests {
		r.err = err
		close(r.done)
	}
	m.requests = slices.DeleteFunc(m.requests, func(r *request) bool { return slices.Contains(requests, r) })
}

// timedOut reports whether a statement had no answer in time.
func timedOut(err error) bool {
	return errors.Is(err, context.DeadlineExceeded) || errors.Is(err, context.Canceled)
}
