package adopt

import (
	"context"
	"sync/atomic"
	"time"

	"github.com/uidplugin/uidplugin/generator"
	"github.com/uidplugin/uidplugin/internal/supply"
)

// MySQL and MariaDB give a row without a key the largest key plus one, as does a sequence of PostgreSQL that was
// set to the largest key. While other programs insert such rows, the numbers after each id are left to them: a gap.
//
// If a gap has all sequences of a tick, a worker id makes one id in each tick. The numbers after that gap belong to
// the next worker id, which may serve another table and stamp the same tick. So for a larger gap, consecutive
// worker ids take turns: each stamps only one of up to [neighbours] ticks. Then an id is followed by the free
// numbers of up to [neighbours] worker ids.

const (
	leastWithGaps = 100                    // ids a second for each worker id; slow layouts get a smaller gap, or none
	neighbours    = 4                      // the most worker ids that a gap covers
	largestGap    = 4096                   // a gap of n numbers uses up n ids of the generator
	slowFill      = 100 * time.Millisecond // if a fill takes longer, gaps cover one worker id for a second
	gapTries      = 1_000                  // after this many fills without an id that begins a gap, accept all ids
)

// gapOf returns the gap of a layout: the distance from an id to the next possible id. It is a power of two from 1
// to 4,096, and 1 means no gap.
func gapOf(l generator.Layout) int64 {
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

// A filter hands out only those ids of a source that begin a gap. It implements [supply.Filter].
type filter struct {
	layout generator.Layout
	gap    int64        // at least 2
	hurry  atomic.Int64 // until when gaps are smaller, in nanoseconds since 1970
	passed atomic.Int64
}

// leaveGaps makes src leave the layout's gap after each future id. It may be called at any time and concurrently.
func (n *Numbering) leaveGaps(src *supply.Source) {
	if gap := gapOf(n.Layout); gap > 1 {
		src.SetFilter(&filter{layout: n.Layout, gap: gap})
	}
}

// after returns the distance of id from the id that begins its gap. An id that begins a gap over several worker ids
// has the sequence 0, and a tick in which its worker id takes its turn: the worker id minus the tick is a multiple
// of the number of worker ids in a gap.
func after(l generator.Layout, id, gap int64) int64 {
	turn := id>>l.SequenceBits - id>>(l.SequenceBits+l.WorkerBits)
	return (turn<<l.SequenceBits | id&l.MaxSequence()) & (gap - 1)
}

// Before returns the id that begins the gap of number, which the database gave to the row of another program. It
// reports false if both have the same worker id, because the number then decodes as an id of the table, or if the
// ticks differ.
func Before(l generator.Layout, number int64) (id int64, ok bool) {
	id = number - after(l, number, gapOf(l))
	worker, tick := l.SequenceBits, l.SequenceBits+l.WorkerBits
	return id, id>>worker != number>>worker && id>>tick == number>>tick
}

func (f *filter) gapNow() int64 {
	if all := f.layout.MaxSequence() + 1; f.gap > all && time.Now().UnixNano() < f.hurry.Load() {
		return all // creates are waiting, so use smaller gaps
	}
	return f.gap
}

// Made implements [supply.Filter].
func (f *filter) Made() int64 { return f.passed.Load() }

// Fill implements [supply.Filter]. A generator hands out consecutive sequences, so some of its ids begin a gap. Ids
// of an application's own generator may never do so.
func (f *filter) Fill(ctx context.Context, g generator.Generator, ids []int64) error {
	buffer := make([]int64, min(int64(len(ids))*f.gapNow(), largestGap))
	n, fruitless := 0, 0
	for n < len(ids) {
		gap, begin := f.gapNow(), time.Now()
		part := buffer[:min(int64(len(ids)-n)*gap, int64(len(buffer)))]
		if err := g.Fill(ctx, part); err != nil {
			clear(ids)
			return err
		}
		if now := time.Now(); now.Sub(begin) > slowFill {
			f.hurry.Store(now.Add(time.Second).UnixNano())
		}
		before := n
		for _, id := range part {
			if n < len(ids) && (after(f.layout, id, gap) == 0 || fruitless == gapTries) {
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
	f.passed.Add(int64(len(ids)))
	return nil
}
