package workernode

import (
	"time"

	"github.com/uidplugin/uidplugin/generator"
)

// A lane is a worker id of a generator that has several. This file decides how many it should have. TableLease.grow
// takes the samples, calls these functions, and applies the result.

// MaxLanes is the largest number of worker ids that a process uses for one table and generator: a power of two. With
// the default layout they make 256,000 ids a second.
const MaxLanes = generator.MaxLanes

const (
	// A generator that begins to run ahead of the clock gets maxGrowth times its lanes at once. Further lanes depend on
	// its rate.
	//
	// sampleInterval separates two looks at a generator whose rate is unknown. If the samples are less than longSample
	// apart, the generator gets at most maxGrowth times its lanes. If they are more than staleSample apart, we sample
	// again, because the generator may have rested.
	sampleInterval = 25 * time.Millisecond
	longSample     = 200 * time.Millisecond
	staleSample    = time.Second
	maxGrowth      = 4

	// farAhead is how far ids run ahead of the clock before the log reports that a generator cannot have more lanes.
	farAhead = 250 * time.Millisecond
)

// A laneSample is the state of a generator at one moment.
type laneSample struct {
	at    time.Time
	left  uint64 // ids left in its lease
	until int64  // last tick of its lease
	lanes int
}

// rate returns the ids per second taken between s and the later sample next. One lane makes perTick ids in a tick. The
// rate is unknown if the lanes changed, or if the time between was too short or too long.
func (s laneSample) rate(next laneSample, perTick uint64) (perSecond float64, known bool) {
	passed := next.at.Sub(s.at)
	if s.lanes != next.lanes || passed < sampleInterval/2 || passed > staleSample {
		return 0, false
	}
	had := s.left + uint64(max(next.until-s.until, 0))*uint64(s.lanes)*perTick
	return float64(had-min(next.left, had)) / passed.Seconds(), true
}

// ahead returns how many ticks the ids of a generator are ahead of the clock, or of the first tick of its lease if that
// is later. now is the clock in ticks.
func ahead(u generator.Usage, from, now int64) int64 { return max(u.Tick-max(now, from), 0) }

// inNeed reports whether a generator needs more ids than its lease has: a caller waits, or more than half of the lease
// ahead of the clock is used up.
func inNeed(u generator.Usage, until, now int64, perTick uint64) bool {
	capacity := uint64(max(until-now+1, 0)) * uint64(u.Lanes) * perTick
	return u.Waiting && u.Left == 0 || u.Tick > now && u.Left < capacity/2
}

// wantedLanes returns the number of lanes, from have to most, for a generator that takes perSecond ids a second. It is
// a power of two if have is one. One lane makes perLane ids a second.
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

// mostLanes returns the limit for a generator with have worker ids of its table while the slot has free others. most is
// the general limit. Once half of the layout's worker ids, up to given, were given out, the generator may only use the
// slot's own: the largest power of two of them.
func mostLanes(most, have, free int, given int64, layout generator.Layout) int {
	if given > layout.MaxWorkerID()/2 {
		most = floorPower(min(most, have+free))
	}
	return max(most, have)
}

// floorPower returns the largest power of two up to n, or 0 for 0.
func floorPower(n int) int {
	for n&(n-1) != 0 {
		n &= n - 1
	}
	return n
}

// maxLanes returns the general limit of lanes, which is lower for layouts with few worker ids.
func maxLanes(layout generator.Layout) int {
	most := MaxLanes
	for most > 1 && int64(most) > layout.MaxWorkerID()/4 {
		most /= 2
	}
	return most
}
