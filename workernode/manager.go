package workernode

import (
	"cmp"
	"context"
	"crypto/rand"
	"fmt"
	"log/slog"
	mathrand "math/rand/v2"
	"slices"
	"sync"
	"time"
	"unicode/utf8"

	"github.com/uidplugin/uidplugin/generator"
	"github.com/uidplugin/uidplugin/internal/logqueue"
)

// Config changes what [NewManager] makes. The zero Config is usable.
type Config struct {
	// Lead is how far ahead of the clock a fence is set. So it is how long ids are made while the database is
	// unreachable, and how much of a burst one worker id makes. 0 means [DefaultLead], or [DefaultLeadSQLite] on
	// SQLite. The first process pins it in the registry.
	Lead time.Duration

	// Disposable inserts a new slot at each start, which is never reclaimed: UidGenerator's policy.
	Disposable bool

	// Spares is how many worker ids without a table the slot has in reserve; see [Manager.Spare].
	Spares int

	// MaxSkew is how far the clock may be from the database's; beyond it no session begins.
	// 0 does not compare them.
	MaxSkew time.Duration

	Now func() time.Time // nil means time.Now
	Log *slog.Logger     // of changes of state; nil logs nothing
}

const (
	// DefaultLead is how far ahead of the clock fences are set, unless set otherwise.
	DefaultLead = 10 * time.Second
	// DefaultLeadSQLite is the same on SQLite, where the application's own transactions keep
	// the lease manager from writing, and where a file does not fail over.
	DefaultLeadSQLite = 10 * time.Minute

	// skew is the assumed difference between the clocks of two processes.
	skew = time.Second
	// grace is how long the slot of a process must have been left alone before it is reclaimed.
	grace = time.Minute
	// rereadAfter is how often a process looks whether the rows of its worker ids are still there.
	rereadAfter = 10 * time.Minute
	// idleAfter is how long the slot is renewed after the last id.
	idleAfter = 10 * time.Minute
	// A statement of the lease manager gets a quarter of Lead, a transaction half of it, within these bounds.
	minStatement   = 500 * time.Millisecond
	maxStatement   = 2 * time.Second
	maxTransaction = 5 * time.Second
	// minPause is the time between two renewals when a generator needs more ids, and maxPause
	// the longest between two attempts while the database is unreachable.
	minPause = 250 * time.Millisecond
	maxPause = 500 * time.Millisecond
	// maxRefused bounds how often a refused statement is tried again at once.
	maxRefused = 4
)

// A Manager is the lease manager of one process and registry. It holds a slot, and with it
// the worker ids of the tables that the process writes to. Its goroutine sends every
// statement about the slot, one at a time, from the first [Manager.Assign] or [Manager.Start]
// to [Manager.Close]. All methods may be called concurrently. The rules are in the
// documentation of the package.
//
// Ticks, and when a generator was last used, are by the clock of Config. When the next statement is due, and for how
// long a slot is avoided, is by time.Now, because the application's clock may stand still.
type Manager struct {
	store    *statements
	layout   generator.Layout
	config   Config
	params   leaseParams
	registry Registry
	me       string // HOLDER: a random token of this start
	most     int    // lanes of a generator
	clock    *clock
	log      *slog.Logger // by way of the queue, so it may be used with the mutex held
	queue    *logqueue.Queue

	// Only the goroutine, or Close after it, uses these.
	clockCheck clockCheck
	refused    int                 // statements in a row that changed no row
	slotsTaken int                 // new slots in a row that exist already
	idsTaken   int                 // Adds in a row whose worker ids another program has inserted
	mayInsert  bool                // the right to insert was checked
	atLeast    int64               // the least worker id to reserve
	leastSlot  int64               // the least slot to reserve
	unspent    []int64             // worker ids that were reserved and not inserted
	exhausted  bool                // worker ids are used up: reclaim slots of other applications, too
	ignored    map[int64]bool      // worker ids that the log has said are not used
	timeouts   int                 // statements in a row on the slot's row without an answer
	avoid      map[int64]time.Time // slots that could not be reclaimed, and when

	ctx    context.Context // of the goroutine's statements
	cancel func()          // ends ctx; called by Close

	wake chan struct{} // capacity 1: a caller or a generator needs something
	done chan struct{} // closed when the goroutine has ended; nil before it was started

	closing  chan struct{} // capacity 1: held by Close while there is a value in it
	released bool          // guarded by closing

	mu          sync.Mutex
	slot        slotLease     // only the goroutine writes it, with mu held; slot.used is its own
	workers     []*worker     // of the slot
	tableLeases []*TableLease // what generators have of the slot
	requests    []*request
	lastUse     time.Time     // when Assign or Spare was called
	still       stillness     // of the clock
	mustReread  bool          // worker ids were added with an unknown outcome: read them after the next acknowledgement
	lastRead    time.Time     // when the rows of the slot's worker ids were last read
	lastAck     time.Time     // when the last statement on the slot was acknowledged: a renewal, keep-alive or session
	seen        int64         // SEEN_TICK of the last keep-alive
	renewAfter  time.Duration // the next renewal is due this long after lastAck
	closed      bool
	ended       error // why the goroutine has ended
	stats       SlotStats
	again       time.Time // when to look again for spares, after none were found
	given       int64     // the largest worker id that is known to be given out
}

// SlotStats is the state of the slot of a process, and what has happened since its start.
type SlotStats struct {
	Slot      int64 // 0 if the process has none now
	From      int64 // first tick of the current session
	Until     int64 // last tick that was granted
	WorkerIDs int   // of the slot, spares included
	Spares    int   // of them, without a table
	Given     int64 // the largest worker id of the registry that is known to be given out; 0 if none is

	Renewals  int64 // acknowledged statements that moved the fence
	Failures  int64 // attempts to renew the slot, or to do anything else with it, that failed; each is tried again
	Sessions  int64 // that were begun
	Reclaimed int64 // slots of former processes that were reclaimed
	Allocated int64 // slots that were inserted
	Lost      int64 // slots that another process has reclaimed, or an operator has released
	// LostCommits counts how often the slot's row was older than what the database had acknowledged. A loss that let
	// another process reclaim the slot counts in Lost.
	LostCommits int64

	LastError error     // why the last statement failed; nil if it did not
	Since     time.Time // since when all have failed
}

// A request is a call of Assign that waits.
type request struct {
	tables []Table
	lanes  []int
	done   chan struct{} // closed when leases or err is set
	leases []*TableLease
	err    error
	last   error // why the latest attempt failed
}

// NewManager opens the registry, and returns the lease manager for this start of a process.
// The error wraps [ErrLayoutMismatch], [ErrTable] or [generator.ErrConfig], or is the database's.
func NewManager(ctx context.Context, db *DB, layout generator.Layout, host Host, c Config) (*Manager, error) {
	c.Now = nowOr(c.Now)
	c.Log = cmp.Or(c.Log, slog.New(slog.DiscardHandler))
	if c.Lead == 0 {
		c.Lead = DefaultLead
		if db.sql.Dialect() == "sqlite" {
			c.Lead = DefaultLeadSQLite
		}
	}
	if c.Spares < 0 || c.MaxSkew < 0 || c.Lead < 0 || ticks(layout, c.Lead) < minLeadTicks {
		return nil, fmt.Errorf("%w: a lead of %v must be at least %d ticks of %v; %d spares and a clock difference of %v must not be negative",
			generator.ErrConfig, c.Lead, minLeadTicks, layout.Tick, c.Spares, c.MaxSkew)
	}
	r, err := db.OpenRegistry(ctx, layout, c.Lead)
	if err != nil {
		return nil, err
	}
	if pinned := time.Duration(r.LeadTicks) * layout.Tick; r.LeadTicks != ticks(layout, c.Lead) {
		c.Log.Warn("uidplugin: the database has another lead than this process is set to; the database's is used",
			"database", pinned, "process", c.Lead, "to_change",
			"stop all processes for twice the longer one, then "+db.sql.Translate(fmt.Sprintf(`UPDATE "WORKER_REGISTRY" SET "LEAD_TICKS" = %d`, ticks(layout, c.Lead))))
		c.Lead = pinned
	}
	queue := logqueue.New(nil)
	short := &DB{db.sql.Limited(min(max(c.Lead/4, minStatement), maxStatement), min(max(c.Lead/2, minStatement), maxTransaction), queue.Do)}
	m := &Manager{
		store:  &statements{db: short, layout: layout, host: host.fitted(), launched: c.Now(), disposable: c.Disposable},
		layout: layout, config: c, registry: r, me: rand.Text(), most: maxLanes(layout), clock: newClock(c.Now), log: queue.Logger(c.Log), queue: queue,
		wake: make(chan struct{}, 1), closing: make(chan struct{}, 1), ignored: map[int64]bool{}, avoid: map[int64]time.Time{},
	}
	m.ctx, m.cancel = context.WithCancel(context.Background())
	// Ticks may have been stamped that the row does not show, because the commits that granted them were lost: up to
	// Lead ahead. So a free slot rests for Lead, and for what clocks differ by. SQLite's file does not fail over, so
	// there only clocks count. With its Lead of 10 minutes a process that starts again would otherwise get another
	// slot.
	settle := ticks(layout, c.Lead+skew) + 1
	if db.sql.Dialect() == "sqlite" {
		settle = ticks(layout, skew)
	}
	m.params = leaseParams{lead: r.LeadTicks, settle: settle, grace: max(settle, ticks(layout, grace)), last: layout.MaxTick()}
	m.params.quiet = max(m.params.grace, ticks(layout, c.Lead+skew)+1)
	m.slot.floor, m.given = r.Floor, r.NextID-1
	m.setRenewAfter()
	return m, nil
}

func nowOr(now func() time.Time) func() time.Time {
	if now == nil {
		return time.Now
	}
	return now
}

// setRenewAfter chooses when the next renewal is due: after about a third of the lead. The time is random, so that
// processes do not renew at the same moment.
func (m *Manager) setRenewAfter() {
	third := m.config.Lead / 3
	m.renewAfter = third - third/8 + mathrand.N(third/8+1)
}

// Registry returns the registry as it was read at the start.
func (m *Manager) Registry() Registry { return m.registry }

// Now returns the time as the protocol sees it, for the generators: it does not go back when
// the wall clock is set back, and follows one that is set ahead only if the database's agrees.
func (m *Manager) Now() time.Time { return m.clock.now() }

func (m *Manager) tick() int64 { return max(m.layout.TickAt(m.clock.now()), 0) }

// Assign returns a lease for each of tables, in their order, with as many worker ids as
// lanes says for it; nil means one each. How many statements that takes does not depend on how many
// tables there are. It waits until ctx ends, whose error then has the database's own reason. The error wraps
// [ErrExhausted], [ErrTable], [ErrClock], [generator.ErrClosed], [generator.ErrConfig], or is the database's.
func (m *Manager) Assign(ctx context.Context, tables []Table, lanes []int) ([]*TableLease, error) {
	if err := checkTables(tables); err != nil {
		return nil, err
	}
	r := &request{tables: tables, lanes: lanes, done: make(chan struct{})}
	if r.lanes == nil {
		r.lanes = slices.Repeat([]int{1}, len(tables))
	}
	if len(r.lanes) != len(tables) || slices.ContainsFunc(r.lanes, wrongLanes) {
		return nil, fmt.Errorf("%w: %d tables with %v worker ids: each needs 1 to %d", generator.ErrConfig, len(tables), r.lanes, MaxLanes)
	}
	if err := m.enqueue(r); err != nil {
		return nil, err
	}
	select {
	case <-r.done:
		return r.leases, r.err
	case <-ctx.Done():
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	select {
	case <-r.done:
		return r.leases, r.err
	default:
	}
	m.requests = slices.DeleteFunc(m.requests, func(other *request) bool { return other == r })
	if r.last != nil {
		return nil, fmt.Errorf("workernode: no worker ids: %w: the last attempt: %w", ctx.Err(), r.last)
	}
	return nil, fmt.Errorf("workernode: no worker ids: the database has not answered: %w", ctx.Err())
}

// Start gets the slot and its spares before the first Assign. It waits as Assign does.
func (m *Manager) Start(ctx context.Context) error {
	_, err := m.Assign(ctx, nil, nil)
	return err
}

func (m *Manager) enqueue(r *request) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.closed {
		return generator.ErrClosed
	}
	if m.ended != nil {
		return m.ended
	}
	m.requests = append(m.requests, r)
	m.lastUse = m.clock.now()
	if m.done == nil {
		m.done = make(chan struct{})
		go m.run()
	}
	m.RequestRenewal()
	return nil
}

func checkTables(tables []Table) error {
	for _, t := range tables {
		if t.Name == "" || utf8.RuneCountInString(t.Name) > MaxTableName || utf8.RuneCountInString(t.Database) > MaxTableName {
			return fmt.Errorf("%w: the name %q of a table has not 1 to %d characters", ErrTable, t, MaxTableName)
		}
	}
	return nil
}

func wrongLanes(n int) bool { return n < 1 || n > MaxLanes }

// RequestRenewal makes the lease manager look at once what generators need. It never waits. Generators call it when
// they run low.
func (m *Manager) RequestRenewal() {
	select {
	case m.wake <- struct{}{}:
	default:
	}
}

// Spare gives a table spares, at once: it sends no statement. Their rows are written as soon as possible. It reports
// false if there are too few, or the process has been idle and has no ticks left. It is for the first create of a table
// inside a transaction, which may have the only connection.
func (m *Manager) Spare(t Table, lanes int) (*TableLease, bool) {
	if checkTables([]Table{t}) != nil || wrongLanes(lanes) {
		return nil, false
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	m.lastUse = m.clock.now()
	m.RequestRenewal()
	own, spares := m.free(t), m.free(Table{})
	if m.closed || m.tick() > m.slot.granted || len(own)+len(spares) < lanes {
		return nil, false
	}
	l := &TableLease{manager: m, table: t, least: lanes, want: lanes, lastUse: m.clock.now()}
	l.take(own, min(lanes, len(own)))
	spares = spares[:lanes-len(l.lanes)]
	for _, w := range spares {
		w.table, w.toBind = t, true
	}
	l.take(spares, len(spares))
	l.publish()
	if l.published == nil {
		for _, w := range l.lanes {
			w.user = nil
		}
		for _, w := range spares { // not the other lanes: their table may be on its way to the row
			w.table, w.toBind = Table{}, false
		}
		return nil, false
	}
	m.tableLeases = append(m.tableLeases, l)
	return l, true
}

// TableOf returns the table of a worker id that this process uses and whose row may not name it
// yet. It reports false if this process does not use the worker id.
func (m *Manager) TableOf(workerID int64) (Table, bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, w := range m.workers {
		if w.id == workerID && (w.user != nil || w.toBind) && w.table.Name != "" {
			return w.table, true
		}
	}
	return Table{}, false
}

// Stats returns the state of the slot.
func (m *Manager) Stats() SlotStats {
	m.mu.Lock()
	defer m.mu.Unlock()
	s := m.stats
	s.WorkerIDs, s.Given = len(m.workers), m.given
	for _, w := range m.workers {
		if w.table.Name == "" {
			s.Spares++
		}
	}
	if m.slot.held {
		s.Slot, s.From, s.Until = m.slot.id, m.slot.start+1, m.slot.granted
	}
	return s
}

// Close ends the lease manager and releases the slot. The next process gets the slot as soon as the clock has passed
// its fence and Lead. The generators must have been closed. Close waits at most until ctx ends; a slot that was not
// released by then is free after a minute. It may be called more than once, and tries again what failed before.
func (m *Manager) Close(ctx context.Context) error {
	m.mu.Lock()
	done := m.done
	m.closed = true
	m.mu.Unlock()
	m.cancel()
	if done != nil {
		select {
		case <-done:
		case <-ctx.Done():
			return fmt.Errorf("workernode: close: the context ended while a statement was running: %w", ctx.Err())
		}
	}
	defer m.queue.Flush(ctx, time.Second)
	select {
	case m.closing <- struct{}{}:
		defer func() { <-m.closing }()
	case <-ctx.Done():
		return fmt.Errorf("workernode: close: the context ended while another Close was running: %w", ctx.Err())
	}
	if m.released {
		return nil
	}
	err := m.releaseForClose(ctx)
	m.released = err == nil
	return err
}
