// wing: follow

package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/uidplugin/uidplugin/internal/admin"
	"github.com/uidplugin/uidplugin/internal/follow"
	"github.com/uidplugin/uidplugin/migrations"
)

func (a *app) followCommand() *cobra.Command {
	c := &cobra.Command{
		Use:   "follow",
		Short: "Prepare tables for followers, and check their marks",
		Long: `follow prepares tables for followers, which read the rows of a table in the order of their ids and miss none. A
trigger refuses new rows whose ids are below the table's mark, and a follower raises the mark to "now minus slack".

With WithRegistry, pass --database NAME=DSN and write tables of that database as NAME.TABLE.`,
		Args: onlyCommands,
		RunE: func(c *cobra.Command, _ []string) error { return c.Help() },
	}
	c.AddCommand(a.followStatusCommand(), a.followEnableCommand(), a.followDisableCommand(), a.followResetCommand(),
		a.consumersCommand())
	return c
}

func (a *app) followStatusCommand() *cobra.Command {
	return a.tableSubcommand(reads, &cobra.Command{
		Use:   "status [TABLE]",
		Short: "List followed tables, their marks, and who holds them up",
		Long: `status lists the followed tables. MARK is the published mark: each row with a smaller id is visible, or will
never be visible. BEHIND is how far the time of the mark is behind the database's clock: by the slack and the age of
the oldest open transaction that has inserted rows, and while no rows come by a few seconds more. CLOSER is the process
that raises the mark, by host and port as in "uid slots". TURN is how long no other process raises it; the closer
extends its turn again and again. TRIGGER is installed, gone, replaced, or hidden: MySQL and MariaDB show triggers only
to users with the privilege TRIGGER.

Below the list are the open transactions that have inserted rows, the oldest first. On MariaDB the list has only the
transactions for which the closer waits at this moment. It needs the role pg_monitor on PostgreSQL, SELECT on
performance_schema and PROCESS on MySQL, and PROCESS on MariaDB.

The exit code is 1 if a trigger is gone or was replaced, if a mark is in the future, or if it has stood still for more
than a minute.`,
		Args: cobra.MaximumNArgs(1),
	}, func(ctx context.Context, d *database, args []string) error {
		if len(args) == 0 {
			list, err := d.Followed(ctx, "")
			if err != nil {
				return err
			}
			return a.writeFollowed(list)
		}
		return a.showFollowed(ctx, d, args[0])
	})
}

func (a *app) followEnableCommand() *cobra.Command {
	var key string
	var slack time.Duration
	c := a.tableSubcommand(prepares, &cobra.Command{
		Use:   "enable TABLE",
		Short: "Install the trigger with which a table can be followed",
		Long: `enable installs a trigger in the table, and creates the tables UID_FOLLOW, UID_CURSOR and, except on PostgreSQL,
UID_FOLLOW_GATE, and on PostgreSQL and MariaDB a sequence. The application may do the same by follow.Enable, and
"uid sql --follow" prints the statements. If the table is enabled already, enable only changes the slack.

While somebody follows the table, it then refuses rows whose ids are older than the slack. To install the
trigger, enable waits for transactions that use the table, for up to --timeout. It waits a moment at a time, so that
other statements can pass.

It needs the right to create tables and triggers. MySQL and MariaDB with a binary log also require SUPER, or
log_bin_trust_function_creators = 1.`,
		Example: `  uid follow enable shop_orders
  uid follow enable shop_events --key event_id --slack 200ms`,
		Args: cobra.ExactArgs(1),
	}, func(ctx context.Context, d *database, args []string) error {
		warning, err := d.EnableFollow(ctx, args[0], key, slack)
		if err != nil {
			return err
		}
		if warning != "" {
			fmt.Fprintln(a.err, oneLine("warning: "+warning))
		}
		return a.showFollowed(ctx, d, args[0])
	})
	c.Flags().StringVar(&key, "key", "", "column of the ids (default: the primary key)")
	slackFlag(c, &slack)
	return c
}

func slackFlag(c *cobra.Command, slack *time.Duration) {
	c.Flags().Var(durationVar(slack, time.Second), "slack", "refuse new rows whose ids are older than this: 20ms to 1h")
}

func (a *app) followDisableCommand() *cobra.Command {
	return a.tableSubcommand(repairs, &cobra.Command{
		Use:   "disable TABLE",
		Short: "Remove the trigger of a table",
		Long: `disable removes the trigger of a table, and its row of UID_FOLLOW. Followers of the table get errors. If the
table is enabled again, rows that came meanwhile may have ids below those that followers have read.

It also works after the tables of the plugin were dropped, or the table was renamed: pass the old name.`,
		Args: cobra.ExactArgs(1),
	}, func(ctx context.Context, d *database, args []string) error {
		consumers, _ := d.Consumers(ctx) // only for the hints below, so an error does not matter
		if err := d.DisableFollow(ctx, args[0]); err != nil {
			return err
		}
		if a.json {
			return writeJSON(a.out, struct {
				Table    string `json:"table"`
				Followed bool   `json:"followed"`
			}{args[0], false})
		}
		fmt.Fprintf(a.out, "%s is no longer followed\n", clean(args[0]))
		for _, c := range consumers {
			if c.Rows > 0 && c.TableName() == args[0] {
				fmt.Fprintf(a.out, "Rows that the consumer %s has not handled: %s. To handle them, enable the table again, and run the consumer\n",
					clean(c.Name), c.RowsBehind())
			}
		}
		return nil
	})
}

func (a *app) followResetCommand() *cobra.Command {
	var yes bool
	c := a.tableSubcommand(writes, &cobra.Command{
		Use:   "reset TABLE",
		Short: "Lower a mark that is in the future",
		Long: `reset lowers the mark of a table to "now minus slack", by the database's clock. Use it if the mark is in the
future because the database's clock was ahead: the table refuses all new rows until the clock reaches the mark.
Correct the clock first: reset refuses to run while the clocks of the database and of this machine differ by more than
the slack. If the database's clock is behind instead, correct it, and do not run reset.

What followers may miss: a follower that has read rows with ids above the new mark misses the rows that come with
smaller ids from now on. A running follower may have got to the old mark even without such rows. So stop the
followers, run reset, and start them again, each from its last row or, if the time of its last row is in the
future, from an id with the present time. Rows with higher ids then come again.

If the mark is not in the future, it stays, and followers wait until it is published again.`,
		Args: cobra.ExactArgs(1),
	}, func(ctx context.Context, d *database, args []string) error {
		question := fmt.Sprintf("Lower the mark of %s to the present? Followers that have read rows above it miss rows. [y/N] ", clean(args[0]))
		if err := a.confirm(yes, question, "pass --yes to lower the mark"); err != nil {
			return err
		}
		if err := d.ResetFollow(ctx, args[0]); err != nil {
			return err
		}
		return a.showFollowed(ctx, d, args[0])
	})
	c.Flags().BoolVar(&yes, "yes", false, "do not ask for confirmation")
	return c
}

func (a *app) showFollowed(ctx context.Context, d *database, table string) error {
	list, err := d.Followed(ctx, table)
	if err == nil && len(list) == 0 {
		err = fmt.Errorf(`%s is not followed; "uid follow status" lists the followed tables`, table)
	}
	if err != nil {
		return err
	}
	return a.writeFollowed(list)
}

// writeFollowed writes the status of tables, and returns errWrong if there are findings.
func (a *app) writeFollowed(list []admin.Followed) error {
	columns := []string{"TABLE", "KEY", "SLACK", "MARK", "TIME", "BEHIND", "CLOSER", "TURN", "TRIGGER"}
	err := writeList(a, list, columns, func(f admin.Followed) []string {
		mark, behind, closer, turn := "-", "-", "-", "-"
		if f.Mark != 0 {
			mark, behind = f.Mark.String(), milliseconds(f.Behind)
		}
		if f.Closer != "" {
			closer, turn = f.Closer, "until "+at(f.Until)
			switch {
			case f.Until.IsZero():
				turn = "given back"
			case !f.Closing:
				turn = "ended " + at(f.Until)
			}
		}
		return []string{
			f.Name(), f.Key, milliseconds(f.Slack), mark, at(f.MarkTime), behind, closer, turn, string(f.Trigger),
		}
	})
	if err != nil {
		return err
	}
	wrong := false
	for _, f := range list {
		wrong = wrong || len(f.Findings) > 0
		if f.Unread != "" && !a.json {
			fmt.Fprintln(a.err, oneLine("warning: "+f.Name()+": "+f.Unread))
		}
	}
	if !a.json {
		if err := a.writeHolders(list); err != nil {
			return err
		}
		for _, f := range list {
			a.writeFindings(a.out, f.Findings)
		}
	}
	return cond(nil, wrong)
}

// writeHolders writes the open transactions that have inserted rows into the tables of list.
func (a *app) writeHolders(list []admin.Followed) error {
	type holder struct {
		table string
		follow.Holder
	}
	var all []holder
	for _, f := range list {
		for _, h := range f.Holders {
			all = append(all, holder{f.Name(), h})
		}
	}
	if len(all) == 0 {
		return nil
	}
	fmt.Fprintln(a.out)
	columns := []string{"TABLE", "SESSION", "USER", "CLIENT", "APPLICATION", "STATE", "OPEN SINCE"}
	return writeList(a, all, columns, func(h holder) []string {
		session := strconv.FormatInt(h.Session, 10)
		if h.Session == 0 {
			session = "prepared " + h.Prepared
		}
		cells := []string{h.table, session, h.User, h.Client, h.Application, h.State, at(h.Since)}
		for i, cell := range cells {
			cells[i] = cmp.Or(cell, "-")
		}
		return cells
	})
}

// A followScript has the flags of "uid sql --follow".
type followScript struct {
	table     string
	key       string // column of the table's ids
	slack     time.Duration
	delimiter bool // print DELIMITER commands, for the client mysql
}

// followFlags adds the flag --follow, and the flags that belong to it, to "uid sql".
func (a *app) followFlags(c *cobra.Command, s *script, name *string) {
	var f followScript
	c.Flags().StringVar(&f.table, "follow", "", "print the statements that prepare this table for followers")
	c.Flags().StringVar(&f.key, "key", "id", "with --follow: column of the ids")
	slackFlag(c, &f.slack)
	c.Flags().BoolVar(&f.delimiter, "delimiter", false, "with --follow: print DELIMITER commands for the client mysql")
	for _, other := range []string{"only", "layout"} {
		c.MarkFlagsMutuallyExclusive("follow", other)
	}
	run := c.RunE
	c.RunE = func(c *cobra.Command, args []string) error {
		if f.table == "" {
			return run(c, args)
		}
		if c.Flags().Changed("schema") {
			a.schema = s.schema
		}
		return a.writeFollowScript(c.Context(), f, s.schema, *name)
	}
}

// writeFollowScript writes the statements that prepare a table for followers. name is the value of --dialect.
func (a *app) writeFollowScript(ctx context.Context, s followScript, schema, name string) error {
	switch name = strings.ToLower(name); name {
	case "postgresql":
		name = "postgres"
	case "sqlite3":
		name = "sqlite"
	case "":
		if a.source() == "" {
			return errors.New("no dialect given; pass --dialect mysql, mariadb, postgres or sqlite")
		}
		d, err := a.connect(ctx, a.source(), reads) // only the server knows whether it is MariaDB
		if err != nil {
			return err
		}
		defer d.close()
		f, err := follow.FlavorOf(ctx, d.SQL)
		if err != nil {
			return err
		}
		name = string(f)
	}
	statements, _, err := migrations.FollowStatementsFor(name, schema, s.table, s.key, s.slack)
	if err != nil {
		return err
	}
	if a.json {
		for _, statement := range statements {
			if err := writeJSON(a.out, struct {
				SQL string `json:"sql"`
			}{statement}); err != nil {
				return err
			}
		}
		return nil
	}
	_, err = fmt.Fprint(a.out, scriptOf(statements, s.delimiter && strings.HasPrefix(name, "m")))
	return err
}

// scriptOf joins statements. Some contain semicolons, so comments tell goose and Atlas where statements end.
// golang-migrate sends the whole file, and the client mysql needs DELIMITER commands instead.
func scriptOf(statements []string, delimiter bool) string {
	var text strings.Builder
	if !delimiter {
		text.WriteString("-- atlas:delimiter \\n\\n\\n\n\n\n")
	}
	for _, statement := range statements {
		switch {
		case !strings.Contains(statement, ";"):
			statement += ";"
		case delimiter:
			statement = "DELIMITER //\n" + statement + "//\nDELIMITER ;"
		default:
			statement = "-- +goose StatementBegin\n" + statement + ";\n-- +goose StatementEnd"
		}
		// One newline more than the delimiter has: for Atlas the newline after a comment belongs to the comment.
		text.WriteString(statement + "\n\n\n\n")
	}
	return text.String()
}

func milliseconds(n int64) string { return (time.Duration(n) * time.Millisecond).String() }
