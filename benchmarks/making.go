package main

import (
	"context"
	"fmt"
	"path/filepath"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"time"
)

// Made is the cost of a peer's ids.
type Made struct {
	Name      string
	Bytes     int // of an id
	Threads   int
	One       Figure  // ns for an id when one thread makes ids
	All       Figure  // ns for an id when all threads make ids from one generator
	Sustained Figure  // ids a second of one thread without a pause, in the peer's usual settings
	Usual     string  `json:",omitempty"` // the usual settings, if Sustained depends on them
	Allocs    float64 // for an id
	Shared    bool    `json:",omitempty"` // a process has only one generator, so Memory is not measured
	Memory    float64 // bytes of a generator
}

func measureMaking(ctx context.Context, l *Lab) (all []Made, err error) {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	threads := runtime.GOMAXPROCS(0)
	var contestants, limited []contestant
	var loops []func(int)
	for _, p := range peers() {
		loop, err := p.open()
		if err != nil {
			return nil, err
		}
		loops = append(loops, loop)
		n := calibrate(l.Slice, loop)
		contestants = append(contestants,
			watched(func() (sample, error) { return alone(n, loop), nil }),
			func() (sample, error) { return together(threads, max(1, n/threads), loop), nil })
		limited = append(limited, sustained(l, p))
	}
	l.Say("making: %d peers, %d rounds", len(loops), l.Rounds)
	figures, err := interleave(ctx, l.Rounds, contestants, func(round int) {
		l.Tick("making: round %d of %d", round, l.Rounds)
	})
	if err != nil {
		return nil, err
	}
	for i, p := range peers() {
		m := Made{Name: p.name, Bytes: p.bytes, Threads: threads, One: figures[2*i], All: figures[2*i+1], Shared: p.shared,
			Usual: p.usually}
		m.Allocs = allocations(1000, loops[i])
		if m.Memory, err = perGenerator(l.Generators, p); err != nil {
			return nil, err
		}
		all = append(all, m)
	}
	rates, err := interleave(ctx, min(3, max(1, l.Rounds/100)), limited, func(round int) {
		l.Say("making: sustained rates, round %d", round)
	})
	for i := range rates {
		all[i].Sustained = rates[i]
	}
	return all, err
}

// calibrate returns how many ids take about d.
func calibrate(d time.Duration, loop func(int)) int {
	for n := 50; ; n *= 2 {
		begin := time.Now()
		loop(n)
		if took := time.Since(begin); took > d/4 {
			return max(1, int(float64(n)*float64(d)/float64(took)))
		}
	}
}

// alone makes n ids on this thread, and returns the ns for an id.
func alone(n int, loop func(int)) sample {
	begin := time.Now()
	loop(n)
	return sample{value: float64(time.Since(begin).Nanoseconds()) / float64(n)}
}

// together makes n ids on each of several threads, all from one generator, and returns the ns for an id.
func together(threads, n int, loop func(int)) sample {
	var ready atomic.Int64
	var disturbed atomic.Bool
	var group sync.WaitGroup
	begins, ends := make([]time.Time, threads), make([]time.Time, threads)
	for i := range threads {
		group.Go(func() {
			runtime.LockOSThread()
			defer runtime.UnlockOSThread()
			for ready.Add(1); ready.Load() < int64(threads); { // spin: sleeping threads would wake up at different times
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
	apart := last.Sub(first) > took/10 // too many ids were made before all threads had begun
	return sample{float64(took.Nanoseconds()) / float64(n*threads), disturbed.Load() || apart}
}

// allocations returns the number of allocations for an id, as the mean of n ids.
func allocations(n int, loop func(int)) float64 {
	var before, after runtime.MemStats
	loop(n)
	runtime.ReadMemStats(&before)
	loop(n)
	runtime.ReadMemStats(&after)
	return float64((after.Mallocs - before.Mallocs) / uint64(n))
}

// perGenerator returns the heap bytes of a generator that has made one id, as the mean of n generators.
func perGenerator(n int, p peer) (bytes float64, err error) {
	if p.shared {
		return 0, nil
	}
	live := func() float64 {
		var m runtime.MemStats
		runtime.GC()
		runtime.GC() // because the first one only finalizes some objects
		runtime.ReadMemStats(&m)
		return float64(m.HeapAlloc)
	}
	kept := make([]func(int), n)
	heap := live()
	for i := range kept {
		if kept[i], err = p.open(); err != nil {
			return 0, err
		}
		kept[i](1)
	}
	heapAfter := live()
	runtime.KeepAlive(kept)
	return max(0, (heapAfter-heap)/float64(n)), nil
}

// sustained measures how many ids a second one thread makes without a pause, in the usual settings of the peer.
func sustained(l *Lab, p peer) contestant {
	window := l.Sustained
	if l.Name != "tiny" {
		window = max(window, 2*p.stall)
	}
	open := p.usual
	if open == nil {
		open = p.open
	}
	return func() (sample, error) {
		loop, err := open()
		if err != nil {
			return sample{}, err
		}
		const few = 64 // ids in a call, so that it ends soon after the window even if the generator waits
		made, begin := 0, time.Now()
		for time.Since(begin) < window {
			loop(few)
			made += few
		}
		return sample{value: float64(made) / time.Since(begin).Seconds()}, nil
	}
}

func makingTable(all []Made) string {
	t := table{{"", "bytes", "1 thread, ns", fmt.Sprintf("%d threads, ns", all[0].Threads), "allocations",
		"ids/s, sustained", "generator, B"}}
	for _, m := range all {
		memory, rate := number(m.Memory), number(m.Sustained.Median)
		if m.Shared {
			memory = "–"
		}
		if m.Usual != "" {
			rate += " (" + m.Usual + ")"
		}
		t.add(m.Name, fmt.Sprint(m.Bytes), m.One.median(), m.All.median(), number(m.Allocs), rate, memory)
	}
	return t.String()
}

func drawMaking(all []Made, folder string) error {
	var names, rated []string
	one, threads := series{name: "one thread"}, series{name: fmt.Sprintf("%d threads, one generator", all[0].Threads)}
	rates := series{}
	for _, m := range all {
		names = append(names, m.Name)
		one.add(m.One)
		threads.add(m.All)
		if m.Name != peerAdd {
			rated = append(rated, m.Name)
			if m.Usual != "" {
				rated[len(rated)-1] = "uidplugin, " + m.Usual
			}
			rates.add(m.Sustained)
		}
	}
	if err := dots(filepath.Join(folder, "making.svg"), "An id", "ns", names, one, threads); err != nil {
		return err
	}
	return dots(filepath.Join(folder, "sustained.svg"), "Ids of one thread that never pauses", "ids a second", rated,
		rates)
}
