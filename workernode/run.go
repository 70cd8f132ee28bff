package workernode

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"time"

	"github.com/uidplugin/uidplugin/generator"
	"github.com/uidplugin/uidplugin/internal/sqldb"
)

// The goroutine of the lease manager: when it looks, in which order it does what is due, and how it handles errors.
// slot.go has the statements about the slot.

// run serves the process until Close.
func (m *Manager) run() {
	defer close(m.done)
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	go func() {
		select {
		case <-m.quit:
			cancel()
		case <-ctx.Done():
		}
	}()
	ended := generator.ErrClosed
	for failures := 0; ; {
		wait, err := m.pass(ctx)
		if ctx.Err() != nil {
			break
		}
		if err == nil {
			failures = 0
			m.recovered()
		} else {
			if sqldb.IsPoolClosed(err) && m.store.db.sql.PoolError() != nil { // not just a connection of another pool
				m.failed(err, fatal)
				ended = err
				break // permanently: who closes the pool seldom closes the plugin
			}
			failures++
			m.failed(err, severityOf(err, failures))
			m.rest(rand.N(min(20*time.Millisecond<<min(failures, 10), maxPause)) + time.Millisecond)
			continue
		}
		m.sleep(wait)
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	m.ended = ended
	m.fail(ended, slices.Clone(m.requests)...)
}

// rest waits for a time, whatever is requested meanwhile.
func (m *Manager) rest(wait time.Duration) {
	select {
	case <-m.quit:
	case <-time.After(wait):
	}
}

// sleep waits for a time, or until a caller or a generator needs something. After a generator asked it waits briefly, so
// that generators that ask again and again do not keep the processor busy. While a caller of Assign waits, it returns
// after 2 ms.
func (m *Manager) sleep(wait time.Duration) {
	pause := min(wait, sampleInterval)
	if m.waiting() {
		wait = min(wait, 2*time.Millisecond)
	}
	timer := time.NewTimer(wait)
	defer timer.Stop()
	select {
	case <-m.quit:
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
	w, sessions := m.work(), m.stats.Sessions // only this goroutine changes that
	tick := m.tick()
	if w.sends(&m.lease, m.params, tick) {
		if err := m.store.db.sql.Ready(ctx); err != nil {
			return false, 0, err
		}
		tick = m.tick() // the wait for a connection may have been long
	}
	switch w.next(&m.lease, m.params, tick) {
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
		switch m.lease.next(m.params, tick) {
		case stepAcquire:
			err = m.acquire(ctx, w.tables)
		case stepRead:
			err = m.read(ctx)
		case stepSurrender:
			err = m.surrender(ctx)
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
	if err == nil && sessions != m.stats.Sessions && m.tick() > m.lease.granted {
		m.degraded(m.tooLate())
	}
	if err == nil {
		err = m.rereadWorkers(ctx)
	}
	return true, 0, err
}

// A severity says what an error means for waiting callers.
type severity int

const (
	passing severity = iota // the next attempt may not meet it
	serious                 // generators are suspended: callers that find their leases used up get the error
	fatal                   // the same, and requests that wait fail. The manager goes on trying
)

// severityOf returns the severity of an error, the failures-th in a row. It is pure.
func severityOf(err error, failures int) severity {
	again := failures > 2
	switch {
	case sqldb.IsTransient(err) && !again:
		return passing
	case sqldb.IsTransient(err), timedOut(err), sqldb.IsUnreachable(err) && !again:
		return serious
	}
	return fatal
}

// failed notes an error.
func (m *Manager) failed(err error, s severity) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, r := range m.requests {
		r.last = err
	}
	if s == passing {
		return
	}
	m.unhealthy(err)
	if s == fatal {
		m.fail(err, slices.Clone(m.requests)...)
	}
	for _, l := range m.leases {
		if l.generator != nil {
			l.generator.Suspend(err)
		}
	}
}

// unhealthy shows an error in the log and in Health. The caller holds the mutex.
func (m *Manager) unhealthy(err error) {
	if m.stats.LastError == nil {
		m.stats.Since = m.clock.now()
		text := "uidplugin: the lease of this process cannot be renewed; ids are made until what was granted is used up"
		if m.stats.Sessions == 0 {
			text = "uidplugin: this process cannot get a lease, so no ids can be made"
		}
		m.log.Warn(text, "error", err)
	}
	m.stats.LastError = err
}

// degraded notes an error that leaves some ids: generators continue, and wait.
func (m *Manager) degraded(err error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, r := range m.requests {
		r.last = err
	}
	m.unhealthy(err)
}

// recovered undoes what failed has done.
func (m *Manager) recovered() {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, l := range m.leases {
		if l.noWorkerID != nil {
			return
		}
	}
	if m.stats.LastError == nil {
		return
	}
	m.log.Info("uidplugin: the lease of this process is renewed again", "after", m.clock.now().Sub(m.stats.Since))
	m.stats.LastError, m.stats.Since = nil, time.Time{}
	for _, l := range m.leases {
		if l.generator != nil {
			l.generator.Suspend(nil)
		}
	}
}

// fail ends requests with an error. The caller holds the mutex.
func (m *Manager) fail(err error, requests ...*request) {
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

// An action is what the lease manager does next.
type action int

const (
	doNothing action = iota
	doSlot           // what the lease says: acquire, read, begin ...
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

// next decides in which order. It is pure.
func (w *work) next(l *slotLease, p leaseParams, now int64) action {
	if !l.held && !w.wanted {
		return doNothing
	}
	if w.idle && len(w.binds) == 0 && l.held && !l.inDoubt && !l.regressed {
		if w.keepAlive {
			return doKeepAlive
		}
		return doNothing
	}
	if l.next(p, now) != stepReady {
		return doSlot
	}
	switch grows := p.fenceAt(now, l.fence) > l.granted; {
	case grows && (w.due || w.stale):
		return doRenew // a due renewal goes before requests
	case len(w.binds) > 0:
		return doBind
	case len(w.missing) > 0:
		return doAdd
	}
	return doNothing
}

// sends reports whether the next action sends a statement.
func (w *work) sends(l *slotLease, p leaseParams, now int64) bool {
	switch w.next(l, p, now) {
	case doNothing:
		return false
	case doSlot:
		step := l.next(p, now)
		return step != stepWait && step != stepExhausted
	}
	return true
}

// work looks at the generators and requests. It serves those that it can from the worker ids of the slot, decides which
// generators get more lanes, and returns what needs a statement.
func (m *Manager) work() *work {
	m.mu.Lock()
	defer m.mu.Unlock()
	now, tick := m.clock.now(), m.tick()
	w := &work{wait: m.every}
	lastUse, pressing, starving := m.lastUse, false, false
	for _, l := range m.leases {
		l.look(now)
		l.grow(now, tick)
		if l.lastUse.After(lastUse) {
			lastUse = l.lastUse
		}
		if l.unknown {
			w.wait = sampleInterval
		}
		starving = starving || l.usage.Waiting && l.usage.Left == 0
		pressing = pressing || inNeed(l.usage, m.lease.granted, tick, uint64(m.layout.MaxSequence()+1))
	}
	w.binds = m.toBind()
	since := time.Since(m.renewed)
	w.idle = len(m.requests) == 0 && now.Sub(lastUse) > idleAfter
	w.wanted = len(m.requests) > 0 || !w.idle && (len(m.leases) > 0 || m.config.Spares > 0)
	if w.idle && len(w.binds) == 0 {
		w.wait = grace / 2
		if m.lease.held {
			w.keepAlive = since >= grace/2
			w.wait = max(grace/2-since, time.Millisecond)
		}
		return w
	}
	pause := min(minPause, m.every/4)
	w.due = since >= m.every
	w.stale = (pressing || tick > m.lease.granted) && since >= pause
	switch {
	case pressing && !w.due:
		w.wait = min(w.wait, max(pause-since, time.Millisecond))
	case !w.due:
		w.wait = min(w.wait, max(m.every-since, time.Millisecond))
	}
	if m.lease.held && m.params.fenceAt(tick, m.lease.fence) <= m.lease.granted {
		// Nothing can be granted before the next tick.
		w.wait = max(w.wait, min(m.layout.TimeOf(tick+1).Sub(now), m.every))
	}
	if (starving || len(m.requests) > 0) && m.lease.held {
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
	for _, l := range m.leases {
		n := max(l.want, 1) - len(l.lanes)
		if n <= 0 {
			continue
		}
		free := m.free(l.table)
		switch {
		case len(free)-lack[l.table] >= n && m.lease.held:
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
	for t, n := range lack {
		for range n - min(n, len(m.free(t))) {
			w.missing = append(w.missing, t)
		}
	}
	slices.SortFunc(w.missing, func(a, b Table) int { return strings.Compare(a.String(), b.String()) })
	if w.wanted && !now.Before(m.again) {
		for range m.config.Spares - len(m.free(Table{})) {
			w.missing = append(w.missing, Table{})
		}
	}
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
	if !m.lease.held || m.lease.inDoubt || m.tick() > m.lease.granted {
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
	m.leases = append(m.leases, leases...)
	close(r.done)
	m.requests = slices.DeleteFunc(m.requests, func(other *request) bool { return other == r })
	return true
}
