package generator

import (
	"context"
	"fmt"
	"math"
	"sync/atomic"
	"time"

	"github.com/uidplugin/uidplugin/ringbuffer"
)

// DefaultMaxBorrow is how far a [Cached] generator runs ahead of the clock at
// most, unless told otherwise: 29.5 million ids at once in the default layout.
const DefaultMaxBorrow = time.Hour

// maxSleep bounds how long a waiting caller goes without looking up.
const maxSleep = 20 * time.Millisecond

// CachedConfig configures [NewCached].
type CachedConfig struct {
	Layout Layout // required
	Lease  Lease  // required

	// MaxBorrow bounds how far ahead of the clock an id may be stamped; 0 means
	// [DefaultMaxBorrow], the least is one tick. UidGenerator's boostPower bounds
	// the same thing as a number of ticks, 2^boostPower.
	MaxBorrow time.Duration

	// NoWait makes a generator that is MaxBorrow ahead return [ErrBorrowLimit] at
	// once instead of waiting.
	NoWait bool

	// Clock is what the generators of a process share; nil means one of its own.
	Clock *Clock
}

// Cached hands out ids ahead of need, for the price of an atomic increment. It
// is UidGenerator's CachedUidGenerator with a ring that computes its ids instead
// of storing them; it has no goroutine, and no timer while it is idle.
//
// Ids bear the present, to some milliseconds, as long as they are taken more
// slowly than the layout counts them (8,192 a second by default). Taken faster,
// they borrow ticks of the future, up to MaxBorrow. At that limit callers are
// served in the order of their arrival, at the nominal rate; a context that ends
// while its caller waits costs no id.
//
// The clock may do what it likes. Set forward, the ids follow it. Set back, they
// go on from where they are, as fast as before, so that they lie ahead of the
// clock by what it was set back in addition to what they borrow.
//
// A Cached must be made by [NewCached].
type Cached struct {
	// window is the ring that callers take from, and never nil. Under the
	// semaphore it is replaced by one that begins at next, after the old one was
	// closed and next moved above all that it had given out. So a position is
	// given out once, and positions ascend.
	window atomic.Pointer[window]

	// next is the first position that no closed window and no caller has been
	// given. It only grows, and is written under the semaphore.
	next atomic.Uint64

	closed atomic.Bool // by Close
	noWait bool
	open   bool  // window has not been closed; guarded by sem
	kept   bool  // the clock visits this generator; guarded by sem
	idle   uint8 // visits in a row that found the cursor at seen; guarded by sem

	// sem is the right to do all that is slow: it is held while there is a value
	// in it. A channel serves those who wait in the order of their arrival and
	// together with a context, which a mutex does not. It guards what follows.
	sem  chan struct{}
	seen uint64

	// limit = anchor + what the clock has gained since anchor was set. It never
	// shrinks, and is raised when the wall clock has run ahead of it.
	anchor  uint64
	elapsed time.Duration // forward progress of the clock since anchor was set
	last    time.Duration // latest reading, since clock.base

	scale  scale
	until  int64  // the lease's last tick
	borrow uint64 // MaxBorrow in positions
	clock  *Clock
}

// window is a ring and how its positions become ids. Positions and ids have the
// same order. The ring's cursor has a cache line of its own, the rest shares
// another that is only read while the ring is in use.
type window struct {
	ring  ringbuffer.Computed
	low   uint64 // the sequence bits of a position
	base  uint64 // the worker id in its place
	shift uint8  // WorkerBits: by how much the time of a position moves up
	_     [39]byte
}

var _ Generator = (*Cached)(nil)

// newWindow returns a closed window for the ids of one worker.
func newWindow(l Layout, worker int64) *window {
	return &window{low: uint64(l.MaxSequence()), base: uint64(worker) << l.SequenceBits, shift: l.WorkerBits}
}

// id returns the id of a position. It checks nothing: positions end where the
// lease ends.
func (w *window) id(position uint64) int64 {
	low := position & w.low
	return int64((position^low)<<(w.shift&63) + w.base + low)
}

// NewCached returns a generator, or an error that wraps [ErrLayout] or
// [ErrConfig].
func NewCached(c CachedConfig) (*Cached, error) {
	if c.Clock == nil {
		c.Clock = NewClock(nil)
	}
	now := c.Clock.now()
	if err := c.Layout.ValidAt(now); err != nil {
		return nil, err
	}
	if err := c.Lease.validate(c.Layout); err != nil {
		return nil, err
	}
	if c.MaxBorrow == 0 {
		c.MaxBorrow = max(DefaultMaxBorrow, c.Layout.Tick)
	}
	if c.MaxBorrow < c.Layout.Tick {
		return nil, fmt.Errorf("%w: MaxBorrow %v is shorter than the tick of the layout, %v",
			ErrConfig, c.MaxBorrow, c.Layout.Tick)
	}
	g := &Cached{
		sem:    make(chan struct{}, 1),
		scale:  scale{c.Layout},
		until:  c.Lease.Until,
		noWait: c.NoWait,
		clock:  c.Clock,
		last:   now.Sub(c.Clock.base),
	}
	g.borrow = g.scale.count(c.MaxBorrow)
	g.next.Store(g.scale.start(c.Lease.From))
	// A lease that begins ahead of the clock is usable from its beginning on.
	g.anchor = max(g.scale.at(now), g.next.Load()) + g.borrow
	g.window.Store(newWindow(c.Layout, c.Lease.WorkerID)) // closed: the first caller opens one
	return g, nil
}

// Next implements [Generator]. It does not allocate.
func (g *Cached) Next(ctx context.Context) (int64, error) {
	w := g.window.Load()
	if position, ok := w.ring.TakeOne(); ok {
		return w.id(position), nil
	}
	w, position, _, err := g.slow(ctx, 1)
	if err != nil {
		return 0, err
	}
	return w.id(position), nil
}

// Fill implements [Generator]. It does not allocate. At the borrowing limit a
// generator that does not wait refuses a Fill as a whole.
func (g *Cached) Fill(ctx context.Context, ids []int64) error {
	for len(ids) > 0 {
		want := uint64(len(ids))
		w := g.window.Load()
		var position, got uint64
		if w.ring.Has(want) { // else the claim would run over the end of the ring
			position, got = w.ring.Take(want)
		}
		if got == 0 {
			var err error
			if w, position, got, err = g.slow(ctx, want); err != nil {
				return err
			}
		}
		w.fill(ids[:got], position)
		ids = ids[got:]
	}
	return nil
}

// fill writes the ids of consecutive positions, tick by tick: within a tick they
// are consecutive numbers.
func (w *window) fill(ids []int64, position uint64) {
	for len(ids) > 0 {
		run := ids[:min(uint64(len(ids)), w.low+1-position&w.low)]
		id := w.id(position)
		for i := range run {
			run[i] = id + int64(i)
		}
		position += uint64(len(run))
		ids = ids[len(run):]
	}
}

// Close implements [Generator].
func (g *Cached) Close() {
	g.closed.Store(true) // ends the wait of a caller that holds the semaphore
	g.sem <- struct{}{}
	defer g.release()
	g.shut()
}

// Lead returns how far the next id lies ahead of the clock; 0 if it does not.
func (g *Cached) Lead() time.Duration {
	next := max(g.next.Load(), g.window.Load().ring.Taken())
	now := g.scale.at(g.clock.now())
	if next <= now {
		return 0
	}
	return g.scale.duration(next - now)
}

func (g *Cached) release() { <-g.sem }

// slow claims from 1 to want positions when the window gave none. It is where
// callers wait at the borrowing limit, where all errors arise, and where the
// next window is opened.
func (g *Cached) slow(ctx context.Context, want uint64) (w *window, position, got uint64, err error) {
	if err := ctx.Err(); err != nil {
		return nil, 0, 0, err
	}
	select {
	case g.sem <- struct{}{}:
	case <-ctx.Done():
		return nil, 0, 0, ctx.Err()
	}
	defer g.release()

	w = g.window.Load()
	if g.open && w.ring.Has(want) { // opened by a caller that we waited for
		if position, got = w.ring.Take(want); got > 0 {
			return w, position, got, nil
		}
	}
	g.shut()
	for {
		if g.closed.Load() {
			return nil, 0, 0, ErrClosed
		}
		now := g.clock.now()
		limit := g.limit(now)
		if at := g.scale.at(now); at < g.end() {
			g.raise(at)
		}
		next := g.next.Load()
		free := limit - min(next, limit)
		if got = min(want, free); got == want || got > 0 && !g.noWait {
			g.raise(next + got)
			if free-got >= g.reopenAt() {
				g.start(limit)
			}
			return w, next, got, nil
		}
		switch {
		case next >= g.end(), g.noWait && want > g.end()-next:
			return nil, 0, 0, exhausted(g.scale.layout, g.worker(), g.until)
		case g.noWait:
			return nil, 0, 0, fmt.Errorf("%w: %d ids wanted, %d left until ids are %v ahead of the clock",
				ErrBorrowLimit, want, free, g.scale.duration(g.borrow))
		}
		// The next position is due when the limit has moved by one. A position can
		// be long, so look now and then whether the generator was closed.
		if err := sleep(ctx, min(g.scale.duration(next+1-limit), maxSleep), nil); err != nil {
			return nil, 0, 0, err
		}
	}
}

// raise moves next up to at least position.
func (g *Cached) raise(position uint64) {
	g.next.Store(max(g.next.Load(), position))
}

// worker returns the worker id of the lease.
func (g *Cached) worker() int64 { return int64(g.window.Load().base >> g.scale.layout.SequenceBits) }

// end returns the first position that the lease does not allow.
func (g *Cached) end() uint64 { return g.scale.start(g.until + 1) }

// reopenAt is how many positions must be free for a window to be worth opening:
// a tick's, or half of what may be borrowed. With less, callers are served one
// at a time, which keeps the queue at the limit fair.
func (g *Cached) reopenAt() uint64 {
	return max(min(1<<g.scale.layout.SequenceBits, g.borrow/2), 1)
}

// limit returns the first position that must not be given out now. now must have
// been read under the semaphore, so that readings come in their order: a stale one
// would make the time since then count twice.
func (g *Cached) limit(now time.Time) uint64 {
	// With a monotonic reading, as time.Now has it, Sub does not see the wall
	// clock being set. Without one a step back must not count.
	reading := now.Sub(g.clock.base)
	if reading > g.last {
		gained := reading - g.last
		if gained < 0 || gained > math.MaxInt64-g.elapsed {
			gained = math.MaxInt64 - g.elapsed // more than a Duration holds
		}
		g.elapsed += gained
	}
	g.last = reading
	limit := g.anchor + g.scale.count(g.elapsed)
	// A wall clock that is beyond the layout is wrong, and not to be followed.
	if at := g.scale.at(now); at < g.scale.start(g.scale.layout.MaxTick()+1) && at+g.borrow > limit {
		limit = at + g.borrow
		g.anchor, g.elapsed = limit, 0
	}
	return min(limit, g.end())
}

// start opens a window from next up to limit.
func (g *Cached) start(limit uint64) {
	w := newWindow(g.scale.layout, g.worker())
	g.seen = g.next.Load()
	w.ring.Open(g.seen, limit)
	g.window.Store(w)
	g.open, g.idle = true, 0
	if !g.kept {
		g.kept = true
		g.clock.keep(g)
	}
}

// shut closes the window, if it is open.
func (g *Cached) shut() {
	if g.open {
		g.open = false
		g.raise(g.window.Load().ring.Close())
	}
}

// visit brings the window up to the present and reports whether the generator
// is still in use; if not, it closes the window. It never waits.
func (g *Cached) visit() bool {
	select {
	case g.sem <- struct{}{}:
	default:
		return true // a caller is in the slow path, which does the same
	}
	defer g.release()
	if !g.open {
		g.idle++ // callers are served without a window, or stay away
	} else {
		ring := &g.window.Load().ring
		if g.idle++; ring.Cursor() != g.seen {
			g.idle = 0
		}
		now := g.clock.now()
		ring.Extend(g.limit(now))
		if at := g.scale.at(now); at < g.end() {
			ring.Raise(at)
		}
		g.seen = ring.Cursor()
	}
	if g.closed.Load() || g.idle >= clockIdle {
		g.shut()
		g.kept = false
	}
	return g.kept
}
