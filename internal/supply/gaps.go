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
	leastWithGaps = 100   // ids a second that a worker id makes at least; a layout that cannot has a smaller gap
	largestGap    = 4096  // a gap costs as many ids of the generator, each time
	gapTries      = 1_000 // how many fills without a multiple are followed by another one
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
	if !src.Foreign {
		src.gap.Store(Gap(s.Layout))
	}
}

// fillWithGaps sets ids to multiples of gap, which is more than 1. A generator hands out consecutive sequences, so one
// id in gap is a multiple. A generator of the application may never hand out a multiple; its ids are taken as they are.
func (m *made) fillWithGaps(ctx context.Context, ids []int64, gap int64) error {
	buffer := make([]int64, min(int64(len(ids))*gap, largestGap))
	n := 0
	for try := 0; n < len(ids); try++ {
		part := buffer[:min(int64(len(ids)-n)*gap, largestGap)]
		if err := m.Fill(ctx, part); err != nil {
			clear(ids)
			return err
		}
		for _, id := range part {
			if n < len(ids) && (id%gap == 0 || try >= gapTries) {
				ids[n] = id
				n++
			}
		}
	}
	return nil
}
