package main

import (
	"fmt"

	"github.com/spf13/cobra"
	"github.com/uidplugin/uidplugin/internal/admin"
)

// page is the default of --limit.
const page = 50

func limitFlag(c *cobra.Command, limit *int) {
	c.Flags().IntVar(limit, "limit", page, fmt.Sprintf("how many at most, up to %d", admin.MaxPage))
}

func checkLimit(limit int) error {
	if limit < 1 || limit > admin.MaxPage {
		return fmt.Errorf("--limit %d is outside 1 to %d", limit, admin.MaxPage)
	}
	return nil
}

// more explains how to get the next page. It writes to standard error, so that lists can be counted and piped.
func (a *app) more(format string, args ...any) {
	fmt.Fprintln(a.err, clean(fmt.Sprintf("more: "+format, args...)))
}
