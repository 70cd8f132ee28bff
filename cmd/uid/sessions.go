package main

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/spf13/cobra"
	"github.com/uidplugin/uidplugin/workernode"
)

func (a *app) sessionsCommand() *cobra.Command {
	var slot int64
	var when string
	var f filter
	c := &cobra.Command{
		Use:   "sessions",
		Short: "List which process held which slot, latest first",
		Long: `sessions lists which process held which slot, and since when, latest first. With --slot it also prints when
the next process got the slot, or "-" if none followed. "uid slots" lists the present holders.

With --at it lists the processes that may have made ids at a time. LAST is the latest time that ids of a process
can have, up to 10 s (Lead) after its end. Processes whose LAST is before that time are left out.

A session marked (pruned) replaces the sessions that "uid sessions prune" has removed.`,
		Example: `  uid sessions --slot 7
  uid sessions --since 24h --table orders
  uid sessions --at "2026-11-22 15:04:05"`,
		Args: onlyCommands,
		RunE: func(c *cobra.Command, _ []string) (err error) {
			if when != "" {
				return a.present(c.Context(), when)
			}
			if err := f.read(a); err != nil {
				return err
			}
			return a.with(c.Context(), reads, func(d *database) error {
				list, more, err := d.Sessions(c.Context(), slot, f.Filter, f.limit)
				if err != nil {
					return err
				}
				return a.writeSessions(list, slot, f, more)
			})
		},
	}
	c.Flags().Int64Var(&slot, "slot", 0, "only sessions of this slot")
	filterFlags(c, &f, "sessions that began")
	c.Flags().StringVar(&when, "at", "", "list all processes that may have made ids at this time")
	for _, other := range []string{"slot", "since", "until", "table", "limit"} {
		c.MarkFlagsMutuallyExclusive("at", other)
	}
	c.AddCommand(a.pruneCommand())
	return c
}

// present lists the processes that may have made ids at a time.
func (a *app) present(ctx context.Context, text string) error {
	t, err := a.time(text)
	if err != nil {
		return err
	}
	return a.with(ctx, reads, func(d *database) error {
		found, err := d.SessionsAt(ctx, t)
		if err != nil {
			return err
		}
		columns := []string{"SLOT", "FROM", "LAST", "APPLICATION", "HOST", "PORT", "KIND", "LAUNCHED"}
		return writeList(a, found, columns, func(s workernode.Session) []string {
			return append([]string{fmt.Sprint(s.Slot), at(s.From), at(s.Last)}, processCells(s)...)
		})
	})
}

// processCells returns the cells of a process in a list.
func processCells(s workernode.Session) []string {
	if s.Pruned() {
		return []string{"(pruned)", "-", "-", "-", "-"}
	}
	return []string{s.Application, s.Host, s.Port, kind(s.Kind), at(s.Launched)}
}

func (a *app) writeSessions(list []workernode.Session, slot int64, f filter, more bool) error {
	columns := []string{"SLOT", "FROM", "UNTIL", "APPLICATION", "HOST", "PORT", "KIND", "LAUNCHED"}
	if slot == 0 {
		columns = slices.Delete(columns, 2, 3) // UNTIL is read only with --slot
	}
	err := writeList(a, list, columns, func(s workernode.Session) []string {
		cells := []string{fmt.Sprint(s.Slot), at(s.From)}
		if slot != 0 {
			cells = append(cells, at(s.Until))
		}
		return append(cells, processCells(s)...)
	})
	if err != nil || !more {
		return err
	}
	only := ""
	if slot != 0 {
		only = fmt.Sprintf(" --slot %d", slot)
	}
	a.more("uid sessions --until %s%s%s", list[len(list)-1].From.Format(time.RFC3339Nano), only, f.args("since", "table"))
	return nil
}
