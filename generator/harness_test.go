package generator_test

import (
	"context"
	"errors"
	"math/rand/v2"
	"testing"
	"testing/synctest"
	"time"

	"github.com/uidplugin/uidplugin/generator"
	"github.com/uidplugin/uidplugin/internal/testkit"
)

// An engine is a way to make ids. All engines obey the same laws. Snowflake is simple, so it shows what to expect of
// Cached.
type engine struct {
	name string
	open func(l generator.Layout, lease generator.Lease, low func(), now func() time.Time) (generator.Generator, error)
}

var engines = []engine{
	{"Cached", func(l generator.Layout, lease generator.Lease, low func(), now func() time.Time) (generator.Generator, error) {
		return generator.NewCached(generator.CachedConfig{Layout: l, Lease: lease, OnLow: low, Clock: generator.NewClock(now)})
	}},
	{"Snowflake", func(l generator.Layout, lease generator.Lease, low func(), now func() time.Time) (generator.Generator, error) {
		return generator.NewSnowflake(generator.SnowflakeConfig{Layout: l, Lease: lease, OnLow: low, Now: now})
	}},
}

// must returns the generator of e, which the end of the test closes.
func (e engine) must(tb testing.TB, l generator.Layout, lease generator.Lease, now func() time.Time) generator.Generator {
	tb.Helper()
	g, err := e.open(l, lease, nil, now)
	testkit.Must(tb, err)
	tb.Cleanup(g.Close)
	return g
}

// renewable is must for a generator whose lease will be renewed, unless low is nil.
func (e engine) renewable(tb testing.TB, l generator.Layout, lease generator.Lease, low func(), now func() time.Time) generator.Renewable {
	tb.Helper()
	g, err := e.open(l, lease, low, now)
	testkit.Must(tb, err)
	tb.Cleanup(g.Close)
	return g.(generator.Renewable)
}

// bubbles runs a law for each engine, in a bubble: its clock begins at midnight, 2000-01-01 UTC, stands still while
// something runs, and jumps while all goroutines wait. A bubble does not end before all its goroutines have.
func bubbles(t *testing.T, law func(t *testing.T, e engine)) {
	t.Helper()
	t.Parallel()

	for _, e := range engines {
		t.Run(e.name, func(t *testing.T) { bubble(t, func(t *testing.T) { law(t, e) }) })
	}
}

// bubble runs one test in a bubble.
func bubble(t *testing.T, test func(t *testing.T)) {
	t.Helper()
	t.Parallel()

	synctest.Test(t, test)
}

// ticks is a layout for bubbles: from 1999 for at least 34 years.
func ticks(tick time.Duration, sequenceBits uint8) generator.Layout {
	return generator.Layout{TimeBits: 40, WorkerBits: 5, SequenceBits: sequenceBits, Tick: tick, Epoch: date(1999, 1, 1)}
}

// lease returns the lease of worker id 9 for the tick that is now and n-1 more.
func lease(l generator.Layout, n int64) generator.Lease {
	from := l.TickAt(time.Now())
	return generator.Lease{WorkerID: 9, From: from, Until: from + n - 1}
}

// cached makes a Cached that is closed when the test ends. A zero lease means all ticks.
func cached(tb testing.TB, c generator.CachedConfig) *generator.Cached {
	tb.Helper()
	if c.Lease == (generator.Lease{}) {
		c.Lease = c.Layout.FullLease(9, time.Now())
	}
	g, err := generator.NewCached(c)
	testkit.Must(tb, err)
	tb.Cleanup(g.Close)
	return g
}

func next(tb testing.TB, g generator.Generator) int64 {
	tb.Helper()
	id, err := g.Next(context.Background())
	testkit.Must(tb, err)
	return id
}

// window takes ids until g has a window, and returns how many.
func window(tb testing.TB, g *generator.Cached) (n int) {
	tb.Helper()
	for ; !g.Open(); n++ {
		if next(tb, g); n > 100 {
			tb.Fatalf("%d ids in a hurry opened no window", n)
		}
	}
	return n
}

func fill(tb testing.TB, g generator.Generator, n int) []int64 {
	tb.Helper()
	ids := make([]int64, n)
	testkit.Must(tb, g.Fill(context.Background(), ids))
	return ids
}

func decompose(tb testing.TB, l generator.Layout, id int64) generator.Parts {
	tb.Helper()
	parts, err := l.Decompose(id)
	testkit.Must(tb, err)
	return parts
}

// position returns the number of an id among all those of its worker.
func position(l generator.Layout, id int64) uint64 {
	return uint64(id>>(l.WorkerBits+l.SequenceBits)<<l.SequenceBits | id&l.MaxSequence())
}

// ascending checks that ids ascend, are larger than after, and have the worker id 9. It returns the last one.
func ascending(tb testing.TB, l generator.Layout, after int64, ids ...int64) int64 {
	tb.Helper()
	for i, id := range ids {
		if id <= after {
			tb.Fatalf("id %d of %d, %d, is not above %d", i, len(ids), id, after)
		}
		if p := decompose(tb, l, id); p.WorkerID != 9 {
			tb.Fatalf("id %d is of worker %d", id, p.WorkerID)
		}
		after = id
	}
	return after
}

// some takes from 1 to most ids in one call, often with Next.
func some(ctx context.Context, g generator.Generator, r *rand.Rand, most int) ([]int64, error) {
	if most == 1 || r.IntN(3) > 0 {
		id, err := g.Next(ctx)
		return []int64{id}, err
	}
	ids := make([]int64, 1+r.IntN(most))
	return ids, g.Fill(ctx, ids)
}

// random is reproducible: a test that fails does so again.
func random(seed uint64) *rand.Rand { return rand.New(rand.NewPCG(seed, 9)) }

var errCause = errors.New("the database is gone")

// nobody is an OnLow that renews nothing.
func nobody() {}

// renew gives g leases.
func renew(tb testing.TB, g generator.Renewable, leases ...generator.Lease) {
	tb.Helper()
	testkit.Must(tb, g.Renew(leases...))
}

// tickOf returns the tick of an id.
func tickOf(l generator.Layout, id int64) int64 { return id >> (l.WorkerBits + l.SequenceBits) }

// fails checks that g makes no id, for the reason want.
func fails(t *testing.T, g generator.Generator, want error) {
	t.Helper()
	id, err := g.Next(t.Context())
	if testkit.IsError(t, err, want); id != 0 {
		t.Errorf("next to the error there is the id %d", id)
	}
}

// refused checks that g makes no id, because of the borrowing limit.
func refused(t *testing.T, g generator.Generator) {
	t.Helper()
	fails(t, g, generator.ErrBorrowLimit)
	testkit.IsError(t, g.Fill(t.Context(), make([]int64, 2)), generator.ErrBorrowLimit)
}

// leases returns one for each worker id.
func leases(from, until int64, workers ...int64) (all []generator.Lease) {
	for _, w := range workers {
		all = append(all, generator.Lease{WorkerID: w, From: from, Until: until})
	}
	return all
}

// spread returns n worker ids, in no order.
func spread(n int, first, step int64) (workers []int64) {
	for i := range int64(n) {
		workers = append(workers, first+i*step)
	}
	random(uint64(n)).Shuffle(n, func(i, j int) { workers[i], workers[j] = workers[j], workers[i] })
	return workers
}
