package uidplugin

import (
	"context"
	"database/sql/driver"
	"fmt"
	"reflect"
	"strconv"
	"strings"

	"gorm.io/gorm/schema"
)

// A row is what a create sends for one row: a struct of the model, or a map.
type row struct {
	v reflect.Value // the struct; not valid for a map
	m map[string]any
}

// rowsOf returns the rows of a statement. Elements that are no rows of the model,
// such as nil pointers, are left out.
func rowsOf(dest reflect.Value, p *plan) (rows []row) {
	add := func(v reflect.Value) {
		for v.Kind() == reflect.Pointer {
			v = v.Elem()
		}
		if !v.IsValid() {
			return
		}
		if v.Type() == p.schema.ModelType {
			rows = append(rows, row{v: v})
		} else if m, ok := v.Interface().(map[string]any); ok && m != nil {
			rows = append(rows, row{m: m})
		}
	}
	switch dest.Kind() {
	case reflect.Slice, reflect.Array:
		for i := range dest.Len() {
			add(dest.Index(i))
		}
	default:
		add(dest)
	}
	return rows
}

// value returns what a row has in a field.
func (r row) value(ctx context.Context, f *schema.Field) (v any, zero bool) {
	if r.m == nil {
		return f.ValueOf(ctx, r.v)
	}
	v, ok := r.m[mapKey(r.m, f)]
	return v, !ok || v == nil || reflect.ValueOf(v).IsZero()
}

// id returns what a row has in a uid field; 0 if that is no id.
func (r row) id(ctx context.Context, f *field) int64 {
	v, zero := r.value(ctx, f.Field)
	if zero {
		return 0
	}
	return parseDigits(digits(v))
}

// set sets a uid field of a row. In a map 0 means that there is none.
func (r row) set(ctx context.Context, f *field, id int64) error {
	switch {
	case r.m != nil && id == 0:
		delete(r.m, mapKey(r.m, f.Field))
		return nil
	case r.m != nil:
		r.m[mapKey(r.m, f.Field)] = f.value(id)
		return nil
	case id == 0:
		return f.Set(ctx, r.v, nil)
	}
	place, _ := f.look(ctx, r.v)
	return f.put(ctx, place, id)
}

// mapKey returns the key under which a map has a field: its column, its name, or
// what GORM's naming strategy makes its column of.
func mapKey(m map[string]any, f *schema.Field) string {
	for _, key := range [...]string{f.DBName, f.Name} {
		if _, ok := m[key]; ok {
			return key
		}
	}
	for key := range m {
		if f.Schema.LookUpField(key) == f {
			return key
		}
	}
	return f.DBName
}

// digits writes a value as the database gets it.
func digits(v any) string {
	if rv := reflect.ValueOf(v); rv.Kind() == reflect.Pointer && rv.IsNil() {
		return "" // whose Value may not know what to do
	}
	if valuer, ok := v.(driver.Valuer); ok {
		v, _ = valuer.Value()
	}
	if b, ok := v.([]byte); ok {
		return string(b)
	}
	if rv := reflect.Indirect(reflect.ValueOf(v)); rv.IsValid() {
		return fmt.Sprint(rv.Interface())
	}
	return ""
}

// trimmed returns a number without what columns add to it: CHAR pads, and DECIMAL may
// have places.
func trimmed(s string) string {
	s = strings.TrimSpace(s)
	if whole, places, ok := strings.Cut(s, "."); ok && strings.Trim(places, "0") == "" {
		return whole
	}
	return s
}

// parseDigits returns a number; 0 if the text is not how it is written.
func parseDigits(s string) int64 {
	s = trimmed(s)
	if n, err := strconv.ParseInt(s, 10, 64); err == nil && strconv.FormatInt(n, 10) == s {
		return n
	}
	return 0
}
