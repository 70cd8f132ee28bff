package main

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"time"

	"github.com/spf13/cobra"
	"github.com/uidplugin/uidplugin"
)

func (a *app) sessionsCommand() *cobra.Command {
	var slot int64
	var limit int
	var before string
	c := &cobra.Command{
		Use:   "sessions",
		Short: "List which process held which slot when, the latest first",
		Long: `sessions lists which process held which slot from when on, the latest first. With --slot it also says
until when; "-" if no other process followed. "uid slots" says who holds a slot now. Which processes ran at
a time is a query of the view uid_origin: see docs/sql.md.

A session without a process stands for those that "uid sessions prune" has removed.`,
		Args: cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) (err error) {
			var end time.Time
			if before != "" {
				end, err = parseTime(before)
			}
			if err == nil {
				err = checkLimit(limit)
			}
			if err != nil {
				return err
			}
			d, err := a.open(c.Context(), reads)
			if err != nil {
				return err
			}
			defer d.close()
			p, err := d.plugin(a)
			if err != nil {
				return err
			}
			list, more, err := sessions(c.Context(), p, slot, end, limit)
			if err != nil {
				return err
			}
			return a.writeSessions(list, slot, more)
		},
	}
	limitFlag(c, &limit)
	c.Flags().Int64Var(&slot, "slot", 0, "only sessions of this slot")
	c.Flags().StringVar(&before, "before", "", "only sessions that began before this time")
	c.AddCommand(a.pruneCommand())
	return c
}

// sessions returns up to limit sessions that began before an instant, and whether there are more. All that began at one
// instant are on one page, which may be longer for that.
func sessions(
	ctx context.Context,
	p *uidplugin.Plugin,
	slot int64,
	before time.Time,
	limit int,
) (list []uidplugin.Session, more bool, err error) {
	for n := limit; ; n *= 2 {
		list, err = p.Sessions(ctx, slot, before, n+1)
		if err != nil || len(list) <= n {
			return list, false, err
		}
		next := list[n].From
		for end := n; end > 0; end-- {
			if !list[end-1].From.Equal(next) {
				return list[:end], true, nil
			}
		}
	}
}

func (a *app) writeSessions(list []uidplugin.Session, slot int64, more bool) error {
	columns := []string{"SLOT", "FROM", "UNTIL", "APPLICATION", "HOST", "PORT", "KIND", "LAUNCHED"}
	if slot == 0 {
		columns = slices.Delete(columns, 2, 3) // it is not known
	}
	g := newGrid(a.out, columns...)
	for _, s := range list {
		if a.json {
			if err := writeJSON(a.out, s); err != nil {
				return err
			}
			continue
		}
		cells := []string{strconv.FormatInt(s.Slot, 10), at(s.From)}
		if slot != 0 {
			cells = append(cells, at(s.Until))
		}
		if s.Pruned() {
			g.add(append(cells, "(pruned)")...)
			continue
		}
		g.add(append(cells, s.Application, s.Host, s.Port, kind(s.Kind), at(s.Launched))...)
	}
	if more {
		only := ""
		if slot != 0 {
			only = fmt.Sprintf(" --slot %d", slot)
		}
		defer a.more("uid sessions --before %s%s", list[len(list)-1].From.Format(time.RFC3339Nano), only)
	}
	if a.json {
		return nil
	}
	return g.flush()
}
