package main

import (
	"bytes"
	"context"
	"database/sql"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"regexp"
	"slices"
	"time"
	"unicode/utf8"

	"github.com/uidplugin/uidplugin"
	"github.com/uidplugin/uidplugin/internal/workernode"
)

var (
	// errNoRow reports an id without a row.
	errNoRow = errors.New("no row")

	// errRow reports an unreadable row.
	errRow = errors.New("row not readable")
)

// A rowReader reads the rows of ids.
type rowReader struct {
	*database
	column string // column of the ids; empty for the primary key

	known map[workernode.Table]keyed
}

// A keyed is a table with the column of its ids.
type keyed struct {
	table
	key column
	on  *database
}

// A row is a row of any table.
type row struct {
	key   string // column of the id
	of    string // database by whose name the row was found; empty for the registry's
	cells []cell
}

// A cell is a column of a row.
type cell struct {
	name string
	null bool
	text string // bytes are hexadecimal, after 0x
	size int    // number of bytes; -1 for a text
}

func (r *rowReader) read(ctx context.Context, l uidplugin.Location) (*row, error) {
	if l.Table == "" {
		return nil, fmt.Errorf("%w: the worker id of %d serves all tables, so nothing says which has the "+
			"row", errRow, l.ID)
	}
	t, err := r.keyed(ctx, workernode.Table{Database: l.Database, Name: l.Table})
	if err != nil {
		return nil, err
	}
	of, elsewhere := "", ""
	if t.on == r.database && l.Database != "" {
		of, elsewhere = l.Database, fmt.Sprintf("; if %s is on another server, give --database %[1]s=DSN", l.Database)
	}
	found, err := t.on.rows(ctx, l.ID, t.table, t.key)
	switch {
	case ctx.Err() != nil:
		return nil, ctx.Err()
	case err != nil:
		return nil, fmt.Errorf("%w: %s: %w", errRow, l.Table, err)
	case len(found) == 0:
		return nil, fmt.Errorf("%w: %s has none with %s = %d: it was deleted, or never inserted, or the database "+
			"numbered a row of another table so (docs/from-auto-increment.md)%s", errNoRow, l.Table, t.key.name, l.ID, elsewhere)
	case len(found) > 1:
		return nil, fmt.Errorf("%w: several rows of %s have %s = %d", errRow, l.Table, t.key.name, l.ID)
	}
	found[0].of = of
	return found[0], nil
}

// keyed returns a table with the column of its ids.
func (r *rowReader) keyed(ctx context.Context, name workernode.Table) (t keyed, err error) {
	if known, ok := r.known[name]; ok {
		return known, nil
	}
	if t.on, t.table, err = r.tableOf(ctx, name); err != nil {
		return t, err
	}
	ok := false
	if t.key, ok = keyOf(t.columns); r.column != "" {
		i := slices.IndexFunc(t.columns, func(c column) bool { return c.name == r.column })
		if ok = i >= 0; ok {
			t.key = t.columns[i]
		}
	}
	switch {
	case len(t.columns) == 0 && name.Database != "" && r.others[name.Database] == nil:
		return t, fmt.Errorf("%w: the table %s is in the database %q, which is not on this connection: repeat with "+
			"--database %[3]s=DSN", errRow, name.Name, name.Database)
	case len(t.columns) == 0:
		return t, fmt.Errorf("%w: there is no table %s, or this user may not read it", errRow, name)
	case !ok && r.column != "":
		return t, fmt.Errorf("%w: %s has no column %s", errRow, name, r.column)
	case !ok:
		return t, fmt.Errorf("%w: the primary key of %s is not one column of integers or text; name the column "+
			"of the id by --column", errRow, name)
	}
	if r.known == nil {
		r.known = map[workernode.Table]keyed{}
	}
	r.known[name] = t
	return t, nil
}

// rows returns up to two rows with an id.
func (d *database) rows(ctx context.Context, of uidplugin.ID, t table, key column) (list []*row, err error) {
	var id any = of.Int64()
	if key.isText() {
		id = of.String()
	}
	err = d.query(ctx, func(rows *sql.Rows) error {
		types, err := rows.ColumnTypes()
		if err != nil {
			return err
		}
		values := make([]any, len(types))
		into := make([]any, len(types))
		for i := range values {
			into[i] = &values[i]
		}
		if err := rows.Scan(into...); err != nil {
			return err
		}
		one := &row{key: key.name}
		for i, t := range types {
			one.cells = append(one.cells, cellOf(t.Name(), t.DatabaseTypeName(), values[i]))
		}
		list = append(list, one)
		return nil
	}, "SELECT * FROM "+t.quoted+" WHERE "+d.identifier(key.name)+" = ? LIMIT 2", id)
	return list, err
}

var binaryType = regexp.MustCompile(`(?i)blob|binary|bytea|bit|geometry`)

// cellOf converts a value from a driver.
func cellOf(name, kind string, value any) cell {
	c := cell{name: name, size: -1}
	switch v := value.(type) {
	case nil:
		c.null = true
	case []byte:
		if binaryType.MatchString(kind) || !utf8.Valid(v) {
			c.text, c.size = "0x"+hex.EncodeToString(v), len(v)
			break
		}
		c.text = string(v)
	case string:
		c.text = v
		if !utf8.ValidString(v) {
			c.text, c.size = "0x"+hex.EncodeToString([]byte(v)), len(v)
		}
	case time.Time:
		c.text = v.Format("2006-01-02 15:04:05.999999999Z07:00")
	default:
		c.text = fmt.Sprint(v)
	}
	return c
}

// Limits for values shown to people: characters of a text, and digits of bytes.
const (
	maxText  = 200
	maxBytes = 66
)

// String returns the value for people, truncated.
func (c cell) String() string {
	switch {
	case c.null:
		return "NULL"
	case c.size >= 0 && len(c.text) > maxBytes:
		return fmt.Sprintf("%s... (%d bytes)", c.text[:maxBytes], c.size)
	case c.size >= 0:
		return c.text
	}
	if n := utf8.RuneCountInString(c.text); n > maxText {
		return fmt.Sprintf("%s... (%d characters)", string([]rune(c.text)[:maxText]), n)
	}
	return c.text
}

func (r *row) write(w io.Writer) error {
	g := newGrid(w)
	for _, c := range r.cells {
		g.add("  "+c.name, c.String())
	}
	return g.flush()
}

// MarshalJSON writes an object with the columns in order. Values are texts or null, because numbers would lose digits.
func (r *row) MarshalJSON() ([]byte, error) {
	var out bytes.Buffer
	out.WriteByte('{')
	for i, c := range r.cells {
		if i > 0 {
			out.WriteByte(',')
		}
		var value any
		if !c.null {
			value = c.text
		}
		for j, v := range []any{c.name, value} {
			text, err := json.Marshal(v)
			if err != nil {
				return nil, err
			}
			if j > 0 {
				out.WriteByte(':')
			}
			out.Write(text)
		}
	}
	out.WriteByte('}')
	return out.Bytes(), nil
}
