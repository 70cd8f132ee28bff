package workernode

import (
	"fmt"
	"math"
	"time"

	"github.com/uidplugin/uidplugin/generator"
)

// The days of a simulation. Not all are simulated. Those that are: the first of each month, on which services grow and get
// tables, the day after, each day on which a machine, the database or the whole site fails, or processes stand still, and
// one of simRun.sample others. All that stays of a day is the slots, their worker ids, and rows of sessions. Slots and
// worker ids are made only when more processes than ever before hold slots, or use a table for the first time. So a day
// that is like the ones before, without such an event, adds none. Leaving it out cannot hide a tick that is granted twice
// either: the next day begins with the same rows, and with renewals up to then (see simProcess.sync). Of the rows of
// sessions a day that is left out adds as many as the last such day that was simulated, for each slot. -sim.sample 1 simulates all days.

const (
	simDay      = 24 * 60 * 60 * 1000 // ms
	simDeploys  = 20                  // a day, of all services
	simQuarter  = simDay / 96
	simKept     = 90 // days for which sessions are kept when old ones are pruned
	simStart    = 0.4
	simRetired  = 0.04 // of the tables of a service are dropped in the end
	simFirst    = 0.6  // of them exist at the start
	simGrownUp  = 0.85 // of the run is over when the services have their most processes and tables
	simCrashing = 0.02 // crashes a day and process
)

// A simRun is a simulation of some days.
type simRun struct {
	*simWorld
	days, sample int
	deploys      int   // a day
	begin        int64 // of the first day, in ms
	grown        bool  // services have their most processes and tables at once
	progress     func(day int)

	usual     [2]bool // a day of the kind was simulated that was not special
	all, kept int64   // rows of WORKER_SESSION: if none is deleted, and if those older than simKept are
	points    []simPoint
}

// A simPoint is how things stood at the end of a day.
type simPoint struct {
	day                    int
	used, forecast         int64 // worker ids
	slots, forecastSlots   int64
	sessions, keptSessions int64
}

// simSessions are rows of WORKER_SESSION of one slot that began on one day.
type simSessions struct{ day, rows int32 }

func (r *simRun) run() {
	last := -1
	for day := range r.days {
		special := r.special(day)
		if !r.simulated(day, special) {
			r.skip(day)
			continue
		}
		if day != last+1 {
			r.simWorld.run(r.now + simDay/12) // what the last one has begun ends
		}
		last = day
		r.day(day, special)
		if r.progress != nil {
			r.progress(day)
		}
	}
}

// A simSpecial is what happens on few days.
type simSpecial struct{ machine, outage, blackout, stalls bool }

func (r *simRun) special(day int) (s simSpecial) {
	s = simSpecial{r.random.IntN(7) == 0, r.random.IntN(120) == 0, r.random.IntN(365) == 0, r.random.IntN(10) == 0}
	if day == r.days*9/10 { // short runs have one of each, when all have grown up
		s = simSpecial{true, true, true, true}
	}
	return s
}

func (r *simRun) step() int { return min(30, max(1, r.days/12)) }

func (r *simRun) simulated(day int, s simSpecial) bool {
	return s != simSpecial{} || day%r.step() < 2 || day == r.days-1 || r.random.IntN(r.sample) == 0
}

// kind is 1 on a weekend.
func simKind(day int) int { return min(1, day%7/5) }

// skip counts the sessions of a day that is not simulated.
func (r *simRun) skip(day int) {
	for _, s := range r.order {
		s.sessions = r.keep(s.sessions, day, s.last[simKind(day)])
	}
}

// keep adds the sessions of a day to the rows of a slot and prunes older ones.
func (r *simRun) keep(rows []simSessions, day int, n int32) []simSessions {
	r.all += int64(n)
	r.kept += int64(n)
	if n > 0 {
		rows = append(rows, simSessions{int32(day), n})
	}
	rows, deleted := simPrune(rows, int32(day-simKept))
	r.kept -= deleted
	return rows
}

// simPrune deletes sessions of a slot: of those that began before a day, the latest stays, which may have made ids after
// that, and of those before that one the earliest, to stand for all. It returns how many it deleted.
func simPrune(rows []simSessions, before int32) (kept []simSessions, deleted int64) {
	n := 0
	for n < len(rows) && rows[n].day < before {
		deleted += int64(rows[n].rows)
		n++
	}
	switch {
	case deleted <= 2:
		return rows, 0
	case n == 1:
		rows[0].rows = 2
		return rows, deleted - 2
	}
	rows[0].rows, rows[n-1].rows = 1, 1
	return append(rows[:1], rows[n-1:]...), deleted - 2
}

// growth is how far the services have grown, from 0 to 1.
func (r *simRun) growth(day int) float64 {
	if r.grown {
		return 1
	}
	return min(1, float64(day-day%r.step())/(simGrownUp*float64(r.days)))
}

// simLoad is what part of its most processes a service needs at a time.
func simLoad(day int, hour float64) float64 {
	load := 0.35 + 0.65*min(1, max(0, 1.3*math.Sin((hour-6)/24*2*math.Pi)))
	if simKind(day) == 1 {
		load *= 0.6
	}
	return load
}

// day simulates a day.
func (r *simRun) day(day int, special simSpecial) {
	w := r.simWorld
	midnight := r.begin + int64(day)*simDay
	w.run(midnight)
	w.count.days++
	g := r.growth(day)
	for _, s := range w.services {
		s.most = max(2, int(math.Ceil(float64(s.peak)*(simStart+(1-simStart)*g))))
		s.first = int(simRetired * g * float64(s.all))
		s.last = int(math.Ceil(float64(s.all) * (simFirst + (1-simFirst)*g)))
	}
	for quarter := range int64(96) {
		w.after(quarter*simQuarter, func() {
			for _, s := range w.services {
				s.scale(simLoad(day, float64(quarter)/4))
			}
		})
	}
	for i := range r.deploys {
		s := w.services[i%len(w.services)]
		w.after(w.chance(9*simDay/24, 19*simDay/24), s.deploy)
	}
	for _, s := range w.services {
		for range simPoisson(w, simCrashing*float64(s.most)) {
			w.after(w.chance(0, simDay), func() { s.crashed(w.any(s), w.chance(1_000, 10_000)) })
		}
		for range s.most / 2 {
			if s.rests {
				w.after(w.chance(0, simDay/3), func() { w.any(s).rests(w.chance(12*60_000, 120*60_000)) })
			}
		}
	}
	r.specials(special)
	w.run(midnight + simDay)
	r.note(day, special != simSpecial{})
}

// specials plans what happens on few days.
func (r *simRun) specials(special simSpecial) {
	w := r.simWorld
	each := func(do func(s *simService, x *simProcess)) {
		for _, s := range w.services {
			for _, x := range append([]*simProcess(nil), s.processes...) {
				do(s, x)
			}
		}
	}
	if special.stalls {
		for range 5 {
			s := w.services[w.random.IntN(len(w.services))]
			w.after(w.chance(10*simDay/24, 16*simDay/24), func() {
				w.any(s).stall(w.chance(1_000, 300_000))
				w.count.stalls++
				w.after(grace.Milliseconds(), s.deploy) // others look for slots
			})
		}
	}
	if special.machine {
		w.after(w.chance(0, simDay), func() {
			w.count.machines++
			machine := w.random.IntN(simMachines)
			each(func(s *simService, x *simProcess) {
				if x.machine == machine {
					s.crashed(x, w.chance(3_000, 10_000))
				}
			})
		})
	}
	if special.outage {
		w.after(w.chance(10*simDay/24, 16*simDay/24), func() {
			w.count.outages++
			for _, s := range w.services {
				s.deploy() // those that it starts wait for the database, too
			}
			ms := w.chance(5_000, 600_000)
			each(func(_ *simService, x *simProcess) { x.stall(ms) })
			w.down = w.now + ms
		})
	}
	if special.blackout {
		w.after(w.chance(10*simDay/24, 16*simDay/24), func() {
			w.count.blackouts++
			back := w.chance(120_000, 600_000)
			each(func(s *simService, x *simProcess) { s.crashed(x, back+w.chance(0, 20_000)) })
		})
	}
}

// any returns some process of a service.
func (w *simWorld) any(s *simService) *simProcess {
	if len(s.processes) == 0 {
		return &simProcess{world: w, service: s, dead: true}
	}
	return s.processes[w.random.IntN(len(s.processes))]
}

func simPoisson(w *simWorld, mean float64) (n int) {
	for p := w.random.Float64(); p > math.Exp(-mean); n++ {
		p *= w.random.Float64()
	}
	return n
}

// note compares what there is at the end of a day with the forecast, and notes both.
func (r *simRun) note(day int, special bool) {
	w := r.simWorld
	p := simPoint{day: day}
	for _, s := range w.services {
		f, err := generator.Plan(w.layout, s.demand())
		if err != nil {
			w.fault("%v", err)
			return
		}
		if s.slots > f.Leased.Slots || s.workers > f.Leased.Held {
			w.fault("on day %d %s has %d slots with %d worker ids; the forecast has %d and %d", day, s.name, s.slots, s.workers, f.Leased.Slots, f.Leased.Held)
		}
		p.slots += s.slots
		p.forecastSlots += f.Leased.Slots
		p.forecast += f.Leased.Held
	}
	if p.used = w.registry.NextID - 1; p.used > p.forecast || p.forecast > w.layout.MaxWorkerID() {
		w.fault("on day %d %d worker ids are given out; the forecast has %d, and the layout %d", day, p.used, p.forecast, w.layout.MaxWorkerID())
	}
	kind := simKind(day)
	if !special {
		r.usual[kind] = true
	}
	for _, s := range w.order {
		if !special || !r.usual[kind] {
			s.last[kind] = s.today
		}
		s.sessions = r.keep(s.sessions, day, s.today)
		s.today = 0
	}
	p.sessions, p.keptSessions = r.all, r.kept
	r.points = append(r.points, p)
}

// String says how the run stands.
func (r *simRun) String() string {
	p := r.points[len(r.points)-1]
	return fmt.Sprintf("%s: %d of %d worker ids (%.1f %%), %d of %d slots, %d sessions, %d with pruning; %+v",
		r.layout.TimeOf(min(r.now/r.perTick, r.layout.MaxTick())).Format(time.DateOnly), p.used, p.forecast, 100*float64(p.used)/float64(p.forecast), p.slots, p.forecastSlots,
		p.sessions, p.keptSessions, r.count)
}
