package main

import (
	"encoding/json"
	"fmt"
	"io"
	"os"
	"strconv"
	"strings"
	"text/tabwriter"
	"time"
	"unicode"
	"unicode/utf16"
	"unicode/utf8"

	"github.com/mattn/go-isatty"
)

// Colours of a terminal.
const (
	red   = "31"
	green = "32"
	bold  = "1"
)

// paint returns text in a colour if w is a terminal and NO_COLOR is not set; else the text.
func (a *app) paint(w io.Writer, colour, text string) string {
	file, ok := w.(*os.File)
	if !ok || a.env("NO_COLOR") != "" || a.env("TERM") == "dumb" || !isatty.IsTerminal(file.Fd()) {
		return text
	}
	return "\x1b[" + colour + "m" + text + "\x1b[0m"
}

// clean returns a text from elsewhere without what a terminal would act on or a reader could be misled by: it escapes
// every character that is not printable, as Go does, and bytes that are no UTF-8. It keeps what is printable in any
// script.
func clean(text string) string {
	if !strings.ContainsFunc(text, isHostile) && utf8.ValidString(text) {
		return text
	}
	var out strings.Builder
	for len(text) > 0 {
		r, size := utf8.DecodeRuneInString(text)
		if r == utf8.RuneError && size == 1 {
			fmt.Fprintf(&out, `\x%02x`, text[0])
		} else if isHostile(r) {
			quoted := strconv.QuoteRune(r)
			out.WriteString(quoted[1 : len(quoted)-1])
		} else {
			out.WriteString(text[:size])
		}
		text = text[size:]
	}
	return out.String()
}

// isHostile reports whether a character is not printable: a control character, a mark of direction and the like.
func isHostile(r rune) bool { return !unicode.IsPrint(r) }

// oneLine returns a text for one line.
func oneLine(text string) string {
	var lines []string
	for line := range strings.Lines(text) {
		if line = strings.TrimSpace(line); line != "" {
			lines = append(lines, line)
		}
	}
	return clean(strings.Join(lines, "; "))
}

// writeJSON writes v as one line. Characters that are not printable are escaped, because the line may go to a terminal.
func writeJSON(w io.Writer, v any) error {
	text, err := json.Marshal(v)
	if err != nil {
		return err
	}
	var out strings.Builder
	for _, r := range string(text) {
		switch {
		case !isHostile(r):
			out.WriteRune(r)
		case r > 0xffff:
			high, low := utf16.EncodeRune(r)
			fmt.Fprintf(&out, `\u%04x\u%04x`, high, low)
		default:
			fmt.Fprintf(&out, `\u%04x`, r)
		}
	}
	_, err = fmt.Fprintln(w, out.String())
	return err
}

// maxCell is how many characters of a cell are shown: all cells of a column are as wide as the widest. It has room for a
// value of maxText with a note about its length.
const maxCell = maxText + 40

// A grid writes rows with columns below each other. The cells are cleaned, and long ones are cut off.
type grid struct{ out *tabwriter.Writer }

// newGrid returns a grid with the names of its columns.
func newGrid(w io.Writer, columns ...string) *grid {
	g := &grid{tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)}
	if len(columns) > 0 {
		g.add(columns...)
	}
	return g
}

// add adds a row.
func (g *grid) add(cells ...string) {
	for i, c := range cells {
		cells[i] = clean(shorten(c, maxCell))
	}
	fmt.Fprintln(g.out, strings.TrimRight(strings.Join(cells, "\t"), "\t "))
}

// flush writes all rows.
func (g *grid) flush() error { return g.out.Flush() }

// timeFormat is how times are written, in UTC.
const timeFormat = "2006-01-02 15:04:05.000"

// at writes an instant; a zero one as "-".
func at(t time.Time) string {
	if t.IsZero() {
		return "-"
	}
	return t.UTC().Format(timeFormat)
}

// An instant is a time in JSON. The ids of some layouts are of years after 9999, which a [time.Time] does not write.
type instant struct{ time.Time }

func (i instant) MarshalJSON() ([]byte, error) {
	return []byte(i.UTC().Format(`"` + time.RFC3339Nano + `"`)), nil
}

// parseTime reads an instant, in UTC unless the text has another zone.
func parseTime(text string) (time.Time, error) {
	plain := strings.TrimSuffix(text, " UTC") // as the program writes times itself
	for _, format := range []string{
		time.DateOnly, "2006-01-02 15:04", time.DateTime, "2006-01-02T15:04:05", time.RFC3339,
	} {
		if t, err := time.Parse(format, plain); err == nil { // fractions of a second are read as well
			return t, nil
		}
	}
	return time.Time{}, fmt.Errorf(
		`%q is no time: write it as 2026-11-22, "2026-11-22 15:04:05" (in UTC) or 2026-11-22T15:04:05+08:00`,
		text,
	)
}

// or returns text, or what stands for an empty one.
func or(text, empty string) string {
	if text == "" {
		return empty
	}
	return text
}

// count writes how many there are of something.
func count(n int64, one, more string) string {
	if n == 1 {
		return "1 " + one
	}
	return fmt.Sprintf("%d %s", n, more)
}
