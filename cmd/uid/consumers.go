// wing: follow

package main

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"time"

	"github.com/spf13/cobra"
	"github.com/uidplugin/uidplugin"
	"github.com/uidplugin/uidplugin/internal/admin"
)

func (a *app) consumersCommand() *cobra.Command {
	c := a.tableSubcommand(prepares, &cobra.Command{
		Use:   "consumers [list]",
		Short: "List consumers of followed tables, and what they fail at",
		Long: `consumers lists the consumers of follow.Consume, from the table UID_CURSOR. LAST ID is the cursor: all rows up to
it are handled. ROWS counts the rows above it, up to 10000, also those that do not match the consumer's conditions, and
BEHIND is the age of the oldest of them. HOLDER is the host and port of the process that works, as in the list of
"uid slots". STATE is

  running   a process works
  stopped   no process works
  paused    by "uid follow consumers pause"
  stuck     a row fails; it is tried again, and later rows wait for it

The table of a consumer may be in another database than its cursor. Then its rows are not counted.

The exit code is 1 if a row has failed for more than a minute, if the table is not followed, or if rows have waited for
more than a minute because the consumer is stopped or paused.`,
		Example: `  uid follow consumers
  uid follow consumers reset mails --table orders --to 2026-11-22
  uid follow consumers pause mails`,
		Args: func(c *cobra.Command, args []string) error {
			if slices.Equal(args, []string{"list"}) {
				return nil
			}
			return onlyCommands(c, args)
		},
	}, func(ctx context.Context, d *database, _ []string) error {
		list, err := d.Consumers(ctx)
		if err != nil {
			return err
		}
		return a.writeConsumers(list)
	})
	c.AddCommand(a.consumersResetCommand(), a.consumersRemoveCommand(), a.consumersPauseCommand(true), a.consumersPauseCommand(false))
	return c
}

// consumerSubcommand adds what commands about one consumer share: the argument NAME, --table, and the look-up.
func (a *app) consumerSubcommand(c *cobra.Command, f func(context.Context, *database, admin.Consumer) error) *cobra.Command {
	var table string
	c.Args = cobra.ExactArgs(1)
	c = a.tableSubcommand(prepares, c, func(ctx context.Context, d *database, args []string) error {
		consumer, err := d.Consumer(ctx, args[0], table)
		if err != nil {
			return err
		}
		return f(ctx, d, consumer)
	})
	c.Flags().StringVar(&table, "table", "", "the followed table (default: the only one of the consumer)")
	return c
}

// A cursorChange is the result of a command that sets or removes a cursor.
type cursorChange struct {
	Consumer string        `json:"consumer"`
	Table    string        `json:"table"`
	From     uidplugin.ID  `json:"from"`
	To       *uidplugin.ID `json:"to,omitempty"`   // nil if the cursor is removed
	Rows     *int64        `json:"rows,omitempty"` // between From and To, but no more than 10,001; nil if unknown
	Done     bool          `json:"done"`           // false for a dry run
}

// effect tells what happens to the rows between c.From and c.To. c.To must not be nil.
func (c cursorChange) effect() string {
	happens, rows := "are passed over", "unknown"
	if *c.To < c.From {
		happens = "come again"
	}
	if c.Rows != nil {
		rows = admin.RowsText(*c.Rows)
	}
	return "rows that " + happens + ": " + rows
}

func (a *app) consumersResetCommand() *cobra.Command {
	var to string
	var yes, dry bool
	c := a.consumerSubcommand(&cobra.Command{
		Use:   "reset NAME --to ID|TIME|beginning|now",
		Short: "Set the cursor of a consumer back or forward",
		Long: `reset sets the cursor of a consumer. With an id, the rows above it come next. With a time, such as 2026-11-22
or 2h for two hours ago, the rows whose ids were made from then on come next. With "beginning" all rows come. "now" is
the present time minus the table's slack, by default a second. So rows that are being inserted now still come, unless
their transaction takes longer than the slack.

Back: the rows come again, and their effects happen again. Forward: the rows between are passed over. reset counts them
first, up to 10000, also those that do not match the consumer's conditions. A row that has failed is tried at once.
Processes may run meanwhile: one that is handling a row finishes it first, or gives it up.`,
		Example: `  uid follow consumers reset mails --table orders --to 1178338548508524663
  uid follow consumers reset mails --to 2026-11-22 --dry-run`,
	}, func(ctx context.Context, d *database, consumer admin.Consumer) error {
		id, err := a.cursorOf(ctx, d, to, consumer)
		if err != nil {
			return err
		}
		target := uidplugin.ID(id)
		change := cursorChange{consumer.Name, consumer.TableName(), consumer.LastID, &target, nil, !dry}
		if n, err := d.RowsBetween(ctx, consumer, id); err == nil { // else the table is in another database
			change.Rows = &n
		}
		if dry {
			return a.writeCursorChange(change)
		}
		question := fmt.Sprintf("Set the cursor of %s of %s from %d (%s) to %d (%s)? [y/N] ", clean(consumer.Name), clean(consumer.TableName()),
			consumer.LastID, at(consumer.LastTime), id, change.effect())
		if err := a.confirm(yes, question, "pass --yes to set the cursor, or --dry-run to see it"); err != nil {
			return err
		}
		if err := d.ResetConsumer(ctx, consumer, id); err != nil {
			return err
		}
		return a.writeCursorChange(change)
	})
	c.Flags().StringVar(&to, "to", "", "an id, a time, an age such as 2h, beginning or now")
	_ = c.MarkFlagRequired("to")
	c.Flags().BoolVar(&yes, "yes", false, "do not ask for confirmation")
	c.Flags().BoolVar(&dry, "dry-run", false, "only print what would be set")
	c.MarkFlagsMutuallyExclusive("yes", "dry-run")
	return c
}

func (a *app) cursorOf(ctx context.Context, d *database, flag string, consumer admin.Consumer) (int64, error) {
	switch flag {
	case "beginning":
		return 0, nil
	case "now":
		return d.CursorNow(ctx, consumer)
	}
	if id, err := strconv.ParseInt(flag, 10, 64); err == nil {
		return id, d.CheckCursor(id, consumer.Now)
	}
	from, err := a.time(flag)
	if err != nil {
		return 0, fmt.Errorf("--to %q is neither an id, a time, an age, beginning nor now: %w", flag, err)
	}
	if from.After(a.now()) {
		return 0, fmt.Errorf("--to %s is in the future; pass an earlier time, or now", at(from))
	}
	return d.CursorAt(from)
}

func (a *app) consumersRemoveCommand() *cobra.Command {
	var yes bool
	c := a.consumerSubcommand(&cobra.Command{
		Use:   "remove NAME",
		Short: "Remove the cursor of a consumer",
		Long: `remove removes the cursor of a consumer that is not needed any more, so that follow.Handled ignores the consumer.
First remove its call of follow.Consume from the program: a process that still runs it gets the error
follow.ErrRemoved, and one that starts later begins anew, so all effects happen again.`,
		Example: "  uid follow consumers remove mails --table orders",
	}, func(ctx context.Context, d *database, consumer admin.Consumer) error {
		question := fmt.Sprintf("Remove the cursor of %s of %s at %d (%s)? If run again, the consumer begins anew. [y/N] ",
			clean(consumer.Name), clean(consumer.TableName()), consumer.LastID, at(consumer.LastTime))
		if err := a.confirm(yes, question, "pass --yes to remove the cursor"); err != nil {
			return err
		}
		if err := d.RemoveConsumer(ctx, consumer); err != nil {
			return err
		}
		return a.writeCursorChange(cursorChange{consumer.Name, consumer.TableName(), consumer.LastID, nil, nil, true})
	})
	c.Flags().BoolVar(&yes, "yes", false, "do not ask for confirmation")
	return c
}

func (a *app) consumersPauseCommand(paused bool) *cobra.Command {
	c := &cobra.Command{
		Use: "resume NAME", Short: "Let a paused consumer go on",
		Long: "resume lets a paused consumer go on within a few seconds.",
	}
	if paused {
		c.Use, c.Short = "pause NAME", "Make a consumer stand still until it is resumed"
		c.Long = `pause makes a consumer stand still in all processes until "uid follow consumers resume". A process that is handling
a row finishes it first. The processes go on running, and the cursor stays.`
	}
	return a.consumerSubcommand(c, func(ctx context.Context, d *database, consumer admin.Consumer) error {
		if err := d.PauseConsumer(ctx, consumer, paused); err != nil {
			return err
		}
		consumer, err := d.Consumer(ctx, consumer.Name, consumer.TableName())
		if err != nil {
			return err
		}
		if consumer.Findings = []admin.Finding{}; !paused && consumer.State == admin.ConsumerStopped && !a.json {
			// The state "stopped" would look like a failure, and its finding would advise to remove the consumer.
			consumer.State = "resumed; a running process takes it within seconds; if none runs, start one"
		}
		return a.writeConsumers([]admin.Consumer{consumer})
	})
}

func (a *app) writeCursorChange(c cursorChange) error {
	if a.json {
		return writeJSON(a.out, c)
	}
	word, effect := "removed at", ""
	if c.To != nil {
		word, effect = fmt.Sprintf("to be set to %d from", *c.To), "; "+c.effect()
		if c.Done {
			word = fmt.Sprintf("set to %d from", *c.To)
		}
	}
	_, err := fmt.Fprintf(a.out, "the cursor of %s of %s: %s %d%s\n", clean(c.Consumer), clean(c.Table), word, c.From, effect)
	return err
}

// writeConsumers writes consumers, and returns errWrong if one has findings.
func (a *app) writeConsumers(list []admin.Consumer) error {
	columns := []string{"CONSUMER", "TABLE", "LAST ID", "TIME", "ROWS", "BEHIND", "HOLDER", "STATE"}
	err := writeList(a, list, columns, func(c admin.Consumer) []string {
		behind, holder, state := "-", "-", c.State
		if c.Rows >= 0 {
			behind = milliseconds(c.Behind)
		}
		if c.Holder != "" {
			holder = c.Holder
		}
		if c.StuckID != 0 {
			state = fmt.Sprintf("stuck at %d since %s: %s", c.StuckID, at(c.StuckSince), c.Error)
			switch {
			case c.State == admin.ConsumerPaused:
				state = c.State + ", " + state
			case c.Holder == "":
				state = admin.ConsumerStopped + ", " + state
			case c.RetryAt.After(c.Now):
				state = fmt.Sprintf("%s; tried again at %s", state, c.RetryAt.UTC().Format(time.TimeOnly))
			}
		}
		return []string{c.Name, c.TableName(), c.LastID.String(), at(c.LastTime), c.RowsBehind(), behind, holder, state}
	})
	if err != nil {
		return err
	}
	wrong := false
	for _, c := range list {
		wrong = wrong || len(c.Findings) > 0
		if c.Unread != "" && c.Space == "" && len(c.Findings) == 0 && !a.json {
			fmt.Fprintln(a.err, oneLine(fmt.Sprintf("warning: %s: %s: %s", c.Name, c.TableName(), c.Unread)))
		}
		if !a.json {
			a.writeFindings(a.out, c.Findings)
		}
	}
	return cond(nil, wrong)
}
