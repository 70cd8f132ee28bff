package supply

import (
	"context"

	"github.com/uidplugin/uidplugin/generator"
)

// MySQL and MariaDB number a row that is inserted without a key with the largest key plus one. While other programs
// insert such rows, an id must not be one more than another id. So all ids of the table are multiples of a power of
// two, the gap: the numbers between two of them are for the rows of others.
//
// A gap of all the sequences of a tick leaves one id to a worker id and tick. The id of the next tick is then 2^22
// numbers away in the default layout: a whole tick of all worker ids.

const (
	leastWithGaps = 100   // ids a second that a gap leaves a worker id at least; slower layouts get a smaller gap, or none
	largestGap    = 4096  // a gap costs as many ids of the generator, each time
	gapTries      = 1_000 // after so many fills in a row without a multiple, ids are taken as they are
)

// Gap returns the gap of a layout: a power of two from 1, which means none, to 4,096.
func Gap(l generator.Layout) int64 {
	gap := min(l.MaxSequence()+1, largestGap)
	for gap > 1 && float64(l.MaxSequence()+1)/float64(gap) < leastWithGaps*l.Tick.Seconds() {
		gap /= 2
	}
	return gap
}

// LeaveGaps makes all ids of src that are made from now on multiples of the gap of the layout. It does nothing if the
// ids are not of the layout. It may be called at any time, by any goroutine.
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

// fillWithGaps sets ids to multiples of gap, which is more than 1. A generator hands out consecutive sequences, so one
// id in gap is a multiple. A generator of the application may never hand out a multiple; its ids are taken as they are.
func (m *made) fillWithGaps(ctx context.Context, ids []int64, gap int64) error {
	buffer := make([]int64, min(int64(len(ids))*gap, largestGap))
	n, fruitless := 0, 0
	for n < len(ids) {
		part := buffer[:min(int64(len(ids)-n)*gap, largestGap)]
		if err := m.Fill(ctx, part); err != nil {
			clear(ids)
			return err
		}
		before := n
		for _, id := range part {
			if n < len(ids) && (id%gap == 0 || fruitless == gapTries) {
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
