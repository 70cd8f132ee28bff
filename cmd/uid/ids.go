package main

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"os"
	"regexp"
	"strconv"
	"strings"
	"time"
	"unicode"

	"github.com/mattn/go-isatty"
	"github.com/spf13/cobra"
	"github.com/uidplugin/uidplugin/internal/admin"
)

// An idReader parses ids as people write them.
type idReader struct {
	public func(text string) (int64, error) // reads a public id; may be nil
	now    func() time.Time                 // clock of this machine
}

var errID = errors.New("not an id")

// id parses a decimal number or a public id. It ignores a preceding name, quotes, commas and similar characters.
func (r idReader) id(text string) (int64, error) {
	text = admin.TrimID(text)
	id, err := strconv.ParseInt(text, 10, 64)
	switch {
	case err == nil:
		return id, nil
	case errors.Is(err, strconv.ErrRange):
		return 0, fmt.Errorf("%w: %.40s does not fit into 64 bits", errID, text)
	case scientific.MatchString(text):
		return 0, fmt.Errorf("%w: %q has lost its last digits, because a spreadsheet rounded it; read ids as text",
			errID, shorten(text, 60))
	case r.public != nil && strings.Contains(text, "_") && !strings.ContainsFunc(text, isNoWord):
		return r.public(text)
	}
	return 0, fmt.Errorf("%w: %q is neither a decimal number nor a public id; pass an id, or a line of a log with one",
		errID, shorten(text, 60))
}

// scientific matches a number with an exponent, as spreadsheets write long numbers.
var scientific = regexp.MustCompile(`^[0-9](\.[0-9]+)?[eE]\+?[0-9]+$`)

// isNoWord reports whether a character cannot be part of a public id.
func isNoWord(r rune) bool {
	return r != '_' && (r > unicode.MaxASCII || !unicode.IsLetter(r) && !unicode.IsDigit(r))
}

// inText matches numbers and public ids in a line of a log.
var inText = regexp.MustCompile(`\b(\d{15,19}|[A-Za-z][A-Za-z0-9]*(_[A-Za-z0-9]+)*_[0-9A-Za-z]{26})\b`)

// before matches a decimal point or a name before a number.
var before = regexp.MustCompile(`\d(\.)$|([A-Za-z][A-Za-z0-9_]*)["']?\s*[=:]\s*["']?$`)

// timeName matches a name which tells that the number after it is a time.
var timeName = regexp.MustCompile(`(?i)time|^ts$`)

// candidates returns the parts of a line that may be ids, or else the whole line. It skips digits after a decimal
// point. It also skips numbers that may be Unix times, unless they have a name that timeName does not match.
func (r idReader) candidates(text string) (found []string) {
	if _, err := r.id(text); err == nil {
		return []string{text}
	}
	for _, at := range inText.FindAllStringIndex(text, -1) {
		one := text[at[0]:at[1]]
		m := before.FindStringSubmatch(text[max(at[0]-80, 0):at[0]])
		fraction, name := m != nil && m[1] != "", m != nil && m[2] != "" && !timeName.MatchString(m[2])
		if n, err := strconv.ParseInt(one, 10, 64); err == nil && (fraction || !name && r.isUnixTime(n)) {
			continue
		}
		found = append(found, one)
	}
	if len(found) == 0 {
		return []string{text}
	}
	return found
}

// isUnixTime reports whether a number is a time within a year of now, in microseconds or nanoseconds.
func (r idReader) isUnixTime(n int64) bool {
	const year = 365 * 24 * time.Hour
	now := r.now()
	return now.Sub(time.UnixMicro(n)).Abs() < year || now.Sub(time.Unix(0, n)).Abs() < year
}

// shorten truncates a text to n characters, and then appends "...".
func shorten(text string, n int) string {
	if runes := []rune(text); len(runes) > n {
		return string(runes[:n]) + "..."
	}
	return text
}

// idReader adds the flags of a command that reads ids. The returned function reads the flags.
func (a *app) idReader(c *cobra.Command) func() (idReader, error) {
	var kinds []func(*idReader) error
	kinds = append(kinds, a.publicKeyFlag(c)) // wing: publicid
	return func() (idReader, error) {
		r := idReader{now: a.now}
		for _, read := range kinds {
			if err := read(&r); err != nil {
				return r, err
			}
		}
		return r, nil
	}
}

// eachID calls f for each argument. For "-", and without arguments, it calls f for each line of standard input.
func (a *app) eachID(args []string, f func(text string) error) error {
	if len(args) == 0 {
		if file, ok := a.in.(*os.File); ok && isatty.IsTerminal(file.Fd()) {
			return errors.New("no ids given; pass them as arguments, or one per line on standard input")
		}
		args = []string{"-"}
	}
	for _, arg := range args {
		if arg != "-" {
			if err := f(arg); err != nil {
				return err
			}
			continue
		}
		if err := eachLine(a.in, f); err != nil {
			return err
		}
	}
	return nil
}

func eachLine(input io.Reader, f func(text string) error) error {
	lines := bufio.NewReader(input)
	for {
		text, failed := lines.ReadString('\n') // log lines may have any length
		if text = strings.TrimSpace(text); text != "" {
			if err := f(text); err != nil {
				return err
			}
		}
		switch {
		case errors.Is(failed, io.EOF):
			return nil
		case failed != nil:
			return fmt.Errorf("standard input: %w", failed)
		}
	}
}
