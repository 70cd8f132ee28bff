package lease

import (
	"github.com/uidplugin/uidplugin/generator"
)

// A lane is a worker id of a generator that has several. This file decides how many it should have. TableLease.grow
// of package workernode applies the result.

// Ahead returns how many ticks the ids of a generator are ahead of the clock, or of the first tick of its lease if that
// is later. now is the clock in ticks.
func Ahead(u generator.Usage, from, now int64) int64 { return max(u.Tick-max(now, from), 0) }

// InNeed reports whether a generator needs more ids than its lease has: a caller waits, or more than half of the lease
// ahead of the clock is used up.
func InNeed(u generator.Usage, until, now int64, perTick uint64) bool {
	capacity := uint64(max(until-now+1, 0)) * uint64(u.Lanes) * perTick
	return u.Waiting && u.Left == 0 || u.Tick > now && u.Left < capacity/2
}

// MostLanes returns how many lanes a generator may have: a power of two up to limit. It uses have worker ids, and the
// slot owns free more for its table. given is the largest worker id given out. If it is in the upper half of the
// layout's, the generator may only use those that the slot owns.
func MostLanes(limit, have, free int, given int64, layout generator.Layout) int {
	if given > layout.MaxWorkerID()/2 {
		limit = min(limit, have+free)
	}
	return max(FloorPower(limit), have)
}

// FloorPower returns the largest power of two up to n, or 0 for 0.
func FloorPower(n int) int {
	for n&(n-1) != 0 {
		n &= n - 1
	}
	return n
}
