package main

import (
	"fmt"
	"regexp"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/uidplugin/uidplugin/internal/admin"
)

// A filter limits a list to a time, a table and a number of entries.
type filter struct {
	since, until string
	limit        int
	admin.Filter
}

// filterFlags adds the flags of a filter. Their help has the text of entries, such as "sessions that began".
func filterFlags(c *cobra.Command, f *filter, entries string) {
	c.Flags().IntVar(&f.limit, "limit", 50, fmt.Sprintf("length of the list, up to %d", admin.MaxPage))
	c.Flags().StringVar(&f.since, "since", "", "only "+entries+" at or after this time, such as 24h for a day ago")
	c.Flags().StringVar(&f.until, "until", "", "only "+entries+" before this time")
	c.Flags().StringVar(&f.Table, "table", "", `only entries of this table, as "uid tables" writes it`)
}

func (f *filter) read(a *app) (err error) {
	if f.limit < 1 || f.limit > admin.MaxPage {
		return fmt.Errorf("--limit %d is outside 1 to %d", f.limit, admin.MaxPage)
	}
	if f.since != "" {
		f.From, err = a.time(f.since)
	}
	if err == nil && f.until != "" {
		f.To, err = a.time(f.until)
	}
	if f.until != "" && f.To.IsZero() {
		f.To = f.To.Add(1) // the zero time means unbounded
	}
	if err == nil && f.since != "" && f.until != "" && !f.From.Before(f.To) {
		err = fmt.Errorf("--since %s is not before --until %s", f.since, f.until)
	}
	return err
}

// more explains how to get the next page. It writes to standard error, so that lists can be counted and piped.
func (a *app) more(format string, args ...any) {
	fmt.Fprintln(a.err, clean(fmt.Sprintf("more: "+format, args...)))
}

// args returns the flags of the filter for the command of the next page.
func (f *filter) args(names ...string) (text string) {
	values := map[string]string{"since": f.since, "until": f.until, "table": f.Table}
	for _, name := range names {
		if v := values[name]; v != "" {
			text += fmt.Sprintf(" --%s %q", name, v)
		}
	}
	return text
}

// time parses an instant, or an age such as 30d or 12h.
func (a *app) time(text string) (time.Time, error) {
	if ago, err := parseDuration(text); err == nil {
		return a.now().Add(-ago), nil
	}
	return parseTime(text)
}

// days matches leading days or weeks of a duration.
var days = regexp.MustCompile(`^(\d{1,5})([dw])`)

// parseDuration parses a Go duration, optionally after days or weeks: 30d, 1d12h, 2w.
func parseDuration(text string) (time.Duration, error) {
	var d time.Duration
	rest := text
	if m := days.FindStringSubmatch(text); m != nil {
		n, err := strconv.ParseInt(m[1], 10, 64)
		if err != nil {
			return 0, err
		}
		if m[2] == "w" {
			n *= 7
		}
		d, rest = time.Duration(n)*24*time.Hour, strings.TrimPrefix(text, m[0])
		if rest == "" {
			return d, nil
		}
	}
	more, err := time.ParseDuration(rest)
	if err != nil {
		return 0, fmt.Errorf("%q is not a duration; write it as 30d, 12h or 1m30s", text)
	}
	return d + more, nil
}

// A durationFlag is a duration flag that accepts days.
type durationFlag struct{ value *time.Duration }

func (f durationFlag) String() string {
	if f.value == nil {
		return ""
	}
	return f.value.String()
}

func (f durationFlag) Set(text string) (err error) {
	*f.value, err = parseDuration(text)
	return err
}

// Type implements [pflag.Value].
func (durationFlag) Type() string { return "duration" }

func durationVar(value *time.Duration, initial time.Duration) durationFlag {
	*value = initial
	return durationFlag{value}
}
