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

// MostLanes returns how many lanes a generator may have: a power of two up to most. It has have worker ids of its
// table, and the slot has free others. Once half of the layout's worker ids, up to given, were given out, the generator
// may only use the slot's own.
func MostLanes(most, have, free int, given int64, layout generator.Layout) int {
	if given > layout.MaxWorkerID()/2 {
		most = min(most, have+free)
	}
	return max(FloorPower(most), have)
}

// FloorPower returns the largest power of two up to n, or 0 for 0.
func FloorPower(n int) int {
	for n&(n-1) != 0 {
		n &= n - 1
	}
	return n
}
