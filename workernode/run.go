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

// The goroutine of the lease manager: when it looks, in which order it does what is due, and how it handles errors.
// slot.go and slot_release.go have the statements about the slot.

// run serves the process until Close.
func (m *Manager) run() {
	defer close(m.done)
	ended := generator.ErrClosed
	for failures := 0; m.ctx.Err() == nil; { // no statement begins after Close: one that Close cuts off leaves a doubt
		wait, err := m.pass(m.ctx)
		if m.ctx.Err() != nil {
			break
		}
		if err == nil {
			failures = 0
			m.noteRecovery()
		} else {
			if sqldb.IsPoolClosed(err) && m.store.db.sql.PoolError() != nil { // not just a connection of another pool
				m.noteFailure(err, fatal)
				ended = err
				break // permanently: who closes the pool seldom closes the plugin
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

// rest waits for a time, whatever is requested meanwhile.
func (m *Manager) rest(wait time.Duration) {
	select {
	case <-m.ctx.Done():
	case <-time.After(wait):
	}
}

// sleep waits for a time, or until a caller or a generator needs something. After a generator asked it waits briefly,
// so that generators that ask again and again do not keep the processor busy. While a caller of Assign waits, it
// returns after 2 ms.
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

// waiting reports whether a caller of Assign waits.
func (m *Manager) waiting() bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	return len(m.requests) > 0
}

// pass does what is due, one statement after another and all on one connection. It returns how long nothing is due.
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
	case doBind:
		err = m.bind(ctx, w.binds)
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

// A severity says what an error means for waiting callers.
type severity int

const (
	brief   severity = iota // the next attempt may not meet it
	serious                 // generators are suspended: callers that find their leases used up get the error
	fatal                   // the same, and requests that wait fail. The manager goes on trying
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

// noteFailure notes an error of a pass: how severe it is decides what becomes of requests and generators.
func (m *Manager) noteFailure(err error, s severity) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.stats.Failures++
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
	if m.stats.LastError == nil {
		m.stats.Since = m.clock.now()
		switch {
		case errors.Is(err, ErrTable): // it stays until somebody does something
			m.log.Error("uidplugin: the plugin's tables cannot be used, so this process is granted no more ids", "error", err)
		case m.stats.Sessions == 0:
			m.log.Warn("uidplugin: this process cannot get a lease, so no ids can be made", "error", err)
		default:
			m.log.Warn("uidplugin: the lease of this process cannot be renewed; ids are made until what was granted is used up", "error", err)
		}
	}
	m.stats.LastError = err
}

// noteDegraded notes an error that leaves some ids: generators continue, and wait.
func (m *Manager) noteDegraded(err error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, r := range m.requests {
		r.last = err
	}
	m.showError(err)
}

// noteRecovery undoes what noteFailure and noteDegraded have done, after a pass without an error. It does nothing while
// a table lacks a worker id: the error of that stays, until [Manager.replace] gives the table another.
func (m *Manager) noteRecovery() {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, l := range m.tableLeases {
		if l.noWorkerID != nil {
			return
		}
	}
	if m.stats.LastError == nil {
		return
	}
	m.log.Info("uidplugin: the lease of this process is renewed again", "after", m.clock.now().Sub(m.stats.Since))
	m.stats.LastError, m.stats.Since = nil, time.Time{}
	for _, l := range m.tableLeases {
		if l.generator != nil {
			l.generator.Suspend(nil)
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

// timedOut reports whether a statement had no answer in its time. That says nothing about the next statement.
func timedOut(err error) bool {
	return errors.Is(err, context.DeadlineExceeded) || errors.Is(err, context.Canceled)
}
