package inspector

import (
	"fmt"
	"html/template"
	"math"
	"strconv"
	"strings"
	"time"

	"github.com/uidplugin/uidplugin/internal/admin"
)

var functions = template.FuncMap{
	"state": stateOf, "states": states,
	"slotList": func(slots []slot, own int64, now time.Time) slotList { return slotList{slots, own, now} },
	"text":     printable, "number": grouped, "clock": clock, "minute": minute, "iso": iso, "span": span, "since": since,
	"perSecond": func(rate *float64) string {
		if *rate > 0 && *rate < 10 {
			return strconv.FormatFloat(*rate, 'f', 1, 64)
		}
		return grouped(int64(math.Round(*rate)))
	},
	"milliseconds": func(n int64) string { return (time.Duration(n) * time.Millisecond).String() },
	"seconds":      func(d time.Duration) string { return fmt.Sprintf("%+.1f s", d.Seconds()) },
}

// maxText is how many characters of one text a page shows.
const maxText = 1000

// printable escapes and truncates a text of the database, because such a text may contain anything.
func printable(text string) string {
	n := 0
	for i := range text {
		if n++; n > maxText {
			return admin.Escape(text[:i], "\n\t") + fmt.Sprintf("… (%d bytes)", len(text))
		}
	}
	return admin.Escape(text, "\n\t")
}

// grouped formats a number with thousands separators.
func grouped(n any) string {
	digits := fmt.Sprint(n)
	sign := ""
	if strings.HasPrefix(digits, "-") {
		sign, digits = "-", digits[1:]
	}
	for i := len(digits) - 3; i > 0; i -= 3 {
		digits = digits[:i] + "," + digits[i:]
	}
	return sign + digits
}

func clock(t time.Time) string { return t.UTC().Format("2006-01-02 15:04:05.000") }

func minute(t time.Time) string { return t.UTC().Format("2006-01-02 15:04") }

// iso formats a time for programs.
func iso(t time.Time) string { return t.UTC().Format(time.RFC3339Nano) }

func since(t, now time.Time) string {
	switch d := now.Sub(t); {
	case d < 0:
		return "in " + span(-d)
	case d < time.Second:
		return "just now"
	default:
		return span(d) + " ago"
	}
}

const (
	day  = 24 * time.Hour
	year = 8766 * time.Hour // 365.25 days
)

// span formats a duration: from a minute on with its two largest units, and below that in seconds or milliseconds.
func span(d time.Duration) string {
	two := func(large, small time.Duration, names string) string {
		return fmt.Sprintf(names, d/large, d%large/small)
	}
	switch {
	case d < 0:
		return "-" + span(-max(d, -1<<63+1))
	case d < time.Second:
		return strconv.FormatInt(d.Milliseconds(), 10) + " ms"
	case d < time.Minute:
		return fmt.Sprintf("%.1f s", d.Seconds())
	case d < time.Hour:
		return two(time.Minute, time.Second, "%d min %d s")
	case d < day:
		return two(time.Hour, time.Minute, "%d h %d min")
	case d < year:
		return two(day, time.Hour, "%d d %d h")
	}
	return two(year, day, "%d y %d d")
}
