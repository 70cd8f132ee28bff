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

// A Row is one row of a create: a struct of the model, or a map.
type Row struct {
	Struct reflect.Value // invalid for a map
	Map    map[string]any
}

// RowsOf returns the rows in dest: structs of the type elem, or maps. It skips nil and values of other types.
func RowsOf(dest reflect.Value, elem reflect.Type) (rows []Row) {
	add := func(v reflect.Value) {
		for v.Kind() == reflect.Pointer {
			v = v.Elem()
		}
		if !v.IsValid() {
			return
		}
		if v.Type() == elem {
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

// Value returns the value of a field.
func (r Row) Value(ctx context.Context, f *schema.Field) (v any, zero bool) {
	if r.Map == nil {
		return f.ValueOf(ctx, r.Struct)
	}
	v, ok := r.Map[mapKey(r.Map, f)]
	return v, !ok || v == nil || reflect.ValueOf(v).IsZero()
}

// ID returns the id in a uid field, or 0.
func (r Row) ID(ctx context.Context, f *Field) int64 {
	v, zero := r.Value(ctx, f.Field)
	if zero {
		return 0
	}
	return ParseDigits(Digits(v))
}

// Set sets a uid field. For id 0 it removes the entry from a map.
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

// mapKey returns the map's key for a field: the column, the field's name, or one that GORM turns into the column.
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

// Digits formats a value as the database receives it.
func Digits(v any) string {
	if rv := reflect.ValueOf(v); rv.Kind() == reflect.Pointer && rv.IsNil() {
		return "" // because v's method Value may not handle nil
	}
	if valuer, ok := v.(driver.Valuer); ok {
		v, _ = valuer.Value()
	}
	if b, ok := v.([]byte); ok {
		return string(b)
	}
	switch rv := reflect.Indirect(reflect.ValueOf(v)); {
	case !rv.IsValid():
		return ""
	case rv.CanInt(): // also for types with a String method
		return strconv.FormatInt(rv.Int(), 10)
	case rv.CanUint():
		return strconv.FormatUint(rv.Uint(), 10)
	default:
		return fmt.Sprint(rv.Interface())
	}
}

// Trimmed removes the padding of CHAR and the zero decimals of DECIMAL from a number.
func Trimmed(s string) string {
	s = strings.TrimSpace(s)
	if whole, places, ok := strings.Cut(s, "."); ok && strings.Trim(places, "0") == "" {
		return whole
	}
	return s
}

// ParseDigits trims and parses a text. It returns 0 if the trimmed text is not a number as this package writes it.
func ParseDigits(s string) int64 {
	s = Trimmed(s)
	if n, err := strconv.ParseInt(s, 10, 64); err == nil && strconv.FormatInt(n, 10) == s {
		return n
	}
	return 0
}
