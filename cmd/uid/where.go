package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strings"
	"unicode/utf8"

	"github.com/spf13/cobra"
	"github.com/uidplugin/uidplugin/internal/admin"
	"github.com/uidplugin/uidplugin/workernode"
)

func (a *app) whereCommand() *cobra.Command {
	var readRow bool
	var column string
	var others []string
	c := &cobra.Command{
		Use:   "where [ID...]",
		Short: "Look up the table, process and time of ids",
		Long: `where looks up the table that ids belong to, the process that made them, and when it made them.

It reads its arguments or, if there are none, the lines of standard input. Each is an id or a line of a log. It
ignores quotes, commas and brackets around an id, and a name before it, as in order_id=1176816959799427126. In a
line with other text it looks for public ids and for numbers of 15 to 19 digits. It skips digits after a decimal
point. It also skips numbers that may be Unix times, unless a name such as order_id stands before them.

If no process made an id, the command continues with the next one, and the exit code is 1. It needs the privilege
SELECT on the four tables of uidplugin, and with --row also on the table of the id.`,
		Example: `  uid where 1176816959799427126
  uid where --row 1176816959799427126
  uid where '2026-11-22T22:16:24Z order=1177009714823692361 paid'
  cut -d, -f2 ids.csv | uid where --json
  psql -Atc 'SELECT row_id FROM audit' | uid where --json`,
	}
	c.Flags().BoolVar(&readRow, "row", false, "also print the row")
	c.Flags().StringVar(&column, "column", "", "with --row: the column of the id (default: the primary key)")
	databaseFlag(c, &others)
	reader := a.idReader(c)
	c.RunE = func(c *cobra.Command, args []string) error {
		ids, err := reader()
		if err != nil {
			return err
		}
		return a.with(c.Context(), reads, func(d *database) error {
			p, err := d.Plugin(c.Context())
			if err != nil {
				return err
			}
			if err := a.openOthers(c.Context(), d, others, reads); err != nil {
				return err
			}
			f := admin.Finder{DB: d.DB, Plugin: p, Rows: readRow || column != "", Column: column}
			return a.where(c.Context(), &finder{f, ids}, args)
		})
	}
	return c
}

func (a *app) where(ctx context.Context, f *finder, args []string) error {
	wrong, first := false, true
	err := a.eachID(args, func(line string) error {
		// If the line has no id, reason is the error to print, and id is the part of the line that caused it.
		found, reason, id := false, error(nil), line
		for _, text := range f.ids.candidates(line) {
			p, err := f.find(ctx, text)
			switch {
			case err != nil && !isWrongID(err):
				return err
			case p.ID == 0 && reason == nil:
				reason, id = err, text
			}
			if p.ID == 0 {
				continue
			}
			if !first && !a.json {
				fmt.Fprintln(a.out)
			}
			found, first = true, false
			if failed := a.writePlace(p); failed != nil {
				return failed
			}
			if err != nil { // only the row cannot be read
				wrong = true
				if failed := a.writeWrong(text, err); failed != nil {
					return failed
				}
			}
		}
		if found {
			return nil // the other numbers of the line need not be ids
		}
		wrong = true
		return a.writeWrong(id, reason)
	})
	return cond(err, wrong)
}

// A finder locates ids as people write them.
type finder struct {
	admin.Finder
	ids idReader
}

// find locates an id. If only its row cannot be read, it returns both the place and an error.
func (f *finder) find(ctx context.Context, text string) (p admin.Place, err error) {
	id, err := f.ids.id(text)
	if err != nil {
		return p, err
	}
	p, err = f.Find(ctx, id)
	if text = admin.TrimID(text); strings.Contains(text, "_") {
		p.Prefix = text[:strings.LastIndexByte(text, '_')]
	}
	return p, err
}

func (a *app) writePlace(p admin.Place) error {
	if a.json {
		return writeJSON(a.out, p)
	}
	s := p.Session
	g := newGrid(a.out)
	g.add("id", fmt.Sprint(p.ID))
	g.add("table", cmp.Or(p.Table, "(the worker id serves all tables)"))
	if p.Prefix != "" {
		g.add("prefix", p.Prefix)
	}
	if !abbreviates(p.Prefix, p.Table) {
		g.add("but", "the prefix does not abbreviate the name of this table; if it is the prefix of another table, a program encoded the id with the wrong type")
	}
	if p.Database != "" {
		g.add("database", p.Database)
	}
	g.add("time", at(p.Time)+" UTC")
	if s == (workernode.Session{}) {
		g.add("process", "(pruned)")
	} else {
		g.add("process", fmt.Sprintf("%s on %s, port %s (%s), started %s "+
			"UTC", cmp.Or(s.Application, "?"), cmp.Or(s.Host, "?"), cmp.Or(s.Port, "?"), kind(s.Kind), at(s.Launched)))
		next := "no other process followed"
		if !s.Until.IsZero() {
			next = "the next process from " + at(s.Until) + " UTC"
		}
		g.add("session", fmt.Sprintf("slot %d, from %s UTC; %s", s.Slot, at(s.From), next))
	}
	g.add("worker id", fmt.Sprintf("%d, sequence %d", p.WorkerID, p.Sequence))
	if p.Follows != 0 {
		g.add("but", fmt.Sprintf("the database numbered the row; time, process and worker id are those of %d, "+
			"the nearest id below", p.Follows))
	}
	if p.MayBeRounded {
		g.add("but", "JavaScript or a spreadsheet may have rounded the number, so this may be the wrong id; check with --row")
	}
	if err := g.flush(); err != nil || p.Row == nil {
		return err
	}
	title := "row"
	if p.Row.Of != "" {
		title = fmt.Sprintf("row, of the database %s on this server", clean(p.Row.Of))
	}
	fmt.Fprintln(a.out, title)
	g = newGrid(a.out)
	for _, c := range p.Row.Cells {
		g.add("  "+c.Name, cellText(c))
	}
	return g.flush()
}

// Limits for values shown to people: the length of a text, and of the hexadecimal form of bytes.
const (
	maxText  = 200
	maxBytes = 66
)

func cellText(c admin.Cell) string {
	switch n := utf8.RuneCountInString(c.Text); {
	case c.Null:
		return "NULL"
	case c.Size >= 0 && len(c.Text) > maxBytes:
		return fmt.Sprintf("%s... (%d bytes)", c.Text[:maxBytes], c.Size)
	case c.Size < 0 && n > maxText:
		return fmt.Sprintf("%s (%d characters)", shorten(c.Text, maxText), n)
	}
	return c.Text
}

// abbreviates reports whether the letters of a prefix come in this order in a table's name: ord fits orders. This
// is a guess, because the database does not store prefixes.
func abbreviates(prefix, table string) bool {
	rest := strings.ToLower(table)
	for _, letter := range strings.ReplaceAll(prefix, "_", "") {
		_, after, found := strings.Cut(rest, string(letter))
		if !found && table != "" {
			return false
		}
		rest = after
	}
	return true
}

func kind(k workernode.Kind) string { return strings.ToLower(k.String()) }

// codeOf returns the code that JSON has for an error about an id; empty for other errors.
func codeOf(err error) string {
	switch {
	case errors.Is(err, errID):
		return "malformed"
	case errors.Is(err, errSystem):
		return "unknown_system"
	}
	return admin.CodeOf(err)
}

// isWrongID reports whether an error is about the id instead of the database.
func isWrongID(err error) bool { return admin.IsWrongID(err) || codeOf(err) != "" }
