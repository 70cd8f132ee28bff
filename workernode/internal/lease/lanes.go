package lease

import (
	"github.com/uidplugin/uidplugin/generator"
)

// A lane is a worker id of a generator that has several. This file decides how many a generator should have.

// Ahead returns how many ticks the ids of a generator are ahead of now, the tick of the clock. If its lease begins
// later, Ahead counts from first, the first tick of the lease.
func Ahead(u generator.Usage, first, now int64) int64 { return max(u.Tick-max(now, first), 0) }

// InNeed reports whether no ids are left and a caller waits, or whether ids are ahead of the clock and fewer than
// half of those from now to last, the end of the lease, are left.
func InNeed(u generator.Usage, last, now int64, perTick uint64) bool {
	capacity := uint64(max(last-now+1, 0)) * uint64(u.Lanes) * perTick
	return u.Waiting && u.Left == 0 || u.Tick > now && u.Left < capacity/2
}

// MostLanes returns how many lanes a generator may have: a power of two up to limit, but at least its present
// number, current. If largest, the largest worker id given out, is in the upper half of the layout, the generator
// can only get unused worker ids that the slot owns for its table; the parameter free counts them.
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
