package workernode

import (
	"cmp"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/uidplugin/uidplugin/generator"
	"github.com/uidplugin/uidplugin/generator/capacity"
	"github.com/uidplugin/uidplugin/internal/testkit"
	"github.com/uidplugin/uidplugin/workernode/internal/lease"
)

// This file runs days of deployments, crashes and outages of 100 processes in memory, and compares the slots and worker
// ids that they take with capacity.Plan. The processes decide with package lease and with missing. The
// database is a list of rows, and the clock is a number of ms. Lost answers, lost commits and clocks that jump are for
// model_test.go.

const (
	simProcesses = 100
	simTables    = 20
	simImports   = 2                 // of simTables get lanes
	simSurge     = simProcesses / 10 // processes that a deployment replaces at a time
	simCrashed   = 4                 // slots for crashed processes: about two crash in a day
)

// A simulation is one application with its database.
type simulation struct {
	random *rand.Rand
	layout generator.Layout
	params lease.Params
	queue  []simEvent // ascending
	now    int64      // ms since the epoch of the layout
	down   int64      // the database does not answer before this time
	slots  []*simSlot
	live   []*simProcess
	starts int

	blind  bool // a control: statements do not compare
	faults []string
}

// A simSlot is a row of WORKER_SLOT.
type simSlot struct {
	row    lease.Row
	high   int64 // the last tick that any process was granted
	tables map[Table]int
}

type simProcess struct {
	sim    *simulation
	me     string
	offset int64 // of its clock, in ms
	lease  lease.Slot
	slot   *simSlot
	ended  bool
}

// A simEvent happens at a time. Events of one time happen in the order in which they were planned.
type simEvent struct {
	at int64
	do func()
}

func newSimulation() *simulation {
	layout := generator.DefaultLayout()
	settle := ticks(layout, DefaultLead+skew) + 1
	far := ticks(layout, grace)
	return &simulation{
		random: rand.New(rand.NewPCG(1, 13)), layout: layout,
		params: lease.Params{Lead: ticks(layout, DefaultLead), Settle: settle, Grace: max(settle, far), Quiet: max(settle, far), Last: layout.MaxTick()},
		now:    1_000_000,
	}
}

// after plans an event in some ms.
func (s *simulation) after(ms int64, do func()) {
	at := s.now + ms
	behind, _ := slices.BinarySearchFunc(s.queue, at+1, func(e simEvent, at int64) int { return cmp.Compare(e.at, at) })
	s.queue = slices.Insert(s.queue, behind, simEvent{at, do})
}

// between returns a random number from least up to most.
func (s *simulation) between(least, most int64) int64 { return least + s.random.Int64N(most-least+1) }

func (s *simulation) run(until int64) {
	for len(s.queue) > 0 && s.queue[0].at <= until && len(s.faults) == 0 {
		e := s.queue[0]
		s.queue, s.now = s.queue[1:], e.at
		e.do()
	}
	s.now = until
}

func (s *simulation) fault(format string, args ...any) {
	s.faults = append(s.faults, fmt.Sprintf(format, args...))
}

// start starts a process, which needs a slot within a second.
func (s *simulation) start() *simProcess {
	s.starts++
	p := &simProcess{sim: s, me: fmt.Sprint(s.starts), offset: s.between(-50, 50)}
	s.live = append(s.live, p)
	s.after(s.between(0, 1000), func() { p.acquire(1) })
	return p
}

func (p *simProcess) tick() int64 { return p.sim.now + p.offset }

// waits reports whether the process cannot send a statement, and plans its next attempt.
func (p *simProcess) waits(again func()) bool {
	if !p.ended && p.sim.now < p.sim.down {
		p.sim.after(500, again)
		return true
	}
	return p.ended
}

// acquire is slotHolder.acquire: it reads which slots may be reclaimed, and tries them.
func (p *simProcess) acquire(look int) {
	if p.waits(func() { p.acquire(look) }) {
		return
	}
	var rows []lease.Row
	for _, slot := range p.sim.slots {
		if p.sim.params.Usable(slot.row, p.tick()) {
			rows = append(rows, slot.row)
		}
	}
	rows = lease.InOrder(rows, p.sim.random.Shuffle)
	p.sim.after(p.sim.between(1, 50), func() { p.reclaim(rows, 0, look) })
}

// reclaim tries the first of rows. refused is how many were refused before.
func (p *simProcess) reclaim(rows []lease.Row, refused, look int) {
	if p.waits(func() { p.acquire(1) }) {
		return
	}
	var c lease.Change
	switch {
	case len(rows) > 0:
		c = p.lease.ReclaimChange(p.sim.params, rows[0], p.tick(), p.me)
	case lease.LooksAgain(refused, refused, look):
		p.acquire(look + 1)
		return
	default:
		c = p.lease.AllocateChange(p.sim.params, int64(len(p.sim.slots)+1), p.tick(), p.me)
		p.sim.slots = append(p.sim.slots, &simSlot{tables: map[Table]int{}})
	}
	if !p.begin(c) {
		p.sim.after(p.sim.between(1, 50), func() { p.reclaim(rows[1:], refused+1, look) })
	}
}

// begin begins a session. It reports false if the row is not as c compares.
func (p *simProcess) begin(c lease.Change) bool {
	slot := p.sim.slots[c.Slot-1]
	if !c.SetFirst(p.tick(), 0) || !p.sim.execute(c, p.tick()) {
		return false
	}
	if c.First <= slot.high {
		p.sim.fault("slot %d: tick %d is granted a second time", c.Slot, c.First)
	}
	slot.high = c.NewFence
	p.slot = slot
	p.lease.NoteSession(c, 0)
	for i := range simTables {
		p.lacks(i, 1)
	}
	for i := range simImports {
		p.sim.after(p.sim.between(1_000, 600_000), func() {
			if !p.ended && p.slot == slot && p.sim.now >= p.sim.down {
				p.lacks(i, lease.MostLanes(generator.MaxLanes, slot.tables[simTable(i)], 0, p.sim.given(), p.sim.layout))
			}
		})
	}
	p.sim.after(3200, p.renew)
	return true
}

func simTable(i int) Table { return Table{Name: fmt.Sprint("table ", i)} }

// lacks adds worker ids to the slot until table i has n.
func (p *simProcess) lacks(i, n int) {
	for _, t := range missing(map[Table]int{simTable(i): n}, func(t Table) int { return p.slot.tables[t] }) {
		p.slot.tables[t]++
	}
}

func (s *simulation) given() (n int64) {
	for _, slot := range s.slots {
		for _, workers := range slot.tables {
			n += int64(workers)
		}
	}
	return n
}

// execute is a statement on the row of a slot. It reports false if the row is not as c compares.
func (s *simulation) execute(c lease.Change, now int64) bool {
	row := &s.slots[c.Slot-1].row
	if !c.Insert && !s.blind && (row.Holder != c.Holder || row.Version != c.Version || row.Fence != c.Fence) {
		return false
	}
	*row = lease.Row{ID: c.Slot, Holder: c.NewHolder, Version: c.NewVersion, Fence: c.NewFence, Seen: now}
	return true
}

// renew does what the lease manager does every 3.2 s.
func (p *simProcess) renew() {
	if p.waits(p.renew) {
		return
	}
	switch step := p.lease.Next(p.sim.params, p.tick()); step {
	case lease.StepReady:
		c, granted := p.lease.RenewChange(p.sim.params, p.tick(), p.me), p.lease.Granted
		if !p.sim.execute(c, p.tick()) {
			break
		}
		if p.lease.NoteRenewal(c, p.tick()) {
			if p.slot.high > granted {
				p.sim.fault("slot %d: tick %d is granted a second time", c.Slot, granted+1)
			}
			p.slot.high = p.lease.Granted
		}
		p.sim.after(3200, p.renew)
		return
	case lease.StepBegin:
		if p.begin(p.lease.BeginChange(p.sim.params, p.tick(), p.me)) {
			return
		}
	case lease.StepWait:
		p.sim.after(1, p.renew)
		return
	}
	p.lease.Lose() // another process has the slot
	p.acquire(1)
}

// end ends the process: in good order, so that it releases its slot, or by a crash.
func (p *simProcess) end(crash bool) {
	s := p.sim
	if !crash && p.lease.Held && s.now >= s.down {
		s.execute(p.lease.ReleaseChange(p.me), p.tick())
	}
	p.ended = true
	s.live = slices.DeleteFunc(s.live, func(other *simProcess) bool { return other == p })
}

// deploy replaces the oldest processes, simSurge at a time. A new process is ready after 25 to 45 s.
func (s *simulation) deploy(left int) {
	if left == 0 {
		return
	}
	pending := simSurge
	for range simSurge {
		s.start()
		s.after(s.between(25_000, 45_000), func() {
			s.live[0].end(false)
			if pending--; pending == 0 {
				s.deploy(left - simSurge)
			}
		})
	}
}

// days runs an application for some days: twenty deployments, two crashes and an outage of up to ten minutes on each.
func (s *simulation) days(n float64) {
	const day = 24 * 3600_000
	for range simProcesses {
		s.start()
	}
	for at := int64(60_000); at < int64(n*day); at += day / 20 {
		s.after(at, func() { s.deploy(simProcesses) })
		if (at/(day/20))%10 == 3 {
			s.after(at+s.between(0, day/20), func() {
				s.live[s.random.IntN(len(s.live))].end(true)
				s.after(s.between(1_000, 10_000), func() { s.start() })
			})
		}
		if (at/(day/20))%20 == 7 {
			s.after(at+s.between(0, day/20), func() { s.down = s.now + s.between(1_000, 600_000) })
		}
	}
	s.run(s.now + int64(n*day))
}

// check compares what the application has taken with the forecast.
func (s *simulation) check(t *testing.T) {
	t.Helper()
	f, err := capacity.Plan(s.layout, capacity.Demand{Processes: simProcesses, Tables: simTables, Imports: simImports, Reserved: 2*simSurge + simCrashed})
	testkit.Must(t, err)
	workers := s.given()
	if slots := int64(len(s.slots)); slots > f.Leased.Slots || workers > f.Leased.Held {
		s.fault("%d slots and %d worker ids, and the forecast has %d and %d", slots, workers, f.Leased.Slots, f.Leased.Held)
	} else if slots < f.Leased.Slots*8/10 || workers < f.Leased.Held*8/10 {
		s.fault("only %d slots and %d worker ids, and the forecast has %d and %d", slots, workers, f.Leased.Slots, f.Leased.Held)
	}
	t.Logf("%d starts, %d slots of %d, %d worker ids of %d", s.starts, len(s.slots), f.Leased.Slots, workers, f.Leased.Held)
}

func simulatedDays() float64 {
	if testing.Short() || testkit.Race {
		return 0.2
	}
	return 3
}

// Processes take no more slots and worker ids than the planner says, and few less: people choose a layout by it. No
// tick is granted twice.
func TestSimulation_StaysBelowTheForecastAndComesNearIt(t *testing.T) {
	t.Parallel()

	s := newSimulation()
	s.days(simulatedDays())
	s.check(t)
	for _, f := range s.faults {
		t.Error(f)
	}
}

// All processes start at once after a crash of all. There are as many free slots, so none needs a new one, although
// each reads only some of them before others take these.
func TestSimulation_AllAtOnceGetTheirSlotsBack(t *testing.T) {
	t.Parallel()

	s := newSimulation()
	for range 2 {
		for range simProcesses {
			s.start()
		}
		s.run(s.now + 60_000)
		for len(s.live) > 0 {
			s.live[0].end(true)
		}
		s.run(s.now + 2*time.Minute.Milliseconds())
	}
	if len(s.slots) != simProcesses || len(s.faults) > 0 {
		t.Errorf("%d slots of %d processes; %q", len(s.slots), simProcesses, s.faults)
	}
}

// Without these, a simulation that finds nothing would prove nothing.
func TestSimulationControl_FindsWhatIsWrong(t *testing.T) {
	t.Parallel()

	for fault, wrong := range map[string]func(*simulation){
		"granted a second time": func(s *simulation) { s.blind = true },
		"the forecast has":      func(s *simulation) { s.params.Settle *= 20 }, // slots are reserved longer than the planner knows
	} {
		s := newSimulation()
		wrong(s)
		s.days(0.3)
		if s.check(t); !strings.Contains(strings.Join(s.faults, "\n"), fault) {
			t.Errorf("no fault is that a tick or slot %s: %q", fault, s.faults)
		}
	}
}
