package workernode

import (
	"flag"
	"testing"
	"time"

	"github.com/uidplugin/uidplugin/generator"
)

var (
	simYears  = flag.Float64("sim.years", 0.5, "years that TestSimulation simulates")
	simSeed   = flag.Uint64("sim.seed", 1, "the seed of simulations")
	simSample = flag.Int("sim.sample", 20, "of days that are like others, one of so many is simulated")
	simChart  = flag.String("sim.chart", "", "write the picture of the run of TestSimulation to this file (SVG)")
)

// simBegin is when the layout begins, so that the time which is used up is that of the run.
func simBegin(l generator.Layout) time.Time { return l.Epoch }

func newSimRun(layout generator.Layout, begin time.Time, days, times int) *simRun {
	r := &simRun{simWorld: newSimWorld(*simSeed, layout, begin), days: days, sample: *simSample}
	r.begin = r.now
	r.services = simServices(r.simWorld, times)
	return r
}

// check reports what must never be.
func (r *simRun) check(t *testing.T) {
	t.Helper()
	for _, f := range r.faults {
		t.Errorf("-sim.seed %d: %s", *simSeed, f)
	}
	if most := DefaultLead.Milliseconds() + 50 + r.perTick; r.ahead > most {
		t.Errorf("-sim.seed %d: a fence was %d ms ahead of the time, more than %d", *simSeed, r.ahead, most)
	}
}

func TestSimulation(t *testing.T) {
	years := *simYears
	if testing.Short() {
		years = min(years, 0.1)
	}
	began := time.Now()
	r := newSimRun(generator.DefaultLayout(), simBegin(generator.DefaultLayout()), int(years*365.2425), 1)
	year := 0
	r.progress = func(day int) {
		if now := int(float64(day) / 365.2425); now > year {
			year = now
			t.Logf("%v: %v", time.Since(began).Round(time.Second), r)
		}
	}
	r.run()
	t.Logf("%v: %v", time.Since(began).Round(time.Millisecond), r)
	r.check(t)
}
