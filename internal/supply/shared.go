package supply

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/uidplugin/uidplugin/generator"
)

// Plugins of one process may have the same worker id from the options, for example in a server that opens a handle
// for each request. Two generators with one worker id would make the same ids, so these plugins share a generator.

// A sharedWorker is a worker id that plugins of this process share, with its generator. When the last plugin has
// left, the generator is closed. The next plugin begins another sharedWorker, above all ticks of this one.
type sharedWorker struct {
	generator string        // name
	lead      time.Duration // the same for all plugins
	workers   []int64       // the worker id, and the worker id of a second lane
	fixed     *Fixed

	users atomic.Int32 // written under the mutex of sharedWorkers
	last  atomic.Int64 // largest tick of an id that was handed out, or of an earlier sharedWorker

	mu     sync.Mutex // held while the generator is made
	made   generator.Renewable
	leases []generator.Lease
}

// sharedWorkers has the latest sharedWorker of each worker id that this process was given by hand. No entry is ever
// removed, because the ticks stamped with a worker id must be known for as long as the process runs.
var sharedWorkers = struct {
	mu    sync.Mutex
	byKey map[workerKey]*sharedWorker
}{byKey: map[workerKey]*sharedWorker{}}

type workerKey struct {
	layout generator.Layout // as [canonical] returns it
	worker int64
}

// canonical returns an equal layout that can be compared by ==.
func canonical(l generator.Layout) generator.Layout {
	l.Epoch = l.Epoch.Round(0).UTC()
	return l
}

// meets returns the first entry of workers that can make the same ids in l as k, or -1. Two layouts with one epoch
// can make the same ids although they divide the bits differently: a tick that is twice as long, with one more bit
// after the time, has the ids of two shorter ticks.
func (k workerKey) meets(l generator.Layout, workers []int64) int64 {
	below, other := k.layout.WorkerBits+k.layout.SequenceBits, l.WorkerBits+l.SequenceBits
	short, long := k.layout, l
	if below > other {
		short, long = l, k.layout
	}
	period := min(below, other)
	if doublings := max(below, other) - period; k.layout.Epoch != l.Epoch || long.Tick>>doublings != short.Tick ||
		short.Tick<<doublings != long.Tick {
		return -1
	}
	size := max(k.layout.SequenceBits, l.SequenceBits) // of the layout with more ids per worker id and tick
	for _, w := range workers {
		// Divide a short tick into blocks of 2^size ids. Worker ids share ids if their first ids are in one block.
		if size >= period || (k.worker<<k.layout.SequenceBits^w<<l.SequenceBits)>>size&(1<<(period-size)-1) == 0 {
			return w
		}
	}
	return -1
}

// ShareFixed is like [NewFixed], but plugins of this process with this worker id share one generator until their
// Supply is closed. lanes is 2 for a generator with a second worker id. The error wraps [ErrOption] if the options
// of the plugins differ.
func ShareFixed(l generator.Layout, workerID int64, lead time.Duration, now func() time.Time, name string, lanes int) (*Fixed, error) {
	l = canonical(l)
	f := NewFixed(l, workerID, lead, now)
	var workers []int64
	for _, lease := range f.leases(lanes) {
		workers = append(workers, lease.WorkerID)
	}
	sharedWorkers.mu.Lock()
	defer sharedWorkers.mu.Unlock()
	last := int64(-1)
	for key, other := range sharedWorkers.byKey {
		worker := key.meets(l, workers)
		switch {
		case worker < 0:
		case other.users.Load() == 0:
			last = max(last, ((other.last.Load()+1)<<(key.layout.WorkerBits+key.layout.SequenceBits)-1)>>(l.WorkerBits+l.SequenceBits))
		case key.layout != l:
			return nil, fmt.Errorf("%w: WithLayout: two plugins would make the same ids (worker id %d with %s, and %d with %s):"+
				" use one layout or another worker id, or close one",
				ErrOption, key.worker, key.layout, worker, l)
		case other.generator != name || !slices.Equal(other.workers, workers):
			return nil, fmt.Errorf("%w: WithWorkerID(%d): another plugin of this process uses worker id %d with the generator %s, and this one has %s:"+
				" use one generator for both, another number, or close the other plugin first", ErrOption, workerID, worker, other.generator, name)
		case other.lead != lead:
			return nil, fmt.Errorf("%w: WithLead: another plugin of this process with WithWorkerID(%d) has %v, and this one has %v: use the same value for both,"+
				" because they share a generator", ErrOption, workerID, other.lead, lead)
		default:
			other.users.Add(1)
			return other.use(), nil
		}
	}
	s := &sharedWorker{generator: name, lead: lead, workers: workers, fixed: f}
	s.last.Store(last)
	f.beginAfter(last)
	s.users.Store(1)
	for _, worker := range workers {
		sharedWorkers.byKey[workerKey{l, worker}] = s
	}
	return s.use(), nil
}

// use returns the worker id for one more plugin.
func (s *sharedWorker) use() *Fixed {
	f := *s.fixed
	f.share = &share{worker: s}
	f.share.ctx, f.share.end = context.WithCancel(context.Background())
	return &f
}

// open returns the generator, which it makes for the first plugin.
func (s *sharedWorker) open(lanes int, make func([]generator.Lease) (generator.Renewable, error)) (generator.Renewable, []generator.Lease, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case s.users.Load() == 0:
		return nil, nil, generator.ErrClosed
	case s.made != nil:
		return s.made, s.leases, nil
	}
	leases := s.fixed.leases(lanes)
	g, err := make(leases)
	if err == nil {
		s.made, s.leases = g, leases
	}
	return g, leases, err
}

// leave must be called once for each plugin. The last call closes the generator.
func (s *sharedWorker) leave() {
	sharedWorkers.mu.Lock()
	rest := s.users.Add(-1)
	sharedWorkers.mu.Unlock()
	if rest > 0 {
		return
	}
	s.mu.Lock()
	g := s.made
	s.made = nil
	s.mu.Unlock()
	if g != nil {
		g.Close()
	}
}

// note records that an id is handed out.
func (s *sharedWorker) note(id int64) {
	tick := id >> (s.fixed.layout.WorkerBits + s.fixed.layout.SequenceBits)
	for last := s.last.Load(); tick > last && !s.last.CompareAndSwap(last, tick); last = s.last.Load() {
	}
}

// A share is the use of a sharedWorker by one plugin. When it ends, only callers of this plugin fail.
type share struct {
	worker *sharedWorker
	ctx    context.Context
	end    context.CancelFunc
	once   sync.Once
}

func (s *share) close() {
	s.once.Do(func() {
		s.end() // first: from now on no id is handed out to this plugin, so the last tick is known
		s.worker.leave()
	})
}

// A sharedGenerator is the generator of a sharedWorker for one plugin.
type sharedGenerator struct {
	generator.Generator
	share *share
}

func (g *sharedGenerator) Next(ctx context.Context) (id int64, err error) {
	err = g.call(ctx, func(ctx context.Context) (int64, error) {
		id, err = g.Generator.Next(ctx)
		return id, err
	})
	if err != nil {
		return 0, err
	}
	return id, nil
}

func (g *sharedGenerator) Fill(ctx context.Context, ids []int64) error {
	if len(ids) == 0 {
		return nil
	}
	return g.call(ctx, func(ctx context.Context) (int64, error) {
		err := g.Generator.Fill(ctx, ids)
		return ids[len(ids)-1], err
	})
}

// call runs the function take, which returns its last id. The call ends with this plugin, even if others go on.
func (g *sharedGenerator) call(ctx context.Context, take func(context.Context) (int64, error)) error {
	if g.share.ctx.Err() != nil {
		return generator.ErrClosed
	}
	until := ctx
	if g.share.worker.users.Load() > 1 { // otherwise Close closes the generator, which ends waiting calls
		c := &eitherContext{Context: ctx, end: g.share.ctx}
		defer c.release()
		until = c
	}
	id, err := take(until)
	if err == nil {
		g.share.worker.note(id)
	}
	if g.share.ctx.Err() != nil { // after the note, so that later plugins begin above each id that was handed out
		return generator.ErrClosed
	}
	return err
}

func (g *sharedGenerator) Close() { g.share.close() }

// An eitherContext ends with its parent or with end. It costs little while nobody waits for it.
type eitherContext struct {
	context.Context
	end context.Context

	mu     sync.Mutex
	both   context.Context
	cancel context.CancelFunc
	forget func() bool
}

func (c *eitherContext) Done() <-chan struct{} {
	if c.Context.Done() == nil {
		return c.end.Done()
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.both == nil {
		c.both, c.cancel = context.WithCancel(c.Context)
		c.forget = context.AfterFunc(c.end, c.cancel)
	}
	return c.both.Done()
}

func (c *eitherContext) Err() error {
	if err := c.Context.Err(); err != nil || c.end.Err() == nil {
		return err
	}
	return errors.Join(generator.ErrClosed, context.Canceled)
}

func (c *eitherContext) release() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.both != nil {
		c.forget()
		c.cancel()
	}
}
