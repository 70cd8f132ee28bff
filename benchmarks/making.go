package main

import (
	"context"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"time"
)

// Making is what making ids costs.
type Making struct {
	CPUs  int
	Peers []MadePeer
}

// MadePeer is what one peer costs.
type MadePeer struct {
	Name       string
	Bytes      int    // of an id
	One, All   Figure // ns for an id, made by one thread, and by all CPUs from one generator
	Sustained  Figure // ids a second of one thread that never pauses, in the peer's usual settings
	Allocated  float64
	Allocs     float64
	Shared     bool // the process has one generator
	Memory     float64
	Goroutines float64
}

// measureMaking measures all peers, interleaved.
func measureMaking(ctx context.Context, l *Lab) (*Making, error) {
	m := &Making{CPUs: runtime.GOMAXPROCS(0)}
	all := peers()
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	var contestants []func() (sample, error)
	loops := make([]func(int), len(all))
	for i, p := range all {
		loop, err := p.open()
		if err != nil {
			return nil, err
		}
		loops[i] = loop
		n := calibrate(l.Slice, loop)
		contestants = append(contestants,
			func() (sample, error) { return slice(1, n, loop), nil },
			func() (sample, error) { return slice(m.CPUs, max(1, n/m.CPUs), loop), nil })
	}
	l.Say("making: %d peers, %d rounds", len(all), l.Rounds)
	figures, err := interleave(ctx, l.Rounds, contestants, func(round int) {
		l.Tick("making: round %d of %d", round, l.Rounds)
	})
	if err != nil {
		return nil, err
	}
	for i, p := range all {
		made := MadePeer{Name: p.name, Bytes: p.bytes, One: figures[2*i], All: figures[2*i+1], Shared: p.shared}
		made.Allocs, made.Allocated = allocations(1000, loops[i])
		if made.Memory, made.Goroutines, err = perGenerator(l.Generators, p); err != nil {
			return nil, err
		}
		m.Peers = append(m.Peers, made)
	}
	rates, err := sustained(ctx, l, all)
	for i := range rates {
		m.Peers[i].Sustained = rates[i]
	}
	return m, err
}

// calibrate returns how many ids take about d.
func calibrate(d time.Duration, loop func(int)) int {
	n := 50
	for {
		begin := time.Now()
		loop(n)
		took := time.Since(begin)
		if took > d/4 {
			return max(1, int(float64(n)*float64(d)/float64(took)))
		}
		n *= 2
	}
}

// slice has threads make n ids each from one generator, at the same time, and returns the ns for an id.
func slice(threads, n int, loop func(int)) sample {
	if threads == 1 {
		before, begin := preempted(), time.Now()
		loop(n)
		took := time.Since(begin)
		return sample{float64(took.Nanoseconds()) / float64(n), preempted() != before}
	}
	var ready atomic.Int64
	var disturbed atomic.Bool
	var group sync.WaitGroup
	begins, ends := make([]time.Time, threads), make([]time.Time, threads)
	for i := range threads {
		group.Go(func() {
			runtime.LockOSThread()
			defer runtime.UnlockOSThread()
			for ready.Add(1); ready.Load() < int64(threads); { // spins, as threads that wake up do not begin together
			}
			before := preempted()
			begins[i] = time.Now()
			loop(n)
			ends[i] = time.Now()
			if preempted() != before {
				disturbed.Store(true)
			}
		})
	}
	group.Wait()
	first, last := slices.MinFunc(begins, time.Time.Compare), slices.MaxFunc(begins, time.Time.Compare)
	took := slices.MaxFunc(ends, time.Time.Compare).Sub(first)
	apart := last.Sub(first) > took/10 // then each has run alone for a while
	return sample{float64(took.Nanoseconds()) / float64(n*threads), disturbed.Load() || apart}
}

// allocations returns what one of n ids allocates: how often, and how many bytes.
func allocations(n int, loop func(int)) (times, bytes float64) {
	var before, after runtime.MemStats
	loop(n)
	runtime.ReadMemStats(&before)
	loop(n)
	runtime.ReadMemStats(&after)
	mallocs, total := after.Mallocs-before.Mallocs, after.TotalAlloc-before.TotalAlloc
	return float64(mallocs / uint64(n)), float64(total / uint64(n))
}

// perGenerator returns the live heap and the goroutines of one out of n generators that have made an id.
func perGenerator(n int, p peer) (bytes, goroutines float64, err error) {
	if p.shared {
		return 0, 0, nil
	}
	live := func() (heap, count float64) {
		var m runtime.MemStats
		runtime.GC()
		runtime.GC() // what the first one found to be finalized
		runtime.ReadMemStats(&m)
		return float64(m.HeapAlloc), float64(runtime.NumGoroutine())
	}
	kept := make([]func(int), n)
	heap, count := live()
	for i := range kept {
		if kept[i], err = p.open(); err != nil {
			return 0, 0, err
		}
		kept[i](1)
	}
	heapAfter, countAfter := live()
	runtime.KeepAlive(kept)
	return max(0, (heapAfter-heap)/float64(n)), max(0, (countAfter-count)/float64(n)), nil
}

// sustained measures how many ids a second one thread gets that never pauses.
func sustained(ctx context.Context, l *Lab, all []peer) ([]Figure, error) {
	rounds := min(3, max(1, l.Rounds/100))
	l.Say("making: sustained rates, %d rounds", rounds)
	contestants := make([]func() (sample, error), len(all))
	for i, p := range all {
		loop, drain, err := sustainable(p)
		if err != nil {
			return nil, err
		}
		window := l.Sustained
		if l.Name != "tiny" {
			window = max(window, 2*p.stall)
		}
		contestants[i] = func() (sample, error) {
			drain()
			return sample{value: rate(window, loop)}, nil
		}
	}
	return interleave(ctx, rounds, contestants, func(round int) {
		l.Say("making: sustained rates, round %d of %d", round, rounds)
	})
}

// sustainable opens a peer with the limits that it usually has, and a function that uses up what it has in reserve.
func sustainable(p peer) (loop func(int), drain func(), err error) {
	if p.limited != nil {
		return p.limited()
	}
	return never(p.open)()
}

// rate returns the ids a second of one thread.
func rate(window time.Duration, loop func(int)) float64 {
	const few = 64 // a call of those that wait makes no more than so many before the clock is read
	made, begin := 0, time.Now()
	for time.Since(begin) < window {
		loop(few)
		made += few
	}
	return float64(made) / time.Since(begin).Seconds()
}
