package generator_test

import (
	"sync/atomic"
	"testing"
	"time"
	"unsafe"
)

// A wall is a clock that can be set while the program runs. In between it advances by itself, within a bubble by the
// bubble's time.
type wall struct {
	ahead atomic.Int64 // seconds by which it was set forward

	// bare makes readings without a monotonic part, like those of an injected clock. Readings of time.Now have one,
	// which does not change when the wall clock is set.
	bare bool
}

// walls are the two kinds of clock.
var walls = []struct {
	name string
	bare bool
}{{"machine", false}, {"bare", true}}

// step sets the clock forward, or back.
func (w *wall) step(d time.Duration) { w.ahead.Add(int64(d / time.Second)) }

func (w *wall) now() time.Time {
	now := time.Now()
	shown := now.Round(0).Add(time.Duration(w.ahead.Load()) * time.Second)
	if w.bare {
		return shown
	}
	return reading(shown, now.Sub(began))
}

// began is when the monotonic clock of a wall began. It is also for walls in bubbles, because there time.Now has no
// monotonic part.
var began = date(2000, 1, 1)

// reading returns what time.Now returns if the wall clock shows wall and the monotonic clock shows mono. Package time
// has no function for this. So we write the parts of a Time with a monotonic reading directly: one bit, 33 bits of
// seconds since 1885, 30 bits of nanoseconds, and the monotonic reading. TestWall_ShowsWhatAMachineShows fails if Go
// changes them.
func reading(wall time.Time, mono time.Duration) time.Time {
	t := wall
	stored := (*struct {
		wall uint64
		mono int64
	})(unsafe.Pointer(&t))
	seconds := wall.Unix() - date(1885, 1, 1).Unix()
	stored.wall = 1<<63 | uint64(seconds)<<30 | uint64(wall.Nanosecond())
	stored.mono = int64(mono)
	return t
}

const year = 365 * 24 * time.Hour

// If package time stores a Time in another way, the tests that set a clock test nothing.
func TestWall_ShowsWhatAMachineShows(t *testing.T) {
	t.Parallel()

	start := time.Now().Round(0)
	for _, d := range []time.Duration{time.Second, -time.Second, time.Hour, -time.Hour, 50 * year, -50 * year} {
		set := reading(start.Add(d), time.Minute+7)
		if got := set.Sub(reading(start, time.Minute)); got != 7 {
			t.Errorf("set by %v, a machine's clock has gained %v of monotonic time, want 7ns", d, got)
		}
		if got := set.Round(0).Sub(start); got != d || !set.Equal(start.Add(d)) {
			t.Errorf("set by %v, a machine's clock shows %v more", d, got)
		}
	}
	for _, kind := range walls {
		w := wall{bare: kind.bare}
		before := w.now()
		w.step(-time.Hour)
		if got, back := w.now().Sub(before), kind.bare; got < -time.Minute != back {
			t.Errorf("set back 1h, a clock that is bare (%v) has gained %v", kind.bare, got)
		}
	}
}
