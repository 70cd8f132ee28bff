package main

import (
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"github.com/uidplugin/uidplugin/internal/admin"
)

// An undone is a check that could not run.
type undone struct {
	Check string `json:"check"`
	Error string `json:"error"`
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
				if !slices.Contains(admin.Codes, code) {
					return fmt.Errorf("--ignore %q is none of %s", code, strings.Join(admin.Codes, ", "))
				}
			}
			return a.with(c.Context(), reads, func(d *database) error {
				if err := a.openOthers(c.Context(), d, others); err != nil {
					return err
				}
				return a.writeReport(d.Examine(c.Context(), ignore...))
			})
		},
	}
	databaseFlag(c, &others)
	c.Flags().StringSliceVar(&ignore, "ignore", nil, "codes of findings that are accepted, with commas")
	_ = c.RegisterFlagCompletionFunc("ignore", cobra.FixedCompletions(admin.Codes, cobra.ShellCompDirectiveNoFileComp))
	return c
}

// writeReport writes a report, and returns the error for its exit code.
func (a *app) writeReport(r admin.Report) error {
	var failed []undone
	for _, u := range r.Undone {
		failed = append(failed, undone{u.Check, oneLine(a.redact(u.Err.Error()))})
	}
	if a.json {
		if err := errors.Join(writeJSONs(a.out, r.Findings), writeJSONs(a.out, failed)); err != nil {
			return err
		}
	} else {
		var text strings.Builder
		a.writeFindings(&text, r.Findings)
		for _, u := range failed {
			fmt.Fprintf(&text, "not checked: %s: %s\n", u.Check, u.Error)
		}
		colour := green
		if len(r.Findings)+len(failed) > 0 {
			colour = red
		}
		findings := admin.Count(int64(len(r.Findings)), "finding", "findings")
		summary := fmt.Sprintf("%d checks, %s, %d not done", r.Checks, findings, len(failed))
		fmt.Fprintln(&text, a.paint(a.out, colour, summary))
		if _, err := io.WriteString(a.out, text.String()); err != nil {
			return err
		}
	}
	switch {
	case len(r.Findings) > 0:
		return errWrong
	case len(r.Undone) > 0:
		return errUndone
	}
	return nil
}

func (a *app) writeFindings(w io.Writer, list []admin.Finding) {
	for _, f := range list {
		fmt.Fprintf(w, "%s  %s\n", a.paint(a.out, red, f.Code), clean(f.Text))
		if f.Advice != "" {
			fmt.Fprintf(w, "    %s\n", clean(f.Advice))
		}
		if f.Fix != "" {
			fmt.Fprintf(w, "    %s;\n", clean(f.Fix))
		}
	}
}
