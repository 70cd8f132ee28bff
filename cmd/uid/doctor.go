package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"github.com/uidplugin/uidplugin/internal/admin"
)

// An undone is what the output shows of a check that could not run.
type undone struct {
	Check string `json:"check"`
	Error string `json:"error"`
}

func (a *app) doctorCommand() *cobra.Command {
	var ignore, others, regions []string
	c := &cobra.Command{
		Use:   "doctor",
		Short: "Check a database for problems",
		Long: `doctor checks clocks, settings, replication, keys, the layout, regions, slots and worker ids, and whether the
server accepts writes. Each finding has a code, a sentence, and a statement or advice that fixes it. It changes nothing.

The exit code is 1 if there are findings, and 2 if there are none but a check could not run, for example because
a privilege is missing. --ignore leaves out codes that you accept.

It does not check tables that this user may not see. With WithRegistry, it checks tables of other databases if
they are on this server, or if you pass --database for them. It lists the others as not checked.

With --region it compares the registry with the one in the database of another region.`,
		Example: `  uid doctor
  uid doctor --ignore async-replicas,node-foreign --json
  uid doctor --database shard-1=mysql://user:password@host/shop
  uid doctor --region mysql://user:password@far/shop`,
		Args: cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			for _, code := range ignore {
				if !slices.Contains(admin.Codes, code) {
					return fmt.Errorf("--ignore %q is unknown; use one of %s", code, strings.Join(admin.Codes, ", "))
				}
			}
			return a.with(c.Context(), reads, func(d *database) error {
				if err := a.openOthers(c.Context(), d, others, reads); err != nil {
					return err
				}
				if err := a.openRegions(c.Context(), d, regions); err != nil {
					return err
				}
				return a.writeReport(d.Examine(c.Context(), ignore...))
			})
		},
	}
	databaseFlag(c, &others)
	c.Flags().StringArrayVar(&regions, "region", nil, "DSN of the database with another region's registry; repeatable")
	c.Flags().StringSliceVar(&ignore, "ignore", nil, "codes of findings to leave out, separated by commas")
	_ = c.RegisterFlagCompletionFunc("ignore", cobra.FixedCompletions(admin.Codes, cobra.ShellCompDirectiveNoFileComp))
	return c
}

// openRegions opens the databases of --region, and reads their registries.
func (a *app) openRegions(ctx context.Context, d *database, names []string) error {
	for _, dsn := range names {
		other, err := a.connect(ctx, dsn, reads)
		if err != nil {
			return fmt.Errorf("--region: %w", err)
		}
		d.others = append(d.others, other)
		d.Regions = append(d.Regions, other.DB)
		if err := other.ReadRegistry(ctx); err != nil {
			return fmt.Errorf("--region: %w", err)
		}
	}
	return nil
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
