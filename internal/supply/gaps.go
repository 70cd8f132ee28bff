package supply

import (
	"context"
	"time"

	"github.com/uidplugin/uidplugin/generator"
)

// MySQL and MariaDB number a row that is inserted without a key with the largest key plus one, and so does a sequence of
// PostgreSQL that was set to the largest key. While other programs insert such rows, the numbers after an id are theirs.
//
// A gap of all the sequences of a tick leaves one id to a worker id and tick. The next numbers are those of the next
// worker id in the same tick, which most often belongs to another table, and may get rows in the same tick. So worker
// ids that follow one another take turns: each stamps one tick in [neighbours]. Then the numbers of as many worker ids
// follow an id of which none is an id, and [Before] returns the id that a number follows. The id of the next tick of a
// worker id is 2^22 numbers away in the default layout.

const (
	leastWithGaps = 100                    // ids a second that a gap leaves a worker id at least; slower layouts get a smaller gap, or none
	neighbours    = 4                      // worker ids that a gap spans at most
	largestGap    = 4096                   // a gap costs as many ids of the generator, each time
	slowFill      = 100 * time.Millisecond // after a longer wait for ids, gaps are of one worker id for a second
	gapTries      = 1_000                  // after so many fills in a row without an id that has a gap, ids are taken as they are
)

// Gap returns the gap of a layout, which is how many numbers an id and those after it are until another id may follow:
// a power of two from 1, which means none, to 4,096.
func Gap(l generator.Layout) int64 {
	all := l.MaxSequence() + 1
	gap := min(all, largestGap)
	leaves := func(gap int64) bool { return float64(all)/float64(gap) >= leastWithGaps*l.Tick.Seconds() }
	for gap > 1 && !leaves(gap) {
		gap /= 2
	}
	for gap >= all && gap < min(neighbours*all, largestGap) && gap/all <= l.MaxWorkerID()/2 && leaves(2*gap) {
		gap *= 2
	}
	return gap
}

// LeaveGaps makes all ids of src that are made from now on have the gap of the layout. It does nothing if the ids are
// not of the layout. It may be called at any time, by any goroutine.
func (s *Supply) LeaveGaps(src *Source) {
	if src.Foreign || src.gap.Load() > 1 {
		return
	}
	if m := src.made.Load(); m != nil {
		var so State
		so.count(m.Generator)
		src.before.Store(so.Made)
	}
	src.gap.Store(Gap(s.Layout))
}

// after returns how many numbers id is after the id that begins its gap. The latter has the sequence 0, if a gap spans
// worker ids, and their turn: its worker id less its tick is a multiple of the worker ids of a gap.
func after(l generator.Layout, id, gap int64) int64 {
	turn := id>>l.SequenceBits - id>>(l.SequenceBits+l.WorkerBits)
	return (turn<<l.SequenceBits | id&l.MaxSequence()) & (gap - 1)
}

// Before returns the id that a number follows if the database gave it to a row that another program inserted after that
// id. It reports false if the number has the worker id of that id, or follows none.
func Before(l generator.Layout, number int64) (id int64, ok bool) {
	id = number - after(l, number, Gap(l))
	worker, tick := l.SequenceBits, l.SequenceBits+l.WorkerBits
	return id, id>>worker != number>>worker && id>>tick == number>>tick
}

// gapNow returns the gap that the next ids have.
func (src *Source) gapNow() int64 {
	gap := src.gap.Load()
	if all := src.layout.MaxSequence() + 1; gap > all && time.Now().UnixNano() < src.hurry.Load() {
		return all // creates wait
	}
	return gap
}

// fillWithGaps sets ids to such that begin a gap. A generator hands out consecutive sequences, so one id in gap does. A
// generator of the application may never hand out one; its ids are taken as they are.
func (src *Source) fillWithGaps(ctx context.Context, m *made, ids []int64) error {
	buffer := make([]int64, min(int64(len(ids))*src.gapNow(), largestGap))
	n, fruitless := 0, 0
	for n < len(ids) {
		gap, begin := src.gapNow(), time.Now()
		part := buffer[:min(int64(len(ids)-n)*gap, int64(len(buffer)))]
		if err := m.Fill(ctx, part); err != nil {
			clear(ids)
			return err
		}
		if now := time.Now(); now.Sub(begin) > slowFill {
			src.hurry.Store(now.Add(time.Second).UnixNano())
		}
		before := n
		for _, id := range part {
			if n < len(ids) && (after(src.layout, id, gap) == 0 || fruitless == gapTries) {
				ids[n] = id
				n++
			}
		}
		if n == before {
			fruitless++
		} else if fruitless < gapTries {
			fruitless = 0
		}
	}
	return nil
}
