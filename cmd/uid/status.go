package main

import (
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/uidplugin/uidplugin/internal/admin"
)

func (a *app) statusCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "status",
		Short: "Summarize an id space in a few lines",
		Long: `status prints when the layout ends, how many worker ids were given out, in total and per day, and how many
slots are in each state. It checks the clock, the layout and the worker ids. It also checks that the server accepts
writes, and that at least one process renews its slot. It is quick enough for a probe; "uid doctor" checks everything.

The exit code is 1 if a check finds a problem.`,
		Args: cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			return a.with(c.Context(), reads, func(d *database) error {
				s, err := d.Status(c.Context())
				if err != nil {
					return err
				}
				return a.writeStatus(s)
			})
		},
	}
}

func (a *app) writeStatus(s admin.Status) error {
	if a.json {
		if err := writeJSON(a.out, s); err != nil {
			return err
		}
		return cond(nil, len(s.Findings) > 0)
	}
	each, all := "", int64(0)
	for _, state := range admin.StateNames() {
		if n := s.Slots[state]; n > 0 {
			each += fmt.Sprintf(", %d %s", n, state)
			all += n
		}
	}
	enough := "enough until the layout ends"
	if s.UsedUp != nil {
		enough = "used up by " + at(s.UsedUp.Time)[:len(time.DateOnly)]
	}
	g := newGrid(a.out)
	g.add("layout", fmt.Sprintf("%s, until %s UTC", s.Layout, at(s.Until.Time)))
	if s.Region.Divided() {
		g.add("region", fmt.Sprintf("%d of %d", s.Region.Region, s.Region.Of))
	}
	g.add("worker ids", fmt.Sprintf("%d of %d given out, %.1f a day in the last week: %s",
		s.Given, s.All, s.PerDay, enough))
	g.add("slots", fmt.Sprint(all)+each)
	if len(s.Databases) > 0 {
		g.add("databases", "this one, "+strings.Join(s.Databases, ", "))
	}
	if len(s.Findings) == 0 {
		g.add("health", `no problem with the clock, writes, layout, worker ids or slots; "uid doctor" checks more`)
	}
	if err := g.flush(); err != nil || len(s.Findings) == 0 {
		return err
	}
	a.writeFindings(a.out, s.Findings)
	return errWrong
}
