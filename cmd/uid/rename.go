package main

import (
	"context"
	"fmt"

	"github.com/spf13/cobra"
	"github.com/uidplugin/uidplugin/internal/admin"
)

func (a *app) renameCommand() *cobra.Command {
	var yes bool
	c := a.tableSubcommand(writes, &cobra.Command{
		Use:   "rename OLD NEW",
		Short: "Let the ids of a renamed table resolve to its new name",
		Long: `rename gives the worker ids of the table OLD to the table NEW. Run it after ALTER TABLE ... RENAME, when processes
with the new model run. Before you run it, Find fails for older ids, and the error names this command. Processes may run
meanwhile. A process with the old model goes on making ids for the old name, so run the command again when the last
such process has ended. It cannot be undone if NEW had worker ids before.

The cursors of consumers get the new name, too. Consumers of the new model report an error and wait for the command.
Those of the old model end with an error: docs/looking-up.md says in which order to rename a followed table.

It refuses if OLD is still a table, or NEW is not a table. UID_FOLLOW and tags of segments keep the old name; the
command prints what to do about them.

With WithRegistry, pass --database NAME=DSN and write tables of that database as NAME.TABLE. With regions whose
WORKER_NODE is not replicated, run it in each.`,
		Example: `  uid tables rename orders sales_orders
  uid tables rename shard-1.orders shard-1.sales_orders --database shard-1=mysql://user:password@host/shop`,
		Args: cobra.ExactArgs(2),
	}, func(ctx context.Context, d *database, args []string) error {
		r, err := d.Renaming(ctx, args[0], args[1])
		if err != nil {
			return err
		}
		question := fmt.Sprintf("Give %s of %s to %s? [y/N] ",
			admin.Count(r.WorkerIDs, "worker id", "worker ids"), clean(args[0]), clean(args[1]))
		if err := a.confirm(yes, question, "pass --yes to rename"); err != nil {
			return err
		}
		if r, err = d.Rename(ctx, r); err != nil {
			return err
		}
		if a.json {
			return writeJSON(a.out, r)
		}
		fmt.Fprintf(a.out, "%s of %s: now of %s\n", admin.Count(r.WorkerIDs, "worker id", "worker ids"), clean(args[0]),
			clean(args[1]))
		for _, note := range r.Notes {
			fmt.Fprintln(a.out, clean(note))
		}
		return nil
	})
	c.Flags().BoolVar(&yes, "yes", false, "do not ask for confirmation")
	return c
}
