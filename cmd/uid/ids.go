package main

import (
	"bufio"
	"encoding/base64"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"os"
	"regexp"
	"strconv"
	"strings"
	"unicode"

	"github.com/mattn/go-isatty"
	"github.com/spf13/cobra"
	"github.com/uidplugin/uidplugin/publicid"
)

// An idReader reads ids as people write them.
type idReader struct {
	keys *publicid.Keys // of public ids; nil if none were given
}

// errID reports a text that is no id.
var errID = errors.New("no id")

// id reads a decimal number or the text of a public id. Quotes, commas and the like around it, and a name before it, as
// in a log or a list, are ignored.
func (r idReader) id(text string) (int64, error) {
	text = valueOf(text)
	id, err := strconv.ParseInt(text, 10, 64)
	switch {
	case err == nil:
		return id, nil
	case errors.Is(err, strconv.ErrRange):
		return 0, fmt.Errorf("%w: %.40s does not fit into 64 bits", errID, text)
	case scientific.MatchString(text):
		return 0, fmt.Errorf("%w: %q was rounded, as spreadsheets do, and its last digits are lost; read ids as text",
			errID, shorten(text, 60))
	case !strings.Contains(text, "_") || strings.ContainsFunc(text, isNoWord):
		return 0, fmt.Errorf("%w: %q is neither a decimal number nor the text of a public id; give the id, or a "+
			"line of a log that has one", errID, shorten(text, 60))
	case r.keys == nil:
		return 0, fmt.Errorf(
			"%w: %q looks like a public id; reading it takes its key: --public-key, or UID_PUBLIC_KEY",
			errID,
			shorten(text, 60),
		)
	}
	codec, err := r.keys.Codec(text[:strings.LastIndexByte(text, '_')])
	if err == nil {
		id, err = codec.Decode(text)
	}
	if err != nil {
		return 0, fmt.Errorf("%w: %q is no public id of this key", errID, shorten(text, 60))
	}
	return id, nil
}

// scientific is a number as a spreadsheet writes it.
var scientific = regexp.MustCompile(`^[0-9](\.[0-9]+)?[eE]\+?[0-9]+$`)

// named is an id with its name before it, as in a log or in JSON.
var named = regexp.MustCompile(`^[A-Za-z][A-Za-z0-9_]*["']?\s*[=:]\s*`)

// valueOf returns a text without what a log, a list or JSON puts around it: its name, quotes, commas and brackets.
func valueOf(text string) string {
	const around = " \t\r\n\"'`,;()[]{}\u00a0\u200b\ufeff" // the last three come with pasting, and with files
	text = strings.Trim(text, around)
	return strings.Trim(text[len(named.FindString(text)):], around)
}

// isNoWord reports whether a character is none of a public id.
func isNoWord(r rune) bool {
	return r != '_' && (r > unicode.MaxASCII || !unicode.IsLetter(r) && !unicode.IsDigit(r))
}

// inText are numbers and public ids in a line of a log.
var inText = regexp.MustCompile(`\b(\d{15,19}|[A-Za-z][A-Za-z0-9]*(_[A-Za-z0-9]+)*_[0-9A-Za-z]{26})\b`)

// candidates returns the texts of a line of a log that may be ids, or the whole text if it is one, or has none.
func (r idReader) candidates(text string) []string {
	if _, err := r.id(text); err != nil {
		if found := inText.FindAllString(text, -1); len(found) > 0 {
			return found
		}
	}
	return []string{text}
}

// shorten returns a text of at most n characters, with "..." for what it leaves out.
func shorten(text string, n int) string {
	if runes := []rune(text); len(runes) > n {
		return string(runes[:n]) + "..."
	}
	return text
}

// parseKeys reads the keys of public ids, the newest first, with commas between them: 32 bytes each, in hexadecimal or
// base64. The error does not contain them.
func parseKeys(text string) (*publicid.Keys, error) {
	if text == "" {
		return nil, nil
	}
	var keys [][]byte
	for i, part := range strings.Split(text, ",") {
		part = strings.TrimSpace(part)
		key, err := hex.DecodeString(part)
		for _, encoding := range []*base64.Encoding{
			base64.StdEncoding, base64.RawStdEncoding, base64.URLEncoding, base64.RawURLEncoding,
		} {
			if err == nil && len(key) == publicid.KeySize {
				break
			}
			key, err = encoding.DecodeString(part)
		}
		if err != nil || len(key) != publicid.KeySize {
			return nil, fmt.Errorf("public key %d is not %d bytes in hexadecimal or base64", i+1, publicid.KeySize)
		}
		keys = append(keys, key)
	}
	return publicid.NewKeys(keys...)
}

// publicKeyFlag adds the flag --public-key to a command. The function that it returns reads the flag or UID_PUBLIC_KEY.
func (a *app) publicKeyFlag(c *cobra.Command) func() (idReader, error) {
	var text string
	c.Flags().StringVar(&text, "public-key", "",
		"the key of public ids, 32 bytes in hexadecimal or base64; several with commas; better in UID_PUBLIC_KEY")
	return func() (idReader, error) {
		keys, err := parseKeys(or(text, a.env("UID_PUBLIC_KEY")))
		return idReader{keys}, err
	}
}

// eachID calls f for each argument or, without arguments or for "-", for each line of standard input that is not empty.
// It ends at an error of f.
func (a *app) eachID(args []string, f func(text string) error) error {
	if len(args) == 0 {
		if file, ok := a.in.(*os.File); ok && isatty.IsTerminal(file.Fd()) {
			return errors.New("which ids? Give them as arguments, or one a line on standard input")
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

func eachLine(in io.Reader, f func(text string) error) error {
	lines := bufio.NewScanner(in)
	lines.Buffer(nil, 16<<20) // lines of a log may be long
	for lines.Scan() {
		text := strings.TrimSpace(lines.Text())
		if text == "" {
			continue
		}
		if err := f(text); err != nil {
			return err
		}
	}
	if err := lines.Err(); err != nil {
		return fmt.Errorf("standard input: %w", err)
	}
	return nil
}
