package main

import (
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"github.com/uidplugin/uidplugin/internal/admin"
)

func (a *app) slotsCommand() *cobra.Command {
	var after int64
	var state string
	var f filter
	c := &cobra.Command{
		Use:   "slots",
		Short: "List the slots: who holds them, and since when",
		Long: `slots lists the slots in the order of their numbers.

  live      a process holds it and may stamp ids
  idle      a process holds it, and has made no ids for minutes
  overdue   its process should have renewed it and has not: it has ended, is paused, cannot
            reach the database, or its clock is behind; SEEN is its last statement
  expired   the same for more than a minute, so another process may reclaim it
  free      its process released it
  retired   it is one of WithDisposable, and nobody will use it again`,
		Args: cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			if state != "" && !slices.Contains(admin.States, state) {
				return fmt.Errorf("--state %q is unknown; use one of %s", state, strings.Join(admin.States, ", "))
			}
			if err := f.read(a); err != nil {
				return err
			}
			return a.with(c.Context(), reads, func(d *database) error {
				list, err := d.Slots(c.Context(), state, f.Filter, after, f.limit+1)
				if err != nil {
					return err
				}
				return a.writeSlots(list, state, f)
			})
		},
	}
	filterFlags(c, &f, "slots whose last holder sent its last statement (SEEN)")
	c.Flags().Int64Var(&after, "after", 0, "only slots with a larger number")
	c.Flags().StringVar(&state, "state", "", "only slots of a state: "+strings.Join(admin.States, ", "))
	_ = c.RegisterFlagCompletionFunc(
		"state",
		cobra.FixedCompletions(admin.States, cobra.ShellCompDirectiveNoFileComp),
	)
	return c
}

// writeSlots writes a page. An extra slot at the end of list means that there are more.
func (a *app) writeSlots(list []admin.Slot, state string, f filter) error {
	more := len(list) > f.limit
	list = list[:min(len(list), f.limit)]
	columns := []string{"SLOT", "STATE", "APPLICATION", "HOST", "PORT", "WORKER IDS", "SINCE", "SEEN", "FENCE"}
	err := writeList(a, list, columns, func(s admin.Slot) []string {
		return []string{
			fmt.Sprint(s.Slot), s.State, s.Application, s.Host, s.Port, fmt.Sprint(s.WorkerIDs),
			at(s.Since), at(s.Seen), at(s.Fence),
		}
	})
	if err != nil || !more {
		return err
	}
	only := ""
	if state != "" {
		only = " --state " + state
	}
	a.more("uid slots --after %d%s%s", list[len(list)-1].Slot, only, f.args("since", "until", "table"))
	return nil
}
