package main

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"
)

// A finding is a problem of a database.
type finding struct {
	Code   string `json:"code"`             // stable
	Text   string `json:"text"`             // the problem and its consequence
	Fix    string `json:"fix,omitempty"`    // statement that fixes it
	Advice string `json:"advice,omitempty"` // the remedy, or a precaution before the statement
}

// Codes of findings. docs/command.md explains them.
const (
	codeClock             = "clock"
	codeReadOnly          = "read-only"
	codeNoSlotLive        = "no-slot-live"
	codeInnoDBFlush       = "innodb-flush"
	codeSyncBinlog        = "sync-binlog"
	codeFsync             = "fsync"
	codeSynchronousCommit = "synchronous-commit"
	codeAsyncReplicas     = "async-replicas"
	codeSplitBrain        = "galera-split-brain"
	codeKeyNumbered       = "key-numbered"
	codeKeyNarrow         = "key-narrow"
	codeKeyAhead          = "key-ahead"
	codeLayoutEnd         = "layout-end"
	codeWorkerIDs         = "worker-ids"
	codeSlotUnheld        = "slot-unheld"
	codeSessionDeleted    = "session-deleted"
	codeNodeForeign       = "node-foreign"
	codeNodeOutside       = "node-outside"
	codeNodeLayout        = "node-layout"
	codeNodeSlot          = "node-slot"
)

func findingCodes() []string {
	return []string{
		codeClock, codeReadOnly, codeNoSlotLive, codeInnoDBFlush, codeSyncBinlog, codeFsync, codeSynchronousCommit, codeAsyncReplicas, codeSplitBrain,
		codeKeyNumbered, codeKeyNarrow, codeKeyAhead, codeLayoutEnd, codeWorkerIDs, codeSlotUnheld,
		codeSessionDeleted, codeNodeForeign, codeNodeOutside, codeNodeLayout, codeNodeSlot,
	}
}

// An undone is a check that could not run.
type undone struct {
	Check string `json:"check"`
	Error string `json:"error"`
}

// A report is the result of the doctor.
type report struct {
	findings []finding
	undone   []undone
	checks   int
}

// A doctor checks a database.
type doctor struct {
	*database
	app *app
}

// A check looks for findings of some codes. Findings before an error count.
type check struct {
	name string
	look func(ctx context.Context) ([]finding, error)
}

func (d doctor) checks() []check {
	return []check{
		{"clock", d.checkClock}, {"writes", d.checkWrites}, {"durability", d.checkDurability}, {"replication", d.checkReplication},
		{"keys", d.checkKeys}, {"layout", d.checkLayout}, {"slots", d.checkSlots}, {"sessions", d.checkSessions}, {"worker nodes", d.checkNodes},
	}
}

func (a *app) doctorCommand() *cobra.Command {
	var ignore, others []string
	c := &cobra.Command{
		Use:   "doctor",
		Short: "Look for what is wrong with a database",
		Long: `doctor looks at clocks, whether the server takes writes, settings, replication, keys, the layout, slots and worker ids. Each finding has a
code, a sentence, and the statement that fixes it or what to do. It changes nothing.

The exit code is 1 if there is a finding, and 2 if there is none but a check could not look, for example
without the right to. --ignore leaves out codes that are known and accepted.

Tables that this user may not see are not checked. Tables of other databases, with WithRegistry, are if their
server is this one, or if --database says where they are. Others are named as not done.`,
		Example: `  uid doctor
  uid doctor --ignore async-replicas,node-foreign --json
  uid doctor --database shard-1=mysql://user:password@host/shop`,
		Args: cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			for _, code := range ignore {
				if !slices.Contains(findingCodes(), code) {
					return fmt.Errorf("--ignore %q is none of %s", code, strings.Join(findingCodes(), ", "))
				}
			}
			d, err := a.open(c.Context(), reads)
			if err != nil {
				return err
			}
			defer d.close()
			if err := a.openOthers(c.Context(), d, others); err != nil {
				return err
			}
			r := doctor{d, a}.examine(c.Context(), ignore)
			return a.writeReport(r)
		},
	}
	databaseFlag(c, &others)
	c.Flags().StringSliceVar(&ignore, "ignore", nil, "codes of findings that are accepted, with commas")
	_ = c.RegisterFlagCompletionFunc("ignore", cobra.FixedCompletions(findingCodes(), cobra.ShellCompDirectiveNoFileComp))
	return c
}

// examine runs all checks.
func (d doctor) examine(ctx context.Context, ignore []string) (r report) {
	for _, c := range d.checks() {
		r.checks++
		found, err := c.look(ctx)
		for _, f := range found {
			if !slices.Contains(ignore, f.Code) {
				r.findings = append(r.findings, f)
			}
		}
		if err != nil {
			r.undone = append(r.undone, undone{c.name, oneLine(d.app.redact(err.Error()))})
		}
	}
	return r
}

// writeReport writes a report, and returns the error for its exit code.
func (a *app) writeReport(r report) error {
	if !a.json {
		a.writeFindings(r.findings)
	}
	for i := 0; a.json && i < len(r.findings); i++ {
		if err := writeJSON(a.out, r.findings[i]); err != nil {
			return err
		}
	}
	for _, u := range r.undone {
		if a.json {
			if err := writeJSON(a.out, u); err != nil {
				return err
			}
			continue
		}
		fmt.Fprintf(a.out, "not checked: %s: %s\n", u.Check, u.Error)
	}
	if !a.json {
		findings := count(int64(len(r.findings)), "finding", "findings")
		summary := fmt.Sprintf("%d checks, %s, %d not done", r.checks, findings, len(r.undone))
		fmt.Fprintln(a.out, a.paint(a.out, r.colour(), summary))
	}
	switch {
	case len(r.findings) > 0:
		return errWrong
	case len(r.undone) > 0:
		return errUndone
	}
	return nil
}

func (a *app) writeFindings(list []finding) {
	for _, f := range list {
		fmt.Fprintf(a.out, "%s  %s\n", a.paint(a.out, red, f.Code), clean(f.Text))
		if f.Advice != "" {
			fmt.Fprintf(a.out, "    %s\n", clean(f.Advice))
		}
		if f.Fix != "" {
			fmt.Fprintf(a.out, "    %s;\n", clean(f.Fix))
		}
	}
}

func (r report) colour() string {
	if len(r.findings)+len(r.undone) > 0 {
		return red
	}
	return green
}
