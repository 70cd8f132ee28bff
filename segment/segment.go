package segment

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"sync"
	"sync/atomic"
	"time"
	"unicode/utf8"

	"github.com/uidplugin/uidplugin/generator"
	"github.com/uidplugin/uidplugin/internal/sqldb"
	"gorm.io/gorm"
)

const (
	// DefaultStep is the default of Config.Step: that of Leaf's example.
	DefaultStep = 2000

	// DefaultMaxStep is the default of Config.MaxStep, the size up to which ranges grow: Leaf's.
	DefaultMaxStep = 1_000_000

	// DefaultMaxWait is the default of Config.MaxWait: how long a caller without a deadline waits.
	DefaultMaxWait = 10 * time.Second

	// DefaultTimeout is the default of Config.Timeout: how long a statement may take.
	DefaultTimeout = 10 * time.Second

	// retryEvery is how often a fetch that failed is sent again while no caller waits.
	retryEvery = 5 * time.Second
)

// Config configures [Open]. Its zero value works.
type Config struct {
	// Table is the name of the table: letters, digits, _ and $. It may follow the name of another schema and a dot. ""
	// means [DefaultTable].
	Table string

	// Step is the step that Open inserts, from 1 to 2^31-1, if the tag has no row yet; 0 means [DefaultStep]. The step
	// of an existing row takes precedence.
	Step int64

	// MaxStep is the size up to which ranges are doubled, from 1 to 2^31-1 ids; 0 means [DefaultMaxStep]. With at most
	// the step of the row they are never doubled.
	MaxStep int64

	// Start is the least id, from 1 on; 0 means 1. A row with a smaller max_id is lifted to
	// it with the next fetch.
	Start int64

	// Used is the largest number that the column has already; 0 if it has none. Ids begin above it. Open refuses a new
	// tag for such a column, with [ErrRow], unless Start is above Used: another program has made the numbers, and if it
	// is a Leaf service with another tag, it holds higher ones. A tag is new if it has no row, or a max_id of 1, so that
	// nobody has fetched from it. Read Used before Open is called.
	Used int64

	// Description is for people: what a row says that Open inserts, up to 256 characters.
	Description string

	// MaxWait bounds how long a caller waits for one id if its context has no deadline; 0
	// means [DefaultMaxWait]. A context with a deadline is the caller's own bound.
	MaxWait time.Duration

	// Timeout bounds how long a statement may take; 0 means [DefaultTimeout].
	Timeout time.Duration

	// Now returns the time by which the sizes of ranges change; nil means [time.Now]. One goroutine at a time calls it.
	Now func() time.Time

	// Log gets changes of state: an inserted row, fetches that fail or work again, and a max_id that went back. nil
	// means [slog.Default].
	Log *slog.Logger
}

// Generator hands out the ids of one tag, for the price of one compare-and-swap each. It fetches the next range when a
// tenth of the present one is used up.
//
// It has one goroutine, which sleeps until then. Callers that find no id wait for the fetch, in the order of their
// arrival, until their context ends. A context without a deadline waits for Config.MaxWait at most. If the fetch fails
// they get its error, which wraps [generator.ErrSource], and perhaps [ErrRow] or [ErrExhausted]. A failed fetch is sent
// again with pauses of up to a second while callers wait, and every 5 s otherwise.
//
// A caller that waits inside a transaction keeps its connection. If the pool has no other, the fetch fails after the
// time that its statements have. The same happens on SQLite in a transaction that has written.
//
// Create a Generator with [Open]. Any number of goroutines may use it at once.
type Generator struct {
	buffered *generator.Buffered
	table    *table
	config   Config

	// mark is the id from which on the next range should be fetched, or unfetched while one is being fetched. A caller
	// that takes such an id replaces the mark and then sends to wake. So each mark causes one signal, and sending never
	// waits.
	mark atomic.Int64
	wake chan struct{}

	mu     sync.Mutex // guards what follows; never held during a statement
	state  State
	began  time.Time // when the first of the attempts began that have not succeeded yet; zero after a success
	reason error     // why the last attempt failed; nil after a success

	fetching // belongs to the goroutine that fetches
}

var _ generator.Generator = (*Generator)(nil)

// unfetched is the mark while a range is being fetched. It is never handed out.
const unfetched = math.MaxInt64

// State is the state of a generator at one moment.
type State struct {
	Tag  string
	Left int64 // ids in the buffer

	// First and Last are those of the range that was fetched last, 0 before there was one.
	// There may be ids left of the one before.
	First, Last int64

	Step    int64 // what ranges have grown to
	MinStep int64 // the step of the row, as last read

	Ranges    int64 // fetched
	Conflicts int64 // with other processes, and errors that passed
	Failed    int64 // fetches that failed

	// LastError is that of the last fetch; nil if it did not fail.
	LastError error

	// FailingSince is when the first fetch began of those that have failed since the last
	// success; zero while LastError is nil.
	FailingSince time.Time
}

// Open returns a generator for a tag of 1 to 128 characters: any name, such as that of the table whose rows get the
// ids. It creates the table if it does not exist, and inserts the row of the tag if it is missing. It fetches the first
// range, so the first ids need no connection. Any number of processes may call it at once, for one tag too.
//
// Its statements are sent on the pool of db, past GORM's callbacks; db must not be a transaction.
//
// It waits for the database as long as ctx and Config.Timeout allow. The error wraps [ErrConfig], [ErrRow],
// [ErrExhausted] or [workernode.ErrTable], or is the database's.
func Open(ctx context.Context, db *gorm.DB, tag string, c Config) (*Generator, error) {
	if err := c.Validate(); err != nil {
		return nil, err
	}
	c.Table, c.Step, c.MaxStep, c.Start = cmp.Or(c.Table, DefaultTable), cmp.Or(c.Step, DefaultStep), cmp.Or(c.MaxStep, DefaultMaxStep), cmp.Or(c.Start, 1)
	c.Log, c.MaxWait = cmp.Or(c.Log, slog.Default()), cmp.Or(c.MaxWait, DefaultMaxWait)
	c.Timeout = cmp.Or(c.Timeout, DefaultTimeout)
	if c.Now == nil {
		c.Now = time.Now
	}
	switch {
	case db == nil:
		return nil, fmt.Errorf("%w: no database", ErrConfig)
	case tag == "" || utf8.RuneCountInString(tag) > 128 || !text(tag):
		return nil, fmt.Errorf("%w: the tag %q is not 1 to 128 characters of UTF-8", ErrConfig, tag)
	}
	d, err := sqldb.Open(db, c.Timeout)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrConfig, err)
	}
	t := newTable(d, c.Table, tag)
	if err := t.prepare(ctx); err != nil {
		return nil, err
	}
	r, inserted, err := t.join(ctx, row{maxID: c.Start, step: c.Step}, c.Used, c.Description)
	if err != nil {
		return nil, err
	}
	switch {
	case inserted:
		c.Log.Info("segment: tag inserted", "table", t.String(), "tag", tag, "max_id", c.Start, "step", c.Step)
	case r.maxID <= c.Used:
		c.Log.Warn("segment: the column has larger numbers than max_id, so another program makes some, or max_id went back; ids begin above them",
			"table", t.String(), "tag", tag, "max_id", r.maxID, "largest", c.Used)
	}
	c.Start = max(c.Start, c.Used+1)

	g := &Generator{table: t, config: c, wake: make(chan struct{}, 1), state: State{Tag: tag}}
	g.mark.Store(unfetched)
	g.fetching = fetching{since: c.Now(), floor: c.Start}
	if g.first, err = g.fetch(ctx); err != nil {
		return nil, err
	}
	// Source returns a range when it is due and not before, so the buffer is never full.
	g.buffered, err = generator.NewBuffered(generator.BufferedConfig{
		Source: g.source, Size: math.MaxInt32, RefillBelow: 100, Every: retryEvery,
	})
	return g, err
}

// Validate returns an error that wraps [ErrConfig] if Open would refuse c.
func (c Config) Validate() error {
	switch {
	case c.Table != "" && !tableName.MatchString(c.Table):
		return fmt.Errorf("%w: Table %q is not a name of letters, digits, _ and $", ErrConfig, c.Table)
	case c.Step < 0 || c.Step > math.MaxInt32:
		return fmt.Errorf("%w: Step %d is outside 1 to %d", ErrConfig, c.Step, math.MaxInt32)
	case c.MaxStep < 0 || c.MaxStep > math.MaxInt32:
		return fmt.Errorf("%w: MaxStep %d is outside 1 to %d", ErrConfig, c.MaxStep, math.MaxInt32)
	case c.MaxWait < 0:
		return fmt.Errorf("%w: MaxWait %v is negative", ErrConfig, c.MaxWait)
	case c.Timeout < 0:
		return fmt.Errorf("%w: Timeout %v is negative", ErrConfig, c.Timeout)
	case c.Used < 0 || c.Used >= math.MaxInt64-1:
		return fmt.Errorf("%w: Used %d is outside 0 to %d", ErrConfig, c.Used, int64(math.MaxInt64-2))
	case c.Start < 0 || c.Start == math.MaxInt64:
		return fmt.Errorf("%w: Start %d is outside 1 to %d", ErrConfig, c.Start, int64(math.MaxInt64-1))
	case utf8.RuneCountInString(c.Description) > 256 || !text(c.Description):
		return fmt.Errorf("%w: the description is not up to 256 characters of UTF-8", ErrConfig)
	}
	return nil
}

// text reports whether every database takes s for text.
func text(s string) bool {
	for _, r := range s {
		if r == 0 {
			return false
		}
	}
	return utf8.ValidString(s)
}

// Next implements [generator.Generator]. It does not allocate unless it waits.
func (g *Generator) Next(ctx context.Context) (int64, error) {
	id, err := g.buffered.Next(ended)
	if err != nil {
		if id, err = g.wait(ctx); err != nil {
			return 0, err
		}
	}
	if mark := g.mark.Load(); id >= mark && g.mark.CompareAndSwap(mark, unfetched) {
		g.wake <- struct{}{}
	}
	return id, nil
}

// ended is the context of a caller that does not wait.
var ended = func() context.Context {
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	return ctx
}()

// wait is Next for a caller that has found no id.
func (g *Generator) wait(ctx context.Context) (int64, error) {
	bounded, cancel := ctx, context.CancelFunc(func() {})
	if _, ok := ctx.Deadline(); !ok {
		bounded, cancel = context.WithTimeout(ctx, g.config.MaxWait)
	}
	defer cancel()
	id, err := g.buffered.Next(bounded)
	if err == nil || bounded.Err() == nil || !errors.Is(err, bounded.Err()) || errors.Is(err, generator.ErrSource) {
		return id, err
	}
	g.mu.Lock()
	reason := g.reason
	g.mu.Unlock()
	if ctx.Err() == nil { // MaxWait is over
		if reason == nil {
			reason = fmt.Errorf("the database has not answered: %w", err)
		}
		return 0, fmt.Errorf("%w: no id of the tag %q came from %s within %v: %w",
			generator.ErrSource, g.table.tag, g.table, g.config.MaxWait, reason)
	}
	if reason == nil {
		return 0, err
	}
	return 0, fmt.Errorf("segment: waiting for an id of the tag %q: %w; the last fetch failed: %w", g.table.tag, err, reason)
}

// Fill implements [generator.Generator]. It may be larger than any range: then it waits
// for several, for each as long as Next. It does not allocate unless it waits.
func (g *Generator) Fill(ctx context.Context, ids []int64) (err error) {
	// One by one: each id may be the one at which the next range is fetched, and a batch may have to wait for that
	// range.
	for i := range ids {
		if ids[i], err = g.Next(ctx); err != nil {
			return err
		}
	}
	return nil
}

// Close implements [generator.Generator]. It ends a fetch in progress. It waits as long as the driver takes to give up
// a statement whose context has ended: SQLite's driver waits for a lock as long as its busy_timeout. The ids that are
// left are lost.
func (g *Generator) Close() { g.buffered.Close() }

// State returns the state of the generator. It never waits for the database.
func (g *Generator) State() State {
	b := g.buffered.State()
	g.mu.Lock()
	defer g.mu.Unlock()
	s := g.state
	s.Left, s.Failed, s.LastError = b.Left, b.Failed, b.LastError
	if s.LastError != nil {
		s.FailingSince = g.began
	}
	return s
}

// Made returns how many ids were handed out, from 0. It never goes back.
func (g *Generator) Made() int64 { return g.buffered.Made() }

// Waits returns how many times a call has waited for a range, from 0. It never goes back.
func (g *Generator) Waits() int64 { return g.buffered.Waits() }

// Health returns nil unless the last fetch failed. The error says since when ids cannot be fetched, how many are left,
// and why: it wraps the database's own. It is nil again after the next successful fetch, which happens without a
// caller. Health never waits for the database.
func (g *Generator) Health() error {
	s := g.State()
	if s.LastError == nil || s.FailingSince.IsZero() { // it has just succeeded
		return nil
	}
	return fmt.Errorf("segment: ids of the tag %q could not be fetched from %s since %s; %d are left: %w",
		g.table.tag, g.table, s.FailingSince.UTC().Format("2006-01-02 15:04:05 MST"), s.Left, s.LastError)
}
