//go:build unix

package chaos_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"
)

// A chaosReport has the results of a run.
type chaosReport struct {
	chaosEvents
	ids, duplicates int64
	first           string // duplicate
	workers         int
	lines           [][3]string // what, how much, which
}

func (c *chaos) report(ran time.Duration) *chaosReport {
	r := &chaosReport{ids: c.count.ids, workers: len(c.count.workers)}
	r.duplicates, r.first = c.count.duplicates()
	err := c.count.resolve(context.Background(), c.direct, c.sql, c.plugin)
	if err != nil {
		c.Fatal(err)
	}
	if r.chaosEvents, err = c.count.events(c.returns); err != nil {
		c.Fatal(err)
	}
	r.faults = slices.Concat(r.faults, c.count.faults, c.count.nowhere)
	line := func(what, format string, args ...any) {
		how, which, _ := strings.Cut(fmt.Sprintf(format, args...), " in ")
		r.lines = append(r.lines, [3]string{what, how, which})
	}
	ms := func(d time.Duration) time.Duration { return d.Round(time.Millisecond) }
	if c.proxy == nil {
		return r
	}
	line("running time", "%v, seed %d", ran.Round(time.Second), c.seed)
	line("ids", "%d, written down as %d ranges", r.ids, c.count.ranges)
	line("duplicates", "%d", r.duplicates)
	line("ids that resolve to another table or process, or to none", "%d", len(c.count.faults)+len(c.count.nowhere))
	line("worker ids", "%d", r.workers)
	line("processes started, killed by SIGKILL", "%d, %d", c.starts, c.kills)
	line("stopped by SIGSTOP and resumed, closed in the middle", "%d, %d", c.stops, c.closes)
	line("clocks set, by a second to 3 hours, ahead or back", "%d", c.steps)
	line("the server crashed (SIGKILL), longest time until it was back", "%d, %v", len(c.returns), ms(c.longest))
	line("connections cut", "%d", c.proxy.shut.Load())
	line("statements executed whose answer was lost", "%d", c.proxy.cut.Load())
	line("statements executed 0 to 6 s after their client had given up", "%d", c.proxy.late.Load())
	line("statements lost half way", "%d", c.proxy.torn.Load())
	line("slots reclaimed from another process, at least", "%d", r.reclaimed)
	line("slots lost to another process, at least", "%d", r.lost)
	line("Close did not reach the database", "%d", r.unclosed)
	line("longest until a process had its worker ids (refused while its clock is off by more than 10 minutes)",
		"%v in %s", ms(r.open), r.openOf)
	line("longest wait of another caller, the server being away and statements lost", "%v in %s", ms(r.stall), r.stallOf)
	line("longest wait of a caller whose clock was set before or meanwhile", "%v in %s", ms(r.stallClock), r.stallClockOf)
	line("callers that had waited for the server, longest wait after its return", "%d, %v in %s", r.recovered,
		ms(r.recovery), r.recoveryOf)
	return r
}

func (r *chaosReport) text() string {
	var b strings.Builder
	for _, line := range r.lines {
		fmt.Fprintf(&b, "%-112s %s  %s\n", line[0], line[1], line[2])
	}
	return b.String()
}
