package main

import (
	"fmt"

	"github.com/spf13/cobra"
)

// page is how many lines a list has, unless the flag --limit says otherwise.
const page = 50

// maxPage bounds --limit: what one statement returns is in memory.
const maxPage = 10_000

// limitFlag adds the flag --limit to a command that lists.
func limitFlag(c *cobra.Command, limit *int) {
	c.Flags().IntVar(limit, "limit", page, fmt.Sprintf("how many at most, up to %d", maxPage))
}

// checkLimit returns an error for a limit out of range.
func checkLimit(limit int) error {
	if limit < 1 || limit > maxPage {
		return fmt.Errorf("--limit %d is outside 1 to %d", limit, maxPage)
	}
	return nil
}

// more says how to see the next page. It is on standard error, so that lists can be counted and piped.
func (a *app) more(format string, args ...any) {
	fmt.Fprintln(a.err, clean(fmt.Sprintf("more: "+format, args...)))
}
