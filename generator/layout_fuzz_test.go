package generator_test

import (
	"cmp"
	"math/big"
	"testing"
	"time"

	"github.com/uidplugin/uidplugin/generator"
	"github.com/uidplugin/uidplugin/internal/testkit"
)

// anyLayout turns any input of the fuzzer into a valid layout, so that no run is wasted on layouts that Validate
// refuses.
func anyLayout(tb testing.TB, timeBits, workerBits, sequenceBits uint8, tick, epochSeconds int64, epochNano uint32) generator.Layout {
	l := generator.Layout{TimeBits: 1 + timeBits%61}
	l.WorkerBits = 1 + workerBits%(62-l.TimeBits)
	l.SequenceBits = 1 + sequenceBits%(63-l.TimeBits-l.WorkerBits)
	l.Tick = max(time.Duration(tick&(1<<63-1)), time.Millisecond)
	l.Epoch = time.Unix(epochSeconds%(1<<53), int64(epochNano%1e9))
	for l.Validate() != nil {
		if l.Epoch.IsZero() {
			l.Epoch = l.Epoch.Add(1)
			continue
		}
		if l.Tick == time.Millisecond {
			tb.Fatalf("no tick makes %+v valid", l)
		}
		l.Tick = max(l.Tick/2, time.Millisecond) // 61 bits of it last less than 2^53 seconds
	}
	return l
}

// fuzzLayouts fuzzes a test of layouts and two numbers. The seeds are the layouts in use, each with all pairs of numbers.
func fuzzLayouts(f *testing.F, numbers [][2]int64, test func(t *testing.T, l generator.Layout, a, b int64)) {
	for _, l := range layouts {
		for _, n := range numbers {
			f.Add(l.TimeBits-1, l.WorkerBits-1, l.SequenceBits-1, int64(l.Tick), l.Epoch.Unix(), uint32(l.Epoch.Nanosecond()), n[0], n[1])
		}
	}
	f.Fuzz(func(t *testing.T, timeBits, workerBits, sequenceBits uint8, tick, epochSeconds int64, epochNano uint32, a, b int64) {
		test(t, anyLayout(t, timeBits, workerBits, sequenceBits, tick, epochSeconds, epochNano), a, b)
	})
}

// FuzzLayoutRoundTrip checks that Decompose accepts all ids of the layout's bits and no others, and that Compose
// returns the same id.
func FuzzLayoutRoundTrip(f *testing.F) {
	seeds := [][2]int64{{0, 0}, {1<<63 - 1, 0}, {-1, 0}, {1<<53 - 1, 0}}
	fuzzLayouts(f, seeds, func(t *testing.T, l generator.Layout, id, _ int64) {
		parts, err := l.Decompose(id)
		if fits := id >= 0 && id>>(l.TimeBits+l.WorkerBits+l.SequenceBits) == 0; fits != (err == nil) {
			t.Fatalf("Decompose(%d) = %v, %v with %+v", id, parts, err, l)
		}
		if err != nil {
			return
		}
		if back, err := l.Compose(parts); err != nil || back != id {
			t.Fatalf("Compose(Decompose(%d)) = %d, %v with %+v", id, back, err, l)
		}
	})
}

// FuzzLayoutOrder checks that ids are ordered by time, then worker id, then sequence.
func FuzzLayoutOrder(f *testing.F) {
	seeds := [][2]int64{{0, 1}, {1 << 35, 1<<35 - 1}, {1 << 12, 1<<12 - 1}}
	fuzzLayouts(f, seeds, func(t *testing.T, l generator.Layout, a, b int64) {
		all := int64(1)<<(l.TimeBits+l.WorkerBits+l.SequenceBits) - 1
		a, b = a&all, b&all
		p, err := l.Decompose(a)
		testkit.Must(t, err)
		q, err := l.Decompose(b)
		testkit.Must(t, err)
		order := cmp.Or(p.Time.Compare(q.Time), cmp.Compare(p.WorkerID, q.WorkerID), cmp.Compare(p.Sequence, q.Sequence))
		if order != cmp.Compare(a, b) {
			t.Fatalf("%d is %v and %d is %v with %+v", a, p, b, q, l)
		}
	})
}

// FuzzLayoutTicks checks TickAt against integers that cannot overflow: it is the floor of the time since the epoch
// divided by the tick. TimeOf is its inverse.
func FuzzLayoutTicks(f *testing.F) {
	seeds := [][2]int64{{0, 0}, {-1, 999999999}, {1 << 28, 1}, {1e15, 5e8}}
	fuzzLayouts(f, seeds, func(t *testing.T, l generator.Layout, seconds, ns int64) {
		ns &= 1<<30 - 1
		since := big.NewInt(seconds % (1 << 53)) // since the epoch
		now := time.Unix(l.Epoch.Unix()+since.Int64(), int64(l.Epoch.Nanosecond())+ns)
		since.Mul(since, big.NewInt(1e9)).Add(since, big.NewInt(ns))

		want := int64(-1)
		if since.Sign() >= 0 {
			want = new(big.Int).Div(since, big.NewInt(int64(l.Tick))).Int64()
		}
		got := l.TickAt(now)
		if got != want {
			t.Fatalf("TickAt(%v) = %d, want %d with %+v", now, got, want, l)
		}
		if got < 0 || got > l.MaxTick() {
			return
		}
		start, next := l.TimeOf(got), l.TimeOf(got+1)
		if start.After(now) || !next.After(now) || next.Sub(start) != l.Tick {
			t.Fatalf("%v is in tick %d, which goes from %v to %v with %+v", now, got, start, next, l)
		}
		if l.TickAt(start) != got || l.TickAt(next) != got+1 || l.TickAt(next.Add(-1)) != got {
			t.Fatalf("tick %d starts in tick %d and ends before tick %d with %+v", got, l.TickAt(start), l.TickAt(next), l)
		}
	})
}
