package workernode

import (
	"flag"
	"math"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/uidplugin/uidplugin/generator"
	"github.com/uidplugin/uidplugin/internal/testkit"
)

var (
	simYears  = flag.Float64("sim.years", 0.3, "years to simulate")
	simSeed   = flag.Uint64("sim.seed", 1, "the seed of simulations")
	simSample = flag.Int("sim.sample", 20, "of days that are like others, one of so many is simulated")
	simChart  = flag.String("sim.chart", "", "write the picture of the run to this file (SVG)")
)

func newSimRun(layout generator.Layout, begin time.Time, days int, times float64) *simRun {
	r := &simRun{simWorld: newSimWorld(*simSeed, layout, begin), days: days, sample: max(*simSample, 1), deploys: simDeploys}
	r.begin = r.now
	r.services = simServices(r.simWorld, times)
	return r
}

// TestSimulation_StaysBelowTheForecastAndComesNearIt runs 1,000 processes for years. The layout begins with the run, so
// the time that is used up can be compared with the forecast, too.
func TestSimulation_StaysBelowTheForecastAndComesNearIt(t *testing.T) {
	t.Parallel()

	years := *simYears
	if testing.Short() || modelRacing {
		years = min(years, 0.03)
	}
	began, layout := time.Now(), generator.DefaultLayout()
	r := newSimRun(layout, layout.Epoch, int(math.Ceil(years*simYear)), 1)
	year := 0
	r.progress = func(day int) {
		if now := int(float64(day) / simYear); now > year {
			year = now
			t.Logf("%v: %v", time.Since(began).Round(time.Second), r)
		}
	}
	r.run()
	t.Logf("%v: %v; a slot was reserved for up to %v after its process was closed, and %v after a crash", time.Since(began).Round(time.Millisecond), r,
		simTime(r.closed), simTime(r.dead))
	r.check(t)
	r.checkForecast(t)
	if *simChart != "" {
		svg, err := r.chart()
		testkit.Must(t, err)
		testkit.Must(t, os.WriteFile(*simChart, []byte(svg), 0o666))
	}
}

const simYear = 365.2425 // days

func simTime(ms int64) time.Duration { return time.Duration(ms) * time.Millisecond }

// check reports what must never be.
func (r *simRun) check(t *testing.T) {
	t.Helper()
	for _, f := range r.faults {
		t.Errorf("-sim.seed %d: %s", *simSeed, f)
	}
	if most := DefaultLead.Milliseconds() + simSkew + r.perTick; r.ahead > most {
		t.Errorf("-sim.seed %d: a fence was %d ms ahead of the time, more than %d", *simSeed, r.ahead, most)
	}
}

// checkForecast reports a forecast that is far from what came. What is above it is a fault of the day (see simRun.note).
func (r *simRun) checkForecast(t *testing.T) {
	t.Helper()
	near := func(what string, got, forecast float64) {
		t.Helper()
		if got > forecast || got < 0.9*forecast {
			t.Errorf("-sim.seed %d: %s: %v, and the forecast is %v", *simSeed, what, got, forecast)
		}
	}
	last := r.points[len(r.points)-1]
	near("worker ids", float64(last.used), float64(last.forecast))
	near("slots", float64(last.slots), float64(last.forecastSlots))
	near("ms until the slot of a crashed process is free", float64(r.dead), float64(generator.DefaultGrace.Milliseconds()+simSkew+2*r.perTick))
	near("ms until the slot of a closed process is free", float64(r.closed), float64(21_000+simSkew+2*r.perTick))
	f, err := generator.Plan(r.layout, generator.Demand{})
	testkit.Must(t, err)
	// Ticks are as a part of all, days as a part of the years that the forecast has.
	near("time", float64(r.most-r.params.lead-simSkew)/float64(r.layout.MaxTick()), float64(r.days)/simYear/f.Years)

	older := int64(0) // sessions that have been pruned, but for two of each slot
	for _, p := range r.points {
		if p.day < r.days-1-simKept {
			older = p.sessions
		}
	}
	if last.keptSessions > last.sessions-older+2*last.slots {
		t.Errorf("-sim.seed %d: %d sessions are left, and %d began in the last %d days", *simSeed, last.keptSessions, last.sessions-older, simKept)
	}
	if r.count.lost == 0 || r.count.crashes == 0 || r.count.idles == 0 || r.count.outages == 0 || r.count.blackouts == 0 || r.count.machines == 0 {
		t.Errorf("-sim.seed %d: something has not happened: %+v", *simSeed, r.count)
	}
}

// TestSimulation_AllAtOnceGetTheirSlotsBack starts all processes in one moment, after a crash of all of them. There are as
// many free slots, so no other ones are needed, although each reads only some of them before others take these.
func TestSimulation_AllAtOnceGetTheirSlotsBack(t *testing.T) {
	t.Parallel()

	for _, spread := range []int64{1, 200, 5000} {
		r := newSimRun(generator.DefaultLayout(), generator.DefaultLayout().Epoch, 1, 1)
		r.spread, r.early = spread, 0
		for _, s := range r.services {
			s.most, s.last = s.peak, 1
			s.scale(1)
		}
		r.simWorld.run(r.now + 60_000)
		before := len(r.order)
		for _, s := range r.services {
			for len(s.processes) > 0 {
				s.processes[0].crash()
			}
		}
		r.simWorld.run(r.now + 120_000)
		for _, s := range r.services {
			s.scale(1)
		}
		r.simWorld.run(r.now + 60_000)
		r.check(t)
		if after := len(r.order); after != before || before != 1000 || r.count.reclaimed != 1000 {
			t.Errorf("-sim.seed %d: started within %d ms: %d slots before the crash, %d after it; %+v", *simSeed, spread, before, after, r.count)
		}
	}
}

// TestSimulation_UsesTheLastTickOfTheLayout runs the last day of a layout: all of its time is used, and no more.
func TestSimulation_UsesTheLastTickOfTheLayout(t *testing.T) {
	t.Parallel()

	layout := generator.DefaultLayout()
	r := newSimRun(layout, layout.Expires().Add(-24*time.Hour), 1, 0.1)
	r.grown = true
	r.run()
	for _, x := range r.services[0].processes {
		x.sync()
	}
	r.check(t)
	if r.most != layout.MaxTick() {
		t.Errorf("-sim.seed %d: the last tick that was granted is %d, and the layout has ticks up to %d", *simSeed, r.most, layout.MaxTick())
	}
	if !slices.ContainsFunc(r.services[0].processes, func(x *simProcess) bool {
		return x.lease.held && x.lease.granted == layout.MaxTick() && x.lease.next(r.params, layout.MaxTick()+2) == stepExhausted
	}) {
		t.Error("no process finds that the layout has ended")
	}
}

// TestSimulation_TenThousandProcessesNeedTheCarrier: the default layout cannot carry 10,000 processes with 200 tables.
// What the planner names instead does, through a day with deployments.
func TestSimulation_TenThousandProcessesNeedTheCarrier(t *testing.T) {
	t.Parallel()
	if testing.Short() || modelRacing {
		t.Skip("-short, or the race detector")
	}

	f, err := generator.Plan(generator.DefaultLayout(), generator.Demand{Processes: 10_000, Tables: 200, Spares: simSpares, Reserved: 2_500})
	testkit.Must(t, err)
	carrier, ok := f.Carrier()
	if f.Leased.Fits || !ok || !strings.Contains(f.String(), carrier.String()) {
		t.Fatalf("the planner names %v, %v:\n%v", carrier, ok, f)
	}
	t.Logf("\n%v", f)
	r := newSimRun(carrier, time.Date(2027, 1, 1, 0, 0, 0, 0, time.UTC), 1, 10)
	r.grown, r.deploys = true, 5
	r.run()
	t.Log(r)
	r.check(t)
	if last := r.points[0]; last.used < 2_000_000 || r.count.exhausted > 0 {
		t.Errorf("-sim.seed %d: %+v, %+v", *simSeed, last, r.count)
	}
}

// TestSimulationControl_FindsWhatIsWrong: with a database that does not compare, ticks are granted twice. If slots are
// reserved for longer than the planner knows, more are made than it forecasts.
func TestSimulationControl_FindsWhatIsWrong(t *testing.T) {
	t.Parallel()

	for name, tt := range map[string]struct {
		fault string
		wrong func(*simRun)
	}{
		"statements do not compare":      {"are granted a second time", func(r *simRun) { r.blind = true }},
		"closed slots are reserved long": {"the forecast has", func(r *simRun) { r.params.settle *= 20 }},
		"slots of crashed ones are too":  {"the forecast has", func(r *simRun) { r.params.grace *= 600 }},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()

			r := newSimRun(generator.DefaultLayout(), generator.DefaultLayout().Epoch, 1, 0.1)
			r.grown = true
			tt.wrong(r)
			r.run()
			if !slices.ContainsFunc(r.faults, func(f string) bool { return strings.Contains(f, tt.fault) }) {
				t.Errorf("-sim.seed %d: no fault says that ticks or slots %s: %q", *simSeed, tt.fault, r.faults)
			}
		})
	}
}

// TestSimulationSync_IsTheSumOfRenewals compares renewals that are summed up with renewals that are done.
func TestSimulationSync_IsTheSumOfRenewals(t *testing.T) {
	t.Parallel()

	for _, hours := range []int64{1, 24} {
		w := newSimWorld(*simSeed, generator.DefaultLayout(), generator.DefaultLayout().Epoch.AddDate(1, 0, 0))
		w.services = simServices(w, 1)
		w.services[0].most, w.services[0].last = 2, 10
		x := w.services[0].start(false)
		w.run(w.now + 10_000)
		lease, row, high := x.lease, x.slot.row, x.slot.high
		begin, done := w.now, int64(0)
		x.sync()
		for w.now < begin+hours*3600_000 { // each renewal by itself
			w.now += 3_200
			if x.lease.next(w.params, x.clock()) != stepReady {
				t.Fatalf("%+v at %d", x.lease, x.clock())
			}
			c := x.lease.renewChange(w.params, x.clock(), x.me)
			if !x.renew(&c, w.now) {
				t.Fatalf("a renewal was refused: %+v", x.lease)
			}
			done++
		}
		each, eachHigh := x.lease, x.slot.high
		x.lease, x.slot.row, x.slot.high, x.said = lease, row, high, begin
		x.sync()
		sum, off := x.lease, x.lease.version-each.version
		if sum.granted < each.granted-3_400 || sum.granted > each.granted+3_400 || sum.fence != sum.granted || x.slot.high != sum.granted || eachHigh != each.granted {
			t.Errorf("summed up %+v, one by one %+v", sum, each)
		}
		if off < -done/5 || off > done/5 || x.slot.row.version != sum.version || x.slot.row.fence != sum.fence || sum.used != sum.version ||
			sum.start != each.start || sum.id != each.id || !sum.held || sum.inDoubt {
			t.Errorf("summed up %+v of %d renewals, one by one %+v; the row %+v", sum, done, each, x.slot.row)
		}
		for _, f := range w.faults {
			t.Error(f)
		}
	}
}

// TestSimulationPrune_KeepsWhatNewIDsNeed: the sessions since a day, the one that was on then, and one for all before.
func TestSimulationPrune_KeepsWhatNewIDsNeed(t *testing.T) {
	t.Parallel()

	for _, tt := range []struct {
		rows, want []simSessions
		deleted    int64
	}{
		{nil, nil, 0},
		{[]simSessions{{3, 1}, {10, 9}}, []simSessions{{3, 1}, {10, 9}}, 0},
		{[]simSessions{{3, 5}, {10, 9}}, []simSessions{{3, 2}, {10, 9}}, 3},
		{[]simSessions{{3, 1}, {5, 1}, {10, 9}}, []simSessions{{3, 1}, {5, 1}, {10, 9}}, 0},
		{[]simSessions{{3, 1}, {5, 4}, {6, 2}}, []simSessions{{3, 1}, {6, 1}}, 5},
		{[]simSessions{{10, 4}, {11, 2}}, []simSessions{{10, 4}, {11, 2}}, 0},
	} {
		got, deleted := simPrune(slices.Clone(tt.rows), 10)
		if !slices.Equal(got, tt.want) || deleted != tt.deleted {
			t.Errorf("of %v %v are left, %d deleted; want %v, %d", tt.rows, got, deleted, tt.want, tt.deleted)
		}
		if again, deleted := simPrune(slices.Clone(got), 10); !slices.Equal(again, got) || deleted != 0 {
			t.Errorf("of %v %v are left after another time", got, again)
		}
	}
}
