// wing: partitions

package main

import (
	"context"
	"errors"
	"fmt"

	"github.com/spf13/cobra"
	"github.com/uidplugin/uidplugin/internal/partition"
)

func (a *app) partitionsCommand() *cobra.Command {
	var r partition.Request
	var c *cobra.Command
	c = a.tableSubcommand(reads, &cobra.Command{
		Use:   "partitions TABLE",
		Short: "Print the statements that create the next partitions of a table, and drop the old ones",
		Long: `partitions prints statements for a table that is partitioned by the time of its ids, on PostgreSQL, MySQL and
MariaDB. It changes nothing. Run it often, for example each day, because INSERTs fail beyond the last partition.

Once the statements have run, there are partitions for the present month, week or day, and for as many after it as
--ahead sets. With --keep it also prints the statements that drop the partitions with older rows: --keep 24 keeps 24
complete periods before the present one. Periods are in UTC, by the clock of the database.

For a table without partitions it first prints the conversion. The key must be a single column with ids. The document
"Partitions by time" explains the locks, foreign keys and followed tables.

With --json it prints an object for each change, with its statements in sql.`,
		Example: `  uid partitions orders --every month --ahead 3
  uid partitions orders --every month --ahead 3 --keep 24 | psql -v ON_ERROR_STOP=1 shop`,
		Args: cobra.ExactArgs(1),
	}, func(ctx context.Context, d *database, args []string) error {
		if c.Flags().Changed("keep") && r.Keep < 1 {
			return fmt.Errorf("--keep %d must be at least 1; without --keep all partitions stay", r.Keep)
		}
		if r.Every == "" {
			return errors.New("no period given; pass --every month, week or day")
		}
		r.Table = args[0]
		list, err := d.Partitions(ctx, r)
		if err != nil {
			return err
		}
		return a.writePartitions(list)
	})
	c.Flags().StringVar(&r.Every, "every", "", "the period of a partition: month, week or day")
	c.Flags().IntVar(&r.Ahead, "ahead", 3, "how many partitions to have after the present one")
	c.Flags().IntVar(&r.Keep, "keep", 0, "how many complete periods to keep before the present one (default: all)")
	_ = c.RegisterFlagCompletionFunc(
		"every", cobra.FixedCompletions([]string{"month", "week", "day"}, cobra.ShellCompDirectiveNoFileComp),
	)
	return c
}

func (a *app) writePartitions(list []partition.Step) error {
	if a.json {
		return writeJSONs(a.out, list)
	}
	if len(list) == 0 {
		_, err := fmt.Fprintln(a.out, "-- nothing to do: all partitions are there")
		return err
	}
	for _, s := range list {
		for _, statement := range s.Statements() {
			if _, err := fmt.Fprint(a.out, statement+";\n"); err != nil {
				return err
			}
		}
		fmt.Fprintln(a.out)
	}
	return nil
}
