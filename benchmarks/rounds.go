package main

import (
	"context"
	"math"
	"math/rand/v2"
	"slices"
	"time"
)

// A Figure is the median of several measurements. Low and High are the quartiles, or the extremes if runs are few.
type Figure struct {
	Median, Low, High float64
	Noisy             bool `json:",omitempty"` // nearly all measurements were disturbed, so all of them count
}

// A sample is one measurement. It is disturbed if the kernel took the CPU from its thread.
type sample struct {
	value     float64
	disturbed bool
}

// A contestant makes one measurement.
type contestant func() (sample, error)

// figure leaves out disturbed samples, unless nearly all samples are disturbed.
func figure(samples []sample) Figure {
	var calm, all []float64
	for _, s := range samples {
		all = append(all, s.value)
		if !s.disturbed {
			calm = append(calm, s.value)
		}
	}
	noisy := len(calm) < max(1, len(all)/30)
	if noisy {
		calm = all
	}
	f := figureOf(calm)
	f.Noisy = noisy
	return f
}

func figureOf(values []float64) Figure {
	return Figure{Low: quantile(values, 0.25), Median: quantile(values, 0.5), High: quantile(values, 0.75)}
}

// quantile returns a quantile of values, for example the median if part is 0.5.
func quantile(values []float64, part float64) float64 {
	if len(values) == 0 {
		return 0
	}
	sorted := slices.Sorted(slices.Values(values))
	at := part * float64(len(sorted)-1)
	low, high := sorted[int(math.Floor(at))], sorted[int(math.Ceil(at))]
	return low + (high-low)*(at-math.Floor(at))
}

// timed returns a contestant that calls f n times, and measures the microseconds of one call.
func timed(n int, f func() error) contestant {
	return func() (sample, error) {
		begin := time.Now()
		for range n {
			if err := f(); err != nil {
				return sample{}, err
			}
		}
		return sample{value: float64(time.Since(begin).Nanoseconds()) / 1000 / float64(n)}, nil
	}
}

// watched returns a contestant that marks disturbed samples. c must not wait, because a wait may change the thread.
func watched(c contestant) contestant {
	return func() (sample, error) {
		before := preempted()
		s, err := c()
		s.disturbed = preempted() != before
		return s, err
	}
}

// turns returns a function that returns the order of n contestants for the next round. The order is random, because in
// a rotation each contestant would always follow the same one and pay for its garbage. All runs use equal orders.
func turns(n int) func() []int {
	random := rand.New(rand.NewPCG(1, 2))
	return func() []int { return random.Perm(n) }
}

// interleave measures all contestants once in each round. So a machine that becomes slower is slower for all of them.
func interleave(ctx context.Context, rounds int, contestants []contestant, each func(round int)) ([]Figure, error) {
	samples := make([][]sample, len(contestants))
	next := turns(len(contestants))
	for round := range rounds {
		if err := ctx.Err(); err != nil {
			return nil, err
		}
		for _, i := range next() {
			s, err := contestants[i]()
			if err != nil {
				return nil, err
			}
			samples[i] = append(samples[i], s)
		}
		each(round + 1)
	}
	figures := make([]Figure, len(contestants))
	for i := range samples {
		figures[i] = figure(samples[i])
	}
	return figures, nil
}
