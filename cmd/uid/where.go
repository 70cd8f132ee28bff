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
	"github.com/uidplugin/uidplugin/internal/supply"
	"github.com/uidplugin/uidplugin/internal/workernode"
)

// A place is the origin of an id, and its row.
type place struct {
	uidplugin.Location
	Row     *row         `json:"row,omitempty"`     // nil unless requested
	Follows uidplugin.ID `json:"follows,omitempty"` // for a number of the database, the id before it; the other fields describe that id

	Prefix       string `json:"prefix,omitempty"`         // of the given public id
	MayBeRounded bool   `json:"may_be_rounded,omitempty"` // it may be rounded from an id of another table; false with a row
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
with other text it takes the numbers of 15 to 19 digits, and the public ids, that are ids. It leaves out
digits after a decimal point, and Unix times without a name. It needs the right SELECT on the four
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

// where writes the origins of ids.
func (a *app) where(ctx context.Context, f *finder, args []string) error {
	wrong, first := false, true
	err := a.eachID(args, func(line string) error {
		found, why, of := false, error(nil), line // error of the first candidate of the line
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
			if err != nil { // error of its row
				wrong = true
				if failed := a.writeWrong(text, err); failed != nil {
					return failed
				}
			}
		}
		if found {
			return nil // other numbers of the line are not ids
		}
		wrong = true
		return a.writeWrong(of, why)
	})
	return cond(err, wrong)
}

// A finder locates ids.
type finder struct {
	plugin *uidplugin.Plugin
	ids    idReader
	rows   *rowReader // nil if rows are not requested
}

// find locates an id. If only its row cannot be read, it returns both the place and an error.
func (f *finder) find(ctx context.Context, text string) (p place, err error) {
	id, err := f.ids.id(text)
	if err != nil {
		return p, err
	}
	if p.Location, err = f.plugin.Locate(ctx, uidplugin.ID(id)); err == nil && f.rows != nil {
		p.Row, err = f.rows.read(ctx, p.Location)
	}
	if text = valueOf(text); strings.Contains(text, "_") {
		p.Prefix = text[:strings.LastIndexByte(text, '_')]
	}
	if f.rows != nil && isWrongID(err) {
		if numbered, failed := f.numbered(ctx, id); failed == nil {
			numbered.Prefix = p.Prefix
			return numbered, nil
		} else if !isWrongID(failed) {
			return p, failed
		}
	}
	p.MayBeRounded = p.Row == nil && rounded.Looks(id)
	return p, f.checkRounded(ctx, id, err)
}

// numbered returns the row of a number that the database assigned for another program, as [uidplugin.Plugin.Find] does:
// its table is the table of the id that the number follows.
func (f *finder) numbered(ctx context.Context, id int64) (p place, err error) {
	before, ok := supply.Before(f.plugin.Layout(), id)
	if !ok || f.rows.dialect == sqliteDialect {
		return p, errNoRow
	}
	if p.Location, err = f.plugin.Locate(ctx, uidplugin.ID(before)); err != nil {
		return p, err
	}
	p.ID, p.Follows = uidplugin.ID(id), p.ID
	p.Row, err = f.rows.read(ctx, p.Location)
	return p, err
}

func (a *app) writePlace(p place) error {
	if a.json {
		return writeJSON(a.out, p)
	}
	s := p.Session
	g := newGrid(a.out)
	g.add("id", fmt.Sprint(p.ID))
	g.add("table", or(p.Table, "(the worker id serves all tables)"))
	if p.Prefix != "" {
		g.add("prefix", p.Prefix)
	}
	if !abbreviates(p.Prefix, p.Table) {
		g.add("but", "the prefix does not look like one of this table: if it is another table's, the text was made with the wrong type")
	}
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
	if p.Follows != 0 {
		g.add("but", fmt.Sprintf("the database has numbered the row; time, process and worker id are of %d, the id before it", p.Follows))
	}
	if p.MayBeRounded {
		g.add("but", "JavaScript or a spreadsheet may have rounded the number; then it is not this id: check with --row")
	}
	if err := g.flush(); err != nil || p.Row == nil {
		return err
	}
	title := "row"
	if p.Row.of != "" {
		title = fmt.Sprintf("row, of the database %s on this server", clean(p.Row.of))
	}
	fmt.Fprintln(a.out, title)
	return p.Row.write(a.out)
}

// abbreviates reports whether a table's name contains the letters of a prefix in order, as orders contains ord. It is
// true without a table. This is a guess, because the database does not store prefixes.
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

// kind returns the name of a kind, as in JSON.
func kind(k workernode.Kind) string { return strings.ToLower(k.String()) }

// codes maps errors of ids to their names in JSON.
var codes = []struct {
	err  error
	name string
}{
	{errID, "malformed"}, {uidplugin.ErrNegativeID, "negative_id"}, {uidplugin.ErrFutureID, "future_id"},
	{uidplugin.ErrOtherLayout, "other_layout"}, {uidplugin.ErrNotDecodable, "not_decodable"},
	{uidplugin.ErrUnknownID, "unknown_id"}, {errNoRow, "no_row"}, {errRow, "row_not_readable"},
	{errSystem, "unknown_system"}, {generator.ErrLayout, "not_decodable"},
}

// codeOf returns the code of an error of an id; empty for other errors.
func codeOf(err error) string {
	for _, c := range codes {
		if errors.Is(err, c.err) {
			return c.name
		}
	}
	return ""
}

// isWrongID reports whether an error is about the id instead of the database.
func isWrongID(err error) bool { return errors.Is(err, uidplugin.ErrNoSuchID) || codeOf(err) != "" }
