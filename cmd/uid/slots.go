package main

import (
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"github.com/uidplugin/uidplugin/internal/admin"
	"github.com/uidplugin/uidplugin/workernode"
)

func (a *app) slotsCommand() *cobra.Command {
	var after int64
	var state string
	var f filter
	states := admin.StateNames()
	long := "slots lists the slots in the order of their numbers. SEEN is the time of the holder's last statement.\n"
	for _, s := range admin.States {
		long += fmt.Sprintf("\n  %-9s %s", s.Name, s.Meaning)
	}
	c := &cobra.Command{
		Use:   "slots",
		Short: "List the slots with their holders",
		Long:  long,
		Args:  cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			if state != "" && !slices.Contains(states, state) {
				return fmt.Errorf("--state %q is unknown; use one of %s", state, strings.Join(states, ", "))
			}
			if err := f.read(a); err != nil {
				return err
			}
			return a.with(c.Context(), reads, func(d *database) error {
				list, err := d.Slots(c.Context(), state, f.Filter, after, f.limit+1)
				if err != nil {
					return err
				}
				return a.writeSlots(list, d.Registry.Region != workernode.Whole, state, f)
			})
		},
	}
	filterFlags(c, &f, "slots whose SEEN is")
	c.Flags().Int64Var(&after, "after", 0, "only slots with a larger number")
	c.Flags().StringVar(&state, "state", "", "only slots of a state: "+strings.Join(states, ", "))
	_ = c.RegisterFlagCompletionFunc(
		"state",
		cobra.FixedCompletions(states, cobra.ShellCompDirectiveNoFileComp),
	)
	return c
}

// writeSlots writes a page. An extra slot at the end of list means that there are more slots. writeSlots writes the
// column REGION if the registry is divided, or the page has slots of other regions.
func (a *app) writeSlots(list []admin.Slot, divided bool, state string, f filter) error {
	more := len(list) > f.limit
	list = list[:min(len(list), f.limit)]
	columns := []string{"SLOT", "REGION", "STATE", "APPLICATION", "HOST", "PORT", "WORKER IDS", "SINCE", "SEEN", "FENCE"}
	divided = divided || slices.ContainsFunc(list, func(s admin.Slot) bool { return s.State == "remote" })
	without := func(cells []string) []string {
		if divided {
			return cells
		}
		return slices.Delete(cells, 1, 2)
	}
	err := writeList(a, list, without(columns), func(s admin.Slot) []string {
		return without([]string{
			fmt.Sprint(s.Slot), fmt.Sprint(s.Region), s.State, s.Application, s.Host, s.Port, fmt.Sprint(s.WorkerIDs),
			at(s.Since), at(s.Seen), at(s.Fence),
		})
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
