package generator_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/uidplugin/uidplugin/generator"
)

// grants are all leases that a generator was ever given, by worker id.
type grants map[int64][]generator.Lease

func (g grants) add(leases ...generator.Lease) {
	for _, l := range leases {
		g[l.WorkerID] = append(g[l.WorkerID], l)
	}
}

// allow reports whether an id may have been made.
func (g grants) allow(l generator.Layout, id int64) bool {
	tick := tickOf(l, id)
	return slices.ContainsFunc(g[id>>l.SequenceBits&l.MaxWorkerID()], func(l generator.Lease) bool {
		return l.From <= tick && tick <= l.Until
	})
}

// Generators get leases of all kinds in any order, while ids are taken, the clock is set, and windows are closed and
// visited. Ids always ascend strictly, and are in the lease of that moment.
func TestGenerators_KeepToTheLeaseThroughAnySequence(t *testing.T) {
	runs := 200
	if testing.Short() {
		runs = 20
	}
	bubbles(t, func(t *testing.T, e engine) {
		for seed := range uint64(runs) {
			s := sequence{t: t, r: random(seed), seed: seed, engine: e.name}
			s.open()
			for range 200 {
				s.step()
			}
			s.g.Close()
		}
	})
}

// A sequence is one run of the test, and what it knows of the generator.
type sequence struct {
	t      *testing.T
	r      *rand.Rand
	seed   uint64
	engine string

	l     generator.Layout
	clock wall
	g     generator.Renewable
	all   grants

	workers     []int64 // ascending
	from, until int64
	last        int64 // id
	extend      bool  // OnLow extends the lease
	log         []string
	renewals    int
}

func (s *sequence) fatalf(format string, args ...any) {
	s.t.Helper()
	s.t.Fatalf("seed %d of %s:\n%v\n%s", s.seed, s.engine, s.log[max(0, len(s.log)-15):], fmt.Sprintf(format, args...))
}

func (s *sequence) logf(format string, args ...any) {
	s.log = append(s.log, fmt.Sprintf(format, args...))
}

// now returns the present tick.
func (s *sequence) now() int64 { return s.l.TickAt(s.clock.now()) }

func (s *sequence) open() {
	r := s.r
	s.l = ticks([]time.Duration{time.Millisecond, time.Second, 7 * time.Second}[r.IntN(3)], uint8(1+r.IntN(6)))
	s.l.WorkerBits = uint8(1 + r.IntN(7))
	s.clock.bare = r.IntN(2) == 0
	s.all, s.last = grants{}, -1
	s.workers = []int64{r.Int64N(s.l.MaxWorkerID() + 1)}
	s.from = s.now() + r.Int64N(30) - 10
	s.until = s.from + r.Int64N(50)
	lease := generator.Lease{WorkerID: s.workers[0], From: s.from, Until: s.until}
	s.all.add(lease)
	var low func()
	switch r.IntN(3) {
	case 0:
		low = nobody
	case 1:
		low = func() {
			if s.extend {
				s.renew(s.workers, s.from, max(s.from, s.until, s.now())+1+r.Int64N(10))
			}
		}
	}
	var err error
	if s.engine == "Cached" {
		s.g, err = generator.NewCached(generator.CachedConfig{
			Layout: s.l, Lease: lease, OnLow: low, NoWait: r.IntN(3) == 0, Clock: generator.NewClock(s.clock.now),
			MaxBorrow: s.l.Tick * time.Duration(1+r.IntN(40)),
		})
	} else {
		s.g, err = generator.NewSnowflake(generator.SnowflakeConfig{
			Layout: s.l, Lease: lease, OnLow: low, Now: s.clock.now, RandomStart: r.Int64N(s.l.MaxSequence() + 1),
			MaxClockBackwards: time.Duration(r.IntN(2)) * time.Second,
		})
	}
	if err != nil {
		s.fatalf("%v", err)
	}
	s.logf("%v workers %v from %d until %d", s.l, s.workers, s.from, s.until)
}

// renew gives the generator a lease, and notes what it allows then.
func (s *sequence) renew(workers []int64, from, until int64) {
	workers = slices.Sorted(slices.Values(workers))
	given := leases(from, until, workers...)
	s.r.Shuffle(len(given), func(i, j int) { given[i], given[j] = given[j], given[i] })
	s.all.add(given...)
	s.renewals++
	s.logf("renew %v from %d until %d", workers, from, until)
	if err := s.g.Renew(given...); err != nil {
		s.fatalf("%v", err)
	}
	if slices.Equal(workers, s.workers) {
		from, until = max(from, s.from), max(until, s.until)
	} else if s.last >= 0 { // not even of the same tick
		from = max(from, tickOf(s.l, s.last)+1)
	}
	s.workers, s.from, s.until = workers, from, until
}

func (s *sequence) step() {
	r := s.r
	c, _ := s.g.(*generator.Cached)
	switch n := r.IntN(20); {
	case n < 8:
		s.take()
	case n == 8 && c != nil:
		s.logf("park")
		c.Park()
	case n == 9 && c != nil:
		s.logf("visit")
		c.Visit()
	case n < 12:
		pause := time.Duration(r.Int64N(int64(s.l.Tick) * 3))
		if r.IntN(10) == 0 {
			pause = time.Hour
		}
		s.logf("sleep %v", pause)
		time.Sleep(pause)
	case n == 12:
		by := time.Duration(r.IntN(100)-40) * time.Second
		s.logf("step %v", by)
		s.clock.step(by)
	case n == 13:
		s.logf("suspend")
		s.g.Suspend([]error{nil, errCause}[r.IntN(2)])
	case n == 14:
		if lead := s.lead(); lead < 0 {
			s.fatalf("Lead is %v", lead)
		}
	case n < 18: // the same, from the past to the future
		from := s.from + r.Int64N(20) - 10
		if r.IntN(3) == 0 {
			from = max(s.now()+r.Int64N(15)-5, 0)
		}
		s.renew(s.workers, from, max(from, s.until+r.Int64N(60)-10))
	default:
		most := 1
		if c != nil {
			most = min(generator.MaxLanes, int(s.l.MaxWorkerID())+1)
		}
		n := 1
		for n*2 <= most && r.IntN(3) > 0 {
			n *= 2
		}
		workers := make([]int64, n)
		for i, w := range r.Perm(int(s.l.MaxWorkerID()) + 1)[:n] {
			workers[i] = int64(w)
		}
		from := max(s.now()+r.Int64N(40)-20, 0)
		s.renew(workers, from, from+r.Int64N(60))
	}
}

func (s *sequence) lead() time.Duration {
	if c, ok := s.g.(*generator.Cached); ok {
		return c.Lead()
	}
	return 0
}

// take takes some ids and looks at them.
func (s *sequence) take() {
	synctest.Wait() // for visits that are due now
	usage, start, renewals := s.g.Usage(), time.Now(), s.renewals
	perTick := uint64(len(s.workers)) << s.l.SequenceBits
	if usage.Lanes != len(s.workers) || usage.Left > uint64(s.until-s.from+1)*perTick || usage.Used && s.last < 0 {
		s.fatalf("Usage says %+v of %d workers", usage, len(s.workers))
	}
	ctx, cancel := context.WithTimeout(s.t.Context(), time.Duration(s.r.Int64N(int64(300*time.Millisecond))))
	defer cancel()
	s.extend = s.r.IntN(2) == 0
	ids, err := some(ctx, s.g, s.r, []int{1, 10, 1000}[s.r.IntN(3)])
	s.extend = false
	s.logf("take %d at %d: %v", len(ids), s.now(), err)
	switch {
	case err == nil:
	case errors.Is(err, context.DeadlineExceeded), errors.Is(err, generator.ErrLeaseExpired),
		errors.Is(err, generator.ErrBorrowLimit), errors.Is(err, generator.ErrClockBackwards):
		if len(ids) > 1 { // some may have been made, and count, although nobody knows them
			s.g.Usage()
		}
		return
	default:
		s.fatalf("%v", err)
	}
	// The clock may have been set forward, which a caller in the slow path sees first.
	if tick := tickOf(s.l, ids[0]); usage.Left > 0 && time.Now().Equal(start) && renewals == s.renewals &&
		(tick < usage.Tick || tick > max(usage.Tick, s.now())) {
		s.fatalf("Usage says %+v, but the next id is of tick %d", usage, tickOf(s.l, ids[0]))
	}
	for _, id := range ids {
		tick, worker := tickOf(s.l, id), id>>s.l.SequenceBits&s.l.MaxWorkerID()
		switch {
		case id <= s.last:
			s.fatalf("after %d comes %d", s.last, id)
		case !slices.Contains(s.workers, worker):
			s.fatalf("id of worker %d, with a lease of %v", worker, s.workers)
		case tick < s.from || tick > s.until:
			s.fatalf("id of tick %d, with a lease from %d to %d", tick, s.from, s.until)
		case !s.all.allow(s.l, id):
			s.fatalf("id of tick %d of worker %d, which was never granted", tick, worker)
		}
		s.last = id
	}
	if !s.g.Usage().Used {
		s.fatalf("Usage does not say that ids were taken")
	}
}
