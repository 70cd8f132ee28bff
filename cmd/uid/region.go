package main

import (
	"context"
	"fmt"
	"strconv"
	"strings"

	"github.com/spf13/cobra"
	"github.com/uidplugin/uidplugin/internal/admin"
)

func (a *app) regionCommand() *cobra.Command {
	c := &cobra.Command{
		Use:   "region",
		Short: "Show the region of a registry, or divide it into regions",
		Long: `region prints the region of this database's registry, its next worker id and slot, and how many worker ids it
has left. A registry that is not divided is region 0 of 1.

Regions are registries in several databases that share one id space. They give out different numbers, so they need
not communicate. "uid region split" makes more of them. The document "Regions" explains what to replicate.`,
		Args: onlyCommands,
		RunE: func(c *cobra.Command, _ []string) error {
			return a.with(c.Context(), reads, func(d *database) error { return a.writeRegion(d.Region()) })
		},
	}
	c.AddCommand(a.splitCommand())
	return c
}

func (a *app) writeRegion(r admin.Region) error {
	if a.json {
		return writeJSON(a.out, r)
	}
	which := fmt.Sprintf("%d of %d", r.Region, r.Of)
	if !r.Divided() {
		which += ": the registry is not divided"
	}
	g := newGrid(a.out)
	g.add("region", which)
	g.add("id space", r.Space)
	g.add("next", fmt.Sprintf("worker id %d, slot %d", r.NextID, r.NextSlot))
	g.add("left", admin.Count(r.Left, "worker id", "worker ids"))
	return g.flush()
}

func (a *app) splitCommand() *cobra.Command {
	var from int64
	var name string
	var yes bool
	c := &cobra.Command{
		Use:   "split COUNT",
		Short: "Divide a registry, and print the statements that begin the new regions",
		Long: `split divides the registry of this database. Its region N of M becomes region N of COUNT, a multiple of M.
The registry keeps all worker ids and slots that it has given out. Processes may run meanwhile. A split cannot be
undone, so the command asks for confirmation.

For each new region it prints an INSERT. Run it in the database of that region, before its first process starts. That
database needs the tables that "uid sql" prints; they may be empty. The INSERT fails in a database that has a
registry already. If that database is a copy of this one, first remove the copied registry by the DELETE that is
printed as a comment.

To print the statements again, pass --from with the number of regions before the split. Then the command changes
nothing. Use the statements only for a region that does not exist yet.

With --json it prints an object for the region of this registry, and then one for each new region, with its statements
in sql and copy_sql.`,
		Example: `  uid region split 2
  uid region split 4 --yes --dialect postgres
  uid region split 4 --from 1`,
		Args: cobra.ExactArgs(1),
		RunE: func(c *cobra.Command, args []string) error {
			count, err := strconv.ParseInt(args[0], 10, 32)
			if err != nil || count < 2 {
				return fmt.Errorf("the number of regions is %q, and must be at least 2", args[0])
			}
			if c.Flags().Changed("from") && from < 1 {
				return fmt.Errorf("--from %d must be at least 1: it is the number of regions before the split", from)
			}
			return a.with(c.Context(), writes, func(d *database) error {
				target, err := a.dialect(name)
				if err != nil {
					return err
				}
				return a.split(c.Context(), d, count, from, target, yes)
			})
		},
	}
	c.Flags().Int64Var(&from, "from", 0, "number of regions before the split, to print its statements again")
	c.Flags().BoolVar(&yes, "yes", false, "do not ask for confirmation")
	dialectFlag(c, &name, "of the new regions: mysql (also for MariaDB), postgres or sqlite (default: the database's)")
	return c
}

// split divides the registry, after asking for confirmation.
func (a *app) split(ctx context.Context, d *database, count, previous int64, target dialect, yes bool) error {
	r := d.Region()
	question := fmt.Sprintf("Divide the registry of this database, %s, into %d regions? It cannot be undone. [y/N] ", r, count)
	if err := a.confirm(yes || r.Of == count, question, "pass --yes to divide the registry"); err != nil {
		return err
	}
	own, others, err := d.Split(ctx, count, previous)
	if err != nil {
		return err
	}
	if target == mysqlDialect {
		for _, o := range others {
			for _, s := range []*string{&o.SQL[0], &o.CopySQL[0]} {
				*s = strings.ReplaceAll(*s, `"`, "`")
			}
		}
	}
	if a.json {
		return writeJSONs(a.out, append([]admin.Region{own}, others...))
	}
	return a.writeSplit(own, others)
}

// writeSplit writes the statements for new regions. All other lines are comments.
func (a *app) writeSplit(own admin.Region, added []admin.Region) error {
	text := fmt.Sprintf(`-- The registry of this database is now %s. Set WithRegion(%d, %d) in its processes, so that
-- they refuse a backup from before the split. Restart the processes that follow tables. See docs/regions.md.
--
-- Run the INSERT of a region in its database, before its first process starts. It fails in a database that has a
-- registry, such as this one. In a copy of this one, first run the DELETE.
-- Use both only for a region that does not exist yet.
`, own, own.Region, own.Of)
	for _, o := range added {
		text += fmt.Sprintf("\n-- %s, from worker id %d and slot %d on\n", o, o.NextID, o.NextSlot)
		text += "-- only in a copy: " + clean(o.CopySQL[0]) + ";\n" + clean(o.SQL[0]) + ";\n"
	}
	_, err := fmt.Fprint(a.out, text)
	return err
}
