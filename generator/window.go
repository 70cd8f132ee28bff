package generator

import "github.com/uidplugin/uidplugin/ringbuffer"

// MaxLanes is the largest number of leases that a generator can hold at once.
const MaxLanes = 16

// A mapping turns positions into ascending ids: in each tick one lane after another, by ascending worker ids.
type mapping struct {
	sequenceMask uint64 // the sequence bits of a position
	tickMask     uint64 // the tick bits of a position; the bits between are the lane
	base         uint64 // the worker id of the first lane, at its place in an id

	// bases has the worker ids of several lanes, repeated until it is full, because an index in idIn also has bits
	// of the tick if there are few lanes. It is nil for one lane.
	bases *[MaxLanes]uint64

	shift        uint8 // by how much the tick of a position moves up
	sequenceBits uint8
	laneBits     uint8
}

// newMapping returns the mapping for lanes with these worker ids, which ascend. Their number is a power of two.
func newMapping(l Layout, workers ...int64) mapping {
	m := mapping{sequenceMask: uint64(l.MaxSequence()), base: uint64(workers[0]) << l.SequenceBits, sequenceBits: l.SequenceBits}
	for 1<<m.laneBits < len(workers) {
		m.laneBits++
	}
	m.shift = l.WorkerBits - m.laneBits
	m.tickMask = ^uint64(0) << (l.SequenceBits + m.laneBits)
	if m.laneBits > 0 {
		m.bases = new([MaxLanes]uint64)
		for i := range m.bases {
			m.bases[i] = uint64(workers[i%len(workers)]) << l.SequenceBits
		}
	}
	return m
}

// id returns the id of a position. It checks nothing, because positions end where the lease ends.
func (m *mapping) id(position uint64) int64 { return m.idIn(m.bases, position) }

// idIn is like id, for a caller that has loaded bases.
func (m *mapping) idIn(bases *[MaxLanes]uint64, position uint64) int64 {
	low := position & m.sequenceMask
	if bases == nil {
		return int64((position^low)<<(m.shift&63) + m.base + low)
	}
	return int64(position&m.tickMask<<(m.shift&63) + bases[position>>(m.sequenceBits&63)%MaxLanes] + low)
}

// fill writes the ids of consecutive positions. Within a tick and a lane they are consecutive numbers.
func (m *mapping) fill(ids []int64, position uint64) {
	bases, low := m.bases, m.sequenceMask
	for len(ids) > 0 {
		id := m.idIn(bases, position)
		run := ids[:min(uint64(len(ids)), low+1-position&low)]
		position += uint64(len(run))
		ids = ids[len(run):]
		for len(run) >= 16 {
			fill16((*[16]int64)(run), id)
			id += 16
			run = run[16:]
		}
		for i := range run {
			run[i] = id + int64(i)
		}
	}
}

// fill16 writes 16 consecutive ids, as many as a lane has in a tick of the default layout. A loop takes a tenth longer.
func fill16(ids *[16]int64, id int64) {
	ids[0], ids[1], ids[2], ids[3] = id, id+1, id+2, id+3
	ids[4], ids[5], ids[6], ids[7] = id+4, id+5, id+6, id+7
	ids[8], ids[9], ids[10], ids[11] = id+8, id+9, id+10, id+11
	ids[12], ids[13], ids[14], ids[15] = id+12, id+13, id+14, id+15
}

// same reports whether both mappings have the same worker ids.
func (m *mapping) same(n *mapping) bool {
	if m.laneBits != n.laneBits || m.laneBits == 0 {
		return m.laneBits == n.laneBits && m.base == n.base
	}
	return *m.bases == *n.bases
}

// window is a ring, the mapping of its positions to ids, and the end of the lease. They belong together, so a
// caller loads one pointer to all of them. The ring's cursor has a cache line of its own. The rest shares another
// cache line, which is hardly ever written while the ring is in use.
//
// queue.open shows whether the window is open. While it is closed, only the slow path takes positions.
type window struct {
	ring ringbuffer.Computed
	mapping

	// Each position below next was handed out or skipped. next only grows, and mu guards it. While the ring is
	// open, next may be behind the ring's cursor until the function note moves it up (cached_visits.go).
	next uint64

	// until is the last tick of the lease. It only grows, and mu guards it.
	until int64
}

// newWindow returns a closed window.
func newWindow(m mapping, next uint64, last int64) *window {
	return &window{mapping: m, next: next, until: last}
}

func (w *window) raise(position uint64) { w.next = max(w.next, position) }

// reached returns the first position that no caller has got.
func (w *window) reached() uint64 { return max(w.next, w.ring.Taken()) }

// worker returns the worker id of the first lane.
func (w *window) worker() int64 { return int64(w.base >> w.sequenceBits) }
