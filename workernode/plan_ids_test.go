package workernode_test

import (
	"context"
	"flag"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/uidplugin/uidplugin/generator"
	"github.com/uidplugin/uidplugin/workernode"
)

var planIDs = flag.Int64("plan.ids", 0, "how many ids TestManyTakers takes: 1000000000 in the long form, with 200 MB")

const manyTakers = 64

// An idBook has a bit for each id.
type idBook struct {
	pages sync.Map // by the upper bits of an id
	twice atomic.Int64
	count atomic.Int64
}

const idPageBits = 16

type idPage [1 << idPageBits / 64]atomic.Uint64

// add marks ids. last is where the caller keeps the page that it used last.
func (b *idBook) add(ids []int64, number *int64, last **idPage) {
	for _, id := range ids {
		if n := id >> idPageBits; *last == nil || n != *number {
			page, ok := b.pages.Load(n)
			if !ok {
				page, _ = b.pages.LoadOrStore(n, new(idPage))
			}
			*number, *last = n, page.(*idPage)
		}
		bit := uint64(1) << (id & 63)
		if (*last)[id&(1<<idPageBits-1)/64].Or(bit)&bit != 0 {
			b.twice.Add(1)
		}
	}
	b.count.Add(int64(len(ids)))
}

// takeMany has 64 goroutines take n ids together, with what next returns one of, or
// several.
func takeMany(t *testing.T, n int64, next func(ids []int64) error) *idBook {
	t.Helper()
	var b idBook
	var left atomic.Int64
	left.Store(n)
	var group sync.WaitGroup
	for i := range manyTakers {
		group.Go(func() {
			ids := make([]int64, 64)
			var number int64
			var page *idPage
			for turn := i; ; turn++ {
				some := ids[:1+turn*7%64]
				if left.Add(-int64(len(some))) < -int64(len(some)) {
					return
				}
				if turn%2 == 0 {
					if err := next(some); err != nil {
						t.Error(err)
						return
					}
				} else {
					for i := range some {
						if err := next(some[i : i+1]); err != nil {
							t.Error(err)
							return
						}
					}
				}
				b.add(some, &number, &page)
			}
		})
	}
	group.Wait()
	return &b
}

// Sixty-four goroutines take as many ids as they can get from one generator, whose
// worker ids are renewed and become more meanwhile: every id is counted. The long form:
//
//	go test -run TestManyTakers -v -timeout 0 ./workernode/ -plan.ids 1000000000
func TestManyTakers(t *testing.T) {
	t.Parallel()
	n := int64(20_000_000)
	switch {
	case *planIDs > 0:
		n = *planIDs
	case workernode.Racing:
		n = 1_000_000
	}
	wide := generator.DefaultLayout() // with a million ids a second and worker id
	wide.WorkerBits, wide.SequenceBits = 14, 20
	db := tables(t)
	k, err := workernode.NewLeased(open(t, db), wide, web1, workernode.LeasedConfig{})
	must(t, err)
	t.Cleanup(func() { _ = k.Close(context.Background()) })
	leases, err := k.Assign(t.Context(), "orders")
	must(t, err)
	g, err := generator.NewCached(generator.CachedConfig{Layout: wide, Lease: leases[0], Low: k.Need})
	must(t, err)
	k.Keep(leases[0], g)
	patient, cancel := context.WithTimeout(t.Context(), time.Minute+time.Duration(n)*time.Microsecond)
	defer cancel()
	begin := time.Now()
	b := takeMany(t, n, func(ids []int64) error {
		if len(ids) > 1 {
			return g.Fill(patient, ids)
		}
		id, err := g.Next(patient)
		ids[0] = id
		return err
	})
	took := time.Since(begin)
	t.Logf("%d ids in %v, %.1f million a second, with %d worker ids at last, %d renewals", b.count.Load(), took.Round(time.Millisecond),
		float64(b.count.Load())/took.Seconds()/1e6, g.Usage().Lanes, k.Stats().Renewed)
	if b.twice.Load() > 0 {
		t.Errorf("%d ids came twice", b.twice.Load())
	}
	g.Close()
}

// A lease that is renewed by one tick of two ids at a time, and 64 goroutines that want
// them: each id is handed out once. A counter that is read and written in two steps, as
// the control, hands some out twice.
func TestManyTakersOfTwoIDs(t *testing.T) {
	t.Parallel()
	n := int64(100_000)
	if workernode.Racing {
		n = 20_000
	}
	narrow := generator.Layout{TimeBits: 41, WorkerBits: 10, SequenceBits: 1, Tick: time.Millisecond, Epoch: layout.Epoch}
	wake, stop := make(chan struct{}, 1), make(chan struct{})
	lease := generator.Lease{WorkerID: 9, From: narrow.TickAt(time.Now())}
	lease.Until = lease.From
	g, err := generator.NewCached(generator.CachedConfig{Layout: narrow, Lease: lease, Low: func() {
		select {
		case wake <- struct{}{}:
		default:
		}
	}})
	must(t, err)
	var keeper sync.WaitGroup
	keeper.Go(func() {
		for {
			select {
			case <-stop:
				return
			case <-wake:
				lease.Until++
				if err := g.Renew(lease); err != nil {
					t.Error(err)
				}
			}
		}
	})
	b := takeMany(t, n, func(ids []int64) error { return g.Fill(context.Background(), ids) })
	close(stop)
	keeper.Wait()
	g.Close()
	if b.twice.Load() > 0 {
		t.Errorf("%d of %d ids came twice", b.twice.Load(), b.count.Load())
	}

	var counter atomic.Int64
	b = takeMany(t, n, func(ids []int64) error {
		for i := range ids {
			ids[i] = counter.Load()
			if ids[i]%100 == 0 {
				runtime.Gosched()
			}
			counter.Store(ids[i] + 1)
		}
		return nil
	})
	if b.twice.Load() == 0 {
		t.Error("no number came twice of a counter in two steps, so this shows nothing")
	}
	t.Logf("the control: %d of %d twice", b.twice.Load(), b.count.Load())
}
