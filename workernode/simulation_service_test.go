package workernode

import (
	"math"
	"strconv"

	"github.com/uidplugin/uidplugin/generator"
)

// The services of a simulation: how many processes they have, and how these are replaced. There are 1,000 processes in
// all, and a slot of any service comes to 200 worker ids of tables.

const (
	simSpares   = 2
	simMachines = 50
	simCanaries = 2      // processes that a deployment begins with
	simReady    = 25_000 // ms until a new process is ready, at least; up to simSlow
	simSlow     = 45_000
	simSkew     = 50    // ms by which a clock is wrong, at most
	simDrain    = 5_000 // ms until an old one has ended, at most
)

// A simRole is what some processes of an application do: they write to the tables from one up to another, as far as the
// service has these at the time.
type simRole struct {
	name     string
	service  *simService
	from, to int
}

// inUse returns the tables of the role.
func (r *simRole) inUse() []Table {
	from := max(r.from, r.service.first)
	return r.service.tables[from:max(from, min(r.to, r.service.last))]
}

// A simService is all processes of one application.
type simService struct {
	world   *simWorld
	name    string
	peak    int // processes, when it has grown up
	all     int // tables that its roles ever have together
	lanes   int
	rate    float64 // ids that its tables need, in multiples of what a worker id makes
	lazy    bool    // its tables are not listed: spares serve them
	named   bool    // its processes have the names of their predecessors
	rests   bool    // its processes are idle at times
	roles   []*simRole
	tables  []Table
	first   int // of the tables that are in use at present
	last    int // the first one that nobody has used yet
	most    int // processes, at present
	target  int // processes that the load wants
	version int

	processes []*simProcess // as they were started
	quiet     []*simSlot    // whose rows stand still, by FENCE
	rows      []slotRow
	slots     int64
	workers   int64 // worker ids in rows
	running   int   // processes that were not told to end
	old       int   // of them, those of former versions
	pending   int   // that will be started again after a crash
	machines  [simMachines]int
	names     map[string]bool

	deploying, bad, well bool // a deployment runs; it is of a version that crashes; its first processes are ready
	canaries, inFlight   int  // how many may start before they are; how many are being replaced
	rolling, due         int  // new processes that are not ready; deployments that wait
}

// simServices are services with times times the usual number of processes.
func simServices(w *simWorld, times float64) []*simService {
	all := []*simService{
		{name: "web", peak: 400, all: 200},
		{name: "api", peak: 300, all: 200, lazy: true},
		{name: "jobs", peak: 150, all: 200, rests: true},
		{name: "search", peak: 100, all: 200, named: true, rests: true},
		{name: "events", peak: 50, all: 50, lanes: 4, rate: 3},
	}
	for _, s := range all {
		s.world, s.peak, s.lanes, s.names = w, int(math.Round(times*float64(s.peak))), max(s.lanes, 1), map[string]bool{}
		for i := range s.all {
			s.tables = append(s.tables, Table{Database: s.name, Name: simName("table", i+100)})
		}
		s.roles = []*simRole{{"all", s, 0, s.all}}
		if s.name == "jobs" { // two kinds of jobs, with tables of their own and some that both have
			s.roles = []*simRole{{"mail", s, 0, 120}, {"bills", s, 80, s.all}}
		}
	}
	return all
}

// surge is how many processes a deployment replaces at once.
func (s *simService) surge() int { return max(simCanaries, int(math.Ceil(float64(s.most)/10))) }

// demand is what the service needs at present, as its operator would tell the planner: a deployment takes two slots for
// each process that it replaces at once, as a new process is ready after simReady, which is more than 21 s. At most the
// processes of one machine, and six others, crash in 70 s.
func (s *simService) demand() generator.Demand {
	machine := (s.most + s.surge() + simMachines - 1) / simMachines
	return generator.Demand{
		Processes: s.most, Tables: s.last, Lanes: s.lanes, Spares: simSpares,
		Reserved: 2*s.surge() + machine + 6,
	}
}

// start starts a process, on the machine that has the fewest of the service.
func (s *simService) start(rolling bool) *simProcess {
	w := s.world
	w.count.starts++
	x := &simProcess{world: w, service: s, version: s.version, rolling: rolling, offset: w.chance(-simSkew, simSkew+1)}
	x.role = s.roles[w.random.IntN(len(s.roles))]
	x.me = simName(s.name, int(w.count.starts))
	for i, n := range s.machines {
		if n < s.machines[x.machine] {
			x.machine = i
		}
	}
	x.host = Host{Name: x.me, Port: "8080", Application: s.name}
	for i := 0; s.named; i++ {
		if x.host.Name = simName(s.name, i); !s.names[x.host.Name] {
			s.names[x.host.Name] = true
			break
		}
	}
	s.machines[x.machine]++
	s.processes = append(s.processes, x)
	s.running++
	if rolling {
		s.rolling++
	}
	x.later(w.chance(0, w.spread), x.look)
	if w.random.Float64() < w.early { // while it gets a slot
		w.after(w.chance(1, 1100), func() { s.crashed(x, w.chance(1_000, 10_000)) })
	}
	if rolling {
		x.later(w.chance(simReady, simSlow), x.ready)
	}
	return x
}

// leave notes that a process was told to end, or has ended.
func (x *simProcess) leave() {
	s := x.service
	if x.left {
		return
	}
	x.left = true
	s.running--
	if x.rolling {
		s.rolling--
	}
	if x.version < s.version {
		s.old--
	}
}

// end tells a process to end, and calls then when it has.
func (x *simProcess) end(then func()) {
	x.leave()
	x.then = then
	x.later(x.world.chance(1, simDrain), x.close)
}

// oldest returns the process that was started first, with an older version if there is one. It is nil if all are about to
// end.
func (s *simService) oldest() *simProcess {
	for _, x := range s.processes {
		if !x.left {
			return x
		}
	}
	return nil
}

// deploy replaces all processes by new ones: first a few, and if these run well the others.
func (s *simService) deploy() {
	if s.deploying {
		s.due++
		return
	}
	w := s.world
	w.count.deploys++
	s.version++
	s.deploying, s.old, s.canaries, s.well = true, s.running, simCanaries, false
	s.bad = w.random.IntN(50) == 0
	s.roll()
}

// roll starts as many new processes as may be started now.
func (s *simService) roll() {
	for (s.well || s.canaries > 0) && s.inFlight < s.surge() && s.inFlight < s.old {
		s.canaries--
		s.inFlight++
		if x := s.start(true); s.bad {
			s.loop(x, 10_000)
		}
	}
	if s.inFlight > 0 || s.old > 0 {
		return
	}
	s.deploying, s.bad = false, false
	if s.due > 0 {
		s.due--
		s.world.after(60_000, s.deploy)
	}
}

// loop is a new version that crashes 5 s after each start: it is started again after 10, 20 and 40 s, and then taken back.
func (s *simService) loop(x *simProcess, pause int64) {
	s.world.after(5_000, func() {
		x.crash()
		if pause <= 40_000 {
			s.world.after(pause, func() { s.loop(s.start(true), 2*pause) })
			return
		}
		if s.inFlight--; s.inFlight == 0 { // what runs is the version that is to run
			s.version++
			for _, x := range s.processes {
				x.version = s.version
			}
			s.old = 0
			s.roll()
		}
	})
}

// ready is a new process that serves: an old one ends.
func (x *simProcess) ready() {
	s := x.service
	if x.left {
		return
	}
	x.rolling = false
	s.rolling--
	done := func() {
		if s.inFlight--; s.inFlight == 0 {
			s.well = true
		}
		s.roll()
	}
	if y := s.oldest(); y.version < s.version {
		y.end(done)
	} else if s.running-s.rolling > s.target { // the old ones have crashed, or were too many
		x.end(done)
	} else {
		done()
	}
}

// crashed has a process crash, and starts another one after some ms.
func (s *simService) crashed(x *simProcess, after int64) {
	if x.dead {
		return
	}
	replace, rolling := !x.left && !(s.bad && x.rolling), x.rolling
	x.crash()
	if x.then != nil {
		x.then()
	}
	if !replace {
		return
	}
	if !rolling {
		s.pending++
	}
	s.world.after(after, func() {
		if !rolling {
			s.pending--
		}
		s.start(rolling)
	})
}

// scale starts and ends processes until there are as many as the load wants.
func (s *simService) scale(load float64) {
	s.target = max(1, int(math.Round(float64(s.most)*load)))
	have := s.running + s.pending - s.rolling
	for ; have < s.target; have++ {
		s.start(false)
	}
	for ; have > s.target; have-- {
		if x := s.oldest(); x != nil && !x.rolling {
			x.end(nil)
		}
	}
}

func simName(prefix string, n int) string { return prefix + "-" + strconv.Itoa(n) }
