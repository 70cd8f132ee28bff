package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"time"

	"github.com/mattn/go-isatty"
	"github.com/spf13/cobra"
	"github.com/uidplugin/uidplugin/internal/admin"
)

// A pruning is the result of uid sessions prune.
type pruning struct {
	Before   time.Time `json:"before"`
	Slots    int64     `json:"slots"`
	Sessions int64     `json:"sessions"`
	Done     bool      `json:"done"` // false: only counted
}

func (a *app) pruneCommand() *cobra.Command {
	var before string
	var yes, dry bool
	c := &cobra.Command{
		Use:   "prune --before TIME",
		Short: "Forget which processes held the slots in old sessions",
		Long: `prune removes the rows of WORKER_SESSION that record which process held which slot before a time. Older ids
then resolve to their table and time, but not to their process. Numbers of that age may then resolve even if
no process made them.

Each slot keeps the latest session that began before the time, because that session may have made ids after the time.
One row for each slot, which names no process, replaces its older sessions. Sessions of other regions stay: prune them
there. WORKER_SLOT keeps the last holder of each slot, and WORKER_NODE the process that inserted each worker id.
Processes may run meanwhile. The command needs the privileges SELECT, UPDATE and DELETE on WORKER_SESSION. Only a backup
can restore removed sessions.`,
		Example: `  uid sessions prune --before 2025-01-01 --dry-run
  uid sessions prune --before 90d`,
		Args: cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			if before == "" {
				return errors.New("no time given; pass one, such as --before 2025-01-01")
			}
			end, err := a.time(before)
			if err != nil {
				return err
			}
			if end.After(a.now()) {
				return fmt.Errorf("--before %s is in the future; pass an earlier time", at(end))
			}
			use := writes
			if dry {
				use = reads
			}
			return a.with(c.Context(), use, func(d *database) error {
				return a.prune(c.Context(), d, pruning{Before: end}, dry, yes)
			})
		},
	}
	c.Flags().StringVar(&before, "before", "", "the time, such as 2025-01-01, or 90d for 90 days ago")
	c.Flags().BoolVar(&yes, "yes", false, "do not ask for confirmation")
	c.Flags().BoolVar(&dry, "dry-run", false, "only count what would be removed")
	c.MarkFlagsMutuallyExclusive("yes", "dry-run")
	return c
}

func (a *app) prune(ctx context.Context, d *database, p pruning, dry, yes bool) error {
	would, err := d.Prunable(ctx, p.Before)
	if err != nil {
		return err
	}
	p.Slots, p.Sessions = would.Slots, would.Sessions
	if dry || p.Sessions == 0 {
		return a.writePruning(p)
	}
	if err := a.confirm(yes, fmt.Sprintf("Remove the processes of %s before %s? Their ids will no longer resolve to a "+
		"process. [y/N] ", p.sessions(), at(p.Before)), "pass --yes to remove, or --dry-run to count what would be removed"); err != nil {
		return err
	}
	ctx, stop := untilSignal(ctx) // so that after Ctrl+C the removed sessions are still reported
	defer stop()
	did, err := d.Prune(ctx, p.Before)
	p.Slots, p.Sessions, p.Done = did.Slots, did.Sessions, true
	if err != nil && did != (admin.Pruning{}) {
		return fmt.Errorf("%w (already removed: %s; run the command again)", err, p.sessions())
	}
	if err != nil {
		return err
	}
	return a.writePruning(p)
}

// confirm asks at a terminal unless yes is true. Without a terminal it returns an error that ends with advice.
func (a *app) confirm(yes bool, question, advice string) error {
	if yes {
		return nil
	}
	file, ok := a.in.(*os.File)
	if !ok || !isatty.IsTerminal(file.Fd()) {
		return errors.New("cannot ask for confirmation, because standard input is not a terminal; " + advice)
	}
	fmt.Fprint(a.err, question)
	answer, _ := bufio.NewReader(a.in).ReadString('\n')
	switch strings.ToLower(strings.TrimSpace(answer)) {
	case "y", "yes":
		return nil
	}
	return errors.New("nothing was changed")
}

func (a *app) writePruning(p pruning) error {
	if a.json {
		return writeJSON(a.out, p)
	}
	word := "to be removed"
	if p.Done {
		word = "removed"
	}
	if p.Sessions == 0 {
		_, err := fmt.Fprintf(a.out, "nothing to remove before %s: each slot keeps the latest session before it\n",
			at(p.Before))
		return err
	}
	_, err := fmt.Fprintf(a.out, "%s before %s: %s\n", p.sessions(), at(p.Before), word)
	return err
}

func (p pruning) sessions() string {
	return admin.Count(p.Sessions, "session", "sessions") + " of " + admin.Count(p.Slots, "slot", "slots")
}
