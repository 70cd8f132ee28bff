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
	defaultStep    = 2000      // as in Leaf's example
	defaultMaxStep = 1_000_000 // as in Leaf
	defaultMaxWait = 10 * time.Second
	defaultTimeout = 10 * time.Second

	// retryEvery is the pause after a failed fetch while no caller waits.
	retryEvery = 5 * time.Second
)

// Config configures [Open]. Its zero value works.
type Config struct {
	// Table is the name of the table: letters, digits, _ and $, optionally after a schema and a dot. "" means
	// [DefaultTable].
	Table string

	// Schema is the schema of the table on PostgreSQL, and the database on MySQL, if Table does not name one. "" means
	// the schema in which the connection finds the table, or else the current one. Open determines the schema, and all
	// statements name it from then on. On PostgreSQL Open fails instead of creating a second table in another schema of
	// the database. The plugin sets Schema to the schema of its other tables, if it has any.
	Schema string

	// Step is the step that Open inserts if the row of the tag is missing, from 1 to 2^31-1; 0 means 2,000. If the row
	// has a smaller step, this process still uses Step, until somebody changes the step of the row. A
	// transaction that keeps other connections from writing needs a Step of twice the number of rows that it creates.
	Step int64

	// MaxStep limits how far ranges grow, from 1 to 2^31-1 ids; 0 means 1,000,000. Ranges never grow if MaxStep is at
	// most the step of the row.
	MaxStep int64

	// Start is the smallest id, at least 1; 0 means 1. If max_id is smaller, the next fetch begins at Start.
	Start int64

	// Used is the largest number of the column, 0 for an empty one. Ids begin above it. Read it before calling Open.
	// If max_id is not above Used, another program has made the number Used, and may hold higher ones in memory, as a
	// Leaf service with another tag does. So Open refuses the tag with [ErrRow], unless the tag is new and Start is
	// above Used. A tag is new if its row is missing, or if its max_id is 1 or less, because then nobody has fetched
	// from it.
	Used int64

	// Lift allows ids of an existing tag to begin above Used, with a warning. Set it only if all programs that number
	// the column use this package and this tag. The plugin sets it only for tags that no model names.
	Lift bool

	// Description is stored in a row that Open inserts, for people. It has at most 256 characters.
	Description string

	// MaxWait limits how long a call without a deadline waits for one id; 0 means 10 s.
	MaxWait time.Duration

	// Timeout limits the time of one statement; 0 means 10 s.
	Timeout time.Duration

	// Now is the clock for the sizes of ranges; nil means [time.Now]. It is never called concurrently.
	Now func() time.Time

	// Log gets changes of state: an inserted row, the first failed fetch and the next success, and a max_id that went
	// back. nil means [slog.Default].
	Log *slog.Logger
}

// Generator hands out the ids of one tag; each costs one compare-and-swap. It fetches the next range when a tenth of
// the present one is used up.
//
// Its only goroutine sleeps until then. Callers that find no id wait for the fetch, first come, first served. A
// caller waits until its context ends, but at most Config.MaxWait if the context has no deadline. If the fetch
// fails, the error wraps [generator.ErrSource], and [ErrRow] or [ErrExhausted] where these apply. A failed fetch is
// repeated with pauses of up to a second while callers wait, otherwise every 5 s.
//
// Note that a caller inside a transaction keeps its connection while it waits. Without another connection, the fetch
// fails with a timeout. The same happens on SQLite if the transaction has written, because only one connection can
// write.
//
// Create a Generator with [Open]. It is safe for concurrent use.
type Generator struct {
	buffered *generator.Buffered
	table    *table
	config   Config

	// mark is the id at which the next range should be fetched. During a fetch it is the constant unfetched. The caller
	// that takes the marked id, or a larger one, sets mark to unfetched and sends to wake. So each mark causes one
	// signal, and the send never blocks.
	mark atomic.Int64
	wake chan struct{}

	mu     sync.Mutex // guards the fields below; never held during a statement
	state  State
	began  time.Time // start of the first attempt since the last success; zero after a success
	reason error     // error of the last attempt; nil after a success

	fetching // only for the goroutine that fetches
}

var _ generator.Generator = (*Generator)(nil)

// unfetched is the mark during a fetch. No id reaches it.
const unfetched = math.MaxInt64

// State is a snapshot of a generator.
type State struct {
	Tag  string
	Left int64 // ids in the buffer

	// First and Last are the bounds of the latest range, 0 before the first fetch. Ids of the previous range may be
	// left.
	First, Last int64

	Step    int64 // current size of a range
	MinStep int64 // step of the row, as last read

	Ranges    int64 // fetched ranges
	Conflicts int64 // lost races and transient errors
	Failed    int64 // failed fetches

	// LastError is the error of the last fetch; nil if it succeeded.
	LastError error

	// FailingSince is the start of the first failed fetch since the last success; zero while LastError is nil.
	FailingSince time.Time
}

// Open returns a generator for a tag of 1 to 128 characters, such as the name of the table whose rows get the ids. It
// creates the table and inserts the row of the tag if they are missing. It also fetches the first range, so the first
// ids need no connection. Any number of processes may call it at once, even for the same tag.
//
// Statements use the pool of db, and bypass GORM's callbacks; db must not be a transaction.
//
// Open waits for the database as long as ctx and Config.Timeout allow. The error wraps [ErrConfig], [ErrRow],
// [ErrExhausted] or uidplugin.ErrTable, or is the database's.
func Open(ctx context.Context, db *gorm.DB, tag string, c Config) (*Generator, error) {
	if err := c.Validate(); err != nil {
		return nil, err
	}
	least := c.Step // 0 means the step of the row
	c.Table, c.Step, c.MaxStep, c.Start = cmp.Or(c.Table, DefaultTable), cmp.Or(c.Step, defaultStep), cmp.Or(c.MaxStep, defaultMaxStep), cmp.Or(c.Start, 1)
	c.Log, c.MaxWait = cmp.Or(c.Log, slog.Default()), cmp.Or(c.MaxWait, defaultMaxWait)
	c.Timeout = cmp.Or(c.Timeout, defaultTimeout)
	if c.Now == nil {
		c.Now = time.Now
	}
	switch {
	case db == nil:
		return nil, fmt.Errorf("%w: no database handle is given", ErrConfig)
	case tag == "" || utf8.RuneCountInString(tag) > 128 || !text(tag):
		return nil, fmt.Errorf("%w: the tag %q must have 1 to 128 characters of UTF-8", ErrConfig, tag)
	}
	d, err := sqldb.Open(db, c.Timeout)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrConfig, err)
	}
	t := newTable(d, c.Table, tag)
	if err := t.locate(ctx, c.Schema); err != nil {
		return nil, err
	}
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
	case r.maxID > 1 && r.maxID <= c.Used && !c.Lift:
		return nil, t.isBehind(ctx, r.maxID, c.Used)
	case r.maxID <= c.Used && c.Used > 0:
		c.Log.Warn("segment: the column has larger numbers than max_id, because another program also fills it, or max_id went back; ids begin above these numbers",
			"table", t.String(), "tag", tag, "max_id", r.maxID, "largest", c.Used)
	}
	c.Start = max(c.Start, c.Used+1)

	g := &Generator{table: t, config: c, wake: make(chan struct{}, 1), state: State{Tag: tag}}
	g.mark.Store(unfetched)
	g.fetching = fetching{since: c.Now(), floor: c.Start, found: r.step, least: least}
	if g.first, err = g.fetch(ctx); err != nil {
		return nil, err
	}
	// The buffer is never full, so it always calls g.source, which waits until a range is due.
	g.buffered, err = generator.NewBuffered(generator.BufferedConfig{
		Source: g.source, Size: math.MaxInt32, RefillBelow: 100, Every: retryEvery,
	})
	for err == nil && g.buffered.State().Left == 0 { // a goroutine is putting the first range into the buffer
		time.Sleep(time.Millisecond)
	}
	return g, err
}

// Validate returns an error that wraps [ErrConfig] if Open would refuse c.
func (c Config) Validate() error {
	switch {
	case c.Table != "" && !tableName.MatchString(c.Table):
		return fmt.Errorf("%w: Table %q must be a name of letters, digits, _ and $", ErrConfig, c.Table)
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
		return fmt.Errorf("%w: Description must have at most 256 characters of UTF-8", ErrConfig)
	}
	return nil
}

// text reports whether every database accepts s as text.
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

// ended is a canceled context, for calls that must not wait.
var ended = func() context.Context {
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	return ctx
}()

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

// Fill implements [generator.Generator]. If ids is longer than a range, Fill waits for several ranges, and for each of
// them as long as Next would. It does not allocate unless it waits.
func (g *Generator) Fill(ctx context.Context, ids []int64) (err error) {
	// Take the ids one by one, because each may trigger the next fetch, for which a later id may have to wait.
	for i := range ids {
		if ids[i], err = g.Next(ctx); err != nil {
			return err
		}
	}
	return nil
}

// Close implements [generator.Generator]. It cancels a running fetch, and waits for the driver to return: SQLite's
// driver waits up to its busy_timeout for a lock. The remaining ids are lost.
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

// Made returns the number of ids handed out. It never decreases.
func (g *Generator) Made() int64 { return g.buffered.Made() }

// Waits returns how often a call waited for a range. It never decreases.
func (g *Generator) Waits() int64 { return g.buffered.Waits() }

// Health returns nil unless the last fetch failed. The error contains the start of the outage and the number of
// remaining ids, and wraps the database's error. Health returns nil again after the next successful fetch, which
// also comes if no caller waits. It never waits for the database.
func (g *Generator) Health() error {
	s := g.State()
	if s.LastError == nil || s.FailingSince.IsZero() { // a fetch has just succeeded
		return nil
	}
	return fmt.Errorf("segment: ids of the tag %q could not be fetched from %s since %s; %d are left: %w",
		g.table.tag, g.table, s.FailingSince.UTC().Format("2006-01-02 15:04:05 MST"), s.Left, s.LastError)
}
