package ringbuffer

import "sync/atomic"

const cacheLine = 64

// A Computed ring hands out the positions from its cursor up to its tail, each to exactly one caller, in ascending
// order. It does not store ids: the taker computes them from the positions.
//
// Any number of goroutines may call Take, TakeOne, Taken, Raise and Has at once. Extend and Close belong to one owner
// at a time. The zero Computed is closed; [Computed.Open] opens it, once. A closed ring stays closed. Its successor is
// a new ring that begins at the result of Close. So a caller that still holds the old ring can never interfere with the
// new one. A Computed must not be copied.
type Computed struct {
	// cursor only grows. Add(n) claims [cursor, cursor+n), but the claim counts only below the tail that is loaded
	// after the Add. The part above that tail is never handed out by this ring.
	cursor atomic.Uint64
	_      [cacheLine - 8]byte // keeps the tail off the cursor's cache line, because the tail is mostly read

	// tail grows until Close sets it to 0 permanently. Any position that was handed out is below the largest tail of
	// this ring, and below cursor.
	tail atomic.Uint64
}

// Open makes the positions from cursor up to, not including, tail available. It must be called at most once, before the
// ring is shared.
func (r *Computed) Open(cursor, tail uint64) {
	r.cursor.Store(cursor)
	r.tail.Store(tail)
}

// TakeOne claims one position. It reports false if the ring is empty.
func (r *Computed) TakeOne() (position uint64, ok bool) {
	position = r.cursor.Add(1) - 1
	return position, position < r.tail.Load()
}

// Take claims up to n consecutive positions. It returns the first of them and their number, which is less than n only
// at the end of the ring. 0 means that the ring is empty.
func (r *Computed) Take(n uint64) (first, got uint64) {
	first = r.cursor.Add(n) - n
	tail := r.tail.Load()
	if first >= tail {
		return first, 0
	}
	return first, min(n, tail-first)
}

// Has reports whether n positions were available at the moment of the call. It claims nothing.
func (r *Computed) Has(n uint64) bool {
	cursor, tail := r.cursor.Load(), r.tail.Load()
	return cursor < tail && tail-cursor >= n
}

// Taken returns a position above all positions handed out so far; 0 for a closed ring.
func (r *Computed) Taken() uint64 { return min(r.cursor.Load(), r.tail.Load()) }

// Raise moves the cursor up to target, and never down. No caller gets the positions that it skips. It returns what
// Taken would have returned right before. If the owner calls Raise with a target up to the tail, the result is exact:
// positions handed out before are below it, and no position from it up to target is ever handed out.
func (r *Computed) Raise(target uint64) (taken uint64) {
	for {
		cursor := r.cursor.Load()
		if cursor >= target || r.cursor.CompareAndSwap(cursor, target) {
			return min(cursor, r.tail.Load())
		}
	}
}

// Extend moves the tail up to position, and never down. It must not be called on a closed ring.
func (r *Computed) Extend(position uint64) {
	if r.tail.Load() < position {
		r.tail.Store(position)
	}
}

// Close makes every later claim fail. It returns a position above all positions that the ring ever hands out, so
// that the next ring can start there.
func (r *Computed) Close() uint64 {
	tail := r.tail.Swap(0)
	// A successful claim has loaded the tail before the Swap, so its Add came before this Load and is included. Failed
	// claims may have pushed the cursor beyond the tail.
	return min(r.cursor.Load(), tail)
}
