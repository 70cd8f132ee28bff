package ringbuffer_test

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"unsafe"

	"github.com/uidplugin/uidplugin/ringbuffer"
)

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
