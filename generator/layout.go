package generator

import (
	"fmt"
	"math"
	"math/bits"
	"strconv"
	"strings"
	"time"
)

// A Layout divides the 64 bits of an id. From the highest bit down:
//
//	+------+--------------+--------------+--------------+
//	| sign |     time     |  worker id   |   sequence   |
//	+------+--------------+--------------+--------------+
//	   1       TimeBits      WorkerBits    SequenceBits
//
// Ids are never negative, because the sign bit is always 0. Ids of one worker id sort by time. Bits that the three
// widths do not use are 0, and are between the sign and the time. The time field counts whole ticks since Epoch.
//
// A Layout is a plain value. Once ids exist it must never change, because an id does not show which layout made it.
// The zero Layout is not usable; see [Layout.Validate].
type Layout struct {
	TimeBits     uint8 // at least 1
	WorkerBits   uint8 // at least 1
	SequenceBits uint8 // at least 1; the three together at most 63

	Tick  time.Duration // length of one tick, at least a millisecond
	Epoch time.Time     // start of tick 0; any instant but the zero Time
}

// Parts are the fields of one id.
type Parts struct {
	Time     time.Time `json:"time"` // start of the tick the id is stamped with, in UTC
	WorkerID int64     `json:"worker_id"`
	Sequence int64     `json:"sequence"`
}

// DefaultLayout has 41/18/4 bits and ticks of a millisecond since 2018-01-01. That is 16 ids a millisecond for each
// of 262,144 worker ids, until 2087-09-07 (UTC).
//
// Every id stamped since 2025-07-22 11:22:59.102 UTC has 19 decimal digits, so ids that are stored as text sort like
// numbers.
func DefaultLayout() Layout {
	return Layout{TimeBits: 41, WorkerBits: 18, SequenceBits: 4, Tick: time.Millisecond,
		Epoch: time.Date(2018, 1, 1, 0, 0, 0, 0, time.UTC)}
}

// SnowflakeLayout is the layout of Twitter and Leaf, 41/10/12 bits and ticks of a millisecond since 1288834974657 ms
// (2010-11-04). That is 4,096 ids a millisecond for each of 1,024 worker ids, until 2080-07-10.
func SnowflakeLayout() Layout {
	return Layout{TimeBits: 41, WorkerBits: 10, SequenceBits: 12, Tick: time.Millisecond,
		Epoch: time.UnixMilli(1288834974657).UTC()}
}

// JSSafeLayout is the 53-bit layout for a [Paired], so that a JavaScript number holds its ids without loss. It has
// 32/5/16 bits and ticks of a second: 65,536 ids a second for each of 32 worker ids, from 2019-01-01 until 2155-02-07
// (UTC). For other generators, use [JSSafeTablesLayout].
func JSSafeLayout() Layout {
	return Layout{TimeBits: 32, WorkerBits: 5, SequenceBits: 16, Tick: time.Second,
		Epoch: time.Date(2019, 1, 1, 0, 0, 0, 0, time.UTC)}
}

// JSSafeTablesLayout is a 53-bit layout, so that a JavaScript number holds its ids without loss. It has enough worker
// ids for one per process and table: 37/13/3 bits and ticks of 10 ms, from 2018-01-01 until 2061-07-21 (UTC).
//
// With 50 tables, its 7,680 worker ids are enough for 153 processes at once, or for 76 if all may crash at once,
// because the worker ids of a crashed process stay held for 70 s. [JSSafeLayout] has too few for one process.
// Processes reuse worker ids: if each start took new ones, 20 processes that restart 12 times a day would use up
// all of them within 16 hours.
//
// One worker id makes 800 ids a second, and 16 lanes, the maximum, make 12,800.
func JSSafeTablesLayout() Layout {
	return Layout{TimeBits: 37, WorkerBits: 13, SequenceBits: 3, Tick: 10 * time.Millisecond,
		Epoch: time.Date(2018, 1, 1, 0, 0, 0, 0, time.UTC)}
}

// maxSeconds bounds how far from its epoch a layout may reach: 285 million years. Times beyond that overflow.
const maxSeconds = 1 << 53

// Validate returns an error wrapping [ErrLayout] if l cannot hold ids. It reads no clock; see [Layout.ValidAt].
func (l Layout) Validate() error {
	sum := int(l.TimeBits) + int(l.WorkerBits) + int(l.SequenceBits)
	switch {
	case l.TimeBits == 0 || l.WorkerBits == 0 || l.SequenceBits == 0:
		return fmt.Errorf("%w: each of time, worker id and sequence needs at least 1 bit, have %d/%d/%d",
			ErrLayout, l.TimeBits, l.WorkerBits, l.SequenceBits)
	case sum > 63:
		return fmt.Errorf("%w: %d/%d/%d are %d bits, but at most 63 fit into a positive int64",
			ErrLayout, l.TimeBits, l.WorkerBits, l.SequenceBits, sum)
	case l.Tick < time.Millisecond:
		return fmt.Errorf("%w: the tick %v must be at least %v", ErrLayout, l.Tick, time.Millisecond)
	case l.Epoch.IsZero():
		return fmt.Errorf("%w: no epoch is set", ErrLayout)
	case l.Epoch.Unix() > maxSeconds || l.Epoch.Unix() < -maxSeconds:
		return fmt.Errorf("%w: epoch %v is too far away", ErrLayout, l.Epoch)
	}
	if hi, lo := bits.Mul64(1<<l.TimeBits, uint64(l.Tick)); hi >= 1e9 || quotient(hi, lo, 1e9) > maxSeconds {
		return fmt.Errorf("%w: 2^%d ticks of %v last longer than %d seconds", ErrLayout, l.TimeBits, l.Tick, int64(maxSeconds))
	}
	return nil
}

// ValidAt returns an error wrapping [ErrLayout] if l is not valid, or if no id may be stamped with now, because now is
// before the epoch or after the end of the layout.
func (l Layout) ValidAt(now time.Time) error {
	if err := l.Validate(); err != nil {
		return err
	}
	switch {
	case now.Before(l.Epoch):
		return fmt.Errorf("%w: the epoch %s is in the future, it is now %s; choose an epoch in the past, or set the clock",
			ErrLayout, format(l.Epoch), format(now))
	case !now.Before(l.Expires()):
		return fmt.Errorf("%w: the 2^%d ticks of %v since %s ended at %s, it is now %s; new ids need a layout with a later epoch or more time bits",
			ErrLayout, l.TimeBits, l.Tick, format(l.Epoch), format(l.Expires()), format(now))
	}
	return nil
}

// Expires returns the end of the layout's last tick. From then on l can stamp no id.
func (l Layout) Expires() time.Time { return l.timeOf(1 << l.TimeBits) }

// MaxWorkerID returns the largest worker id that fits.
func (l Layout) MaxWorkerID() int64 { return 1<<l.WorkerBits - 1 }

// MaxFixedWorkerID returns the largest worker id that registries leave to processes whose worker id is given by hand:
// 1,024, or MaxWorkerID/16 if that is less.
func (l Layout) MaxFixedWorkerID() int64 {
	// 1,024 and not 1,023, because rounding an id of the default layout as a float makes its worker id a multiple
	// of 8. So the first worker ids of a registry become 1,024, which no registry gives out.
	return min(1024, l.MaxWorkerID()/16)
}

// MaxSequence returns the largest sequence that fits: one less than the number of ids that one worker id carries in a
// tick.
func (l Layout) MaxSequence() int64 { return 1<<l.SequenceBits - 1 }

// MaxTick returns the number of the last tick.
func (l Layout) MaxTick() int64 { return 1<<l.TimeBits - 1 }

// String returns the layout in one line, such as "1-41-18-4/1ms@1514764800": the widths of sign, time, worker id and
// sequence, the tick, and the epoch in Unix seconds. Two layouts are equal if their strings are equal, but different
// layouts may make equal ids.
func (l Layout) String() string {
	seconds, ns, minus := l.Epoch.Unix(), l.Epoch.Nanosecond(), ""
	if seconds < 0 { // a Time counts nanoseconds upwards from the second before
		if ns > 0 {
			seconds, ns = seconds+1, 1e9-ns
		}
		seconds, minus = -seconds, "-"
	}
	epoch := minus + strconv.FormatInt(seconds, 10)
	if ns != 0 {
		epoch += strings.TrimRight(fmt.Sprintf(".%09d", ns), "0")
	}
	sign := 64 - int(l.TimeBits) - int(l.WorkerBits) - int(l.SequenceBits)
	return fmt.Sprintf("%d-%d-%d-%d/%v@%s", sign, l.TimeBits, l.WorkerBits, l.SequenceBits, l.Tick, epoch)
}

// Compose packs p into an id. It is the exact inverse of [Layout.Decompose], except that it truncates p.Time to a
// tick. The error wraps [ErrLayout].
func (l Layout) Compose(p Parts) (int64, error) {
	if err := l.Validate(); err != nil {
		return 0, err
	}
	tick := l.TickAt(p.Time)
	switch {
	case tick < 0 || tick > l.MaxTick():
		return 0, fmt.Errorf("%w: time %s is outside the layout, which runs from %s until %s",
			ErrLayout, format(p.Time), format(l.Epoch), format(l.Expires()))
	case p.WorkerID < 0 || p.WorkerID > l.MaxWorkerID():
		return 0, fmt.Errorf("%w: worker id %d is outside 0 to %d, the range of %d bits",
			ErrLayout, p.WorkerID, l.MaxWorkerID(), l.WorkerBits)
	case p.Sequence < 0 || p.Sequence > l.MaxSequence():
		return 0, fmt.Errorf("%w: sequence %d is outside 0 to %d, the range of %d bits",
			ErrLayout, p.Sequence, l.MaxSequence(), l.SequenceBits)
	}
	return tick<<l.timeShift() | p.WorkerID<<l.SequenceBits | p.Sequence, nil
}

// Decompose splits id into its parts. It fails if l is not valid, or cannot have made id, because id is negative or
// has bits set above the time field. The error wraps [ErrLayout].
func (l Layout) Decompose(id int64) (Parts, error) {
	if err := l.Validate(); err != nil {
		return Parts{}, err
	}
	if id < 0 {
		return Parts{}, fmt.Errorf("%w: id %d is negative, but no layout makes negative ids", ErrLayout, id)
	}
	tick := id >> l.timeShift()
	if tick > l.MaxTick() {
		return Parts{}, fmt.Errorf("%w: id %d needs more than the %d bits of the layout",
			ErrLayout, id, l.TimeBits+l.WorkerBits+l.SequenceBits)
	}
	return Parts{
		Time:     l.timeOf(uint64(tick)),
		WorkerID: id >> l.SequenceBits & l.MaxWorkerID(),
		Sequence: id & l.MaxSequence(),
	}, nil
}

// TickAt returns the number of the tick that t is in. It returns -1 for every instant before the epoch, and
// math.MaxInt64 for one that is beyond all layouts. l must be valid.
func (l Layout) TickAt(t time.Time) int64 {
	tick, _ := l.split(t)
	return tick
}

// TimeOf returns the start of a tick, in UTC. It is the inverse of [Layout.TickAt]; l must be valid, and tick from 0 to
// MaxTick()+1.
func (l Layout) TimeOf(tick int64) time.Time { return l.timeOf(uint64(tick)) }

// split returns the tick of t and the nanoseconds that have passed in it.
func (l Layout) split(t time.Time) (tick int64, rest uint64) {
	epoch := l.Epoch.Unix()
	switch { // compare before subtracting, because the difference could overflow
	case t.Unix() < epoch:
		return -1, 0
	case t.Unix() > epoch+maxSeconds:
		return math.MaxInt64, 0
	}
	seconds, ns := t.Unix()-epoch, int64(t.Nanosecond()-l.Epoch.Nanosecond())
	if ns < 0 {
		seconds, ns = seconds-1, ns+1e9
	}
	if seconds < 0 {
		return -1, 0
	}
	hi, lo := bits.Mul64(uint64(seconds), 1e9)
	lo, carry := bits.Add64(lo, uint64(ns), 0)
	n, rest := bits.Div64(hi+carry, lo, uint64(l.Tick)) // fits: less than 2^83 ns divided by at least 1e6
	return int64(n), rest
}

func (l Layout) timeOf(tick uint64) time.Time {
	hi, lo := bits.Mul64(tick, uint64(l.Tick))
	if hi >= 1e9 {
		return time.Time{} // only for a layout that Validate refuses
	}
	seconds, ns := bits.Div64(hi, lo, 1e9)
	return time.Unix(l.Epoch.Unix()+int64(seconds), int64(l.Epoch.Nanosecond())+int64(ns)).UTC()
}

func quotient(hi, lo, y uint64) uint64 {
	q, _ := bits.Div64(hi, lo, y)
	return q
}

func format(t time.Time) string { return t.UTC().Format("2006-01-02 15:04:05.999 MST") }

// exact writes an instant with all the digits that it has.
func exact(t time.Time) string { return t.UTC().Format("2006-01-02 15:04:05.999999999 MST") }
