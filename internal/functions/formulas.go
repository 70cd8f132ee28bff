package functions

import (
	"fmt"
	"strings"
	"time"

	"github.com/uidplugin/uidplugin/generator"
)

// formulas writes SQL expressions for a layout and a dialect. Names in them are in double quotes; see translate.
type formulas struct {
	generator.Layout
	dialect string
}

func (f *formulas) timeShift() uint8 { return f.WorkerBits + f.SequenceBits }

// idsOf returns the condition that the tick of an id is in a range.
func (f *formulas) idsOf(id string, first, last int64) string {
	return fmt.Sprintf("%s BETWEEN %d AND %d", id, first<<f.timeShift(), last<<f.timeShift()|(1<<f.timeShift()-1))
}

// workerOfID returns the worker id of an id; NULL for a number that is no id of the layout. No id has the tick 0.
func (f *formulas) workerOfID(id string) string {
	return fmt.Sprintf("CASE WHEN %s THEN %s END", f.idsOf(id, 1, f.MaxTick()), f.workerOf(id))
}

func (f *formulas) workerOf(id string) string {
	return f.signed(fmt.Sprintf("(%s >> %d) & %d", id, f.SequenceBits, f.MaxWorkerID()))
}

func (f *formulas) tickOf(id string) string {
	return f.signed(fmt.Sprintf("%s >> %d", id, f.timeShift()))
}

// timeOfID returns the time of an id in UTC; NULL if it is no id of the layout, or outside of the years 1 to 9999.
func (f *formulas) timeOfID(id string) string {
	first, last := f.ticks()
	first, last = max(first, 1), min(last, f.MaxTick())
	if first > last {
		return "NULL"
	}
	return fmt.Sprintf("CASE WHEN %s THEN %s END", f.idsOf(id, first, last), f.timeOf(f.tickOf(id)))
}

// timeOfTick returns the start of a tick in UTC; NULL outside of the years 1 to 9999.
func (f *formulas) timeOfTick(tick string) string {
	first, last := f.ticks()
	if first > last {
		return "NULL"
	}
	return fmt.Sprintf("CASE WHEN %s BETWEEN %d AND %d THEN %s END", tick, first, last, f.timeOf(tick))
}

// ticks returns the first and the last tick in the years 1 to 9999, with which all dialects can calculate. last may
// be one above the layout's last tick. If the layout has no tick in these years, first is above last.
func (f *formulas) ticks() (first, last int64) {
	begin, end := time.Date(1, 1, 1, 0, 0, 0, 0, time.UTC), time.Date(10000, 1, 1, 0, 0, 0, -1, time.UTC)
	if first = f.TickAt(begin.Add(-1)); first > f.MaxTick() {
		return 1, 0
	}
	return first + 1, min(f.TickAt(end), f.MaxTick()+1)
}

// timeOf returns the start of a tick of the years 1 to 9999. It counts from their first tick, so nothing overflows.
func (f *formulas) timeOf(tick string) string {
	first, _ := f.ticks()
	base := f.TimeOf(first)
	if first > 0 {
		tick = fmt.Sprintf("%s - %d", tick, first)
	}
	n := fmt.Sprintf("(%s) * %d", tick, f.Tick/time.Microsecond)
	if rest, start := f.Tick%time.Microsecond, base.Nanosecond()%1000; rest != 0 || start != 0 {
		n = fmt.Sprintf("(%s + %s)", n, f.divided(fmt.Sprintf("((%s) * %d + %d)", tick, rest, start), 1000))
	}
	start := base.Truncate(time.Microsecond).Format("2006-01-02 15:04:05.000000")
	switch f.dialect {
	case "mysql":
		return fmt.Sprintf("TIMESTAMP'%s' + INTERVAL %s MICROSECOND", start, n)
	case "postgres": // days plus the rest, because PostgreSQL multiplies intervals in floating point
		return fmt.Sprintf("(TIMESTAMP '%s' + (%s) / 86400000000 * INTERVAL '1 day'"+
			" + (%s) %% 86400000000 * INTERVAL '1 microsecond') AT TIME ZONE 'UTC'", start, n, n)
	default:
		return fmt.Sprintf("strftime('%%Y-%%m-%%d %%H:%%M:%%f', (%d + (%s + %d) / 1000) / 1000.0, 'unixepoch')",
			base.UnixMilli(), n, base.Nanosecond()/1000%1000)
	}
}

// digits returns the number of fractional digits of times.
func (f *formulas) digits() int {
	if f.Tick%time.Millisecond == 0 && f.Epoch.Nanosecond()%1e6 == 0 {
		return 3
	}
	return 6
}

// signed makes bits a signed number, because MySQL's bit operators return unsigned numbers.
func (f *formulas) signed(bits string) string {
	if f.dialect == "mysql" {
		return "CAST(" + bits + " AS SIGNED)"
	}
	return "(" + bits + ")"
}

// divided divides and rounds down.
func (f *formulas) divided(n string, divisor int) string {
	if f.dialect == "mysql" {
		return fmt.Sprintf("%s DIV %d", n, divisor)
	}
	return fmt.Sprintf("%s / %d", n, divisor)
}

// least returns the smallest number. As for greatest, no number should be NULL: only PostgreSQL skips a NULL.
func (f *formulas) least(n ...string) string {
	if f.dialect == "sqlite" {
		return "min(" + strings.Join(n, ", ") + ")"
	}
	return "LEAST(" + strings.Join(n, ", ") + ")"
}

func (f *formulas) greatest(n ...string) string {
	if f.dialect == "sqlite" {
		return "max(" + strings.Join(n, ", ") + ")"
	}
	return "GREATEST(" + strings.Join(n, ", ") + ")"
}
