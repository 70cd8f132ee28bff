package workernode

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"sort"
	"time"

	"github.com/uidplugin/uidplugin/generator"
)

// What there is in a simulation: the clock, the rows of the database, and what will happen.

// A simSlot is a row of WORKER_SLOT with what belongs to it.
type simSlot struct {
	row     slotRow
	host    Host           // of the last holder
	owns    map[Table]int  // worker ids by table; the zero Table has the spares
	all     int            // worker ids
	process *simProcess    // that renews the row, so far as it knows
	quiet   bool           // the row does not move: it is in simService.quiet
	high    int64          // the last tick that was granted to any process
	checked map[string]int // by role: how many tables its holders found complete

	today    int32    // sessions of this day
	last     [2]int32 // of the last simulated day of each kind
	sessions []simSessions
}

// A simWorld is all services with one registry.
type simWorld struct {
	random   *rand.Rand
	layout   generator.Layout
	params   leaseParams
	perTick  int64 // ms
	registry Registry
	slots    map[int64]*simSlot
	order    []*simSlot // as they were inserted
	services []*simService

	early     float64 // part of the processes that crash while they get a slot
	spread    int64   // ms within which a process that was started looks for a slot
	now, down int64   // the time in ms since the epoch of the layout; until when the database does not answer
	queue     []simEvent
	sequence  uint64

	blind  bool // statements do not compare: a control
	count  simCount
	ahead  int64 // how far a fence was ahead of the true time, at most, in ms
	closed int64 // how long a slot was reserved after its process was closed, at most, in ms
	dead   int64 // the same after a crash
	most   int64 // the last tick that was granted
	faults []string
}

// simCount counts what has happened on simulated days.
type simCount struct {
	days, starts, crashes, reclaimed, allocated, sessions, lost, again, missed, renewals, leaked int64
	deploys, stalls, outages, machines, blackouts, idles, exhausted                              int64
}

func newSimWorld(seed uint64, layout generator.Layout, begin time.Time) *simWorld {
	settle := ticks(layout, DefaultLead+skew) + 1
	return &simWorld{
		random: rand.New(rand.NewPCG(seed, 13)), layout: layout, perTick: layout.Tick.Milliseconds(),
		params: leaseParams{lead: ticks(layout, DefaultLead), settle: settle, grace: max(settle, ticks(layout, grace)),
			quiet: max(settle, ticks(layout, grace)), last: layout.MaxTick()},
		spread: 1000, early: 1. / 2000, slots: map[int64]*simSlot{}, registry: Registry{Layout: layout.String(), NextID: 1, NextSlot: 1},
		now: begin.Sub(layout.Epoch).Milliseconds(),
	}
}

func (w *simWorld) fault(format string, args ...any) {
	if len(w.faults) < 10 {
		w.faults = append(w.faults, w.layout.TimeOf(min(w.now/w.perTick, w.layout.MaxTick())).Format(time.DateTime)+": "+fmt.Sprintf(format, args...))
	}
}

// chance returns a number of ms from least up to, but not including, most.
func (w *simWorld) chance(least, most int64) int64 { return least + w.random.Int64N(most-least) }

// matches is the WHERE of a statement: whether the row is as c compares.
func (w *simWorld) matches(c *change) bool {
	s := w.slots[c.slot]
	if c.insert || s == nil {
		return c.insert && s == nil
	}
	return w.blind || s.row.holder == c.holder && s.row.version == c.version && s.row.fence == c.fence
}

// execute is the statement of c, by x: it changes the row if that is as c compares.
func (w *simWorld) execute(c *change, x *simProcess, at int64) bool {
	if !w.matches(c) {
		return false
	}
	s := w.slots[c.slot]
	if c.insert {
		s = &simSlot{row: slotRow{id: c.slot}, owns: map[Table]int{}, checked: map[string]int{}}
		w.slots[c.slot], w.order = s, append(w.order, s)
		x.service.slots++
	}
	if c.newFence < s.row.fence {
		w.fault("FENCE of slot %d goes from %d back to %d", c.slot, s.row.fence, c.newFence)
	}
	s.row.holder, s.row.version, s.row.fence, s.row.seen = c.newHolder, c.newVersion, c.newFence, at
	s.host = x.host
	return true
}

// grant notes that a process may stamp the ticks from first to last with all worker ids of a slot. It is a fault if one of
// them was granted before. The worker ids need no look one by one: each has one slot, permanently (see reserve).
func (w *simWorld) grant(s *simSlot, first, last, at int64) {
	if first > last {
		return
	}
	if first <= s.high {
		w.fault("ticks %d to %d of slot %d are granted a second time", first, min(last, s.high), s.row.id)
	}
	if last > w.layout.MaxTick() {
		w.fault("tick %d of slot %d is beyond the layout", last, s.row.id)
	}
	s.high, w.most = max(s.high, last), max(w.most, last)
	w.ahead = max(w.ahead, last*w.perTick-at)
}

// reserve is the UPDATE of WORKER_REGISTRY that takes n worker ids. No number is ever given out twice, as NEXT_ID only
// grows. It returns false if the layout has too few.
func (w *simWorld) reserve(n int64) (first int64, ok bool) {
	if !room(w.layout, w.registry.NextID, n) {
		w.count.exhausted++
		return 0, false
	}
	first = w.registry.NextID
	w.registry.NextID += n
	return first, true
}

// candidates is the SELECT of statements.candidates for a process of a service, by the lowest FENCE. Rows of processes
// that renew are left out: those are never reclaimable, because their FENCE is ahead of the clock, or, when idle, their
// SEEN_TICK is less than a minute old.
func (w *simWorld) candidates(x *simProcess) (rows []slotRow) {
	rows = x.service.rows[:0]
	now := x.clock()
	for _, s := range x.service.quiet {
		if s.row.fence >= now-w.params.settle || len(rows) == maxCandidates {
			break // in order of FENCE
		}
		r := s.row
		r.near = x.host.near(s.host.Application, s.host.Name, s.host.Port)
		if w.params.usable(r, now) {
			rows = append(rows, r)
		}
	}
	x.service.rows = rows
	return rows
}

// reserved returns for how many ms from now on a slot cannot be reclaimed, if nobody changes its row.
func (w *simWorld) reserved(r slotRow) int64 {
	now := w.now / w.perTick
	n := sort.Search(1<<30, func(n int) bool { return w.params.reclaimable(r, now+int64(n)) })
	return int64(n) * w.perTick
}

// rest has the row of a slot stand still: nobody renews it.
func (s *simService) rest(x *simSlot) {
	if x.quiet {
		return
	}
	i, _ := slices.BinarySearchFunc(s.quiet, x, compareRest)
	s.quiet, x.quiet = slices.Insert(s.quiet, i, x), true
}

// wake undoes rest. It must be called before the row changes.
func (s *simService) wake(x *simSlot) {
	if !x.quiet {
		return
	}
	i, _ := slices.BinarySearchFunc(s.quiet, x, compareRest)
	s.quiet, x.quiet = slices.Delete(s.quiet, i, i+1), false
}

func compareRest(a, b *simSlot) int {
	if a.row.fence != b.row.fence {
		return int(min(max(a.row.fence-b.row.fence, -1), 1))
	}
	return int(a.row.id - b.row.id)
}

// A simEvent is what happens at a time. Those of one time happen in the order in which they were planned.
type simEvent struct {
	at       int64
	sequence uint64
	do       func()
}

func (e simEvent) before(f simEvent) bool {
	return e.at < f.at || e.at == f.at && e.sequence < f.sequence
}

// after plans what happens in some ms. The queue is a heap.
func (w *simWorld) after(ms int64, do func()) {
	w.sequence++
	q := append(w.queue, simEvent{w.now + ms, w.sequence, do})
	i := len(q) - 1
	for ; i > 0 && q[i].before(q[(i-1)/2]); i = (i - 1) / 2 {
		q[i], q[(i-1)/2] = q[(i-1)/2], q[i]
	}
	w.queue = q
}

// run lets happen what is planned up to a time, and sets the clock to it.
func (w *simWorld) run(until int64) {
	for len(w.queue) > 0 && w.queue[0].at <= until {
		e := w.queue[0]
		q := w.queue[:len(w.queue)-1]
		if len(q) > 0 {
			q[0] = w.queue[len(q)]
		}
		w.queue[len(q)] = simEvent{}
		for i := 0; 2*i+1 < len(q); {
			least := 2*i + 1
			if least+1 < len(q) && q[least+1].before(q[least]) {
				least++
			}
			if !q[least].before(q[i]) {
				break
			}
			q[i], q[least] = q[least], q[i]
			i = least
		}
		w.queue, w.now = q, e.at
		e.do()
	}
	w.now = max(w.now, until)
}
