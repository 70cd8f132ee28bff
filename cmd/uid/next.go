package main

import (
	"context"
	"database/sql"
	"fmt"
	"os/signal"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/spf13/cobra"
	"github.com/uidplugin/uidplugin/generator"
	"github.com/uidplugin/uidplugin/internal/supply"
	"github.com/uidplugin/uidplugin/internal/workernode"
	"github.com/uidplugin/uidplugin/segment"
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
		Long: `next makes ids that new rows of a table may have, one a line. They locate to the table and to this
program.

It takes a slot of its own, as the application "uid", and releases it. It needs the rights SELECT, INSERT
and UPDATE on the four tables of uidplugin. A table of another database than that of the registry, as with
WithRegistry, is named as "uid tables" writes it, or with --database: NAME, or NAME=DSN to see whether the table
exists. A table whose keys come from segments is refused, because the ids would be far above them.`,
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
			table, err := a.nextTable(c.Context(), d, args[0], where)
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
	c.Flags().StringVar(&where, "database", "", "NAME or NAME=DSN: the database of the table, if it is not that of the registry")
	c.Flags().BoolVar(&force, "force", false, "also for a table that does not exist yet, or whose keys are no such ids")
	return c
}

// nextTable returns the table named by the arguments. where is --database: a name, with or without a data source name.
func (a *app) nextTable(ctx context.Context, d *database, name, where string) (t workernode.Table, err error) {
	t.Database, _, _ = strings.Cut(where, "=")
	if strings.Contains(where, "=") {
		if err := a.openOthers(ctx, d, []string{where}); err != nil {
			return t, err
		}
	}
	if t.Database != "" { // only WORKER_NODE knows the name
		t.Name = name
		return t, nil
	}
	known, err := d.tableNames(ctx)
	if err != nil {
		return t, err
	}
	if t.Name, err = supply.TableName(ctx, d.db, a.timeout, name); err != nil || slices.Contains(known, t) {
		return t, err
	}
	for _, other := range known {
		if other.Database != "" && other.String() == name { // as in uid tables
			return other, nil
		}
	}
	return t, nil
}

// checkTable returns an error if the table does not exist, or if its keys are not ids of WORKER_NODE. It warns if the
// database numbers the key. If it cannot see the table, it trusts WORKER_NODE.
func (a *app) checkTable(ctx context.Context, d *database, of workernode.Table) error {
	known, err := d.databasesOf(ctx, of.Name)
	if err != nil {
		return err
	}
	made := slices.Contains(known, of.Database)
	if !made && of.Database == "" && len(known) > 0 {
		return fmt.Errorf("processes make ids for a table %q in the database %q, and not in this one: give --database; "+
			"--force makes ids for the table here all the same", of.Name, known[0])
	}
	on, t, err := d.tableOf(ctx, of)
	switch seen := of.Database == "" || d.others[of.Database] != nil; {
	case err != nil:
		return err
	case len(t.columns) == 0 && seen:
		return fmt.Errorf("there is no table %q in this database, or this user may not see it; --force makes ids for it "+
			"all the same", of)
	case len(t.columns) == 0 && !made:
		return fmt.Errorf("no process has made ids for a table %q of a database %q; \"uid tables --json\" has the names; "+
			"--force makes ids for it all the same", of.Name, of.Database)
	}
	key, ok := keyOf(t.columns)
	if !ok {
		return nil
	}
	if err := d.checkSegment(ctx, on, of, t, key, made); err != nil {
		return err
	}
	if key.auto && on.dialect == mysqlDialect {
		fmt.Fprintln(a.err, oneLine(fmt.Sprintf("warning: the database numbers %s.%s: a row that is inserted "+
			"without an id gets the number after the largest id", of, key.name)))
	}
	return nil
}

// checkSegment returns an error if the keys of a table come from segments: the largest key is too small for an id, and a
// tag has the table's name. Because tags may have any name, small keys are enough if no process has made ids for the
// table.
func (d *database) checkSegment(
	ctx context.Context,
	on *database,
	of workernode.Table,
	t table,
	key column,
	made bool,
) error {
	const advice = "an id of uid next would be far above them; --force makes ids for the table all the same"
	if !key.isInteger() {
		return nil
	}
	largest, err := on.largest(ctx, t, key)
	if err != nil || largest.Int64>>(d.layout.WorkerBits+d.layout.SequenceBits) > 0 { // an id
		return err
	}
	for _, name := range []string{segment.DefaultTable, strings.ToUpper(segment.DefaultTable)} {
		columns, err := d.columns(ctx, "", name)
		if err != nil {
			return err
		}
		if len(columns) == 0 {
			continue
		}
		tag := ""
		err = d.query(ctx, func(rows *sql.Rows) error { return rows.Scan(&tag) },
			"SELECT biz_tag FROM "+d.identifier(name)+" WHERE biz_tag IN (?, ?)", of.Name, of.Name+"."+key.name)
		if err != nil {
			return err
		}
		if tag != "" {
			return fmt.Errorf("the keys of %s come from segments, as %s has the tag %q: %s", of, name, tag, advice)
		}
	}
	if !made && largest.Int64 > 0 {
		return fmt.Errorf("no process has made ids for %s, and its largest key is %d, as from a segment or from the "+
			"database's own numbers: %s", of, largest.Int64, advice)
	}
	return nil
}

// databasesOf returns the databases with this table in WORKER_NODE, sorted by name; "" is the registry's.
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

// next writes n ids of a table. It releases its slot even if the reader of the ids has left.
func (a *app) next(ctx context.Context, d *database, table workernode.Table, n int) (err error) {
	signal.Ignore(syscall.SIGPIPE) // the write returns the error
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
		if failed := m.Close(ending); err == nil && failed != nil { // the ids are valid anyway
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
