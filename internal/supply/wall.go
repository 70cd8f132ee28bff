package supply

import (
	"log/slog"
	"sync/atomic"
	"time"
)

// A Wall reads the wall clock of a process with a fixed worker id, and logs when somebody sets the clock. Nothing
// else would notice, because such a process does not compare its clock with the clock of a database.
type Wall struct {
	now  func() time.Time
	base time.Time    // first reading
	real time.Time    // reading of [time.Now] when base was read
	set  atomic.Int64 // nanoseconds by which the wall clock was set since base, as logged so far
	log  *slog.Logger // set by [New]
}

// leastStep is the smallest step of the clock that is logged.
const leastStep = time.Second

// NewWall returns a Wall that reads the clock with the function now.
func NewWall(now func() time.Time) *Wall {
	return &Wall{now: now, base: now(), real: time.Now(), log: slog.New(slog.DiscardHandler)}
}

// Now reads the clock.
func (w *Wall) Now() time.Time {
	t := w.now()
	bare := t.Round(0)
	passed := t.Sub(w.base) // by the monotonic clock, which nobody can set
	if t == bare {          // t has no monotonic reading
		passed = time.Since(w.real)
	}
	set, known := int64(bare.Sub(w.base.Round(0))-passed), w.set.Load()
	switch change := time.Duration(set - known); {
	case change.Abs() < leastStep || !w.set.CompareAndSwap(known, set):
	case change > 0:
		w.log.Warn("uidplugin: the clock of this process was set ahead, or the machine slept; ids have the new time, and stay ahead if the clock is set back:"+
			" if the new time is wrong, do not start another process with this worker id before the right clock shows a later time than these ids have", "by", change.Round(time.Millisecond), "clock", bare)
	default:
		w.log.Warn("uidplugin: the clock of this process was set back; ids that were made before are ahead of it:"+
			" the generator snowflake makes no ids until the clock has passed them, and the other generators continue above them", "by", -change.Round(time.Millisecond), "clock", bare)
	}
	return t
}
