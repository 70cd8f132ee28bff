package admin

import (
	"context"
	"database/sql"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"time"
	"unicode/utf8"

	"github.com/uidplugin/uidplugin"
	"github.com/uidplugin/uidplugin/workernode"
)

var (
	errNoRow = errors.New("no row")

	// ErrRow reports an unreadable row.
	ErrRow = errors.New("row not readable")
)

// A keyed is a table with the column of its ids.
type keyed struct {
	table
	key column
	on  *DB
}

// A Row is a row of any table.
type Row struct {
	Of    string // the database of the row if that is another database of this server; otherwise empty
	Cells []Cell
}

// A Cell is a column of a row.
type Cell struct {
	Name string
	Null bool
	Text string // bytes are hexadecimal, after 0x
	Size int    // number of bytes; -1 for a text
}

// Row returns the row of an id.
func (f *Finder) Row(ctx context.Context, l uidplugin.Location) (*Row, error) {
	if l.Table == "" {
		return nil, fmt.Errorf("%w: the worker id of %d serves all tables, so the table of the row is unknown",
			ErrRow, l.ID)
	}
	t, err := f.keyed(ctx, workernode.Table{Database: l.Database, Name: l.Table})
	if err != nil {
		return nil, err
	}
	of, elsewhere := "", ""
	if t.on == f.DB && l.Database != "" {
		of, elsewhere = l.Database, fmt.Sprintf("; if %s is on another server, pass --database %[1]s=DSN", l.Database)
	}
	found, err := t.on.rows(ctx, l.ID, t.table, t.key)
	switch {
	case ctx.Err() != nil:
		return nil, ctx.Err()
	case err != nil:
		return nil, fmt.Errorf("%w: %s: %w", ErrRow, l.Table, err)
	case len(found) == 0:
		return nil, fmt.Errorf("%w: %s has none with %s = %d: it was deleted or never inserted, or the database gave "+
			"this number to a row of another table (docs/from-auto-increment.md)%s",
			errNoRow, l.Table, t.key.Name, l.ID, elsewhere)
	case len(found) > 1:
		return nil, fmt.Errorf("%w: several rows of %s have %s = %d", ErrRow, l.Table, t.key.Name, l.ID)
	}
	found[0].Of = of
	return found[0], nil
}

func (f *Finder) keyed(ctx context.Context, name workernode.Table) (t keyed, err error) {
	if known, ok := f.known[name]; ok {
		return known, nil
	}
	if t.on, t.table, err = f.tableOf(ctx, name); err != nil {
		return t, err
	}
	ok := false
	if t.key, ok = keyOf(t.columns); f.Column != "" {
		i := slices.IndexFunc(t.columns, func(c column) bool { return c.Name == f.Column })
		if ok = i >= 0; ok {
			t.key = t.columns[i]
		}
	}
	switch {
	case len(t.columns) == 0 && name.Database != "" && f.Others[name.Database] == nil:
		return t, fmt.Errorf("%w: the table %s is in the database %q, which is not on this connection; pass "+
			"--database %[3]s=DSN", ErrRow, name.Name, name.Database)
	case len(t.columns) == 0:
		return t, fmt.Errorf("%w: the table %s does not exist, or this user may not read it; if it was renamed, run "+
			`"uid tables rename %[2]s NEW"`, ErrRow, name)
	case !ok && f.Column != "":
		return t, fmt.Errorf("%w: %s has no column %s", ErrRow, name, f.Column)
	case !ok:
		return t, fmt.Errorf("%w: the primary key of %s is not one column of integers or text; name the column "+
			"of the id by --column", ErrRow, name)
	}
	if f.known == nil {
		f.known = map[workernode.Table]keyed{}
	}
	f.known[name] = t
	return t, nil
}

func (d *DB) rows(ctx context.Context, id uidplugin.ID, t table, key column) (list []*Row, err error) {
	var sent any = int64(id)
	if key.isText() {
		sent = id.String()
	}
	err = d.SQL.Query(ctx, func(rows *sql.Rows) error {
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
		one := &Row{}
		for i, t := range types {
			one.Cells = append(one.Cells, cellOf(t.Name(), t.DatabaseTypeName(), values[i]))
		}
		list = append(list, one)
		return nil
	}, "SELECT * FROM "+t.quoted+" WHERE "+d.identifier(key.Name)+" = ? LIMIT 2", sent)
	return list, err
}

var binaryType = regexp.MustCompile(`(?i)blob|binary|bytea|bit|geometry`)

// cellOf converts a value from a driver.
func cellOf(name, kind string, value any) Cell {
	c := Cell{Name: name, Size: -1}
	switch v := value.(type) {
	case nil:
		c.Null = true
	case []byte:
		if binaryType.MatchString(kind) || !utf8.Valid(v) {
			c.Text, c.Size = "0x"+hex.EncodeToString(v), len(v)
			break
		}
		c.Text = string(v)
	case string:
		c.Text = v
		if !utf8.ValidString(v) {
			c.Text, c.Size = "0x"+hex.EncodeToString([]byte(v)), len(v)
		}
	case time.Time:
		c.Text = v.Format("2006-01-02 15:04:05.999999999Z07:00")
	default:
		c.Text = fmt.Sprint(v)
	}
	return c
}

// MarshalJSON writes an object with the columns in order. Values are texts or null, so that no number loses digits.
func (r *Row) MarshalJSON() ([]byte, error) {
	out := []byte("{")
	for i, c := range r.Cells {
		value := &c.Text
		if c.Null {
			value = nil
		}
		name, err := json.Marshal(c.Name)
		if err != nil {
			return nil, err
		}
		text, err := json.Marshal(value)
		if err != nil {
			return nil, err
		}
		if i > 0 {
			out = append(out, ',')
		}
		out = append(append(append(out, name...), ':'), text...)
	}
	return append(out, '}'), nil
}
