package workernode

import (
	"time"

	"github.com/uidplugin/uidplugin/generator"
)

// A lane is one worker id of a generator that has several. This file decides how many a generator should have. It acts
// on nothing: TableLease.grow takes the samples, asks the functions here, and notes the answer.

// MaxLanes is how many worker ids a process uses for one table and generator at most: a
// power of two. With the default layout that is 256,000 ids a second.
const MaxLanes = generator.MaxLanes

const (
	// sampleInterval is the time between two looks at a generator in need whose rate is not known. After less than
	// longSample the generator gets at most maxGrowth times its lanes. A look after more than staleSample, in which the
	// generator may have rested, is followed by another.
	sampleInterval = 25 * time.Millisecond
	longSample     = 200 * time.Millisecond
	staleSample    = time.Second
	maxGrowth      = 4
)

// A laneSample is how a generator stood at one moment.
type laneSample struct {
	at    time.Time
	left  uint64 // ids left in its lease
	until int64  // last tick of its lease
	lanes int
}

// rate returns how many ids a second were taken between two samples, s and the later one
// next. perTick is how many ids one lane makes in a tick. It reports false if that cannot be
// known: the lanes changed, or the time was too short or too long.
func (s laneSample) rate(next laneSample, perTick uint64) (perSecond float64, known bool) {
	passed := next.at.Sub(s.at)
	if s.lanes != next.lanes || passed < sampleInterval/2 || passed > staleSample {
		return 0, false
	}
	had := s.left + uint64(max(next.until-s.until, 0))*uint64(s.lanes)*perTick
	return float64(had-min(next.left, had)) / passed.Seconds(), true
}

// inNeed reports whether a generator needs more ids than its lease has. It does if it has used up more than half of
// what is ahead of the clock, or a caller waits. now is the clock in ticks.
func inNeed(u generator.Usage, until, now int64, perTick uint64) bool {
	capacity := uint64(max(until-now+1, 0)) * uint64(u.Lanes) * perTick
	return u.Waiting && u.Left == 0 || u.Tick > now && u.Left < capacity/2
}

// wantedLanes returns how many lanes a generator should have that takes perSecond ids a second. It is a power of two if
// have is one, and never less than have. One lane makes perLane ids a second, and the generator may have most lanes.
func wantedLanes(have, most int, perSecond, perLane float64, sampled time.Duration) int {
	limit := most
	if sampled < longSample {
		limit = min(most, maxGrowth*have)
	}
	lanes := have
	for float64(lanes)*perLane < 1.25*perSecond && 2*lanes <= limit {
		lanes *= 2
	}
	return lanes
}

// mostLanes returns how many lanes a generator may have that has some of its table's worker ids, and leaves others of
// the slot free. most is the limit for all. Once half of the layout's worker ids were given out, up to given, it may
// only have those of the slot: the largest power of two of them.
func mostLanes(most, have, free int, given int64, layout generator.Layout) int {
	if given > layout.MaxWorkerID()/2 {
		most = floorPower(min(most, have+free))
	}
	return max(most, have)
}

// floorPower returns the largest power of two that is not above n; 0 for 0.
func floorPower(n int) int {
	for n&(n-1) != 0 {
		n &= n - 1
	}
	return n
}

// maxLanes returns how many lanes a generator may have: few where worker ids are few.
func maxLanes(layout generator.Layout) int {
	most := MaxLanes
	for most > 1 && int64(most) > layout.MaxWorkerID()/4 {
		most /= 2
	}
	return most
}
