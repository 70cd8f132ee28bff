package inspector

import (
	"context"
	"database/sql/driver"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strconv"
	"time"
	"unicode/utf8"

	"github.com/uidplugin/uidplugin"
	"github.com/uidplugin/uidplugin/internal/rounded"
	"github.com/uidplugin/uidplugin/publicid" // wing: publicid
	"gorm.io/gorm"
	"gorm.io/gorm/schema"
)

// A row is the row of an id, or the reason why it is not shown.
type row struct {
	Reason  string   `json:"reason,omitempty"`
	Table   string   `json:"table,omitempty"` // set if it is not the table of the Location, which may have none
	Columns []column `json:"columns,omitempty"`
}

type column struct {
	Name   string  `json:"name"`
	Value  *string `json:"value"` // nil for NULL and for hidden values
	Hidden bool    `json:"hidden,omitempty"`
	IsID   bool    `json:"is_id,omitempty"` // the value looks like an id
}

// row reads the row of an id. It returns only database errors.
func (h *handler) row(ctx context.Context, l uidplugin.Location, public string) (*row, error) {
	loaded, err := h.find(ctx, l.ID, public)
	if err != nil {
		reason := rowProblem(len(h.models), l.Table, err)
		if reason == "" {
			return nil, err
		}
		if errors.Is(err, gorm.ErrRecordNotFound) || errors.Is(err, uidplugin.ErrNoModel) {
			reason += h.rounded(ctx, l.ID)
		}
		return &row{Reason: reason}, nil
	}
	parsed := &gorm.Statement{DB: h.db}
	if err := parsed.Parse(loaded); err != nil {
		return nil, err
	}
	value, columns := reflect.Indirect(reflect.ValueOf(loaded)), []column(nil)
	for _, name := range parsed.Schema.DBNames {
		if f := parsed.Schema.FieldsByDBName[name]; f.Readable {
			columns = append(columns, h.column(ctx, parsed.Schema.Table, f, value))
		}
	}
	found := &row{Columns: columns}
	if table := parsed.Schema.Table; table != l.Table {
		found.Table = table
	}
	return found, nil
}

// find loads the row of an id. For a public id, the parameter public is its text, and otherwise "".
func (h *handler) find(ctx context.Context, id uidplugin.ID, public string) (any, error) {
	only := uidplugin.OnlyModels(h.models...)
	if public != "" { // wing: publicid
		return publicid.Find(ctx, h.db, public, only) // wing: publicid
	} // wing: publicid
	return h.plugin.Find(ctx, id, only)
}

// rounded returns a sentence if a number looks as if a program had rounded it from another id, and otherwise "".
func (h *handler) rounded(ctx context.Context, id uidplugin.ID) string {
	if !rounded.Looks(int64(id)) {
		return ""
	}
	var near []uidplugin.ID
	for _, n := range rounded.Originals(int64(id)) {
		near = append(near, uidplugin.ID(n))
	}
	found, _ := h.plugin.FindAll(ctx, near, uidplugin.OnlyModels(h.models...)) // most of these are not ids
	if len(found) == 0 {
		return " JavaScript or a spreadsheet may have rounded the number."
	}
	nearest := slices.Min(slices.Collect(maps.Keys(found)))
	return " JavaScript or a spreadsheet has rounded the number: it may have been " + nearest.String() + "."
}

// isHidden reports whether a field, or a struct that embeds it, is tagged json:"-".
func isHidden(f *schema.Field) bool {
	t := f.Schema.ModelType
	for _, name := range f.BindNames {
		if t.Kind() == reflect.Pointer {
			t = t.Elem()
		}
		part, ok := t.FieldByName(name)
		if !ok || part.Tag.Get("json") == "-" {
			return true
		}
		t = part.Type
	}
	return false
}

// column returns a field as the page shows it.
func (h *handler) column(ctx context.Context, table string, f *schema.Field, row reflect.Value) column {
	c := column{Name: f.DBName}
	if isHidden(f) {
		c.Hidden = true
		return c
	}
	value, _ := f.ValueOf(ctx, row)
	if valuer, ok := value.(driver.Valuer); ok && f.Serializer != nil {
		text, null := valueText(valuer) // as stored, because GORM wraps the value in a type of its own
		if value = text; null {
			value = nil
		}
	}
	if h.mask != nil {
		value = h.mask(table, f.DBName, value)
	}
	text, null := valueText(value)
	if null {
		return c
	}
	c.Value = &text
	if id, err := uidplugin.ParseID(text); err == nil {
		_, err = h.plugin.Decode(id)
		c.IsID = err == nil
	}
	return c
}

// valueText formats a value as stored, and reports whether it is NULL.
func valueText(value any) (text string, null bool) {
	if valuer, ok := value.(driver.Valuer); ok {
		if v := reflect.ValueOf(value); v.Kind() == reflect.Pointer && v.IsNil() {
			return "", true
		}
		plain, err := valuer.Value()
		if err != nil {
			return fmt.Sprintf("(cannot be shown: %v)", err), false
		}
		value = plain
	}
	v := reflect.ValueOf(value)
	for v.Kind() == reflect.Pointer || v.Kind() == reflect.Interface {
		if v.IsNil() {
			return "", true
		}
		v = v.Elem()
	}
	if !v.IsValid() {
		return "", true
	}
	if at, ok := v.Interface().(time.Time); ok {
		return at.Format(time.RFC3339Nano), false
	}
	switch v.Kind() {
	case reflect.Slice:
		if v.Type().Elem().Kind() == reflect.Uint8 { // also json.RawMessage and the like
			return bytesText(v.Bytes())
		}
	case reflect.String:
		return v.String(), false
	case reflect.Bool:
		return strconv.FormatBool(v.Bool()), false
	case reflect.Int, reflect.Int8, reflect.Int16, reflect.Int32, reflect.Int64:
		return strconv.FormatInt(v.Int(), 10), false
	case reflect.Uint, reflect.Uint8, reflect.Uint16, reflect.Uint32, reflect.Uint64:
		return strconv.FormatUint(v.Uint(), 10), false
	case reflect.Float32, reflect.Float64:
		return strconv.FormatFloat(v.Float(), 'g', -1, v.Type().Bits()), false
	}
	if text, err := json.Marshal(v.Interface()); err == nil {
		return string(text), false
	}
	return fmt.Sprint(v.Interface()), false
}

// bytesText formats bytes, as text if possible, and reports whether they are NULL.
func bytesText(value []byte) (text string, null bool) {
	switch {
	case value == nil:
		return "", true
	case utf8.Valid(value):
		return string(value), false
	}
	return "0x" + hex.EncodeToString(value), false
}
