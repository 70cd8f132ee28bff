package main

import (
	"context"
	"math"
	"math/rand/v2"
	"slices"
)

// A Figure is what several measurements of one thing say: their median, and the quartiles as their spread. The zero
// value is no measurement.
type Figure struct {
	Median, Low, High float64
	Samples           int
	Disturbed         int  // measurements that were left out, because the machine did something else meanwhile
	Noisy             bool // hardly any others were left, so that these are of disturbed ones, too
}

// A sample is one measurement. It is disturbed if something else ran on the measuring CPU.
type sample struct {
	value     float64
	disturbed bool
}

// figure returns the median and the quartiles of samples. Disturbed ones count only if hardly any others are left.
func figure(samples []sample) Figure {
	var calm, all []float64
	for _, s := range samples {
		all = append(all, s.value)
		if !s.disturbed {
			calm = append(calm, s.value)
		}
	}
	f := Figure{Noisy: len(calm) < max(1, len(all)/30)}
	if f.Noisy {
		calm = all
	}
	f.Samples, f.Disturbed = len(calm), len(all)-len(calm)
	f.Low, f.Median, f.High = quantile(calm, 0.25), quantile(calm, 0.5), quantile(calm, 0.75)
	return f
}

// figureOf is figure for plain values.
func figureOf(values []float64) Figure {
	samples := make([]sample, len(values))
	for i, v := range values {
		samples[i].value = v
	}
	return figure(samples)
}

// quantile returns the value below which a part of the values lies, and 0 if there are none.
func quantile(values []float64, part float64) float64 {
	if len(values) == 0 {
		return 0
	}
	sorted := slices.Sorted(slices.Values(values))
	at := part * float64(len(sorted)-1)
	low, high := sorted[int(math.Floor(at))], sorted[int(math.Ceil(at))]
	return low + (high-low)*(at-math.Floor(at))
}

// turns returns an order of n contestants for each round. It is random, so that none always follows the same one and
// pays for what that has left behind, and the same in each run.
func turns(n int) func() []int {
	random := rand.New(rand.NewPCG(1, 2))
	return func() []int { return random.Perm(n) }
}

// interleave measures all contestants once in each round. A machine that becomes slower thus does so for all.
func interleave(ctx context.Context, rounds int, contestants []func() (sample, error), each func(round int)) ([]Figure,
	error) {
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
		if each != nil {
			each(round + 1)
		}
	}
	figures := make([]Figure, len(contestants))
	for i := range samples {
		figures[i] = figure(samples[i])
	}
	return figures, nil
}
