package workernode

import (
	"context"
	"database/sql"
	"fmt"
	"slices"
	"strings"
	"unicode/utf8"
)

// fit cuts the texts of h to the width of their columns, and writes them in ASCII if a character set requires it.
// So no process fails to start because of these texts, which are for people.
func (d *DB) fit(ctx context.Context, h Host) Host {
	fitted := h.fitted()
	if text := fitted.Name + fitted.Port + fitted.Application; text == inASCII(text, len(text)) || d.holds(ctx, text) {
		return fitted
	}
	for _, t := range []*string{&fitted.Name, &fitted.Port, &fitted.Application} {
		*t = inASCII(*t, maxHost)
	}
	return fitted
}

// textColumns lists the columns for texts of a Host. Another program may have chosen the types in WORKER_NODE.
var textColumns = map[string][]string{
	NodeTable:    {"HOST_NAME", "PORT"},
	SlotTable:    {"APPLICATION", "HOST_NAME", "PORT"},
	SessionTable: {"APPLICATION", "HOST_NAME", "PORT"},
}

// holds reports whether the columns can hold a text, as this connection sends it. It returns false after an error.
func (d *DB) holds(ctx context.Context, text string) (ok bool) {
	switch d.sql.Dialect() {
	case "postgres": // other encodings lack some characters, or columns count bytes
		err := d.sql.Query(ctx, func(rows *sql.Rows) error { return rows.Scan(&ok) },
			`SELECT current_setting('server_encoding') = 'UTF8' AND current_setting('client_encoding') = 'UTF8'`)
		return ok && err == nil
	case "mysql":
		return d.keeps(ctx, text)
	}
	return true
}

// keeps reports whether a text is the same after it was converted to the character set of each column, on MySQL.
func (d *DB) keeps(ctx context.Context, text string) bool {
	var sets []any
	var list []string
	for table, columns := range textColumns {
		for _, column := range columns { // a subquery without a row has the character set of its column
			list = append(list, fmt.Sprintf(`CHARSET((SELECT MAX("%s") FROM "%s" WHERE 1 = 0))`, column, table))
			sets = append(sets, new(string))
		}
	}
	if err := d.sql.Query(ctx, func(rows *sql.Rows) error { return rows.Scan(sets...) }, `SELECT `+strings.Join(list, ", ")); err != nil {
		return false
	}
	var names []string
	for _, s := range sets {
		names = append(names, *s.(*string))
	}
	slices.Sort(names)
	for _, name := range slices.Compact(names) {
		kept := ""
		err := d.sql.Query(ctx, func(rows *sql.Rows) error { return rows.Scan(&kept) },
			`SELECT CONVERT(CONVERT(CONVERT(CAST(? AS BINARY) USING utf8mb4) USING `+name+`) USING utf8mb4)`, text)
		if err != nil || kept != text {
			return false
		}
	}
	return true
}

// inASCII writes each character of s that is not ASCII as in a Go literal, such as \u8ba2. The result has at most n
// characters, and no such escape is cut.
func inASCII(s string, n int) string {
	var out strings.Builder
	for _, r := range s {
		text := string(r)
		switch {
		case r > 0xffff:
			text = fmt.Sprintf(`\U%08x`, r)
		case r >= utf8.RuneSelf:
			text = fmt.Sprintf(`\u%04x`, r)
		}
		if out.Len()+len(text) > n {
			break
		}
		out.WriteString(text)
	}
	return out.String()
}
