package main

import (
	"context"
	"fmt"
	"os/signal"
	"strings"
	"syscall"
	"time"

	"github.com/spf13/cobra"
	"github.com/uidplugin/uidplugin/generator"
	"github.com/uidplugin/uidplugin/workernode"
)

// maxNext limits the ids of one run.
const maxNext = 1_000_000

func (a *app) nextCommand() *cobra.Command {
	var n int
	var where string
	var force bool
	c := &cobra.Command{
		Use:   "next TABLE",
		Short: "Make ids for a table, for seeds and raw SQL",
		Long: `next makes ids for new rows of a table, one per line. They resolve to the table and to
the application "uid".

It acquires a slot as the application "uid", and releases it at the end. It needs the privileges SELECT, INSERT
and UPDATE on the four tables of uidplugin. If the table is in another database than the registry, as with
WithRegistry, write its name as "uid tables" lists it, or pass --database NAME. With --database NAME alone it
does not check whether the table exists. It refuses a table whose keys come from segments, because the ids would be
far above them. A followed table refuses ids that are older than its slack, so create its rows in Go.`,
		Example: `  uid next orders -n 3
  uid next orders --json`,
		Args: cobra.ExactArgs(1),
		RunE: func(c *cobra.Command, args []string) error {
			if n < 1 || n > maxNext {
				return fmt.Errorf("-n %d is outside 1 to %d", n, maxNext)
			}
			return a.with(c.Context(), writes, func(d *database) error {
				table, err := a.nextTable(c.Context(), d, args[0], where)
				if err == nil && !force {
					err = a.checkNext(c.Context(), d, table)
				}
				if err != nil {
					return err
				}
				return a.next(c.Context(), d, table, n)
			})
		},
	}
	c.Flags().IntVarP(&n, "count", "n", 1, "number of ids")
	c.Flags().StringVar(&where, "database", "", "database of the table, if it is not the registry's: NAME or NAME=DSN")
	c.Flags().BoolVar(&force, "force", false, "make ids even if the table does not exist, or its keys are not ids")
	return c
}

// nextTable returns the table named by the arguments. where has the value of --database: NAME or NAME=DSN.
func (a *app) nextTable(ctx context.Context, d *database, name, where string) (t workernode.Table, err error) {
	if name == workernode.AllTables {
		return t, fmt.Errorf("%q is not a table; pass the name of a table, because an id that is for all tables leads to no table", name)
	}
	t.Database, _, _ = strings.Cut(where, "=")
	if strings.Contains(where, "=") {
		if err := a.openOthers(ctx, d, []string{where}, reads); err != nil {
			return t, err
		}
	}
	if t.Database == "" {
		return d.TableNamed(ctx, name)
	}
	t.Name = name // taken as it is, because the table is in another database
	return t, nil
}

// checkNext returns an error if ids should not be made for the table.
func (a *app) checkNext(ctx context.Context, d *database, entry workernode.Table) error {
	warning, err := d.CheckNext(ctx, entry)
	if warning != "" {
		fmt.Fprintln(a.err, oneLine("warning: "+warning))
	}
	return err
}

// next writes n ids of a table. It releases its slot even if the reader of the ids has left.
func (a *app) next(ctx context.Context, d *database, table workernode.Table, n int) (err error) {
	signal.Ignore(syscall.SIGPIPE) // so that a write returns EPIPE instead
	ctx, stop := untilSignal(ctx)
	defer stop()
	host := workernode.DetectHost()
	host.Application = "uid"
	m, err := workernode.NewManager(ctx, d.Nodes, d.Layout, host, workernode.Config{
		Lead: time.Duration(d.Registry.LeadTicks) * d.Layout.Tick, MaxSkew: workernode.DefaultMaxSkew,
	})
	if err != nil {
		return err
	}
	defer func() {
		ending, cancel := context.WithTimeout(context.WithoutCancel(ctx), a.timeout)
		defer cancel()
		if failed := m.Close(ending); err == nil && failed != nil { // the ids are valid anyway
			a.complain(fmt.Errorf("warning: the slot was not released, so it stays reserved for some time: %w", failed))
		}
	}()
	getting, cancel := context.WithTimeout(ctx, a.timeout)
	defer cancel()
	leases, err := m.Assign(getting, []workernode.Table{table}, nil)
	if err != nil {
		return err
	}
	g, err := generator.NewSnowflake(generator.SnowflakeConfig{
		Layout: d.Layout, Lease: leases[0].Leases()[0], Now: m.Now, OnLow: m.RequestRenewal,
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
