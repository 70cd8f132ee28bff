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

// Config configures [NewManager]. The zero Config is usable.
type Config struct {
	// Lead is how far ahead of the clock a fence is set. So it limits how long ids are made while the database is
	// unreachable, and how large a burst one worker id makes. 0 means [DefaultLead], or [DefaultLeadSQLite] on SQLite.
	// The first process pins it in the registry.
	Lead time.Duration

	// Disposable inserts a new slot at each start, which is never reclaimed, as UidGenerator does.
	Disposable bool

	// MaxSkew is the largest allowed difference between the clock and the database's. Beyond it no session begins. 0
	// disables the comparison.
	MaxSkew time.Duration

	Now func() time.Time // nil means time.Now
	Log *slog.Logger     // logs changes of state; nil logs nothing
}

const (
	// DefaultLead is the default of Config.Lead.
	DefaultLead = 10 * time.Second
	// DefaultLeadSQLite is the default on SQLite. It is longer because transactions of the application block the lease
	// manager's writes, and because a file does not fail over.
	DefaultLeadSQLite = 10 * time.Minute

	// skew is the assumed difference between the clocks of two processes.
	skew = time.Second
	// grace is how long a process's slot must have been left alone before it is reclaimed.
	grace = time.Minute
	// rereadAfter is the time between two checks of the rows of the slot's worker ids.
	rereadAfter = 10 * time.Minute
	// idleAfter is how long renewals continue after the last id.
	idleAfter = 10 * time.Minute
	// Statements of the lease manager get a quarter of Lead, and transactions half of it, within these bounds.
	minStatement   = 500 * time.Millisecond
	maxStatement   = 2 * time.Second
	maxTransaction = 5 * time.Second
	// minPause is the shortest time between two renewals when a generator needs more ids. maxPause is the longest
	// between two attempts while the database is unreachable.
	minPause = 250 * time.Millisecond
	maxPause = 500 * time.Millisecond
	// maxRefused bounds how often a refused statement is retried at once.
	maxRefused = 4
)

// A Manager is the lease manager of one process and registry. It holds a slot, and with it the worker ids of the
// process's tables. From the first [Manager.Assign] to [Manager.Close] its goroutine sends every statement about the
// slot, one at a time. All methods may be called concurrently.
//
// Ticks, and the last use of a generator, are by Config's clock. Due times of statements, and how long a slot is
// avoided, are by time.Now, because the application's clock may stand still.
type Manager struct {
	store    *statements
	layout   generator.Layout
	config   Config
	params   leaseParams
	registry Registry
	me       string // HOLDER: a random token of this start
	most     int    // limit of lanes for a generator
	clock    *clock
	log      *slog.Logger // writes to the queue, so it may be used with the mutex held
	queue    *logqueue.Queue

	// Used only by the goroutine, or by Close after it.
	clockCheck *clockCheck
	refused    int                 // statements in a row that changed no row
	slotsTaken int                 // new slots in a row that exist already
	idsTaken   int                 // adds in a row whose worker ids another program has inserted
	mayInsert  bool                // the right to insert was checked
	atLeast    int64               // the smallest worker id to reserve
	leastSlot  int64               // the smallest slot to reserve
	unspent    []int64             // worker ids that were reserved but not inserted
	exhausted  bool                // worker ids are used up, so reclaim slots of other applications, too
	ignored    map[int64]bool      // unusable worker ids that were logged
	timeouts   int                 // unanswered statements in a row on the slot's row
	avoid      map[int64]time.Time // slots that could not be reclaimed, and the time of the attempt

	ctx    context.Context // of the goroutine's statements
	cancel func()          // ends ctx; called by Close

	wake chan struct{} // capacity 1: a caller or a generator needs something
	done chan struct{} // closed when the goroutine has ended; nil before it starts

	closing  chan struct{} // capacity 1: Close holds it while it contains a value
	released bool          // guarded by closing

	mu          sync.Mutex
	slot        slotLease     // only the goroutine writes it, with mu held; slot.used is its own
	workers     []*worker     // the slot's worker ids
	tableLeases []*TableLease // the generators' shares of the slot
	requests    []*request
	lastUse     time.Time     // when Assign was called
	still       stillness     // of the clock
	mustReread  bool          // worker ids were added with an unknown outcome: read them after the next acknowledgement
	lastRead    time.Time     // when the rows of the slot's worker ids were last read
	lastAck     time.Time     // when a renewal, keep-alive or session was last acknowledged
	seen        int64         // SEEN_TICK of the last keep-alive
	renewAfter  time.Duration // the next renewal is due this long after lastAck
	closed      bool
	ended       error // why the goroutine has ended
	stats       SlotStats
	given       int64 // the largest worker id known to be given out
}

// SlotStats is the state of a process's slot, with counters since the start.
type SlotStats struct {
	Slot      int64 // 0 if the process holds none
	From      int64 // first tick of the current session
	Until     int64 // last granted tick
	WorkerIDs int   // number of the slot's worker ids
	Given     int64 // the registry's largest worker id known to be given out, or 0

	Renewals  int64 // acknowledged statements that moved the fence
	Failures  int64 // failed attempts to renew the slot, or of other statements about it; each is retried
	Sessions  int64 // sessions that were begun
	Reclaimed int64 // slots of former processes that were reclaimed
	Allocated int64 // slots that were inserted
	Lost      int64 // slots that another process reclaimed, or an operator released
	// LostCommits counts how often the slot's row was missing, or older than acknowledged.
	LostCommits int64

	LastError error     // error of the last statement; nil if it succeeded
	Since     time.Time // when the statements began to fail
}

// A request is a waiting call of Assign.
type request struct {
	tables []Table
	lanes  []int
	done   chan struct{} // closed when leases or err is set
	leases []*TableLease
	err    error
	last   error // why the latest attempt failed
}

// NewManager opens the registry and returns the lease manager for this start of a process. The error wraps
// [ErrLayoutMismatch], [ErrTable] or [generator.ErrConfig], or comes from the database.
func NewManager(ctx context.Context, db *DB, layout generator.Layout, host Host, c Config) (*Manager, error) {
	c.Now = nowOr(c.Now)
	c.Log = cmp.Or(c.Log, slog.New(slog.DiscardHandler))
	if c.Lead == 0 {
		c.Lead = DefaultLead
		if db.sql.Dialect() == "sqlite" {
			c.Lead = DefaultLeadSQLite
		}
	}
	if c.MaxSkew < 0 || c.Lead < 0 || ticks(layout, c.Lead) < minLeadTicks {
		return nil, fmt.Errorf("%w: a lead of %v must be at least %d ticks of %v; a clock difference of %v must not be negative",
			generator.ErrConfig, c.Lead, minLeadTicks, layout.Tick, c.MaxSkew)
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
		store:  &statements{db: short, layout: layout, space: r.Space, host: host.fitted(), launched: c.Now(), disposable: c.Disposable},
		layout: layout, config: c, registry: r, me: rand.Text(), most: maxLanes(layout), clock: newClock(c.Now, layout), log: queue.Logger(c.Log), queue: queue,
		wake: make(chan struct{}, 1), closing: make(chan struct{}, 1), ignored: map[int64]bool{}, avoid: map[int64]time.Time{},
	}
	m.clockCheck = &clockCheck{store: m.store, clock: m.clock, maxSkew: c.MaxSkew, log: m.log}
	m.ctx, m.cancel = context.WithCancel(context.Background())
	// If commits were lost, ticks up to Lead ahead may have been stamped without a trace in the row. So a free slot
	// rests for Lead plus the clock difference. SQLite's file does not fail over, so there only clocks count: with its
	// Lead of 10 minutes each restarted process would take another slot.
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

// setRenewAfter chooses a random time after about a third of the lead, so that processes do not all renew at once.
func (m *Manager) setRenewAfter() {
	third := m.config.Lead / 3
	m.renewAfter = third - third/8 + mathrand.N(third/8+1)
}

// Registry returns the registry as read at the start.
func (m *Manager) Registry() Registry { return m.registry }

// Now returns the protocol's time, for generators. It does not go back with the wall clock, and follows a wall clock
// that is set ahead only if the database's agrees.
func (m *Manager) Now() time.Time { return m.clock.now() }

func (m *Manager) tick() int64 { return m.clock.tick() }

// Assign returns a lease for each of tables, in their order, with as many worker ids as lanes has for it. nil lanes
// mean one each. The number of statements does not depend on the number of tables. Assign waits until ctx ends, and its
// error then includes the database's latest one. The error wraps [ErrExhausted], [ErrTable], [ErrClock],
// [generator.ErrClosed], [generator.ErrConfig], or comes from the database.
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

// RequestRenewal makes the lease manager check the generators' needs at once. It never waits. Generators call it when
// they run low.
func (m *Manager) RequestRenewal() {
	select {
	case m.wake <- struct{}{}:
	default:
	}
}

// Stats returns the state of the slot.
func (m *Manager) Stats() SlotStats {
	m.mu.Lock()
	defer m.mu.Unlock()
	s := m.stats
	s.WorkerIDs, s.Given = len(m.workers), m.given
	if m.slot.held {
		s.Slot, s.From, s.Until = m.slot.id, m.slot.start+1, m.slot.granted
	}
	return s
}

// Close ends the lease manager and releases the slot. Close the generators first. Another process can reclaim the slot
// once the clock has passed its fence and Lead. Close waits at most until ctx ends. An unreleased slot is free after a
// minute. Close may be called again to retry whatever failed.
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
