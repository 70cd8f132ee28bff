package main

import (
	"encoding/json"
	"fmt"
	"io"
	"os"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/mattn/go-isatty"
	"github.com/uidplugin/uidplugin/internal/admin"
)

// Colours of a terminal.
const (
	red   = "31"
	green = "32"
)

// paint colours a text for a terminal.
func (a *app) paint(w io.Writer, colour, text string) string {
	file, ok := w.(*os.File)
	if !ok || a.env("NO_COLOR") != "" || a.env("TERM") == "dumb" || !isatty.IsTerminal(file.Fd()) {
		return text
	}
	return "\x1b[" + colour + "m" + text + "\x1b[0m"
}

// clean escapes control characters, because a terminal would obey them.
func clean(text string) string { return admin.Escape(text, "") }

// oneLine joins the lines of a text by semicolons.
func oneLine(text string) string {
	var lines []string
	for line := range strings.Lines(text) {
		if line = strings.TrimSpace(line); line != "" {
			lines = append(lines, line)
		}
	}
	return clean(strings.Join(lines, "; "))
}

// writeJSON writes v as one line.
func writeJSON(w io.Writer, v any) error {
	text, err := json.Marshal(v)
	if err != nil {
		return err
	}
	_, err = fmt.Fprintln(w, admin.EscapeJSON(text))
	return err
}

// maxCell limits the characters of a cell, because a column is as wide as its longest cell. A value of maxText
// characters fits, together with the "(n characters)" that cellText adds.
const maxCell = maxText + 40

// A grid writes rows with aligned columns. It cleans cells, and truncates long ones.
type grid struct{ out *tabwriter.Writer }

func newGrid(w io.Writer, columns ...string) *grid {
	g := &grid{tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)}
	if len(columns) > 0 {
		g.add(columns...)
	}
	return g
}

func (g *grid) add(cells ...string) {
	for i, c := range cells {
		cells[i] = clean(shorten(c, maxCell))
	}
	fmt.Fprintln(g.out, strings.TrimRight(strings.Join(cells, "\t"), "\t "))
}

func (g *grid) flush() error { return g.out.Flush() }

// writeList writes a list as JSON, or as a grid with the cells of each element.
func writeList[T any](a *app, list []T, columns []string, cells func(T) []string) error {
	if a.json {
		return writeJSONs(a.out, list)
	}
	g := newGrid(a.out, columns...)
	for _, one := range list {
		g.add(cells(one)...)
	}
	return g.flush()
}

func writeJSONs[T any](w io.Writer, list []T) error {
	for _, one := range list {
		if err := writeJSON(w, one); err != nil {
			return err
		}
	}
	return nil
}

// at formats an instant, and returns "-" for the zero time.
func at(t time.Time) string { return admin.Time(t) }

// parseTime parses an instant, in UTC unless the text has another zone.
func parseTime(text string) (time.Time, error) {
	plain := strings.TrimSuffix(text, " UTC") // as this program writes times
	for _, format := range []string{
		time.DateOnly, "2006-01-02 15:04", time.DateTime, "2006-01-02T15:04:05", time.RFC3339,
	} {
		if t, err := time.Parse(format, plain); err == nil { // also accepts fractions of a second
			return t, nil
		}
	}
	return time.Time{}, fmt.Errorf(
		`%q is not a time; write it as 2026-11-22, "2026-11-22 15:04:05" (in UTC) or 2026-11-22T15:04:05+08:00`,
		text,
	)
}
