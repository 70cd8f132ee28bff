package lease

import (
	"github.com/uidplugin/uidplugin/generator"
)

// A lane is a worker id of a generator that has several. This file decides how many lanes a generator should have.
// TableLease.grow of package workernode applies the result.

// Ahead returns how many ticks the ids of a generator are ahead of the tick of the clock (now), or of the first
// tick of its lease (first) if first is later.
func Ahead(u generator.Usage, first, now int64) int64 { return max(u.Tick-max(now, first), 0) }

// InNeed reports whether a generator needs more ids than its lease has: no ids are left and a caller waits, or its
// ids are ahead of the clock (now) and fewer than half of the ids from now to the end of the lease (last) are left.
func InNeed(u generator.Usage, last, now int64, perTick uint64) bool {
	capacity := uint64(max(last-now+1, 0)) * uint64(u.Lanes) * perTick
	return u.Waiting && u.Left == 0 || u.Tick > now && u.Left < capacity/2
}

// MostLanes returns how many lanes a generator may have: a power of two up to limit. current is how many it has now,
// and free how many more worker ids the slot owns for its table. largest is the largest worker id given out. If largest
// is in the upper half of the layout, the generator may only use worker ids that the slot owns.
func MostLanes(limit, current, free int, largest int64, layout generator.Layout) int {
	if largest > layout.MaxWorkerID()/2 {
		limit = min(limit, current+free)
	}
	return max(FloorPower(limit), current)
}

// FloorPower returns the largest power of two up to n, or 0 for 0.
func FloorPower(n int) int {
	for n&(n-1) != 0 {
		n &= n - 1
	}
	return n
}
