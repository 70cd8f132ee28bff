package generator

import (
	"math"
	"math/bits"
	"time"
)

// A scale maps time to positions. From the highest bit down, a position has the tick, the lane in laneBits bits,
// and the sequence. So a position stands for an instant, more precisely than a tick does: with the default layout
// and one lane, positions are 62.5 us apart.
//
// A position has at most 63 bits, like an id, because laneBits is at most the WorkerBits of the layout.
type scale struct {
	layout   *Layout
	laneBits uint8
}

func (s scale) tickShift() uint8 { return s.layout.SequenceBits + s.laneBits }

// start returns the first position of a tick.
func (s scale) start(tick int64) uint64 { return uint64(tick) << s.tickShift() }

func (s scale) tick(position uint64) int64 { return int64(position >> s.tickShift()) }

// ceil returns the first tick that begins at a position or after it.
func (s scale) ceil(position uint64) int64 { return s.tick(position + s.start(1) - 1) }

// top returns the first position that is beyond the layout.
func (s scale) top() uint64 { return s.start(s.layout.MaxTick() + 1) }

// at returns the position that stands for t: 0 before the epoch, and s.top() after the end of the layout.
func (s scale) at(t time.Time) uint64 {
	tick, rest := s.layout.split(t)
	switch {
	case tick < 0:
		return 0
	case tick > s.layout.MaxTick():
		return s.top()
	}
	return s.start(tick) + s.fraction(rest)
}

// fraction returns how many positions last ns nanoseconds, rounded down. ns is less than a tick.
func (s scale) fraction(ns uint64) uint64 {
	hi, lo := bits.Mul64(ns, 1<<s.tickShift())
	return quotient(hi, lo, uint64(s.layout.Tick))
}

// count returns how many positions last as long as d, rounded down, and at most as many as the layout has.
func (s scale) count(d time.Duration) uint64 {
	tick := uint64(s.layout.Tick)
	ticks, rest := uint64(max(d, 0))/tick, uint64(max(d, 0))%tick
	if ticks > uint64(s.layout.MaxTick()) {
		return s.top()
	}
	return ticks<<s.tickShift() + s.fraction(rest)
}

// duration returns how long n positions last, rounded up, and at most the longest Duration.
func (s scale) duration(n uint64) time.Duration {
	hi, lo := bits.Mul64(n, uint64(s.layout.Tick))
	lo, carry := bits.Add64(lo, s.start(1)-1, 0)
	hi += carry
	if hi>>s.tickShift() != 0 {
		return math.MaxInt64
	}
	return time.Duration(min(hi<<(64-s.tickShift())|lo>>s.tickShift(), math.MaxInt64))
}

// convert returns the position in s for the time of a position in the scale other, rounded down.
func (s scale) convert(position uint64, other scale) uint64 {
	if s.laneBits >= other.laneBits {
		return position << (s.laneBits - other.laneBits)
	}
	return position >> (other.laneBits - s.laneBits)
}
