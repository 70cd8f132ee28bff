package admin

import (
	"fmt"
	"regexp"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf16"
	"unicode/utf8"
)

// named matches the name before an id, as in a log or in JSON.
var named = regexp.MustCompile(`^[A-Za-z][A-Za-z0-9_]*["']?\s*[=:]\s*`)

// TrimID removes the name, quotes, commas and brackets that logs, lists and JSON put around an id.
func TrimID(text string) string {
	const around = " \t\r\n\"'`,;()[]{}\u00a0\u200b\ufeff" // the last three come from pasting and from files
	text = strings.Trim(text, around)
	return strings.Trim(text[len(named.FindString(text)):], around)
}

// Escape escapes invalid UTF-8 and the characters that are not printable, such as control characters and direction
// marks, because they could control a terminal or mislead a reader. It does not escape characters in keep.
func Escape(text, keep string) string {
	hostile := func(r rune) bool { return !unicode.IsPrint(r) && !strings.ContainsRune(keep, r) }
	if !strings.ContainsFunc(text, hostile) && utf8.ValidString(text) {
		return text
	}
	var out strings.Builder
	for len(text) > 0 {
		r, size := utf8.DecodeRuneInString(text)
		if r == utf8.RuneError && size == 1 {
			fmt.Fprintf(&out, `\x%02x`, text[0])
		} else if hostile(r) {
			quoted := strconv.QuoteRune(r)
			out.WriteString(quoted[1 : len(quoted)-1])
		} else {
			out.WriteString(text[:size])
		}
		text = text[size:]
	}
	return out.String()
}

// EscapeJSON escapes the characters of a JSON text that are not printable, because it may go to a terminal.
func EscapeJSON(text []byte) string {
	var out strings.Builder
	for _, r := range string(text) {
		switch {
		case r == '\n' || unicode.IsPrint(r):
			out.WriteRune(r)
		case r > 0xffff:
			high, low := utf16.EncodeRune(r)
			fmt.Fprintf(&out, `\u%04x\u%04x`, high, low)
		default:
			fmt.Fprintf(&out, `\u%04x`, r)
		}
	}
	return out.String()
}
