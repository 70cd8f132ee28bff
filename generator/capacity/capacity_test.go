package capacity_test

import (
	"errors"
	"fmt"
	"math"
	"strings"
	"testing"
	"time"

	"github.com/uidplugin/uidplugin/generator"
	"github.com/uidplugin/uidplugin/generator/capacity"
	"github.com/uidplugin/uidplugin/internal/testkit"
)

var date = time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)

// seconds is a layout with ticks of a second.
func seconds(timeBits, workerBits, sequenceBits uint8) generator.Layout {
	return generator.Layout{TimeBits: timeBits, WorkerBits: workerBits, SequenceBits: sequenceBits, Tick: time.Second, Epoch: date}
}

func plan(t *testing.T, l generator.Layout, d capacity.Demand) capacity.Forecast {
	t.Helper()

	f, err := capacity.Plan(l, d)
	testkit.Must(t, err)
	return f
}

const days = 365.2425 // of a year

// The two examples are from UidGenerator's README, which has the rates 14,400 and 2,400.
func TestPlan_AgreesWithUidGeneratorsExamples(t *testing.T) {
	t.Parallel()

	tests := []struct {
		layout    generator.Layout
		restarts  float64
		processes int64
		rate      float64
		years     float64
	}{
		{seconds(31, 23, 9), 12, 28, 14_336, 68},
		{seconds(30, 27, 6), 24 * 12, 37, 2_368, 34},
	}
	for _, tt := range tests {
		d := capacity.Demand{Processes: int(tt.processes), RestartsPerDay: tt.restarts}
		f := plan(t, tt.layout, d)
		if f.Disposable.Processes != tt.processes || f.Disposable.PerSecond != tt.rate || math.Floor(f.Years) != tt.years || f.Disposable.Years != f.Years {
			t.Errorf("%v with %v restarts a day: %d processes, %v ids a second, %v of %v years; want %d, %v, %v",
				tt.layout, tt.restarts, f.Disposable.Processes, f.Disposable.PerSecond, f.Disposable.Years, f.Years, tt.processes, tt.rate, tt.years)
		}
		d.Processes++
		if f := plan(t, tt.layout, d); f.Disposable.Years >= f.Years {
			t.Errorf("%v lasts for %d processes, too", tt.layout, d.Processes)
		}
	}
}

// For how many days worker ids for each table last, with 28 processes that restart 12 times a day.
func TestPlan_TablesUseUpWorkerIDs(t *testing.T) {
	t.Parallel()

	tests := []struct {
		workerBits uint8
		tables     int
		days       float64
	}{
		{22, 1, 12480}, {22, 20, 624}, {22, 50, 250}, {22, 100, 125},
		{23, 1, 24855}, // all that the time bits last; worker ids would for 24,966
		{23, 20, 1248}, {23, 50, 499}, {23, 100, 250},
		{27, 1, 24855}, {27, 20, 19973}, {27, 50, 7989}, {27, 100, 3995},
	}
	for _, tt := range tests {
		f := plan(t, seconds(31, tt.workerBits, 5), capacity.Demand{Processes: 28, RestartsPerDay: 12, Tables: tt.tables})
		if got := math.Round(f.Disposable.Years * days); got != tt.days {
			t.Errorf("%d tables use up %d bits in %v days, want %v", tt.tables, tt.workerBits, got, tt.days)
		}
		if want := float64(28 * 12 * tt.tables); f.Disposable.PerDay != want {
			t.Errorf("%d tables use up %v worker ids a day, want %v", tt.tables, f.Disposable.PerDay, want)
		}
	}
}

// TestPlan_CountsDisposableWorkerIDs has the corners: no restarts, and too few worker ids to start.
func TestPlan_CountsDisposableWorkerIDs(t *testing.T) {
	t.Parallel()

	l := seconds(28, 10, 13) // 960 worker ids
	f := plan(t, l, capacity.Demand{Processes: 320, Tables: 3})
	if f.Disposable.Years != f.Years || f.Disposable.PerDay != 0 || f.Disposable.Processes != 320 {
		t.Errorf("as many as there are, never restarted: %+v", f.Disposable)
	}
	f = plan(t, l, capacity.Demand{Processes: 321, Tables: 3})
	if f.Disposable.Years != 0 || f.Leased.Fits || f.Leased.Processes != 320 {
		t.Errorf("more than there are: %+v, %+v", f.Disposable, f.Leased)
	}
	if f := plan(t, l, capacity.Demand{}); f.Demand != (capacity.Demand{Processes: 1, Tables: 1, Lanes: 1, Grace: capacity.DefaultGrace}) ||
		f.Disposable.PerSecond != 8192 || f.Leased.PerSecond != 8192 || f.Leased.Held != 1 || f.Layout != l || f.WorkerIDs != 960 {
		t.Errorf("the zero Demand: %+v", f)
	}
}

// A forecast that forgets crashed processes or lanes promises worker ids that are held by others.
func TestPlan_CountsLeasedWorkerIDs(t *testing.T) {
	t.Parallel()

	tests := []struct {
		name      string
		demand    capacity.Demand
		held      int64
		processes int64 // of 261,119 worker ids
		rate      float64
	}{
		{"processes and tables", capacity.Demand{Processes: 20, Tables: 50}, 1000, 5222, 1000 * 16000},
		{"restarts in good order", capacity.Demand{Processes: 20, Tables: 50, RestartsPerDay: 12, Grace: time.Hour}, 1000, 5222, 1000 * 16000},
		{"crashes with the default grace", capacity.Demand{Processes: 20, Tables: 50, RestartsPerDay: 12, CrashesPerDay: 12}, 2000, 2611, 1000 * 16000},
		{"lanes", capacity.Demand{Processes: 20, Tables: 50, Lanes: 16}, 16000, 326, 16000 * 16000},
		{"imports", capacity.Demand{Processes: 20, Tables: 50, Imports: 3}, 1900, 2748, 1900 * 16000},
		{"imports and lanes", capacity.Demand{Processes: 20, Tables: 50, Imports: 50, Lanes: 2}, 16000, 326, 16000 * 16000},
		{"all crash at once", capacity.Demand{Processes: 20, Tables: 50, RestartsPerDay: 12, CrashesPerDay: 0.1, Grace: 80 * time.Second}, 2000, 2611, 1000 * 16000},
		{"a rolling deployment of 2 at a time", capacity.Demand{Processes: 20, Tables: 50, Reserved: 4}, 1200, 5218, 1000 * 16000},
		{"all restarted at once", capacity.Demand{Processes: 20, Tables: 50, Reserved: 20, Lanes: 2}, 4000, 2591, 2000 * 16000},
		{"more reserved than there are", capacity.Demand{Processes: 20, Tables: 50, Reserved: 5243}, 263150, 0, 1000 * 16000},
		{"reserved, and all crash", capacity.Demand{Processes: 20, Tables: 50, Reserved: 5, RestartsPerDay: 1, CrashesPerDay: 1}, 2250, 2608, 1000 * 16000},
		{"one a grace", capacity.Demand{Processes: 20, Tables: 50, RestartsPerDay: 24, CrashesPerDay: 24, Grace: time.Hour}, 2000, 2611, 1000 * 16000},
		{"a crash loop", capacity.Demand{Processes: 20, Tables: 50, RestartsPerDay: 1440, CrashesPerDay: 1440, Grace: time.Hour}, 61000, 85, 1000 * 16000},
		{"too many", capacity.Demand{Processes: 5243, Tables: 50}, 262150, 5222, 262150 * 16000},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			got := plan(t, generator.DefaultLayout(), tt.demand).Leased
			perSlot := int64(tt.demand.Tables-tt.demand.Imports)*int64(max(tt.demand.Lanes, 1)) + 16*int64(tt.demand.Imports)
			want := capacity.LeasedForecast{Slots: tt.held / perSlot, Held: tt.held, PerSecond: tt.rate, Fits: tt.held <= 261119, Processes: tt.processes}
			if got != want {
				t.Errorf("got %+v, want %+v", got, want)
			}
		})
	}
}

// Numbers that are negative, not finite or too large would come out as a forecast that looks right.
func TestPlan_RefusesWhatMeansNothing(t *testing.T) {
	t.Parallel()

	_, err := capacity.Plan(generator.Layout{}, capacity.Demand{})
	testkit.IsError(t, err, generator.ErrLayout)
	for _, d := range []capacity.Demand{
		{Processes: -1}, {Tables: -1}, {Lanes: -1}, {Lanes: 17}, {Imports: -1}, {Tables: 2, Imports: 3}, {Reserved: -1}, {Grace: -1},
		{RestartsPerDay: -1}, {RestartsPerDay: 86401}, {RestartsPerDay: math.NaN()}, {RestartsPerDay: math.Inf(1)},
		{CrashesPerDay: 1}, {RestartsPerDay: 1, CrashesPerDay: 2}, {RestartsPerDay: 1, CrashesPerDay: -1},
		{RestartsPerDay: 1, CrashesPerDay: math.NaN()},
		{Processes: math.MaxInt32, Tables: math.MaxInt32, Lanes: 16},
		{Reserved: math.MaxInt32, Tables: math.MaxInt32, Lanes: 16},
		{Processes: math.MaxInt, Tables: math.MaxInt, Lanes: 16, RestartsPerDay: 86400, CrashesPerDay: 86400, Grace: math.MaxInt64},
	} {
		if f, err := capacity.Plan(generator.DefaultLayout(), d); !errors.Is(err, generator.ErrConfig) || f != (capacity.Forecast{}) {
			t.Errorf("Plan(%+v) = %+v, %v; want ErrConfig", d, f, err)
		}
	}
}

// FuzzPlan checks that an answer has no infinite or negative numbers, that the number of processes in it fits, and
// that one more does not.
func FuzzPlan(f *testing.F) {
	for _, l := range []generator.Layout{
		generator.DefaultLayout(), generator.SnowflakeLayout(), generator.JSSafeLayout(), generator.JSSafeTablesLayout(), seconds(28, 22, 13),
		{TimeBits: 1, WorkerBits: 1, SequenceBits: 1, Tick: time.Millisecond, Epoch: date},
		{TimeBits: 61, WorkerBits: 1, SequenceBits: 1, Tick: time.Millisecond, Epoch: date},
		{TimeBits: 1, WorkerBits: 61, SequenceBits: 1, Tick: time.Hour, Epoch: date},
		{TimeBits: 1, WorkerBits: 1, SequenceBits: 61, Tick: time.Hour, Epoch: date},
		{TimeBits: 19, WorkerBits: 10, SequenceBits: 10, Tick: math.MaxInt64, Epoch: date},
	} {
		f.Add(l.TimeBits-1, l.WorkerBits-1, l.SequenceBits-1, int64(l.Tick), 28, 50, 1, 6, 12., 1., int64(time.Hour))
		f.Add(l.TimeBits-1, l.WorkerBits-1, l.SequenceBits-1, int64(l.Tick), math.MaxInt32, 1, 16, 0, 1e-300, 1e-300, int64(math.MaxInt64))
	}
	f.Fuzz(func(t *testing.T, timeBits, workerBits, sequenceBits uint8, tick int64, processes, tables, lanes, reserved int, restarts, crashes float64, grace int64) {
		l := generator.Layout{TimeBits: 1 + timeBits%61, Epoch: date}
		l.WorkerBits = 1 + workerBits%(62-l.TimeBits)
		l.SequenceBits = 1 + sequenceBits%(63-l.TimeBits-l.WorkerBits)
		for l.Tick = max(time.Duration(tick&(1<<63-1)), time.Millisecond); l.Validate() != nil; l.Tick = max(l.Tick/2, time.Millisecond) {
			if l.Tick == time.Millisecond {
				t.Skip("no tick makes it valid")
			}
		}
		d := capacity.Demand{Processes: processes, Tables: tables, Lanes: lanes, Reserved: reserved,
			RestartsPerDay: restarts, CrashesPerDay: crashes, Grace: time.Duration(grace)}
		f, err := capacity.Plan(l, d)
		if err != nil {
			testkit.IsError(t, err, generator.ErrConfig)
			return
		}
		for _, x := range []float64{f.Years, f.PerWorker, f.Disposable.PerDay, f.Disposable.PerSecond, f.Disposable.Years, f.Leased.PerSecond} {
			if math.IsNaN(x) || math.IsInf(x, 0) || x < 0 {
				t.Fatalf("%+v", f)
			}
		}
		if f.Years == 0 || f.PerWorker == 0 || f.Disposable.Years > f.Years || f.Disposable.Processes < 0 || f.Leased.Held < 1 || f.Leased.Processes < 0 {
			t.Fatalf("%+v", f)
		}
		if rate := float64(l.MaxSequence()+1) / l.Tick.Seconds(); math.Abs(f.PerWorker/rate-1) > 1e-12 {
			t.Fatalf("%v carries %v ids a second, want %v", l, f.PerWorker, rate)
		}
		if f.Leased.Fits != (f.Leased.Held <= f.WorkerIDs) || f.Leased.Fits != (f.Leased.Processes >= int64(f.Demand.Processes)) {
			t.Fatalf("%+v", f)
		}
		lines := 8
		if l, ok := f.Carrier(); !f.Leased.Fits {
			lines = 10
			if ok && (!plan(t, l, f.Demand).Leased.Fits || l.Expires() != f.Layout.Expires() || l.JSSafe() != f.Layout.JSSafe()) {
				t.Fatalf("%v is to carry\n%v", l, f)
			}
		} else if !ok || l != f.Layout {
			t.Fatalf("%v fits, and %v is to carry it", f.Layout, l)
		}
		if text := f.String(); strings.Count(text, "\n") != lines || strings.Contains(text, "NaN") || strings.Contains(text, "Inf") {
			t.Fatal(text)
		}
	})
}

// The named layout has enough worker ids, lasts as long, and has no superfluous bits.
func TestForecastCarrier_HasEnoughWorkerIDs(t *testing.T) {
	t.Parallel()

	shifted := func(l generator.Layout, worker, sequence int) generator.Layout {
		l.WorkerBits, l.SequenceBits = uint8(int(l.WorkerBits)+worker), uint8(int(l.SequenceBits)+sequence)
		return l
	}
	large, tables, small := generator.DefaultLayout(), generator.JSSafeTablesLayout(), generator.JSSafeLayout()
	coarser := shifted(large, 4, -3)
	coarser.TimeBits, coarser.Tick = 40, 2*time.Millisecond
	tests := []struct {
		name   string
		layout generator.Layout
		demand capacity.Demand
		want   generator.Layout // the zero Layout: none
	}{
		{"it fits", large, capacity.Demand{Processes: 1000, Tables: 200}, large},
		{"10,000 x 200", large, capacity.Demand{Processes: 10_000, Tables: 200}, shifted(large, 3, -3)},
		{"10,000 x 200, deployed", large, capacity.Demand{Processes: 10_000, Tables: 200, Reserved: 2000}, coarser},
		{"too many for ticks of a second", seconds(41, 18, 4), capacity.Demand{Processes: 10_500, Tables: 200}, generator.Layout{}},
		{"safe for JavaScript", tables, capacity.Demand{Processes: 200, Tables: 50}, shifted(tables, 1, -1)},
		{"free bits go first", seconds(30, 8, 4), capacity.Demand{Processes: 100, Tables: 50}, shifted(seconds(30, 8, 4), 5, 0)},
		{"free bits, and then those of the sequence", seconds(44, 13, 4), capacity.Demand{Processes: 5000, Tables: 50}, shifted(seconds(44, 13, 4), 5, -3)},
		{"more bits give imports more lanes", small, capacity.Demand{Processes: 1, Tables: 10, Imports: 10}, shifted(small, 3, -3)},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			f := plan(t, tt.layout, tt.demand)
			got, ok := f.Carrier()
			if got != tt.want || ok != (tt.want != generator.Layout{}) {
				t.Fatalf("Carrier() = %v, %v, want %v, for\n%v", got, ok, tt.want, f)
			}
			if !ok {
				if text := f.String(); !strings.Contains(text, "\ncarrier   none") {
					t.Errorf("the forecast does not say that there is none:\n%s", text)
				}
				return
			}
			if carried := plan(t, got, tt.demand); !carried.Leased.Fits || carried.Years != f.Years {
				t.Errorf("that is\n%v", carried)
			}
		})
	}
}

func TestForecastString_SaysOnlyWhatThereIs(t *testing.T) {
	t.Parallel()

	d := capacity.Demand{Tables: 3, Lanes: 4, Imports: 1, RestartsPerDay: 1. / 7, CrashesPerDay: 0.01, Grace: 80 * time.Second}
	l := seconds(12, 4, 4)
	l.Tick = time.Minute
	want := `layout    44-12-4-4/1m0s@1767225600
lasts     2.84 days, until 2026-01-03 20:16:00 UTC
carries   0.267 ids a second for each of 15 worker ids
demand    1 process x 3 tables x 4 lanes, 1 with imports, 0.143 restarts a day, of them 0.01 crashes, grace 1m20s

policy      worker ids   lasts      processes  ids a second
disposable  0.429 a day  2.84 days  5          0.8
leased      24 held      too few    0          3.2

carrier   43-12-5-4/1m0s@1767225600 has 30 worker ids, each for 0.267 ids a second
`
	if got := plan(t, l, d).String(); got != want {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
	for years, text := range map[float64]string{0: "too few", 1.5: "547.9 days", 2: "2 years", 1 / days: "24 hours", 1 / days / 24: "3,600 seconds", 1e15: "1e+15 years"} {
		f := capacity.Forecast{Layout: l, Years: years, Leased: capacity.LeasedForecast{Fits: true}}
		if got := f.String(); !strings.Contains(got, "lasts     "+text+", until") {
			t.Errorf("%v years are written as\n%s\nwant %s", years, got, text)
		}
	}
}

func ExamplePlan() {
	forecast, err := capacity.Plan(generator.DefaultLayout(), capacity.Demand{
		Processes:      28,
		Tables:         50,
		RestartsPerDay: 12,
	})
	if err != nil {
		panic(err)
	}
	fmt.Print(forecast)
	// Output:
	// layout    1-41-18-4/1ms@1514764800
	// lasts     69.7 years, until 2087-09-07 15:47:35.552 UTC
	// carries   16,000 ids a second for each of 261,119 worker ids
	// demand    28 processes x 50 tables, 12 restarts a day
	//
	// policy      worker ids    lasts       processes  ids a second
	// disposable  16,800 a day  15.5 days   0          22,400,000
	// leased      1,400 held    69.7 years  5,222      22,400,000
}
