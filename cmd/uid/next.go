package main

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"os/signal"
	"slices"
	"syscall"
	"time"

	"github.com/spf13/cobra"
	"github.com/uidplugin/uidplugin/generator"
	"github.com/uidplugin/uidplugin/internal/supply"
	"github.com/uidplugin/uidplugin/workernode"
)

// maxNext bounds how many ids one run makes.
const maxNext = 1_000_000

func (a *app) nextCommand() *cobra.Command {
	var n int
	var table workernode.Table
	var force bool
	c := &cobra.Command{
		Use:   "next TABLE",
		Short: "Make ids for a table, for seeds and raw SQL",
		Long: `next makes ids that new rows of a table may have, one a line. They locate to the table and to this
program.

It takes a slot of its own, as the application "uid", and releases it. It needs the rights SELECT, INSERT
and UPDATE on the four tables of uidplugin. A table of another database than that of the registry, as with
WithRegistry, takes --database: its name as "uid tables --json" writes it. For a table whose keys come from
segments the ids are too large.`,
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
			table.Name = args[0]
			if table.Database == "" { // elsewhere only WORKER_NODE knows the name
				table.Name, err = supply.TableName(c.Context(), d.db, a.timeout, table.Name)
			}
			if err == nil && !force {
				err = a.checkTable(c.Context(), d, table)
			}
			if err != nil {
				return err
			}
			return a.next(c.Context(), d, table, n)
		},
	}
	c.Flags().IntVarP(&n, "count", "n", 1, "how many")
	c.Flags().StringVar(&table.Database, "database", "", "the database of the table, if it is not that of the registry")
	c.Flags().BoolVar(&force, "force", false, "also for a table that does not exist yet")
	return c
}

// checkTable returns an error if there is no such table. It warns of a key that the database numbers.
// In another database, a table is one that WORKER_NODE has.
func (a *app) checkTable(ctx context.Context, d *database, table workernode.Table) error {
	if table.Database != "" {
		known, err := d.databasesOf(ctx, table.Name)
		if err == nil && !slices.Contains(known, table.Database) {
			err = fmt.Errorf("no process has made ids for a table %q of a database %q; \"uid tables --json\" has the "+
				"names; --force makes ids for it all the same", table.Name, table.Database)
		}
		return err
	}
	t, err := d.table(ctx, table.Name)
	if err != nil {
		return err
	}
	if len(t.columns) == 0 {
		others, err := d.databasesOf(ctx, table.Name)
		if err == nil && len(others) > 0 && others[0] != "" {
			return fmt.Errorf("there is no table %q in this database, but in the database %q: give --database",
				table.Name, others[0])
		}
		return errors.Join(fmt.Errorf("there is no table %q in this database, or this user may not see it; --force makes "+
			"ids for it all the same", table.Name), err)
	}
	if key, ok := keyOf(t.columns); ok && key.auto && d.dialect == mysqlDialect {
		fmt.Fprintln(a.err, oneLine(fmt.Sprintf("warning: the database numbers %s.%s: a row that is inserted "+
			"without an id gets the number after the largest id", table.Name, key.name)))
	}
	return nil
}

// databasesOf returns the databases of which WORKER_NODE has a table, in the order of their names; an empty name is the
// database of the registry.
func (d *database) databasesOf(ctx context.Context, table string) (names []string, err error) {
	q := d.quote
	err = d.query(ctx, func(rows *sql.Rows) error {
		var name string
		err := rows.Scan(&name)
		names = append(names, name)
		return err
	}, fmt.Sprintf(`SELECT DISTINCT %[1]s FROM %[2]s WHERE %[3]s = ? ORDER BY %[1]s`,
		q("DATABASE_NAME"), q(workernode.NodeTable), q("TABLE_NAME")), table)
	return names, err
}

// next writes n ids of a table. It releases its slot also if nobody reads the ids any more.
func (a *app) next(ctx context.Context, d *database, table workernode.Table, n int) (err error) {
	signal.Ignore(syscall.SIGPIPE) // the write reports it
	ctx, stop := untilSignal(ctx)
	defer stop()
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
		if failed := m.Close(ending); err == nil && failed != nil { // the ids are there, and are good
			a.complain(fmt.Errorf("warning: the slot was not released, and others get it some time after its lease: %w", failed))
		}
	}()
	getting, cancel := context.WithTimeout(ctx, a.timeout)
	defer cancel()
	leases, err := m.Assign(getting, []workernode.Table{table}, nil)
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
