package main

import (
	"context"
	"database/sql"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/uidplugin/uidplugin"
)

// A status summarizes an id space.
type status struct {
	Layout    string           `json:"layout"`
	Until     instant          `json:"until"` // end of the layout
	Given     int64            `json:"worker_ids_given"`
	All       int64            `json:"worker_ids"`
	PerDay    float64          `json:"worker_ids_per_day"` // average of the last week
	UsedUp    *instant         `json:"used_up,omitempty"`  // when worker ids run out at this rate; nil if the layout ends earlier
	Slots     map[string]int64 `json:"slots"`              // by state
	Databases []string         `json:"databases"`          // other than the registry's
	Findings  []finding        `json:"findings"`
}

func (a *app) statusCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "status",
		Short: "Say in a few lines how an id space is",
		Long: `status says when the layout ends, how many worker ids were given out and how many a day, how many slots
there are in each state, and whether something is wrong with the clock, the layout or the worker ids, the
server takes no writes, or no process renews its slot. It is quick enough for a probe; "uid doctor" looks
at everything.

The exit code is 1 if something is wrong.`,
		Args: cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			d, err := a.open(c.Context(), reads)
			if err != nil {
				return err
			}
			defer d.close()
			s, err := a.status(c.Context(), d)
			if err != nil {
				return err
			}
			return a.writeStatus(s)
		},
	}
}

func (a *app) status(ctx context.Context, d *database) (s status, err error) {
	now, err := d.now(ctx, a)
	if err != nil {
		return s, err
	}
	s = status{
		Layout: d.layout.String(), Until: instant{d.layout.Expires()}, Given: d.registry.NextID - 1,
		All: d.layout.MaxWorkerID(), Databases: []string{}, Findings: []finding{},
	}
	if s.Slots, err = d.slotStates(ctx, now); err != nil {
		return s, err
	}
	s.Findings = append(s.Findings, standstill(s.Slots)...)
	const week = 7 * 24 * time.Hour
	err = d.list(ctx, func(rows *sql.Rows) error { return rows.Scan(&s.PerDay) },
		`SELECT COUNT(*) FROM "WORKER_NODE" WHERE "START_TICK" >= ?`, max(d.layout.TickAt(now.Add(-week)), 0))
	if err != nil {
		return s, fmt.Errorf("count worker ids: %w", err)
	}
	s.PerDay /= 7
	if days := float64(s.All-s.Given) / s.PerDay; s.PerDay > 0 && days < s.Until.Sub(now).Hours()/24 {
		s.UsedUp = &instant{now.Add(time.Duration(days * float64(24*time.Hour)))}
	}
	tables, err := d.tableNames(ctx)
	for _, t := range tables {
		if t.Database != "" && !slices.Contains(s.Databases, t.Database) {
			s.Databases = append(s.Databases, t.Database)
		}
	}
	doctor := doctor{d, a}
	for _, look := range []func(context.Context) ([]finding, error){doctor.checkClock, doctor.checkWrites, doctor.checkLayout} {
		if err == nil {
			var found []finding
			found, err = look(ctx)
			s.Findings = append(s.Findings, found...)
		}
	}
	return s, err
}

// slotStates counts slots by state. The database counts those whose state does not depend on the present time.
func (d *database) slotStates(ctx context.Context, now time.Time) (map[string]int64, error) {
	n := map[string]int64{}
	recent, ticks := d.maybe("live", now)
	err := d.eachSlot(ctx, func(s uidplugin.Slot) { n[s.State(now)]++ }, recent, ticks...)
	if err != nil {
		return nil, err
	}
	err = d.list(ctx, func(rows *sql.Rows) error {
		var s uidplugin.Slot
		var reusable, held, slots, fence, seen int64
		err := rows.Scan(&reusable, &held, &slots, &fence, &seen)
		s.Reusable, s.Held, s.Fence, s.Seen = reusable != 0, held != 0, d.timeOf(fence), d.timeOf(seen)
		n[s.State(now)] += slots
		return err
	}, `SELECT "R", "H", COUNT(*), MAX("F"), MAX("T") FROM (SELECT "FENCE" AS "F", "SEEN_TICK" AS "T",
		CASE WHEN "REUSABLE" <> 0 THEN 1 ELSE 0 END AS "R", CASE WHEN "HOLDER" <> '' THEN 1 ELSE 0 END AS "H"
		FROM "WORKER_SLOT" WHERE NOT (`+recent+`)) "X" GROUP BY "R", "H"`, ticks...)
	if err != nil {
		return nil, fmt.Errorf("count slots: %w", err)
	}
	return n, nil
}

func (a *app) writeStatus(s status) error {
	if a.json {
		if err := writeJSON(a.out, s); err != nil {
			return err
		}
		return cond(nil, len(s.Findings) > 0)
	}
	each, all := "", int64(0)
	for _, state := range states {
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
	g.add("worker ids", fmt.Sprintf("%d of %d given out, %.1f a day in the last week: %s", s.Given, s.All, s.PerDay, enough))
	g.add("slots", fmt.Sprint(all)+each)
	if len(s.Databases) > 0 {
		g.add("databases", "this one, "+strings.Join(s.Databases, ", "))
	}
	if len(s.Findings) == 0 {
		g.add("health", `nothing is wrong with the clock, writes, the layout, worker ids and slots; "uid doctor" looks at more`)
	}
	if err := g.flush(); err != nil || len(s.Findings) == 0 {
		return err
	}
	a.writeFindings(s.Findings)
	return errWrong
}
