package main

import (
	"context"
	"fmt"
	"time"

	"github.com/spf13/cobra"
	"github.com/uidplugin/uidplugin/generator"
	"github.com/uidplugin/uidplugin/workernode"
)

// maxNext bounds how many ids one run makes.
const maxNext = 1_000_000

func (a *app) nextCommand() *cobra.Command {
	var n int
	var force bool
	c := &cobra.Command{
		Use:   "next TABLE",
		Short: "Make ids for a table, for seeds and raw SQL",
		Long: `next makes ids that new rows of a table may have, one a line. They locate to the table and to this
program.

It takes a slot of its own, as the application "uid", and releases it. It needs the rights SELECT, INSERT
and UPDATE on the four tables of uidplugin. Write the table as WORKER_NODE has it; "uid tables" lists the
names. For a table whose keys come from segments the ids are too large.`,
		Example: `  uid next orders -n 3
  uid next orders --json`,
		Args: cobra.ExactArgs(1),
		RunE: func(c *cobra.Command, args []string) error {
			if n < 1 || n > maxNext {
				return fmt.Errorf("-n %d is outside 1 to %d", n, maxNext)
			}
			d, err := a.open(c.Context(), writes)
			if err != nil {
				return err
			}
			defer d.close()
			if !force {
				if err := a.checkTable(c.Context(), d, args[0]); err != nil {
					return err
				}
			}
			return a.next(c.Context(), d, args[0], n)
		},
	}
	c.Flags().IntVarP(&n, "count", "n", 1, "how many")
	c.Flags().BoolVar(&force, "force", false, "also for a table that does not exist yet")
	return c
}

// checkTable returns an error if there is no such table. It warns of a key that the database numbers.
func (a *app) checkTable(ctx context.Context, d *database, table string) error {
	columns, err := d.columns(ctx, table)
	if err != nil {
		return err
	}
	if len(columns) == 0 {
		return fmt.Errorf("there is no table %q in this database, or this user may not see it; --force makes ids "+
			"for it all the same", table)
	}
	if key, ok := keyOf(columns); ok && key.auto && d.dialect == mysqlDialect {
		fmt.Fprintln(a.err, oneLine(fmt.Sprintf("warning: the database numbers %s.%s: a row that is inserted "+
			"without an id gets the number after the largest id", table, key.name)))
	}
	return nil
}

// next writes n ids of a table.
func (a *app) next(ctx context.Context, d *database, table string, n int) (err error) {
	host := workernode.DetectHost()
	host.Application = "uid"
	m, err := workernode.NewManager(ctx, d.nodes, d.layout, host, workernode.Config{
		Lead: time.Duration(d.registry.LeadTicks) * d.layout.Tick, MaxSkew: workernode.DefaultMaxSkew,
	})
	if err != nil {
		return err
	}
	defer func() {
		ending, cancel := context.WithTimeout(context.WithoutCancel(ctx), a.timeout)
		defer cancel()
		if failed := m.Close(ending); err == nil && failed != nil {
			err = fmt.Errorf("the slot was not released, and is free in a minute: %w", failed)
		}
	}()
	getting, cancel := context.WithTimeout(ctx, a.timeout)
	defer cancel()
	leases, err := m.Assign(getting, []workernode.Table{{Name: table}}, nil)
	if err != nil {
		return err
	}
	g, err := generator.NewSnowflake(generator.SnowflakeConfig{
		Layout: d.layout, Lease: leases[0].Leases()[0], Now: m.Now, OnLow: m.RequestRenewal,
	})
	if err != nil {
		return err
	}
	defer g.Close()
	leases[0].Attach(g)
	for n > 0 {
		ids := make([]int64, min(n, 1000))
		if err := g.Fill(ctx, ids); err != nil {
			return err
		}
		n -= len(ids)
		if err := a.writeIDs(ids); err != nil {
			return err
		}
	}
	return nil
}

func (a *app) writeIDs(ids []int64) error {
	for _, id := range ids {
		var err error
		if a.json {
			err = writeJSON(a.out, struct {
				ID int64 `json:"id,string"`
			}{id})
		} else {
			_, err = fmt.Fprintln(a.out, id)
		}
		if err != nil {
			return err
		}
	}
	return nil
}
