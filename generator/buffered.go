package generator

import (
	"cmp"
	"context"
	"fmt"
	"math"
	"sync"
	"sync/atomic"
	"time"

	"github.com/uidplugin/uidplugin/ringbuffer"
)

// A Run is consecutive ids: First, First+1 and so on, N of them.
type Run struct {
	First int64
	N     int64
}

const (
	defaultBufferSize  = 65_536 // as UidGenerator's ring has
	defaultRefillBelow = 50     // percent, as in UidGenerator

	bufferedRuns = 1024 // the most runs that are held

	firstBackoff, maxBackoff = 10 * time.Millisecond, time.Second
)

// BufferedConfig configures [NewBuffered]. The names of these settings in UidGenerator are in brackets.
type BufferedConfig struct {
	// Source makes or fetches the next ids: a run of at least one id. All of its ids must be larger than those of
	// earlier runs. want is how many the buffer has room for; Source may return fewer, or more. Calls do not
	// overlap, and come from a goroutine of the generator. ctx ends with Close. Required. [BufferedUidProvider]
	//
	// The callers that wait for ids get the error of Source. Later callers begin another attempt, after a pause that
	// grows from 10 ms to a second. A panic counts as an error.
	Source func(ctx context.Context, want int64) (Run, error)

	// Size is how many ids are held, up to 2^31-1 in at most 1,024 runs; 0 means 65,536. [boostPower:
	// (maxSequence+1) << boostPower]
	Size int64

	// RefillBelow is the percentage of Size below which Source is called, from 1 to 100; 0 means 50.
	// [paddingFactor]
	RefillBelow int

	// Every is how often the buffer is filled up, even if RefillBelow does not require it, so that a burst of calls
	// finds a full buffer. 0 means never. [scheduleInterval]
	Every time.Duration

	// Empty is called for a caller that finds no id, with try 1, 2 and so on. It may wait as long as ctx lasts. If it
	// returns nil, the caller looks for ids again. The caller gets an error of Empty, such as [ErrEmpty]. Without Empty
	// the caller waits until there are ids, or Source fails. [rejectedTakeBufferHandler, which could not try again]
	Empty func(ctx context.Context, try int) error
}

// Buffered hands out ids that a source has made or fetched before, in the order of the source. It is the ring buffer
// of UidGenerator's CachedUidGenerator, but for ids of any kind. It is filled at the start, when few ids are left, and
// on a schedule. For ids of a layout, [Cached] is cheaper, because it computes them.
//
// A Buffered has a goroutine only while it is being filled. Callers that wait are served in the order of their arrival.
// Create a Buffered with [NewBuffered].
type Buffered struct {
	config BufferedConfig
	low    int64 // the ring is refilled when it has fewer ids than this
	ring   *ringbuffer.Stored

	closed    atomic.Bool
	refilling atomic.Bool   // there is a goroutine that fills; set under mu
	head      chan struct{} // held by the caller that has waited longest

	ctx    context.Context // ends with Close
	cancel context.CancelFunc
	fills  sync.WaitGroup
	timer  *time.Timer // of Every

	mu      sync.Mutex // never held while Source or Empty runs
	changed chan struct{}
	waiting int // callers that wait now
	waits   int64
	filled  int64 // ids that were put into the ring
	made    int64 // the latest result of Made
	state   BufferedState

	// The goroutine that fills owns the fields below.
	rest    Run   // the ids from Source that are not in the ring yet
	last    int64 // the last id that came from Source
	backoff time.Duration
}

// BufferedState is the state of a [Buffered] generator at one moment.
type BufferedState struct {
	Left   int64 // ids in the buffer
	Failed int64 // failed calls of Source
	// LastError is the error of the last call of Source, or nil.
	LastError error
}

var _ Generator = (*Buffered)(nil)

// NewBuffered returns a generator, and starts to fill its buffer. An error wraps [ErrConfig].
func NewBuffered(c BufferedConfig) (*Buffered, error) {
	c.Size, c.RefillBelow = cmp.Or(c.Size, defaultBufferSize), cmp.Or(c.RefillBelow, defaultRefillBelow)
	switch {
	case c.Source == nil:
		return nil, fmt.Errorf("%w: Source is not set", ErrConfig)
	case c.Size < 0 || c.Size > math.MaxInt32:
		return nil, fmt.Errorf("%w: Size %d is outside 1 to %d", ErrConfig, c.Size, math.MaxInt32)
	case c.RefillBelow < 0 || c.RefillBelow > 100:
		return nil, fmt.Errorf("%w: RefillBelow %d is outside 1 to 100 percent", ErrConfig, c.RefillBelow)
	case c.Every < 0:
		return nil, fmt.Errorf("%w: Every %v is negative", ErrConfig, c.Every)
	}
	g := &Buffered{
		config: c, low: max(c.Size*int64(c.RefillBelow)/100, 1),
		ring: ringbuffer.NewStored(int(min(c.Size, bufferedRuns))),
		head: make(chan struct{}, 1), changed: make(chan struct{}),
		last: -1,
	}
	g.ctx, g.cancel = context.WithCancel(context.Background())
	if c.Every > 0 {
		g.mu.Lock()
		g.timer = time.AfterFunc(c.Every, g.scheduled)
		g.mu.Unlock()
	}
	g.refill()
	return g, nil
}

// Next implements [Generator]. It does not allocate unless it waits.
func (g *Buffered) Next(ctx context.Context) (int64, error) {
	id, n, err := g.take(ctx, 1)
	if n == 0 {
		return 0, err
	}
	return id, nil
}

// Fill implements [Generator]. It does not allocate unless it waits.
func (g *Buffered) Fill(ctx context.Context, ids []int64) error {
	for len(ids) > 0 {
		first, n, err := g.take(ctx, len(ids))
		if n == 0 {
			return err
		}
		for i := range ids[:n] {
			ids[i] = first + int64(i)
		}
		ids = ids[n:]
	}
	return nil
}

// Close implements [Generator]. It ends the context of a running Source, and waits for the Source.
func (g *Buffered) Close() {
	g.mu.Lock()
	g.closed.Store(true)
	g.cancel()
	if g.timer != nil {
		g.timer.Stop()
	}
	g.broadcast()
	g.mu.Unlock()
	g.fills.Wait()
}

// State returns the state of the generator.
func (g *Buffered) State() BufferedState {
	g.mu.Lock()
	defer g.mu.Unlock()
	s := g.state
	s.Left = g.ring.Len()
	return s
}

// Made returns how many ids were taken out of the buffer. The number begins at 0 and never goes down.
func (g *Buffered) Made() int64 {
	g.mu.Lock()
	defer g.mu.Unlock()
	// Ids that are in the ring but not yet in g.filled make the difference too small, never too large.
	g.made = max(g.made, g.filled-g.ring.Len())
	return g.made
}

// Waits returns how many calls have waited for ids. A call may count more than once. The number begins at 0 and
// never goes down.
func (g *Buffered) Waits() int64 {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.waits
}

// take returns 1 to want consecutive ids, or an error.
func (g *Buffered) take(ctx context.Context, want int) (first int64, n int, err error) {
	if first, n = g.ring.Take(want); n == 0 {
		return g.wait(ctx, want)
	}
	if g.closed.Load() { // read after the take, so no id is handed out once Close has returned
		return 0, 0, ErrClosed
	}
	if !g.refilling.Load() && g.ring.Len() < g.low {
		g.refill()
	}
	return first, n, nil
}

// wait is like take, for a caller that found no id.
func (g *Buffered) wait(ctx context.Context, want int) (first int64, n int, err error) {
	if err := ctx.Err(); err != nil {
		return 0, 0, err
	}
	g.mu.Lock()
	g.waiting++
	g.waits++
	failed := g.state.Failed
	g.mu.Unlock()
	defer func() {
		g.mu.Lock()
		g.waiting--
		g.mu.Unlock()
	}()
	select {
	case g.head <- struct{}{}:
	case <-ctx.Done():
		return 0, 0, ctx.Err()
	}
	defer func() { <-g.head }()
	for try := 1; ; try++ {
		g.mu.Lock()
		changed, s := g.changed, g.state // read before the ring, so that no change is missed
		g.mu.Unlock()
		first, n = g.ring.Take(want)
		switch {
		case g.closed.Load():
			return 0, 0, ErrClosed
		case n > 0:
			if g.ring.Len() < g.low {
				g.refill()
			}
			return first, n, nil
		case s.Failed > failed && s.LastError != nil:
			return 0, 0, s.LastError
		}
		g.refill()
		if g.config.Empty != nil {
			if err := g.config.Empty(ctx, try); err != nil {
				return 0, 0, err
			}
			if err := ctx.Err(); err != nil {
				return 0, 0, err
			}
			continue
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return 0, 0, ctx.Err()
		}
	}
}

// scheduled is the function of g.timer.
func (g *Buffered) scheduled() {
	g.refill()
	g.mu.Lock()
	defer g.mu.Unlock()
	if !g.closed.Load() {
		g.timer.Reset(g.config.Every)
	}
}

// refill starts a goroutine that fills the buffer, unless one is running.
func (g *Buffered) refill() {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.closed.Load() || g.refilling.Load() {
		return
	}
	g.refilling.Store(true)
	g.fills.Add(1)
	go g.fill()
}

// fill fills the buffer. If that fails it pauses and tries again, as long as callers wait.
func (g *Buffered) fill() {
	defer g.fills.Done()
	for {
		err := g.fillUp()
		if err == nil {
			g.backoff = 0
		} else {
			g.backoff = min(max(2*g.backoff, firstBackoff), maxBackoff)
			select {
			case <-time.After(g.backoff):
			case <-g.ctx.Done():
			}
		}
		g.mu.Lock()
		// If this goroutine ends here, a caller that begins to wait later starts another one.
		again := g.waiting > 0 && g.ring.Len() == 0
		if g.closed.Load() || !again {
			g.refilling.Store(false)
			g.broadcast()
			g.mu.Unlock()
			return
		}
		g.mu.Unlock()
	}
}

// fillUp calls Source until the buffer is full.
func (g *Buffered) fillUp() error {
	for g.ctx.Err() == nil {
		for g.rest.N > 0 {
			n := min(g.rest.N, ringbuffer.MaxRun)
			if !g.ring.Put(g.rest.First, int(n)) {
				return nil // g.rest keeps the ids for the next refill
			}
			g.rest.First, g.rest.N = g.rest.First+n, g.rest.N-n
			g.mu.Lock()
			g.filled += n
			g.broadcast()
			g.mu.Unlock()
		}
		want := g.config.Size - g.ring.Len()
		if want <= 0 || g.ring.Free() == 0 {
			return nil
		}
		run, err := g.fetch(want)
		if g.closed.Load() {
			return nil
		}
		g.mu.Lock()
		g.state.LastError = err
		if err != nil {
			g.state.Failed++
			g.broadcast()
		}
		g.mu.Unlock()
		if err != nil {
			return err
		}
		g.rest, g.last = run, run.First+run.N-1
	}
	return nil
}

// fetch calls Source once.
func (g *Buffered) fetch(want int64) (run Run, err error) {
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("%w: Source panicked: %v", ErrSource, p)
		}
	}()
	if run, err = g.config.Source(g.ctx, want); err != nil {
		return run, fmt.Errorf("%w: %w", ErrSource, err)
	}
	if run.N < 1 || run.First <= g.last || run.First > math.MaxInt64-run.N+1 {
		// An id that does not ascend may have been handed out before.
		return run, fmt.Errorf("%w: Source returned %d ids from %d on; it must return at least one id, and only ids above %d, the last one that it returned before", ErrSource, run.N, run.First, g.last)
	}
	return run, nil
}

// broadcast wakes all callers that wait. The caller holds mu.
func (g *Buffered) broadcast() {
	close(g.changed)
	g.changed = make(chan struct{})
}
