package uidplugin

import (
	"context"
	"database/sql/driver"
	"fmt"
	"math"
	"reflect"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"gorm.io/gorm/schema"
)

// tagKey is how GORM spells the setting of gorm:"uid".
const tagKey = "UID"

// A field is a field of a model that holds an id, and how to set it.
type field struct {
	*schema.Field
	source *source

	// direct fields are of an integer kind and not behind a pointer: they are
	// read and set without boxing. index is where they are in the struct.
	direct   bool
	unsigned bool
	index    []int

	text bool // set as decimal digits, not as a number
}

// tagged returns the generator that the tag of f names, "" for the default, and
// whether f has the tag at all.
func tagged(f *schema.Field) (generator string, ok bool) {
	value, ok := f.TagSettings[tagKey]
	if !ok || f.DBName == "" || !f.Creatable {
		return "", false
	}
	// GORM copies the settings of an embedding line to all the fields behind it:
	// with gorm.Model `gorm:"uid"`, CreatedAt has the tag as well. Inherited, it
	// means the primary key.
	if _, own := schema.ParseTagSetting(f.Tag.Get("gorm"), ";")[tagKey]; !own && !f.PrimaryKey {
		return "", false
	}
	switch value = strings.ToLower(strings.TrimSpace(value)); value {
	case "false", "-":
		return "", false
	case "", "uid", "true":
		return "", true
	}
	return value, true
}

// uidFields returns the fields of s with the tag.
func uidFields(s *schema.Schema) (fields []*schema.Field) {
	// The tables that GORM makes for many2many have copies of the keys' tags, but
	// their keys come from elsewhere. Such types are made at run time; GORM gives
	// them a name in the schema only.
	if s.ModelType.Name() == "" && s.Name != "" {
		return nil
	}
	for _, name := range s.DBNames { // Fields has shadowed fields, too
		if f := s.FieldsByDBName[name]; f != nil {
			if _, ok := tagged(f); ok {
				fields = append(fields, f)
			}
		}
	}
	return fields
}

// newField returns how to set f to ids of up to largest, or an error that wraps
// [ErrField] if f cannot hold them.
func newField(f *schema.Field, largest int64, dialect string) (*field, error) {
	n := &field{Field: f}
	refuse := func(format string, args ...any) (*field, error) {
		return nil, fmt.Errorf("%w %s.%s of type %v %s; an id needs an int64, uint64 or uidplugin.ID in a BIGINT column, or a string of %d characters",
			ErrField, f.Schema.Name, f.Name, f.FieldType, fmt.Sprintf(format, args...), len(strconv.FormatInt(largest, 10)))
	}
	length := len(strconv.FormatInt(largest, 10))
	size, text := f.Size, f.GORMDataType == schema.String || f.IndirectFieldType.Kind() == reflect.String
	if m := charColumn.FindStringSubmatch(string(f.DataType)); m != nil {
		size, _ = strconv.Atoi(m[1])
		text = true
	}
	switch {
	case f.Serializer != nil:
		return refuse("has a serializer, behind which an id is no longer a number")
	case f.GORMDataType == schema.Float, f.IndirectFieldType.Kind() == reflect.Float32, f.IndirectFieldType.Kind() == reflect.Float64:
		return refuse("is a float, which loses digits")
	case f.GORMDataType == schema.Bytes:
		return refuse("is kept as bytes")
	case tooSmall(text, size, length) != "":
		return refuse("%s", tooSmall(text, size, length))
	case narrow(f.DataType, dialect, length):
		return refuse("is kept in a column of type %s, which is too narrow", f.DataType)
	}
	if n.direct = direct(f); n.direct {
		n.unsigned = f.FieldType.Kind() == reflect.Uint64 || f.FieldType.Kind() == reflect.Uint
		n.index = f.StructField.Index
		return n, nil
	}
	for _, n.text = range [...]bool{f.IndirectFieldType.Kind() == reflect.String, true} {
		got, err := n.probe(largest)
		if err == nil && got == strconv.FormatInt(largest, 10) {
			return n, nil
		}
		if n.text && err != nil {
			return refuse("cannot be set to an id (%v)", err)
		}
		if n.text {
			return refuse("makes %s of the id %d", got, largest)
		}
	}
	return n, nil
}

// tooSmall says why a field of so many bits, or a text of so many characters, cannot hold an id of length digits; ""
// if it can, or size is 0.
func tooSmall(text bool, size, length int) string {
	switch {
	case !text && size > 0 && size < 64:
		return fmt.Sprintf("has only %d bits (size:%d in its tag, or its type)", size, size)
	case text && size > 0 && size < length:
		return fmt.Sprintf("has only %d characters (size:%d or the column type in its tag), an id has up to %d", size, size, length)
	}
	return ""
}

// charColumn is a column type of so many characters.
var charColumn = regexp.MustCompile(`(?i)^\s*(?:national\s+)?(?:n?(?:var)?(?:char|binary)(?:acter)?(?:\s+varying)?2?)\s*\(\s*(\d+)`)

// numericColumn is a column type of so many digits, some of them behind the
// point.
var numericColumn = regexp.MustCompile(`\(\s*(\d+)\s*(?:,\s*(\d+)\s*)?\)`)

// narrow tells whether a column type holds less than 64 bits. The type "int", of
// a field or a tag, is none: it is GORM's word for an integer of the field's
// size.
func narrow(column schema.DataType, dialect string, length int) bool {
	if column == schema.Int || column == schema.Uint {
		return false
	}
	name := strings.FieldsFunc(strings.ToLower(string(column)), func(r rune) bool { return r == ' ' || r == '(' })
	if len(name) == 0 {
		return false
	}
	switch name[0] {
	case "int", "integer":
		return dialect != "sqlite" // which keeps 64 bits in every integer
	case "mediumint", "smallint", "tinyint", "int2", "int3", "int4", "serial", "smallserial", "real", "float", "double",
		"bit", "bool", "boolean":
		return true
	case "decimal", "dec", "numeric", "fixed":
		precision := 10 // MySQL's; others keep all digits
		if m := numericColumn.FindStringSubmatch(string(column)); m != nil {
			precision, _ = strconv.Atoi(m[1])
			scale, _ := strconv.Atoi(m[2])
			precision -= scale
		} else if dialect != "mysql" {
			return false
		}
		return precision < length
	}
	return false
}

// direct tells whether f can be set with reflection's SetInt or SetUint: it is of
// an integer kind of 64 bits, in the struct itself or in a struct embedded by
// value, and if it has a way of its own to make database values, then this way is
// the plain number.
func direct(f *schema.Field) (ok bool) {
	switch f.FieldType.Kind() {
	case reflect.Int64, reflect.Int, reflect.Uint64, reflect.Uint:
	default:
		return false
	}
	if f.FieldType.Bits() < 64 || slices.ContainsFunc(f.StructField.Index, func(i int) bool { return i < 0 }) {
		return false
	}
	defer func() {
		if recover() != nil { // what a type's Value does to us
			ok = false
		}
	}()
	v := reflect.New(f.FieldType).Elem()
	valuer, has := v.Addr().Interface().(driver.Valuer)
	if !has {
		return true
	}
	for _, n := range [...]int64{1, math.MaxInt64, math.MaxInt64 / 3} {
		if v.CanInt() {
			v.SetInt(n)
		} else {
			v.SetUint(uint64(n))
		}
		if got, err := valuer.Value(); err != nil || got != driver.Value(n) && got != driver.Value(uint64(n)) {
			return false
		}
	}
	return true
}

// probe sets f in a fresh struct to id and returns the digits that the database
// would get.
func (f *field) probe(id int64) (text string, err error) {
	defer func() {
		if r := recover(); r != nil { // what a type's Scan does to us
			err = fmt.Errorf("%v", r)
		}
	}()
	ctx := context.Background()
	row := reflect.New(f.Schema.ModelType).Elem()
	place, _ := f.look(ctx, row)
	if err := f.put(ctx, place, id); err != nil {
		return "", err
	}
	v, zero := f.ValueOf(ctx, row)
	if zero {
		return "", fmt.Errorf("it stays zero")
	}
	if valuer, ok := v.(driver.Valuer); ok {
		if _, err := valuer.Value(); err != nil {
			return "", err
		}
	}
	return digits(v), nil
}

// look tells whether the field is zero in row, a struct of the model. place is
// for put: finding a field by reflection costs as much as all the rest.
func (f *field) look(ctx context.Context, row reflect.Value) (place reflect.Value, zero bool) {
	if f.direct {
		place = f.in(row)
		return place, isZeroInteger(place)
	}
	_, zero = f.ValueOf(ctx, row)
	return row, zero
}

// put sets the field where look has looked. The row must be addressable.
func (f *field) put(ctx context.Context, place reflect.Value, id int64) error {
	switch {
	case f.direct && f.unsigned:
		place.SetUint(uint64(id))
		return nil
	case f.direct:
		place.SetInt(id)
		return nil
	case f.text:
		return f.Set(ctx, place, strconv.FormatInt(id, 10))
	}
	return f.Set(ctx, place, id)
}

func isZeroInteger(v reflect.Value) bool {
	if v.CanInt() {
		return v.Int() == 0
	}
	return v.Uint() == 0
}

// in returns the field of row. The field must be direct.
func (f *field) in(row reflect.Value) reflect.Value {
	if len(f.index) == 1 {
		return row.Field(f.index[0])
	}
	return row.FieldByIndex(f.index)
}

// value returns id as what a map, or a condition, has for the field.
func (f *field) value(id int64) any {
	switch {
	case f.text:
		return strconv.FormatInt(id, 10)
	case f.unsigned:
		return uint64(id)
	}
	return id
}
