package generator_test

import (
	"math"
	"math/big"
	"testing"
	"time"

	"github.com/uidplugin/uidplugin/generator"
)

// Positions ascend with time and are exact at the start of each tick. Converting a time to positions, or back, rounds
// so that no id is stamped too early.

// exact returns a*b/c and whether there was no rest.
func exact(a uint64, b, c int64) (*big.Int, bool) {
	n := new(big.Int).Mul(new(big.Int).SetUint64(a), big.NewInt(b))
	n, rest := n.DivMod(n, big.NewInt(c), new(big.Int))
	return n, rest.Sign() == 0
}

func FuzzPositionAt(f *testing.F) {
	seeds := [][2]int64{{0, 0}, {-5, 3}, {1e6, 1}, {1 << 60, 1 << 40}}
	fuzzLayouts(f, seeds, func(t *testing.T, l generator.Layout, a, b int64) {
		k := uint8(b) % (min(l.WorkerBits, 6) + 1)
		s := generator.NewScale(l).Lanes(k)

		// a is an instant, in ns since the epoch; b a later one.
		from := l.Epoch.Add(time.Duration(a))
		pos := s.At(from)
		if a < 0 {
			if pos != 0 {
				t.Fatalf("At(%v before the epoch) = %d with %+v", time.Duration(-a), pos, l)
			}
			return
		}
		want, _ := exact(uint64(a), 1<<(l.SequenceBits+k), int64(l.Tick))
		if w := want.Uint64(); !want.IsUint64() || w > s.Last() {
			if pos != s.Last()+1 {
				t.Fatalf("At(%v) = %d, want one beyond the last, %d, with %+v", from, pos, s.Last(), l)
			}
			return
		} else if pos != w {
			t.Fatalf("At(%v) = %d, want %d with %+v", from, pos, w, l)
		}

		// The id of a position has the tick of the position, and the worker id of its lane.
		workers := make([]int64, 1<<k)
		for i := range workers {
			workers[i] = l.MaxWorkerID() - int64(len(workers)-1-i)
		}
		parts, err := l.Decompose(s.ID(pos, workers...))
		if err != nil || !parts.Time.Equal(l.TimeOf(l.TickAt(from))) || parts.WorkerID != workers[pos>>l.SequenceBits%(1<<k)] ||
			parts.Sequence != int64(pos&uint64(l.MaxSequence())) {
			t.Fatalf("the id at %v is %v, %v with %+v", from, parts, err, l)
		}
		if start := s.At(parts.Time); start != s.Start(l.TickAt(from)) || start > pos {
			t.Fatalf("tick of %v starts at position %d, At is %d with %+v", from, start, pos, l)
		}

		if b < 0 || a+b < 0 {
			return
		}
		later := s.At(from.Add(time.Duration(b)))
		if later < pos {
			t.Fatalf("At goes down from %d to %d in %v with %+v", pos, later, time.Duration(b), l)
		}
		// A duration moves At by as many positions as Count returns, apart from rounding.
		if n := s.Count(time.Duration(b)); later <= s.Last() && later-pos != n && later-pos != n+1 {
			t.Fatalf("At moves by %d in %v, Count is %d with %+v", later-pos, time.Duration(b), n, l)
		}
	})
}

func FuzzPositionCount(f *testing.F) {
	seeds := [][2]int64{{0, 0}, {-1, 1}, {1e9, 8192}, {math.MaxInt64, -1}, {math.MinInt64, 1 << 62}}
	fuzzLayouts(f, seeds, func(t *testing.T, l generator.Layout, a, b int64) {
		k := uint8(b) % (min(l.WorkerBits, 6) + 1)
		s := generator.NewScale(l).Lanes(k)

		d, n := time.Duration(a), s.Count(time.Duration(a))
		want, _ := exact(uint64(max(a, 0)), 1<<(l.SequenceBits+k), int64(l.Tick))
		if want.IsUint64() && want.Uint64() <= s.Last() {
			if n != want.Uint64() {
				t.Fatalf("Count(%v) = %d, want %d with %+v", d, n, want, l)
			}
			if back := s.Duration(n); back > max(d, 0) {
				t.Fatalf("Count(%v) = %d lasts %v with %+v", d, n, back, l)
			}
		} else if n != s.Last()+1 {
			t.Fatalf("Count(%v) = %d, want all, %d, with %+v", d, n, s.Last()+1, l)
		}

		positions := uint64(b)
		long, even := exact(positions, int64(l.Tick), 1<<(l.SequenceBits+k))
		if !even {
			long.Add(long, big.NewInt(1))
		}
		got := s.Duration(positions)
		if !long.IsInt64() {
			if got != math.MaxInt64 {
				t.Fatalf("Duration(%d) = %v, want the longest with %+v", positions, got, l)
			}
		} else if int64(got) != long.Int64() {
			t.Fatalf("Duration(%d) = %d, want %d with %+v", positions, got, long, l)
		} else if positions <= s.Last() && s.Count(got) < positions {
			t.Fatalf("%d positions last %v, in which only %d pass, with %+v", positions, got, s.Count(got), l)
		}
	})
}
