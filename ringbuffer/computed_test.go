package ringbuffer_test

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"unsafe"

	"github.com/uidplugin/uidplugin/ringbuffer"
)

// No position is handed out twice, because ids would be equal. The next ring hands out the refused positions.
func TestComputedTakeOne_HandsOutEachPositionOnce(t *testing.T) {
	t.Parallel()

	var r ringbuffer.Computed
	r.Open(10, 13)
	for want := uint64(10); want < 13; want++ {
		if got, ok := r.TakeOne(); got != want || !ok {
			t.Fatalf("TakeOne() = %d, %v; want %d", got, ok, want)
		}
	}
	for range 5 {
		if got, ok := r.TakeOne(); ok {
			t.Fatalf("an empty ring gave %d", got)
		}
	}
	// An empty ring has not handed out the positions that it refuses, so the next ring begins there.
	if got := r.Close(); got != 13 {
		t.Errorf("Close() = %d, want 13", got)
	}
}

// A claim gets positions below the tail only, and Close returns the first position of the next ring.
func TestComputedTake_HandsOutWhatThereIs(t *testing.T) {
	t.Parallel()

	tests := []struct {
		name         string
		cursor, tail uint64
		n            uint64
		first, got   uint64
		closed       uint64 // the result of Close then
	}{
		{"all", 10, 20, 10, 10, 10, 20},
		{"some", 10, 20, 9, 10, 9, 19},
		{"more than there are", 10, 20, 11, 10, 10, 20},
		{"far more than there are", 10, 20, 1 << 40, 10, 10, 20},
		{"one", 10, 20, 1, 10, 1, 11},
		{"none", 10, 20, 0, 10, 0, 10},
		{"from an empty ring", 20, 20, 1, 20, 0, 20},
		{"from a ring whose cursor is beyond its tail", 25, 20, 1, 25, 0, 20},
		{"from the beginning", 0, 5, 3, 0, 3, 3},
		{"large positions", 1<<62 - 5, 1 << 62, 10, 1<<62 - 5, 5, 1 << 62},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()

			var r ringbuffer.Computed
			r.Open(tt.cursor, tt.tail)
			if first, got := r.Take(tt.n); got != tt.got || got > 0 && first != tt.first {
				t.Errorf("Take(%d) = %d, %d; want %d, %d", tt.n, first, got, tt.first, tt.got)
			}
			if got := r.Close(); got != tt.closed {
				t.Errorf("Close() = %d, want %d", got, tt.closed)
			}
		})
	}
}

// Has claims nothing. It is true only while that many positions are below the tail, and never for an empty ring.
func TestComputedHas_IsTrueOnlyBelowTheTail(t *testing.T) {
	t.Parallel()

	var r ringbuffer.Computed
	r.Open(10, 20)
	for _, tt := range []struct {
		n    uint64
		want bool
	}{{0, true}, {1, true}, {10, true}, {11, false}, {1<<64 - 1, false}} {
		if got := r.Has(tt.n); got != tt.want {
			t.Errorf("Has(%d) = %v", tt.n, got)
		}
	}
	if r.Cursor() != 10 {
		t.Errorf("Has has moved the cursor to %d", r.Cursor())
	}
	r.Take(15) // leaves the cursor beyond the tail
	if r.Has(0) || r.Has(1) || r.Has(1<<64-1) {
		t.Error("an empty ring has something")
	}
}

// Raise skips positions and never goes back. Beyond the tail it hands out nothing either.
func TestComputedRaise_PassesOverPositions(t *testing.T) {
	t.Parallel()

	var r ringbuffer.Computed
	r.Open(10, 20)
	for _, tt := range []struct{ to, cursor, taken uint64 }{{5, 10, 10}, {10, 10, 10}, {15, 15, 10}, {12, 15, 15}} {
		if taken := r.Raise(tt.to); r.Cursor() != tt.cursor || taken != tt.taken {
			t.Errorf("Raise(%d) = %d, and then the cursor is at %d; want %d, %d", tt.to, taken, r.Cursor(), tt.taken, tt.cursor)
		}
	}
	if first, got := r.Take(3); first != 15 || got != 3 {
		t.Errorf("Take(3) = %d, %d", first, got)
	}
	r.Raise(30)
	if taken := r.Raise(40); taken != 20 {
		t.Errorf("beyond the tail Raise = %d, want the tail", taken)
	}
	if first, got := r.Take(3); got != 0 {
		t.Errorf("beyond the tail Take(3) = %d, %d", first, got)
	}
	if got := r.Close(); got != 20 {
		t.Errorf("Close() = %d, want 20", got)
	}
}

// The tail never moves down, because the next ring would then hand out positions again.
func TestComputedExtend_OnlyMovesTheTailUp(t *testing.T) {
	t.Parallel()

	var r ringbuffer.Computed
	r.Open(10, 12)
	r.Extend(11)
	if first, got := r.Take(2); first != 10 || got != 2 {
		t.Fatalf("after Extend to less Take(2) = %d, %d", first, got)
	}
	if _, ok := r.TakeOne(); ok { // 12 is refused, and will not come again
		t.Fatal("an empty ring gave a position")
	}
	r.Extend(14)
	if got, ok := r.TakeOne(); got != 13 || !ok {
		t.Fatalf("after Extend TakeOne() = %d, %v; want 13", got, ok)
	}
	if got := r.Close(); got != 14 {
		t.Errorf("Close() = %d, want 14", got)
	}
}

// After Close, no call makes the ring hand out a position. The zero ring is closed.
func TestComputedClose_IsForGood(t *testing.T) {
	t.Parallel()

	var zero, closed ringbuffer.Computed
	closed.Open(10, 20)
	closed.TakeOne()
	if got := closed.Close(); got != 11 {
		t.Fatalf("Close() = %d, want 11", got)
	}
	for name, r := range map[string]*ringbuffer.Computed{"zero": &zero, "closed": &closed} {
		for range 30 {
			if got, ok := r.TakeOne(); ok {
				t.Fatalf("%s: TakeOne() = %d", name, got)
			}
			if first, got := r.Take(3); got != 0 {
				t.Fatalf("%s: Take(3) = %d, %d", name, first, got)
			}
			if r.Has(0) || r.Has(1) {
				t.Fatalf("%s: it has something", name)
			}
			if r.Taken() != 0 {
				t.Fatalf("%s: Taken() = %d", name, r.Taken())
			}
			r.Raise(5)
		}
	}
}

// Taken is above all positions that were handed out, and within the ring.
func TestComputedTaken_LiesAboveAllThatWasHandedOut(t *testing.T) {
	t.Parallel()

	var r ringbuffer.Computed
	r.Open(10, 20)
	for _, tt := range []struct{ take, want uint64 }{{0, 10}, {1, 11}, {5, 16}, {3, 19}, {5, 20}, {5, 20}} {
		r.Take(tt.take)
		if got := r.Taken(); got != tt.want {
			t.Errorf("Taken() = %d, want %d", got, tt.want)
		}
	}
}

// The calls of a ring in any order agree with a model of two plain integers.
func TestComputed_AgreesWithAModel(t *testing.T) {
	t.Parallel()

	rnd := rand.New(rand.NewPCG(1, 2))
	for range 2000 {
		cursor := rnd.Uint64N(1 << 60)
		tail := cursor + rnd.Uint64N(100)
		var r ringbuffer.Computed
		r.Open(cursor, tail)
		for range rnd.IntN(40) {
			n := rnd.Uint64N(20)
			switch rnd.IntN(6) {
			case 0:
				position, ok := r.TakeOne()
				if ok != (cursor < tail) || ok && position != cursor {
					t.Fatalf("TakeOne() = %d, %v; want %d below %d", position, ok, cursor, tail)
				}
				cursor++
			case 1:
				first, got := r.Take(n)
				want := uint64(0)
				if cursor < tail {
					want = min(n, tail-cursor)
				}
				if got != want || got > 0 && first != cursor {
					t.Fatalf("Take(%d) = %d, %d; want %d from %d", n, first, got, want, cursor)
				}
				cursor += n
			case 2:
				if got, want := r.Has(n), cursor < tail && tail-cursor >= n; got != want {
					t.Fatalf("Has(%d) = %v with %d and %d", n, got, cursor, tail)
				}
			case 3:
				if taken := r.Raise(cursor + n - min(cursor, 10)); taken != min(cursor, tail) {
					t.Fatalf("Raise = %d with %d and %d", taken, cursor, tail)
				}
				cursor = max(cursor, cursor+n-min(cursor, 10))
			case 4:
				r.Extend(tail + n - min(tail, 10))
				tail = max(tail, tail+n-min(tail, 10))
			case 5:
				if r.Cursor() != cursor || r.Taken() != min(cursor, tail) {
					t.Fatalf("Cursor, Taken = %d, %d; want %d, %d", r.Cursor(), r.Taken(), cursor, min(cursor, tail))
				}
			}
		}
		if got, want := r.Close(), min(cursor, tail); got != want {
			t.Fatalf("Close() = %d, want %d", got, want)
		}
	}
}

// All takers write the cursor and read the tail, so these share no cache line. A ring has nothing else.
func TestComputed_KeepsCursorAndTailApart(t *testing.T) {
	t.Parallel()

	if got := unsafe.Sizeof(ringbuffer.Computed{}); got != 64+8 {
		t.Errorf("a ring has %d bytes, want 72", got)
	}
}

func ExampleComputed() {
	var ring ringbuffer.Computed
	ring.Open(100, 110) // the positions 100 to 109

	first, _ := ring.TakeOne()
	fmt.Println("one:", first)
	first, n := ring.Take(20)
	fmt.Println("of twenty:", first, n)

	ring.Extend(150)
	ring.Raise(140)
	fmt.Println("left:", ring.Has(10), ring.Has(11))

	// A successor continues where Close returned.
	fmt.Println("successor:", ring.Close())
	// Output:
	// one: 100
	// of twenty: 101 9
	// left: true false
	// successor: 140
}
