package main

import (
	"fmt"

	"github.com/spf13/cobra"
	"github.com/uidplugin/uidplugin/internal/admin"
	"github.com/uidplugin/uidplugin/workernode"
)

func (a *app) tablesCommand() *cobra.Command {
	var after workernode.Table
	var f filter
	c := &cobra.Command{
		Use:   "tables",
		Short: "List the tables that have worker ids",
		Long: `tables lists the tables that have worker ids, sorted by database and name. For each it prints the number of
worker ids, the number of their slots, how many of these slots have a holder, and the times between which its ids are.`,
		Args: cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			if err := f.read(a); err != nil {
				return err
			}
			var from *workernode.Table
			if c.Flags().Changed("after") || c.Flags().Changed("after-database") {
				from = &after
			}
			return a.with(c.Context(), reads, func(d *database) error {
				list, err := d.Tables(c.Context(), f.Filter, from, f.limit+1)
				if err != nil {
					return err
				}
				more := len(list) > f.limit
				list = list[:min(len(list), f.limit)]
				if from == nil && f.Filter == (admin.Filter{}) {
					others, err := d.ForeignNodes(c.Context())
					if err != nil {
						return err
					}
					list = append(others, list...)
				}
				return a.writeTables(list, f, more)
			})
		},
	}
	filterFlags(c, &f, "tables that may have ids")
	c.Flags().StringVar(&after.Name, "after", "", "only tables after this one")
	c.Flags().StringVar(&after.Database, "after-database", "", "with --after: the database of that table")
	c.AddCommand(a.renameCommand())
	return c
}

func (a *app) writeTables(list []admin.TableUse, f filter, more bool) error {
	columns := []string{"TABLE", "WORKER IDS", "SLOTS", "HELD", "SINCE", "UNTIL"}
	err := writeList(a, list, columns, func(t admin.TableUse) []string {
		return []string{
			t.Name(), fmt.Sprint(t.WorkerIDs), fmt.Sprint(t.Slots), fmt.Sprint(t.Held), at(t.Since), at(t.Until),
		}
	})
	if err != nil || !more {
		return err
	}
	last := list[len(list)-1]
	database := ""
	if last.Database != "" {
		database = fmt.Sprintf(" --after-database %q", last.Database)
	}
	a.more("uid tables --after %q%s%s", last.Table, database, f.args("since", "until", "table"))
	return nil
}
