package ringbuffer

import "sync/atomic"

const (
	offsetBits = 24
	// MaxRun is the largest number of ids that one slot of a [Stored] ring holds.
	MaxRun   = 1<<offsetBits - 1
	maxSlots = 1 << 20
)

// A Stored ring is a bounded queue of ids that cannot be computed, for one producer and any number of takers. Neither
// side ever waits: a full ring refuses a run, and an empty ring returns no ids.
//
// Ids come in runs of consecutive numbers, and a slot holds a whole run, because then the memory of the ring does not
// depend on how many ids it holds. Ids leave in the order in which they came.
//
// Any number of goroutines may call Take and Len at once, but only one at a time may call Put. Create a Stored with
// [NewStored]. It must not be copied.
type Stored struct {
	// cursor is the run that ids are taken from, and how many of its ids were taken: position << offsetBits | offset.
	// It only grows, so it never has a value twice in 2^40 runs. The taker that moves it by a compare-and-swap owns the
	// ids between the two values. A taker may have read a slot that was written again meanwhile. Then its swap fails,
	// because a slot is written again only when the cursor has moved off it.
	cursor atomic.Uint64
	_      [cacheLine - 8]byte

	// tail is the position of the next run to come. It only grows. The producer writes it after the slot, because a
	// taker that sees the new tail must also see the run below it.
	tail  atomic.Uint64
	total atomic.Uint64 // ids of all runs below tail
	_     [cacheLine - 16]byte

	slots []slot
	mask  uint64
}

// A slot has atomic fields, because takers read it while the producer writes it again.
type slot struct {
	first atomic.Int64
	n     atomic.Uint64
	// before counts the ids of all earlier runs.
	before atomic.Uint64
}

// NewStored returns an empty ring with room for a number of runs, rounded up to a power of two, from 1 to 1,048,576.
func NewStored(runs int) *Stored {
	n := 1
	for n < runs && n < maxSlots {
		n <<= 1
	}
	return &Stored{slots: make([]slot, n), mask: uint64(n - 1)}
}

// Put appends the ids from first to first+n-1, n from 1 to [MaxRun]. It reports false, and changes nothing, if the ring
// is full, or n is not in that range.
func (r *Stored) Put(first int64, n int) bool {
	tail := r.tail.Load()
	if n < 1 || n > MaxRun || tail-r.cursor.Load()>>offsetBits == uint64(len(r.slots)) {
		return false
	}
	s, total := &r.slots[tail&r.mask], r.total.Load()
	s.first.Store(first)
	s.n.Store(uint64(n))
	s.before.Store(total)
	r.total.Store(total + uint64(n))
	r.tail.Store(tail + 1) // publishes the slot
	return true
}

// Take takes ids of the oldest run, up to want of them; a want below 1 counts as 1. It returns the first id
// and the number of ids. If the number is 0, the ring is empty.
func (r *Stored) Take(want int) (first int64, n int) {
	for {
		c := r.look(want)
		if c.next == 0 || r.claim(c) {
			return c.first, c.n
		}
	}
}

// A candidate is a run, or part of one, that a taker wants to claim.
type candidate struct {
	cursor, next uint64 // the ring's cursor before and after the claim; next is 0 if the ring is empty
	first        int64
	n            int
}

// look returns the next candidate. It may be outdated, and claim then refuses it.
func (r *Stored) look(want int) (c candidate) {
	c.cursor = r.cursor.Load()
	position, offset := c.cursor>>offsetBits, c.cursor&MaxRun
	if position == r.tail.Load() {
		return c
	}
	s := &r.slots[position&r.mask]
	c.first, c.n = s.first.Load()+int64(offset), int(s.n.Load()-offset)
	c.next = (position + 1) << offsetBits
	want = max(want, 1)
	if want < c.n {
		c.n, c.next = want, c.cursor+uint64(want)
	}
	return c
}

// claim takes the candidate, unless another taker has taken any of its ids since.
func (r *Stored) claim(c candidate) bool { return r.cursor.CompareAndSwap(c.cursor, c.next) }

// Len returns how many ids there were at some moment of the call.
func (r *Stored) Len() int64 {
	for {
		cursor := r.cursor.Load()
		position, offset := cursor>>offsetBits, cursor&MaxRun
		if position == r.tail.Load() {
			return 0
		}
		before, total := r.slots[position&r.mask].before.Load(), r.total.Load()
		if r.cursor.Load() == cursor { // so the slot still held this run
			return int64(total - before - offset)
		}
	}
}

// Free returns how many more runs the ring has room for.
func (r *Stored) Free() int {
	return len(r.slots) - int(r.tail.Load()-r.cursor.Load()>>offsetBits)
}
