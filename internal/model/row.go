package model

import (
	"context"
	"database/sql/driver"
	"fmt"
	"reflect"
	"strconv"
	"strings"

	"gorm.io/gorm/schema"
)

// A Row is what a create sends for one row: a struct of the model, or a map.
type Row struct {
	Struct reflect.Value // not valid for a map
	Map    map[string]any
}

// RowsOf returns the rows that dest is or holds: structs of a type, or maps. Other elements, such as
// nil pointers, are left out.
func RowsOf(dest reflect.Value, of reflect.Type) (rows []Row) {
	add := func(v reflect.Value) {
		for v.Kind() == reflect.Pointer {
			v = v.Elem()
		}
		if !v.IsValid() {
			return
		}
		if v.Type() == of {
			rows = append(rows, Row{Struct: v})
		} else if m, ok := v.Interface().(map[string]any); ok && m != nil {
			rows = append(rows, Row{Map: m})
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

// Value returns what a row has in a field.
func (r Row) Value(ctx context.Context, f *schema.Field) (v any, zero bool) {
	if r.Map == nil {
		return f.ValueOf(ctx, r.Struct)
	}
	v, ok := r.Map[mapKey(r.Map, f)]
	return v, !ok || v == nil || reflect.ValueOf(v).IsZero()
}

// ID returns what a row has in a uid field; 0 if that is no id.
func (r Row) ID(ctx context.Context, f *Field) int64 {
	v, zero := r.Value(ctx, f.Field)
	if zero {
		return 0
	}
	return ParseDigits(Digits(v))
}

// Set sets a uid field of a row. In a map it removes the entry if id is 0.
func (r Row) Set(ctx context.Context, f *Field, id int64) error {
	switch {
	case r.Map != nil && id == 0:
		delete(r.Map, mapKey(r.Map, f.Field))
		return nil
	case r.Map != nil:
		r.Map[mapKey(r.Map, f.Field)] = f.Value(id)
		return nil
	case id == 0:
		return f.Set(ctx, r.Struct, nil)
	}
	place, _ := f.Look(ctx, r.Struct)
	return f.Put(ctx, place, id)
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

// Digits writes a value as the database gets it.
func Digits(v any) string {
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

// Trimmed returns a number without what columns add to it: CHAR pads, and DECIMAL may
// have places.
func Trimmed(s string) string {
	s = strings.TrimSpace(s)
	if whole, places, ok := strings.Cut(s, "."); ok && strings.Trim(places, "0") == "" {
		return whole
	}
	return s
}

// ParseDigits returns the number that a text holds; 0 if the text is not written as this package writes numbers.
func ParseDigits(s string) int64 {
	s = Trimmed(s)
	if n, err := strconv.ParseInt(s, 10, 64); err == nil && strconv.FormatInt(n, 10) == s {
		return n
	}
	return 0
}
