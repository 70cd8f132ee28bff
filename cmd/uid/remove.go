package main

import (
	"fmt"
	"strings"

	"github.com/spf13/cobra"
	"github.com/uidplugin/uidplugin/internal/admin"
)

func (a *app) removeCommand() *cobra.Command {
	var others, tables []string
	var yes bool
	c := &cobra.Command{
		Use:   "remove",
		Short: "Print or run the statements that remove the plugin from its databases",
		Long: `remove prints the statements that remove the plugin, in the order in which to run them. They drop the triggers of
followed tables, let the database number the keys again, and drop the view, the functions and the tables of the
plugin. It changes nothing unless you pass --yes.

The database then numbers the keys of all tables that have worker ids or a segment; name other tables by --table.
New numbers are above the largest key, and on MySQL, MariaDB and PostgreSQL also above the keys of deleted rows.
Comments in the output describe the steps that you have to do yourself.

With --yes it runs the statements. It refuses while processes hold slots, because they need the tables, and while rows
wait for consumers. If a statement fails, run the command again. MySQL copies a table to number its key, and blocks
writes meanwhile: pass a long --timeout.

With WithRegistry, pass --database NAME=DSN for each other database. With several regions, run it in each of them.
The document "Removing the plugin" has the changes to make in the program.`,
		Example: `  uid remove
  uid remove --yes --timeout 1h
  uid remove --table audit_logs --database shard-1=mysql://user:password@host/shop`,
		Args: cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			return a.with(c.Context(), repairs, func(d *database) error {
				if err := a.openOthers(c.Context(), d, others, repairs); err != nil {
					return err
				}
				r, err := d.Removal(c.Context(), tables)
				if err != nil {
					return err
				}
				if yes {
					if err := r.Run(c.Context(), a.writeRemovalStep); err != nil || a.json {
						return err
					}
					_, err := fmt.Fprintln(a.err, "done: the plugin is removed from this database")
					return err
				}
				return a.writeRemoval(d, r)
			})
		},
	}
	databaseFlag(c, &others)
	c.Flags().StringArrayVar(&tables, "table", nil, "also let the database number the key of this table, for example if it never had a row; repeatable")
	c.Flags().BoolVar(&yes, "yes", false, "run the statements")
	return c
}

// writeRemoval writes all steps as a script. All text except the statements is in comments.
func (a *app) writeRemoval(d *database, r admin.Removal) error {
	if r.Refused != nil {
		fmt.Fprintln(a.err, oneLine("warning: do not run the statements yet: "+r.Refused.Error()))
	}
	if d.Registry.Space == "" {
		fmt.Fprintln(a.err, "warning: without WORKER_REGISTRY the tables with ids are not known: name them by --table; "+
			"with WithRegistry, pass the database of the registry as --dsn, and this database as --database")
	}
	for _, s := range r.Steps {
		if err := a.writeRemovalStep(s); err != nil {
			return err
		}
	}
	return nil
}

func (a *app) writeRemovalStep(s admin.RemovalStep) error {
	if a.json {
		return writeJSON(a.out, s)
	}
	var text strings.Builder
	text.WriteString("-- ")
	if s.Database != "" {
		fmt.Fprintf(&text, "In the database %s: ", clean(s.Database))
	}
	if s.Left {
		text.WriteString("By hand: ")
	}
	text.WriteString(clean(s.Text) + "\n")
	for _, statement := range s.SQL {
		text.WriteString(admin.Escape(statement, "\n") + ";\n")
	}
	_, err := fmt.Fprintln(a.out, text.String())
	return err
}
