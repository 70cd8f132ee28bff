package main

import (
	"fmt"

	"github.com/spf13/cobra"
)

// page is the default of --limit.
const page = 50

// maxPage is the maximum of --limit, because the rows of one statement are in memory.
const maxPage = 10_000

func limitFlag(c *cobra.Command, limit *int) {
	c.Flags().IntVar(limit, "limit", page, fmt.Sprintf("how many at most, up to %d", maxPage))
}

func checkLimit(limit int) error {
	if limit < 1 || limit > maxPage {
		return fmt.Errorf("--limit %d is outside 1 to %d", limit, maxPage)
	}
	return nil
}

// more explains how to get the next page. It writes to standard error, so that lists can be counted and piped.
func (a *app) more(format string, args ...any) {
	fmt.Fprintln(a.err, clean(fmt.Sprintf("more: "+format, args...)))
}
