package generator

import (
	"math"
	"math/bits"
	"time"
)

// A scale maps time to positions: the consecutive integers that count all ids
// one worker id could ever make. Position p is the sequence p mod 2^s in tick
// p div 2^s, with s the SequenceBits of the layout, so a position also stands
// for an instant, finer than a tick: 122 us in the default layout.
//
// A position has TimeBits+SequenceBits, that is at most 62 bits.
type scale struct{ layout Layout }

// start returns the first position of a tick.
func (s scale) start(tick int64) uint64 { return uint64(tick) << s.layout.SequenceBits }

// at returns the position that stands for t, at most one beyond the last of the
// layout; 0 before the epoch.
func (s scale) at(t time.Time) uint64 {
	tick, rest := s.layout.split(t)
	switch {
	case tick < 0:
		return 0
	case tick > s.layout.MaxTick():
		return s.start(s.layout.MaxTick() + 1)
	}
	return s.start(tick) + s.fraction(rest)
}

// fraction returns how many positions stand for less than ns nanoseconds, which
// are less than a tick.
func (s scale) fraction(ns uint64) uint64 {
	hi, lo := bits.Mul64(ns, 1<<s.layout.SequenceBits)
	return quotient(hi, lo, uint64(s.layout.Tick))
}

// count returns how many positions stand for d, rounded down; at most all those
// of the layout.
func (s scale) count(d time.Duration) uint64 {
	tick := uint64(s.layout.Tick)
	ticks, rest := uint64(max(d, 0))/tick, uint64(max(d, 0))%tick
	if ticks > uint64(s.layout.MaxTick()) {
		return s.start(s.layout.MaxTick() + 1)
	}
	return ticks<<s.layout.SequenceBits + s.fraction(rest)
}

// duration returns the time that n positions stand for, rounded up; at most the
// longest Duration.
func (s scale) duration(n uint64) time.Duration {
	hi, lo := bits.Mul64(n, uint64(s.layout.Tick))
	lo, carry := bits.Add64(lo, 1<<s.layout.SequenceBits-1, 0)
	hi += carry
	if hi>>s.layout.SequenceBits != 0 {
		return math.MaxInt64
	}
	return time.Duration(min(hi<<(64-s.layout.SequenceBits)|lo>>s.layout.SequenceBits, math.MaxInt64))
}
