package main

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/spf13/cobra"
	"github.com/uidplugin/uidplugin"
	"github.com/uidplugin/uidplugin/generator"
	"github.com/uidplugin/uidplugin/internal/rounded"
	"github.com/uidplugin/uidplugin/workernode"
)

// A place is where an id came from, and its row.
type place struct {
	uidplugin.Location
	Row *row `json:"row,omitempty"` // nil unless it is asked for

	MayBeRounded bool `json:"may_be_rounded,omitempty"` // then it may be an id of another table; never with a row
}

func (a *app) whereCommand() *cobra.Command {
	var readRow bool
	var column string
	var others []string
	c := &cobra.Command{
		Use:   "where [ID...]",
		Short: "Say which table, process and time ids came from",
		Long: `where says which table ids are keys of, which process made them, and when.

It reads arguments or, without any, standard input: one id a line, or a line of a log. Quotes, commas and
brackets around an id are ignored, and so is a name before it, as in order_id=1176816959799427126. Of a line
with other text it takes the numbers of 15 to 19 digits, and the public ids, that are ids. It needs the right SELECT on the four
tables of uidplugin, and for --row on the table of the id. An id that nobody made does not stop the
others; the exit code is 1 then.`,
		Example: `  uid where 1176816959799427126
  uid where --row 1176816959799427126
  uid where '2026-11-22T22:16:24Z order=1177009714823692361 paid'
  cut -d, -f2 ids.csv | uid where --json
  psql -Atc 'SELECT row_id FROM audit' | uid where --json`,
		RunE: func(c *cobra.Command, args []string) error { return nil },
	}
	c.Flags().BoolVar(&readRow, "row", false, "read the row as well")
	c.Flags().StringVar(&column, "column", "", "with --row: the column of the id; the primary key if not given")
	databaseFlag(c, &others)
	keys := a.publicKeyFlag(c)
	c.RunE = func(c *cobra.Command, args []string) error {
		ids, err := keys()
		if err != nil {
			return err
		}
		d, err := a.open(c.Context(), reads)
		if err != nil {
			return err
		}
		defer d.close()
		p, err := d.plugin(a)
		if err != nil {
			return err
		}
		if err := a.openOthers(c.Context(), d, others); err != nil {
			return err
		}
		w := &finder{plugin: p, ids: ids}
		if readRow || column != "" {
			w.rows = &rowReader{database: d, column: column}
		}
		return a.where(c.Context(), w, args)
	}
	return c
}

// where writes where ids came from.
func (a *app) where(ctx context.Context, f *finder, args []string) error {
	wrong, first := false, true
	err := a.eachID(args, func(line string) error {
		found, why, of := false, error(nil), line // why there is no place, of the first text of the line
		for _, text := range f.ids.candidates(line) {
			p, err := f.find(ctx, text)
			switch {
			case err != nil && !isWrongID(err):
				return err
			case p.ID == 0 && why == nil:
				why, of = err, text
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
			if err != nil { // of its row
				wrong = true
				if failed := a.writeWrong(text, err); failed != nil {
					return failed
				}
			}
		}
		if found {
			return nil // other numbers of the line are no ids
		}
		wrong = true
		return a.writeWrong(of, why)
	})
	return cond(err, wrong)
}

// A finder finds where ids came from.
type finder struct {
	plugin *uidplugin.Plugin
	ids    idReader
	rows   *rowReader // nil if rows are not wanted
}

// find returns where an id came from. If only its row cannot be read, it returns both the place and an error.
func (f *finder) find(ctx context.Context, text string) (p place, err error) {
	id, err := f.ids.id(text)
	if err != nil {
		return p, err
	}
	if p.Location, err = f.plugin.Locate(ctx, uidplugin.ID(id)); err == nil && f.rows != nil {
		p.Row, err = f.rows.read(ctx, p.Location)
	}
	p.MayBeRounded = p.Row == nil && rounded.Looks(id)
	return p, f.checkRounded(ctx, id, err)
}

func (a *app) writePlace(p place) error {
	if a.json {
		return writeJSON(a.out, p)
	}
	s := p.Session
	g := newGrid(a.out)
	g.add("id", fmt.Sprint(p.ID))
	g.add("table", or(p.Table, "(the worker id serves all tables)"))
	if p.Database != "" {
		g.add("database", p.Database)
	}
	g.add("time", at(p.Time)+" UTC")
	if s == (uidplugin.Session{}) {
		g.add("process", "(pruned)")
	} else {
		g.add("process", fmt.Sprintf("%s on %s, port %s (%s), started %s "+
			"UTC", or(s.Application, "?"), or(s.Host, "?"), or(s.Port, "?"), kind(s.Kind), at(s.Launched)))
		next := "no other process followed"
		if !s.Until.IsZero() {
			next = "the next process from " + at(s.Until) + " UTC"
		}
		g.add("session", fmt.Sprintf("slot %d, from %s UTC; %s", s.Slot, at(s.From), next))
	}
	g.add("worker id", fmt.Sprintf("%d, sequence %d", p.WorkerID, p.Sequence))
	if p.MayBeRounded {
		g.add("but", "JavaScript or a spreadsheet may have rounded the number; then it is not this id: check with --row")
	}
	if err := g.flush(); err != nil || p.Row == nil {
		return err
	}
	fmt.Fprintln(a.out, "row")
	return p.Row.write(a.out)
}

// kind names where a process runs, as JSON does.
func kind(k workernode.Kind) string { return strings.ToLower(k.String()) }

// codes are the names of what can be wrong with an id, in JSON.
var codes = []struct {
	err  error
	name string
}{
	{errID, "malformed"}, {uidplugin.ErrNegativeID, "negative_id"}, {uidplugin.ErrFutureID, "future_id"},
	{uidplugin.ErrOtherLayout, "other_layout"}, {uidplugin.ErrNotDecodable, "not_decodable"},
	{uidplugin.ErrUnknownID, "unknown_id"}, {errNoRow, "no_row"}, {errRow, "row_not_readable"},
	{errSystem, "unknown_system"}, {generator.ErrLayout, "not_decodable"},
}

// codeOf returns the name of what is wrong with an id; empty if that is another error.
func codeOf(err error) string {
	for _, c := range codes {
		if errors.Is(err, c.err) {
			return c.name
		}
	}
	return ""
}

// isWrongID reports whether an error is about the id, and not about the database.
func isWrongID(err error) bool { return errors.Is(err, uidplugin.ErrNoSuchID) || codeOf(err) != "" }
