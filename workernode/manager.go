package workernode

import (
	"cmp"
	"context"
	"crypto/rand"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"sync/atomic"
	"time"
	"unicode/utf8"

	"github.com/uidplugin/uidplugin/generator"
	"github.com/uidplugin/uidplugin/internal/logqueue"
	"github.com/uidplugin/uidplugin/internal/sqldb"
	"github.com/uidplugin/uidplugin/workernode/internal/lease"
)

// Config configures [NewManager]. The zero Config is usable.
type Config struct {
	// Lead is how far ahead of the clock a fence is set. So it limits how long ids are made while the database is
	// unreachable, and how large a burst one worker id makes. 0 means [DefaultLead], or ten minutes on SQLite.
	// The first process pins it in the registry.
	Lead time.Duration

	// Region is the region of the registry. The zero Region means the registry's own.
	Region Region

	// Disposable inserts a new slot at each start, as UidGenerator does. The slot is never reclaimed.
	Disposable bool

	// MaxSkew is the largest allowed difference between the clock and the database's. Beyond it no session begins. 0
	// disables the comparison.
	MaxSkew time.Duration

	Now func() time.Time // nil means time.Now
	Log *slog.Logger     // logs changes of state; nil logs nothing
}

// A Manager is the lease manager of one process and registry. It holds a slot, and with it the worker ids of the
// process's tables. From the first [Manager.Assign] to [Manager.Close] its goroutine sends every statement about the
// slot, one at a time. All methods may be called concurrently.
//
// Config.Now measures ticks and the last use of a generator. time.Now measures when statements are due, and how
// long a slot is avoided, because the clock of the application may stand still.
type Manager struct {
	layout   generator.Layout
	config   Config
	registry Registry
	clock    *clock
	log      *slog.Logger // writes to the queue, so it may be used with a mutex held
	queue    *logqueue.Queue

	requests  requests   // what callers wait for
	allocator *allocator // which generator has which worker id of the slot

	// Used only by the goroutine, and by Close after the goroutine has ended.
	store     *statements
	slot      *slotHolder // how the process keeps its slot
	rows      workerRows  // how the slot gets further worker ids
	still     stillness   // of the clock
	exhausted bool        // worker ids are used up, so reclaim slots of other applications, too
	woken     time.Time   // when a generator's request was last served

	ctx    context.Context // of the goroutine's statements
	cancel func()          // ends ctx; called by Close

	start sync.Once     // starts the goroutine, or closes done
	wake  chan struct{} // capacity 1: a caller or a generator needs something
	done  chan struct{} // closed when the goroutine has ended

	closing  chan struct{} // capacity 1, used as a mutex: it contains a value while Close runs
	released bool          // guarded by closing

	stats atomic.Pointer[SlotStats] // a copy of the slotHolder's stats
}

// NewManager opens the registry and returns the lease manager for this start of a process. The error wraps
// [ErrLayoutMismatch], [ErrRegion], [ErrTable] or [generator.ErrConfig], or comes from the database.
func NewManager(ctx context.Context, db *DB, layout generator.Layout, host Host, c Config) (*Manager, error) {
	if c.Now == nil {
		c.Now = time.Now
	}
	c.Log = cmp.Or(c.Log, slog.New(slog.DiscardHandler))
	if c.Lead == 0 {
		c.Lead = db.defaultLead()
	}
	if c.MaxSkew < 0 || c.Lead < 0 || ticks(layout, c.Lead) < minLeadTicks {
		return nil, fmt.Errorf("%w: a lead of %v must be at least %d ticks of %v; a clock difference of %v must not be negative",
			generator.ErrConfig, c.Lead, minLeadTicks, layout.Tick, c.MaxSkew)
	}
	r, begun, err := db.openRegistry(ctx, layout, c.Lead, c.Region)
	if err != nil {
		return nil, err
	}
	if begun && r.Region != Whole {
		c.Log.Warn("uidplugin: this process has begun a region with its first worker id; if another registry had given out worker ids before it was divided, stop at once, because two rows could get the same id: see docs/regions.md",
			"region", r.Region.N, "of", r.Region.Of, "worker_id", r.NextID)
	}
	if begun && r.Shared && !couldBeUidGenerators(layout) {
		c.Log.Warn("uidplugin: this process has begun an id space next to UidGenerator with a layout that UidGenerator cannot have;"+
			" if both insert into one table, stop at once, because two rows could get the same id: see docs/from-uidgenerator.md",
			"layout", layout)
	}
	if other := db.sql.SecondRegistry(); begun && other != "" {
		c.Log.Warn("uidplugin: this process has begun an id space in this schema, and another schema of the database has one;"+
			" if processes of both insert into one table, stop at once, because two rows could get the same id: see docs/several-databases.md",
			"schema", db.sql.Schema(), "other_schema", other)
	}
	if pinned := time.Duration(r.LeadTicks) * layout.Tick; r.LeadTicks != ticks(layout, c.Lead) {
		c.Log.Warn("uidplugin: this process is set to a different lead than the database; the database's is used",
			"database", pinned, "process", c.Lead, "to_change",
			"stop all processes for twice the longer one, then "+db.sql.Translate(fmt.Sprintf(`UPDATE "WORKER_REGISTRY" SET "LEAD_TICKS" = %d`, ticks(layout, c.Lead))))
		c.Lead = pinned
	}
	return newManager(db, layout, db.fit(ctx, host), c, r), nil
}

func newManager(db *DB, layout generator.Layout, host Host, c Config, r Registry) *Manager {
	queue := logqueue.New(nil)
	short := &DB{db.sql.Limited(min(max(c.Lead/4, minStatement), maxStatement), min(max(c.Lead/2, minStatement), maxTransaction), queue.Do)}
	m := &Manager{
		layout: layout, config: c, registry: r, clock: newClock(c.Now, layout), log: queue.Logger(c.Log), queue: queue,
		store: &statements{db: short, layout: layout, space: r.Space, region: r.Region, host: host.fitted(), launched: c.Now(), disposable: c.Disposable},
		wake:  make(chan struct{}, 1), done: make(chan struct{}), closing: make(chan struct{}, 1),
	}
	m.ctx, m.cancel = context.WithCancel(context.Background())
	params := paramsOf(layout, c.Lead, r.LeadTicks, db.sql.Dialect())
	params.Region = r.Region.N
	m.allocator = &allocator{
		clock: m.clock, params: params, most: layout.MaxLanes(), sparing: c.Disposable, log: m.log, first: r.FirstID, given: r.given(),
		ignored: map[int64]bool{},
	}
	m.slot = &slotHolder{
		store: m.store, params: params, me: rand.Text(), lead: c.Lead, clock: m.clock, log: m.log,
		check:   &clockCheck{store: m.store, clock: m.clock, maxSkew: c.MaxSkew, log: m.log},
		closing: func() bool { return m.ctx.Err() != nil },
		lease:   lease.Slot{Floor: r.Floor}, avoid: map[int64]time.Time{},
	}
	m.slot.setRenewInterval()
	m.rows = workerRows{store: m.store}
	m.showStats()
	return m
}

// Registry returns the registry as read at the start.
func (m *Manager) Registry() Registry { return m.registry }

// Now returns the protocol's time, for generators. It does not go back with the wall clock, and follows a wall clock
// that is set ahead only if the database's clock, if there is one, agrees.
func (m *Manager) Now() time.Time { return m.clock.now() }

// ReachClock sets the protocol's time ahead to target, the clock of a database that has refused an id as too old,
// unless it is ahead by more than MaxSkew ([DefaultMaxSkew] if that is 0). It reports whether it has set the time.
func (m *Manager) ReachClock(target time.Time) bool {
	ahead := m.clock.reach(target, cmp.Or(m.config.MaxSkew, DefaultMaxSkew))
	if ahead >= noticedSkew {
		m.log.Warn("uidplugin: the clock of this process is behind the database's, so ids follow the database's clock; set the clock that is wrong", "by", ahead)
	}
	return ahead > 0
}

// Assign returns a lease for each of tables, in their order. lanes has the number of worker ids for each table; nil
// means one for each. The number of statements is the same for up to 250 worker ids. Assign waits at most until ctx
// ends. Then its error includes the latest error of the database. The error wraps [ErrExhausted], [ErrTable],
// [ErrClock], [ErrRegion], [generator.ErrClosed] or [generator.ErrConfig], or comes from the database.
func (m *Manager) Assign(ctx context.Context, tables []Table, lanes []int) ([]*TableLease, error) {
	if err := checkTables(tables); err != nil {
		return nil, err
	}
	r := &request{tables: tables, lanes: lanes, done: make(chan struct{})}
	if r.lanes == nil {
		r.lanes = slices.Repeat([]int{1}, len(tables))
	}
	if len(r.lanes) != len(tables) || slices.ContainsFunc(r.lanes, wrongLanes) {
		return nil, fmt.Errorf("%w: %d tables with %v worker ids: each needs 1 to %d", generator.ErrConfig, len(tables), r.lanes, generator.MaxLanes)
	}
	if err := m.requests.add(r, m.clock.now()); err != nil {
		return nil, err
	}
	m.RequestRenewal()
	m.start.Do(func() { go m.run() })
	return m.requests.wait(ctx, r)
}

func checkTables(tables []Table) error {
	for _, t := range tables {
		if t.Name == "" || utf8.RuneCountInString(t.Name) > MaxTableName || utf8.RuneCountInString(t.Database) > MaxTableName {
			return fmt.Errorf("%w: the name %q of a table must have 1 to %d characters", ErrTable, t, MaxTableName)
		}
	}
	return nil
}

func wrongLanes(n int) bool { return n < 1 || n > generator.MaxLanes }

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
	s := *m.stats.Load()
	s.WorkerIDs, s.Given = m.allocator.counts()
	return s
}

// Close ends the lease manager and releases the slot. Close the generators first. Another process can reclaim the
// slot once the clock there is about Lead past the fence, or a second past it on SQLite. If Close did not release
// the slot, that clock must be at least a minute past the fence. Close waits at most until ctx ends. Call it again
// to retry whatever failed.
func (m *Manager) Close(ctx context.Context) error {
	m.cancel()
	m.requests.end(generator.ErrClosed)
	m.start.Do(func() { close(m.done) })
	select {
	case <-m.done:
	default:
		select {
		case <-m.done:
		case <-ctx.Done():
			return fmt.Errorf("workernode: close: the context ended while a statement was running: %w", ctx.Err())
		}
	}
	defer m.queue.Flush(ctx, time.Second)
	select {
	case m.closing <- struct{}{}:
	case <-ctx.Done():
		return fmt.Errorf("workernode: close: the context ended while another Close was running: %w", ctx.Err())
	}
	done := make(chan error, 1)
	go func() { // because a driver may not notice that ctx ends: SQLite's waits for a lock
		defer func() { <-m.closing }()
		var err error
		if !m.released {
			err = m.release(ctx)
			m.released = err == nil
		}
		done <- err
	}()
	select {
	case err := <-done:
		return err
	case <-ctx.Done():
	}
	select {
	case err := <-done:
		return err
	case <-time.After(lateRelease):
		return fmt.Errorf("workernode: close: the context ended while the slot was being released: %w", ctx.Err())
	}
}

// lateRelease is how long Close waits, after its context has ended, for the more exact error of the release.
const lateRelease = 100 * time.Millisecond

// release frees the slot for Close, with retries.
func (m *Manager) release(ctx context.Context) error {
	defer m.store.hold()()
	for try := 0; ; try++ {
		err := m.slot.releaseForClose(ctx)
		m.share(false)
		if err == nil || ctx.Err() != nil || !sqldb.IsTransient(err) || try >= maxTries || pause(ctx, try) != nil {
			return err
		}
	}
}
