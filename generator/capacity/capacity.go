// Package capacity computes how long a layout lasts and how many processes it carries ([Plan]), and draws the bits of
// an id ([Picture]). Programs that only make ids do not need it.
package capacity

import (
	"fmt"
	"math"
	"math/bits"
	"strconv"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/uidplugin/uidplugin/generator"
)

const (
	daysPerYear   = 365.2425 // on average, in the Gregorian calendar
	secondsPerDay = 24 * 60 * 60
)

// A Demand is the load that a layout should carry, for [Plan]. The zero Demand is one process that makes ids for one
// table and never ends.
type Demand struct {
	Processes int // largest number that run at once, without the additional ones of a deployment; 0 means 1

	// Tables is the number of tables for which each process makes ids; 0 means 1. Under the leased policy, count all
	// tables for which any process of the application has ever made ids, because a slot keeps the worker ids of all
	// its holders. Applications with other tables have slots of their own: plan each application, and add up Held.
	Tables int

	// RestartsPerDay is how often a day each process is started, deployments and crashes included, from 0 to 86,400. It
	// need not be whole: 1.0/7 is once a week. 0 means that each process is started once.
	RestartsPerDay float64

	// Lanes is how many worker ids a slot owns for each table under the leased policy, from 1 to
	// [generator.MaxLanes]; 0 means 1.
	Lanes int

	// Imports is how many of Tables get so many rows at once that their ids run ahead of the clock by more than
	// [generator.Layout.LaneAhead]: in the default layout, batches of more than 800 rows, or more than 16,000 rows a
	// second. For each of these tables a slot owns [generator.Layout.MaxLanes] worker ids instead of Lanes.
	Imports int

	// Reserved is how many slots the leased policy needs in addition to one for each process. A new process cannot
	// use the slot of the process that it replaces while both run, nor for 21 s after the old one was closed: twice
	// the lead of 10 s, and a second. So a deployment that replaces n processes at a time needs 2n more slots, if
	// each is ready after 21 s or more: n for the new processes, and n that were just closed. A restart of all
	// processes at once needs Processes more slots. Add the processes that can crash within Grace, such as those of
	// one machine. 0 means that a process starts only when the slot of its predecessor is free.
	Reserved int

	// CrashesPerDay is how many of RestartsPerDay follow a crash. If it is not 0, Plan assumes that all processes may
	// crash within Grace, and that the leased policy keeps their slots for that time. 0 means that Reserved includes
	// the crashes, or that there are none.
	CrashesPerDay float64

	// Grace is how long the slot of a crashed process is kept; 0 means [DefaultGrace].
	Grace time.Duration
}

// DefaultGrace is the default of Demand.Grace: how long the leased policy keeps the slot of a crashed process. It
// is a minute plus the lead of 10 s, because the process may have stamped ids that far ahead of the clock.
const DefaultGrace = 70 * time.Second

// A Forecast is the answer of [Plan]. A year has 365.2425 days.
type Forecast struct {
	Layout generator.Layout
	Demand Demand // with the defaults in place of zeros

	Years     float64 // from Epoch to Expires: how long the time bits last
	WorkerIDs int64   // how many a registry gives out: all above [generator.Layout.MaxFixedWorkerID]

	// PerWorker is how many ids a second one worker id carries. For a short time a [generator.Cached] hands out more, by
	// borrowing from future ticks.
	PerWorker float64

	Disposable DisposableForecast
	Leased     LeasedForecast
}

// A DisposableForecast is the forecast for the disposable policy. Each start of a process takes a new worker id for
// each of its tables, and no worker id is given out twice. The policy has no lanes.
type DisposableForecast struct {
	PerDay    float64 // worker ids that are used up in a day
	PerSecond float64 // ids a second that all worker ids in use carry together

	// Years is how long the layout lasts: until all worker ids or the time bits are used up, whichever is first. It
	// is 0 if there are too few worker ids for the first starts.
	Years float64

	// Processes is the largest number of processes with which the worker ids last as long as the time bits.
	Processes int64
}

// A LeasedForecast describes the policy by which each process holds one slot. A slot owns Tables x Lanes worker
// ids, or more with Imports. Another process can use it 21 s after the holder was closed, or Grace after the holder
// crashed. The policy lasts as long as the time bits if Fits is true.
type LeasedForecast struct {
	// Slots is the largest number of slots that are taken at the same time: one for each running process and each
	// process that can have crashed within Grace, plus Reserved. No more slots are ever made. Plan assumes that
	// each process crashes at equal intervals, and that all processes crash at the same moments.
	Slots int64

	// Held is how many worker ids the slots own.
	Held int64

	PerSecond float64 // ids a second that the worker ids of all running processes carry
	Fits      bool    // whether the layout has Held worker ids

	// Processes is the largest number of processes for which the layout has worker ids.
	Processes int64
}

// Plan returns how long l lasts and how much it carries under the demand d. Too few worker ids are an answer, not an
// error. An error wraps [generator.ErrLayout] if l is not valid. It wraps [generator.ErrConfig] if a field of d is out
// of its range, or if d asks for more than 2^62 worker ids at once, because they cannot be counted.
func Plan(l generator.Layout, d Demand) (Forecast, error) {
	if err := l.Validate(); err != nil {
		return Forecast{}, err
	}
	d = d.withDefaults()
	if err := d.validate(); err != nil {
		return Forecast{}, err
	}
	var many uncountable
	starts := many.times(uint64(d.Processes), uint64(d.Tables)) // worker ids, if each process starts once
	slot := many.plus(many.times(uint64(d.Tables-d.Imports), uint64(d.Lanes)),
		many.times(uint64(d.Imports), uint64(max(d.Lanes, l.MaxLanes()))))
	each := many.times(slot, 1+d.ghosts()) // worker ids of one process and its crashed predecessors
	slots := many.plus(many.times(uint64(d.Processes), 1+d.ghosts()), uint64(d.Reserved))
	held := many.times(slots, slot)
	if many {
		return Forecast{}, fmt.Errorf("%w: %d processes, %d tables, %d lanes and %d reserved slots are more than 2^62 worker ids at once",
			generator.ErrConfig, d.Processes, d.Tables, d.Lanes, d.Reserved)
	}

	f := Forecast{Layout: l, Demand: d, WorkerIDs: l.MaxWorkerID() - l.MaxFixedWorkerID()}
	days := math.Ldexp(l.Tick.Seconds(), int(l.TimeBits)) / secondsPerDay
	f.Years = days / daysPerYear
	f.PerWorker = math.Ldexp(1, int(l.SequenceBits)) / l.Tick.Seconds()

	f.Disposable = DisposableForecast{
		PerDay:    float64(starts) * d.RestartsPerDay,
		PerSecond: float64(starts) * f.PerWorker,
		Processes: int64(float64(f.WorkerIDs) / (float64(d.Tables) * max(d.RestartsPerDay*days, 1))),
	}
	if starts <= uint64(f.WorkerIDs) {
		f.Disposable.Years = f.Years
		if used := f.Disposable.PerDay * days; used > float64(f.WorkerIDs) {
			f.Disposable.Years *= float64(f.WorkerIDs) / used
		}
	}
	reserved := many.times(uint64(d.Reserved), slot)
	f.Leased = LeasedForecast{
		Slots:     int64(slots),
		Held:      int64(held),
		PerSecond: float64(d.Processes) * float64(slot) * f.PerWorker,
		Fits:      held <= uint64(f.WorkerIDs),
		Processes: int64((max(uint64(f.WorkerIDs), reserved) - reserved) / each),
	}
	return f, nil
}

func (d Demand) withDefaults() Demand {
	for _, n := range []*int{&d.Processes, &d.Tables, &d.Lanes} {
		if *n == 0 {
			*n = 1
		}
	}
	if d.Grace == 0 {
		d.Grace = DefaultGrace
	}
	return d
}

func (d Demand) validate() error {
	switch {
	case d.Processes < 0 || d.Tables < 0 || d.Reserved < 0 || d.Grace < 0:
		return fmt.Errorf("%w: %d processes, %d tables, %d reserved slots and a grace of %v must not be negative",
			generator.ErrConfig, d.Processes, d.Tables, d.Reserved, d.Grace)
	case d.Lanes < 0 || d.Lanes > generator.MaxLanes:
		return fmt.Errorf("%w: %d lanes are outside 1 to %d", generator.ErrConfig, d.Lanes, generator.MaxLanes)
	case d.Imports < 0 || d.Imports > d.Tables:
		return fmt.Errorf("%w: %d tables with imports are outside 0 to %d, the tables", generator.ErrConfig, d.Imports, d.Tables)
	case !(d.RestartsPerDay >= 0 && d.RestartsPerDay <= secondsPerDay): // NaN, too
		return fmt.Errorf("%w: %v restarts a day are outside 0 to %d", generator.ErrConfig, d.RestartsPerDay, secondsPerDay)
	case !(d.CrashesPerDay >= 0 && d.CrashesPerDay <= d.RestartsPerDay):
		return fmt.Errorf("%w: %v crashes a day are outside 0 to %v, the restarts a day",
			generator.ErrConfig, d.CrashesPerDay, d.RestartsPerDay)
	}
	return nil
}

// ghosts is how many predecessors of one process can have crashed within the grace.
func (d Demand) ghosts() uint64 {
	return uint64(math.Ceil(d.CrashesPerDay * d.Grace.Seconds() / secondsPerDay)) // below 2^34
}

// uncountable becomes true when a result is above 2^62.
type uncountable bool

func (u *uncountable) times(a, b uint64) uint64 {
	hi, lo := bits.Mul64(a, b)
	*u = *u || hi > 0 || lo > 1<<62
	return lo
}

func (u *uncountable) plus(a, b uint64) uint64 {
	sum, carry := bits.Add64(a, b, 0)
	*u = *u || carry > 0 || sum > 1<<62
	return sum
}

// String returns the forecast as lines for a person to read, each with a newline:
//
//	layout    1-41-18-4/1ms@1514764800
//	lasts     69.7 years, until 2087-09-07 15:47:35.552 UTC
//	carries   16,000 ids a second for each of 261,119 worker ids
//	demand    28 processes x 50 tables, 12 restarts a day
//
//	policy      worker ids    lasts       processes  ids a second
//	disposable  16,800 a day  15.5 days   0          22,400,000
//	leased      1,400 held    69.7 years  5,222      22,400,000
//
// If the leased policy does not fit, one more paragraph names a layout that fits, or says that none does.
//
// The column "processes" has the largest number that each policy allows. Under the disposable policy, the
// worker ids of these processes last as long as the layout.
func (f Forecast) String() string {
	var out strings.Builder
	d := f.Demand
	fmt.Fprintf(&out, "layout    %v\n", f.Layout)
	fmt.Fprintf(&out, "lasts     %s, until %s\n", span(f.Years), f.Layout.Expires().Format("2006-01-02 15:04:05.999 MST"))
	fmt.Fprintf(&out, "carries   %s ids a second for each of %s worker ids\n", number(f.PerWorker), number(float64(f.WorkerIDs)))
	fmt.Fprintf(&out, "demand    %s x %s", several(d.Processes, "process", "processes"), several(d.Tables, "table", "tables"))
	if d.Lanes > 1 {
		fmt.Fprintf(&out, " x %s", several(d.Lanes, "lane", "lanes"))
	}
	if d.Imports > 0 {
		fmt.Fprintf(&out, ", %s with imports", number(float64(d.Imports)))
	}
	if d.Reserved > 0 {
		fmt.Fprintf(&out, ", %s reserved", several(d.Reserved, "slot", "slots"))
	}
	fmt.Fprintf(&out, ", %s restarts a day", number(d.RestartsPerDay))
	if d.CrashesPerDay > 0 {
		fmt.Fprintf(&out, ", of them %s crashes, grace %v", number(d.CrashesPerDay), d.Grace)
	}
	out.WriteString("\n\n")

	leased := "too few"
	if f.Leased.Fits {
		leased = span(f.Years)
	}
	table := tabwriter.NewWriter(&out, 0, 0, 2, ' ', 0)
	fmt.Fprintf(table, "policy\tworker ids\tlasts\tprocesses\tids a second\n")
	fmt.Fprintf(table, "disposable\t%s a day\t%s\t%s\t%s\n", number(f.Disposable.PerDay), span(f.Disposable.Years),
		number(float64(f.Disposable.Processes)), number(f.Disposable.PerSecond))
	fmt.Fprintf(table, "leased\t%s held\t%s\t%s\t%s\n", number(float64(f.Leased.Held)), leased,
		number(float64(f.Leased.Processes)), number(f.Leased.PerSecond))
	_ = table.Flush() // a Builder returns no errors
	if !f.Leased.Fits {
		out.WriteString("\n" + f.advice())
	}
	return out.String()
}

// advice names a layout with enough worker ids for the leased policy.
func (f Forecast) advice() string {
	l, ok := f.carrier()
	if !ok {
		return "carrier   none that lasts as long: accept fewer years, or use several id spaces\n"
	}
	return fmt.Sprintf("carrier   %v has %s worker ids, each for %s ids a second\n",
		l, number(float64(l.MaxWorkerID()-l.MaxFixedWorkerID())), number(math.Ldexp(1, int(l.SequenceBits))/l.Tick.Seconds()))
}

// carrier returns the layout nearest to f.Layout that has enough worker ids for f.Demand, or false if too few bits are
// left. The layout lasts as long, and is safe for JavaScript if f.Layout is. Its additional worker bits come from
// unused bits, then from the sequence, then from the time. It is for new databases, because a database in use has
// its layout pinned.
func (f Forecast) carrier() (generator.Layout, bool) {
	l := f.Layout
	most := 63
	if l.JSSafe() {
		most = 53
	}
	for {
		// More worker bits also mean more lanes for imports, so the demand is planned again.
		next, err := Plan(l, f.Demand)
		if err != nil {
			return generator.Layout{}, false
		}
		if next.Leased.Fits {
			return l, true
		}
		free := int(l.TimeBits)+int(l.WorkerBits)+int(l.SequenceBits) < most
		switch {
		case free:
		case l.SequenceBits > 1:
			l.SequenceBits--
		case l.TimeBits > 1 && l.Tick <= time.Second/2:
			l.TimeBits, l.Tick = l.TimeBits-1, 2*l.Tick
		default:
			return generator.Layout{}, false
		}
		l.WorkerBits++
	}
}

// span writes years in the largest unit that fits at least twice. 0 years mean that worker ids are too few.
func span(years float64) string {
	if years == 0 {
		return "too few"
	}
	units := []struct {
		name  string
		years float64
	}{
		{"years", 1}, {"days", 1 / daysPerYear},
		{"hours", 1. / 24 / daysPerYear}, {"seconds", 1. / secondsPerDay / daysPerYear},
	}
	for _, u := range units[:3] {
		if n := years / u.years; n >= 2 {
			return number(n) + " " + u.name
		}
	}
	return number(years/units[3].years) + " seconds"
}

func several(n int, singular, plural string) string {
	if n == 1 {
		return "1 " + singular
	}
	return number(float64(n)) + " " + plural
}

// number writes x, which is not negative, for a person to read.
func number(x float64) string {
	switch {
	case x >= 1e15:
		return strconv.FormatFloat(x, 'g', 4, 64)
	case x < 1000 && x != math.Trunc(x):
		digits := 3
		if x >= 100 {
			digits = 4
		}
		return strconv.FormatFloat(x, 'g', digits, 64)
	}
	s := strconv.FormatFloat(math.Round(x), 'f', 0, 64)
	for i := len(s) - 3; i > 0; i -= 3 {
		s = s[:i] + "," + s[i:]
	}
	return s
}
