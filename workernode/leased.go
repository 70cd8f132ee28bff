package workernode

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/uidplugin/uidplugin/generator"
)

// LeasedConfig changes what [NewLeased] makes. The zero config is the guarded
// mode.
type LeasedConfig struct {
	// Durable trusts the database to keep every commit that it has acknowledged, also
	// through a failover. Fences are then set by need, and may lie far ahead of the
	// clock. Otherwise (guarded) they are at most Lead ahead, and Margin keeps what a
	// forgetful database gives twice apart.
	Durable bool

	// Lead and Margin are those of the guarded mode: 20 s and 10 s unless told
	// otherwise, or as many ticks as make that possible.
	Lead, Margin time.Duration

	// Window is how far ahead of need the durable mode sets fences, up to Lead under
	// load: 1 min and 1 h unless told otherwise.
	Window time.Duration

	// Grace is how long a worker id must have been left alone before another process
	// takes it over, beyond its fence: 1 min unless told otherwise. Nothing depends on
	// it but how many worker ids are in use, and how often.
	Grace time.Duration

	// MaxLanes bounds the worker ids of one table of this process, a power of two:
	// [DefaultMaxLanes] unless told otherwise, and never more than a quarter of all that
	// the layout has.
	MaxLanes int

	// Spares is how many worker ids without a table are held in reserve; see
	// [Leased.Spare]. 0 means none.
	Spares int

	// Sticky prefers worker ids that a process of the same host and port had before.
	Sticky bool

	// File is where Close leaves what the leases have left, for a start while the database
	// is away; see TakeFile. Empty means nowhere, which is best. Whoever sets it promises
	// that the file is never copied while the machine is up, neither by itself nor with the
	// disk, the container or the machine that it is on; else ids come twice.
	File string
	// Database is what tells the database from others, such as a digest of its DSN: a file
	// of another one is refused, and so is any if it is empty.
	Database string
	boot     func() (string, error) // nil means that of this machine

	// MaxSkew is how far the clock may be from the database's; beyond it no worker id
	// is given out or renewed. 0 does not look.
	MaxSkew time.Duration

	Now func() time.Time // nil means time.Now
	Log *slog.Logger     // of changes of state; nil logs nothing
}

// DefaultMaxLanes bounds the worker ids of one table of a process: 524,288 ids a
// second in the default layout, and more in bursts.
const DefaultMaxLanes = generator.MaxLanes

const (
	// beat is the time between two renewals, unless somebody is in need.
	beat = 5 * time.Second
	// minPause is the time between two renewals when somebody is in need, and the
	// longest between two attempts while the database is away is maxPause.
	minPause = 250 * time.Millisecond
	maxPause = 500 * time.Millisecond
	// glance is the time between two looks at a generator in need whose rate is not
	// known. A look after less than longLook gives it no more than boldly times as many
	// lanes, one after more than staleLook, in which it may have rested, is followed by
	// another.
	glance    = 25 * time.Millisecond
	longLook  = 200 * time.Millisecond
	staleLook = time.Second
	boldly    = 4
	// unusedAfter is how long a worker id is renewed after its last use.
	unusedAfter = 10 * time.Minute
	// calmAfter is how long a generator must have been up with the clock before it
	// gives half of its lanes back.
	calmAfter = 30 * time.Second
	// maxRounds bounds how often a renewal that was refused is tried again at once.
	maxRounds = 4
)

// Leased gives worker ids out and takes them over again: a worker id that a
// process has given back, or has not renewed for long, goes to the next process
// that writes to the same table. One goroutine, the keeper, renews all worker ids
// of the process; it runs from [Leased.Start], or the first [Leased.Assign], to
// [Leased.Close].
//
// The rules are in the documentation of the package. All methods may be called by
// any number of goroutines at once.
type Leased struct {
	statements
	config LeasedConfig
	base   time.Time // the clock at the start, with its monotonic reading

	// gained is by how much the wall clock has run ahead of the monotonic one since
	// base, in nanoseconds, as far as clock follows it.
	gained atomic.Int64

	wake chan struct{} // capacity 1: somebody is in need
	quit chan struct{} // closed by Close
	done chan struct{} // closed when the keeper has ended; nil before it was started

	mu      sync.Mutex
	terms   terms // floor and window change
	holds   []*hold
	spares  []*seat
	dropped []int64 // worker ids to be given back
	// usedUp has the spares that were ever used, and their first ticks. If one is lost, this process must not
	// take it over again: a statement that writes its former table may be on its way.
	usedUp map[int64]int64
	closed bool
	stats  LeaseStats
	// stash has seats that a claim got before it failed: the next one wants them, and their
	// fences keep others from them for a while.
	stash       []*seat
	sparesAgain time.Time   // when to look again for spares, of which there were none
	said        []message   // see unlock
	adoptable   []fileLease // of the lease file

	closing sync.Mutex // held by Close while it gives back
	given   bool       // all was given back; guarded by closing
	filed   bool       // the lease file was written, or should have been; guarded by closing

	looked, lookedReal time.Time     // the clock, and the time, when the clock was last found right
	refused            time.Duration // what the wall clock was ahead of the monotonic one when it was last not followed
}

// A hold is what one generator stamps with: its lanes. Its fields are guarded by
// the mutex of Leased.
type hold struct {
	// key is the lease that it began with, and may have lost since: never another's, as
	// fences only grow.
	key       generator.Lease
	table     string
	lanes     []*seat             // a power of two of them, in ascending order of worker ids
	generator generator.Renewable // nil until Keep
	published []generator.Lease   // what the generator has
	starved   error               // why it gets no other worker id, all of its having been lost; nil if it is not so
	again     time.Time           // when to look again for worker ids, of which there were none

	used time.Time // when its generator was last seen in use; see look

	// how the generator stood when it was last judged
	judged      time.Time
	left        uint64
	lastUntil   int64
	judgedLanes int
	puzzling    bool // it is in need, and should be judged again soon

	shrunk time.Time     // when it last gave lanes back
	steady time.Duration // how long it must be calm for that
	calm   time.Time     // since when it has been up with the clock; zero if it is not

	unwritten int64 // a spare whose row does not say the table yet; 0 if there is none
	bounded   bool  // the log has said that it needs more lanes than it may have
}

// LeaseStats counts what happened since the start of the process.
type LeaseStats struct {
	Held    int // worker ids held, spares included
	Spares  int // of them, not bound to a table
	Renewed int64
	Taken   int64 // worker ids taken over from former processes
	Fresh   int64 // worker ids that nobody had before
	Lost    int64 // worker ids that others have taken over
	// Regressed counts how often a row was found to have forgotten what the database had
	// acknowledged. A loss that let another process take the row counts in Lost.
	Regressed int64

	// LastError is why the last renewal failed; nil if it did not. Since says from
	// when on all have failed.
	LastError error
	Since     time.Time
}

// NewLeased returns the policy for one start of a process, or an error that wraps
// [generator.ErrConfig].
func NewLeased(db *DB, layout generator.Layout, host Host, c LeasedConfig) (*Leased, error) {
	if c.Now == nil {
		c.Now = time.Now
	}
	if c.boot == nil {
		c.boot = bootID
	}
	if c.Log == nil {
		c.Log = slog.New(slog.DiscardHandler)
	}
	c.MaxLanes = min(cmp.Or(c.MaxLanes, DefaultMaxLanes), generator.MaxLanes)
	for c.MaxLanes > 1 && int64(c.MaxLanes) > layout.MaxWorkerID()/4 {
		c.MaxLanes /= 2
	}
	k := &Leased{
		statements: newStatements(db, layout, host),
		config:     c, base: c.Now(), usedUp: map[int64]int64{},
		wake: make(chan struct{}, 1), quit: make(chan struct{}),
	}
	// A statement that hangs must leave time for another before the leases end.
	short := *db
	short.timeout = min(db.timeout, beat)
	k.db = &short
	var err error
	k.terms, err = c.terms(layout)
	return k, err
}

// terms counts the times of the config in ticks.
func (c LeasedConfig) terms(layout generator.Layout) (terms, error) {
	if c.Lead < 0 || c.Margin < 0 || c.Window < 0 || c.Grace < 0 || c.MaxLanes < 1 || c.MaxLanes&(c.MaxLanes-1) != 0 || c.Spares < 0 {
		return terms{}, fmt.Errorf("%w: lead %v, margin %v, window %v, grace %v, spares %d must not be negative, and %d lanes must be a power of two",
			generator.ErrConfig, c.Lead, c.Margin, c.Window, c.Grace, c.Spares, c.MaxLanes)
	}
	ticks := func(d time.Duration) int64 { return int64((d + layout.Tick - 1) / layout.Tick) }
	t := terms{last: layout.MaxTick(), slack: max(ticks(time.Second), 1), grace: ticks(cmp.Or(c.Grace, time.Minute))}
	if c.Durable {
		t.lead = max(ticks(cmp.Or(c.Lead, time.Hour)), 2)
		t.window = min(max(ticks(cmp.Or(c.Window, time.Minute)), 2), t.lead)
		return t, nil
	}
	t.lead = max(ticks(cmp.Or(c.Lead, 20*time.Second)), 4)
	t.margin = min(ticks(cmp.Or(c.Margin, 10*time.Second)), t.lead/2)
	if c.Margin > 0 {
		t.margin = ticks(c.Margin)
	}
	if t.margin >= t.lead {
		return terms{}, fmt.Errorf("%w: a margin of %v leaves nothing of a lead of %v (in ticks of %v)", generator.ErrConfig, c.Margin, c.Lead, layout.Tick)
	}
	return t, nil
}

// clock returns the time by the monotonic clock, if Now has one: it does not mind the
// wall clock being set. checkClock has it follow a wall clock that has run ahead.
func (k *Leased) clock() time.Time { return k.steady(k.config.Now()) }

func (k *Leased) steady(now time.Time) time.Time {
	return k.base.Round(0).Add(now.Sub(k.base) + time.Duration(k.gained.Load()))
}

// tick returns the present as the protocol sees it: below an operator's floor there
// is nothing.
func (k *Leased) tick(t terms) int64 {
	return max(k.layout.TickAt(k.clock()), t.floor+1-t.margin)
}

func (k *Leased) current() terms {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.terms
}

// Assign returns one lease for each of tables, in their order, in a number of
// statements that does not depend on how many they are (up to 1,000). A table may
// be given twice; then it gets two worker ids. [Leased.Keep] names the generator
// of each, to be told when the lease is renewed.
//
// ctx should not be the one of a single request: when it ends in the middle, worker
// ids are lost for a while, though never used twice.
func (k *Leased) Assign(ctx context.Context, tables ...string) ([]generator.Lease, error) {
	if len(tables) == 0 {
		return nil, nil
	}
	return k.assign(ctx, tables)
}

// Start takes the spare worker ids, if there are to be any, and Assign was not called
// before, which takes them too.
func (k *Leased) Start(ctx context.Context) error {
	k.mu.Lock()
	enough := len(k.spares) >= k.config.Spares
	k.mu.Unlock()
	if enough {
		return nil
	}
	_, err := k.assign(ctx, nil)
	return err
}

func (k *Leased) assign(ctx context.Context, tables []string) ([]generator.Lease, error) {
	if err := checkTables(tables); err != nil {
		return nil, err
	}
	if k.config.File != "" {
		if err := k.dropLeaseFile(); err != nil {
			return nil, err
		}
	}
	k.mu.Lock()
	wanted := slices.Clone(tables)
	for range k.config.Spares - len(k.spares) {
		wanted = append(wanted, "")
	}
	k.mu.Unlock()
	seats, err := k.claim(ctx, wanted)
	if err != nil {
		return nil, err
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.closed {
		go k.drop(seats)
		return nil, generator.ErrClosed
	}
	leases := make([]generator.Lease, len(tables))
	for i, table := range tables {
		leases[i] = leaseOf(seats[i : i+1])[0]
		k.holds = append(k.holds, &hold{key: leases[i], table: table, lanes: seats[i : i+1 : i+1], used: k.clock(), published: leases[i : i+1 : i+1]})
	}
	k.addSpares(seats[len(tables):])
	k.begin()
	return leases, nil
}

// begin starts the keeper, unless it runs. The caller holds k.mu.
func (k *Leased) begin() {
	if k.done == nil {
		k.done = make(chan struct{})
		go k.run()
	}
}

// addSpares adds spares, of which some may not have been had, and gives back what is too
// many: others may have added some meanwhile. The caller holds k.mu.
func (k *Leased) addSpares(seats []*seat) {
	for _, s := range seats {
		switch {
		case s == nil:
		case len(k.spares) < k.config.Spares:
			k.spares = append(k.spares, s)
		default:
			k.dropped = append(k.dropped, s.worker)
		}
	}
}

// A message is for the log.
type message struct {
	level slog.Level
	text  string
	args  []any
}

// say logs when k.mu, which the caller holds, is released by unlock: a handler may be
// code that comes back.
func (k *Leased) say(level slog.Level, text string, args ...any) {
	k.said = append(k.said, message{level, text, args})
}

// unlock releases k.mu and logs what was said.
func (k *Leased) unlock() {
	said := k.said
	k.said = nil
	k.mu.Unlock()
	for _, m := range said {
		k.config.Log.Log(context.Background(), m.level, m.text, m.args...)
	}
}

// Keep names the generator of a lease that Assign or Spare has returned: it is told
// when the lease was renewed, and gets more worker ids when it needs them.
func (k *Leased) Keep(lease generator.Lease, g generator.Renewable) {
	k.mu.Lock()
	defer k.unlock()
	if h := k.hold(lease); h != nil {
		h.generator = g
		k.publish(h)
		k.judge(h, k.clock(), g.Usage())
		if k.stats.LastError != nil {
			g.Suspend(k.stats.LastError)
		}
	}
}

// hold returns what began with a lease; nil if there is none. The caller holds k.mu.
func (k *Leased) hold(lease generator.Lease) *hold {
	for _, h := range k.holds {
		if h.key == lease {
			return h
		}
	}
	return nil
}

// Leases returns what has become of a lease that Assign or Spare has returned: what
// its generator may stamp now.
func (k *Leased) Leases(lease generator.Lease) []generator.Lease {
	k.mu.Lock()
	defer k.mu.Unlock()
	if h := k.hold(lease); h != nil {
		return slices.Clone(h.published)
	}
	return []generator.Lease{lease}
}

// Drop gives a lease back that Assign has returned and that was not used.
func (k *Leased) Drop(lease generator.Lease) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if h := k.hold(lease); h != nil {
		k.holds = slices.DeleteFunc(k.holds, func(other *hold) bool { return other == h })
		k.dropped = append(k.dropped, workersOf(h.lanes)...)
		k.Need()
	}
}

// TableOf returns the table of the ids that this process stamps with a worker id that
// was a spare, and a tick; empty if it does not.
func (k *Leased) TableOf(worker, tick int64) string {
	k.mu.Lock()
	defer k.mu.Unlock()
	from, ok := k.usedUp[worker]
	if !ok || tick < from {
		return ""
	}
	for _, h := range k.holds {
		for _, s := range h.lanes {
			if s.worker == worker && !s.lost && tick <= s.until {
				return h.table
			}
		}
	}
	return ""
}

// Now returns the time as the protocol sees it, for the generators: it does not go back
// when the wall clock is set back, and follows one that is set ahead only if the
// database's agrees.
func (k *Leased) Now() time.Time { return k.clock() }

// Spare binds one of the worker ids in reserve to a table, at once: no statement is
// sent. The keeper writes the table into its row as soon as it can. It reports false
// if there is none. It is for the first create of a table inside a transaction,
// which may have the only connection.
func (k *Leased) Spare(table string) (generator.Lease, bool) {
	if checkTables([]string{table}) != nil {
		return generator.Lease{}, false
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	tick := k.tick(k.terms)
	for i, s := range k.spares {
		// One whose fence has passed may be another's by now, and its ids would lead nowhere.
		if k.closed || s.lost || s.until < max(s.from, tick+k.terms.slack) {
			continue
		}
		k.spares = slices.Delete(k.spares, i, i+1)
		s.table = table
		k.usedUp[s.worker] = s.from
		h := &hold{table: table, lanes: []*seat{s}, used: k.clock(), unwritten: s.worker}
		h.published = leaseOf(h.lanes)
		h.key = h.published[0]
		k.holds = append(k.holds, h)
		k.Need()
		return h.published[0], true
	}
	return generator.Lease{}, false
}

// Need makes the keeper look at once who is in need of what. It never waits, and
// may be called by anybody: it is what generators call when they run low.
func (k *Leased) Need() {
	select {
	case k.wake <- struct{}{}:
	default:
	}
}

// Stats returns what happened so far.
func (k *Leased) Stats() LeaseStats {
	k.mu.Lock()
	defer k.mu.Unlock()
	s := k.stats
	s.Spares = len(k.spares)
	for _, h := range k.holds {
		s.Held += len(h.lanes)
	}
	s.Held += s.Spares
	return s
}

// Close ends the keeper and gives the worker ids back, so that the next process
// gets them as soon as the clock has passed their fences. The generators must have been closed. It waits until ctx ends;
// rows that were not given back by then are free when their grace is over. It may be
// called more than once, and tries again what it did not achieve before.
func (k *Leased) Close(ctx context.Context) error {
	k.mu.Lock()
	first, done := !k.closed, k.done
	k.closed = true
	k.mu.Unlock()
	if first {
		close(k.quit)
	}
	if done != nil {
		select {
		case <-done:
		case <-ctx.Done():
			return fmt.Errorf("workernode: close: %w", ctx.Err())
		}
	}
	k.closing.Lock()
	defer k.closing.Unlock()
	if k.given {
		return nil
	}
	// What could not be written down is given back all the same: those ids lead nowhere.
	err := persist(ctx, func() error { return k.write(ctx) })
	k.mu.Lock()
	var workers []int64
	for _, h := range k.holds {
		workers = append(workers, workersOf(h.lanes)...)
	}
	workers = append(append(append(workers, workersOf(k.spares)...), workersOf(k.stash)...), k.dropped...)
	k.mu.Unlock()
	if k.config.File != "" && !k.filed {
		k.filed = true // once, whatever comes of it: another process may have taken it since
		err = errors.Join(err, k.writeLeaseFile())
	}
	gave := persist(ctx, func() error { return k.giveBack(ctx, workers) })
	k.given = gave == nil
	return errors.Join(err, gave)
}

// extendSeats moves the fences of those seats, which compare with the same value,
// that are not where they should be yet; now is the present tick, next the one that is to
// be stamped next. It reports whether the database has refused: fewer rows were changed.
func (k *Leased) extendSeats(ctx context.Context, t terms, seats []*seat, now, next int64) (refused bool, err error) {
	fence := t.target(now, next)
	k.mu.Lock()
	seats = slices.DeleteFunc(slices.Clone(seats), func(s *seat) bool { return !s.extendable(fence) })
	k.mu.Unlock()
	if len(seats) == 0 {
		return false, nil
	}
	n, err := k.extend(ctx, seats[0].compare, fence, workersOf(seats))
	after := k.tick(t)
	k.mu.Lock()
	defer k.unlock()
	refused = err == nil && n != int64(len(seats))
	for _, s := range seats {
		if err != nil || refused {
			s.doubt()
			continue
		}
		if s.behind() {
			k.stats.Regressed++
			k.say(slog.LevelError, "uidplugin: the database has lost commits that it had acknowledged: this worker id's fence had gone back",
				"table", s.table, "worker_id", s.worker, "was", s.until, "went_back_to", s.compare)
		}
		t.granted(s, fence, after)
	}
	if err == nil && !refused {
		k.stats.Renewed += n
	}
	return refused, err
}

func (k *Leased) count(f func(*LeaseStats)) {
	k.mu.Lock()
	defer k.mu.Unlock()
	f(&k.stats)
}

func workersOf(seats []*seat) []int64 {
	workers := make([]int64, len(seats))
	for i, s := range seats {
		workers[i] = s.worker
	}
	return workers
}

// leaseOf returns what a generator may stamp with all lanes: the ticks that they
// have in common; nil if there are none.
func leaseOf(lanes []*seat) []generator.Lease {
	from, until := lanes[0].from, lanes[0].until
	for _, s := range lanes {
		from, until = max(from, s.from), min(until, s.until)
	}
	if from > until {
		return nil
	}
	leases := make([]generator.Lease, len(lanes))
	for i, s := range lanes {
		leases[i] = generator.Lease{WorkerID: s.worker, From: from, Until: until}
	}
	return leases
}
