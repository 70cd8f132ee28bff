package model

import (
	"context"
	"database/sql/driver"
	"errors"
	"fmt"
	"math"
	"reflect"
	"slices"
	"strconv"
	"strings"

	"gorm.io/gorm/schema"
)

// tagKey is GORM's spelling of gorm:"uid".
const tagKey = "UID"

// ErrField reports a uid field that cannot hold an id, or a foreign key that cannot hold the ids it refers to.
var ErrField = errors.New("uidplugin: field")

// ErrNoField reports a model without a uid field.
var ErrNoField = errors.New("uidplugin: model has no uid field")

// A Target describes the ids and the database of uid fields.
type Target struct {
	Largest int64  // the largest id
	Dialect string // name of the dialect
}

func (t Target) digits() int { return len(strconv.FormatInt(t.Largest, 10)) }

// A Field reads and sets a field that holds an id.
type Field struct {
	*schema.Field

	// Direct fields are integers, not pointers, and need no boxing. index locates them in the struct.
	Direct   bool
	unsigned bool
	index    []int

	Text bool // the field takes decimal digits, not a number
}

// Tagged reports whether f has the tag, or is a key that needs none. It also returns the generator in the tag,
// which is "" for the default.
func Tagged(f *schema.Field) (generator string, ok bool) {
	if !f.Creatable {
		return "", false // see uncreated
	}
	if _, ok := f.TagSettings[tagKey]; !ok && f.DBName != "" {
		return "", needsNoTag(f)
	}
	return tagged(f)
}

// tagged is like Tagged, but looks only at the tag.
func tagged(f *schema.Field) (generator string, ok bool) {
	value, ok := f.TagSettings[tagKey]
	if f.DBName == "" || !ok {
		return "", false
	}
	// GORM copies the tag of an embedded struct to all its fields, so the line gorm.Model `gorm:"uid"` gives
	// CreatedAt the tag, too. An inherited tag counts on the primary key only.
	if _, own := schema.ParseTagSetting(f.Tag.Get("gorm"), ";")[tagKey]; !own && !f.PrimaryKey {
		return "", false
	}
	generator, _, _ = strings.Cut(value, ":")
	generator = strings.ToLower(strings.TrimSpace(generator))
	switch generator {
	case "false", "-":
		return "", false
	case "", "uid", "true":
		return "", true
	}
	return generator, true
}

// CounterTag returns the text after the generator, such as orders in gorm:"uid:segment:orders", or "".
func CounterTag(f *schema.Field) string {
	_, tag, _ := strings.Cut(f.TagSettings[tagKey], ":")
	return strings.TrimSpace(tag)
}

// needsNoTag reports whether f is a [Key] and the sole primary key of its model, is no foreign key, and is not set
// by the database. Models without a name need the tag, because ids could not resolve to them.
func needsNoTag(f *schema.Field) bool {
	if f.Schema.Name == "" || len(f.Schema.PrimaryFields) != 1 || f.Schema.PrimaryFields[0] != f || !isKey(f.FieldType) {
		return false
	}
	if WantsAutoIncrement(f) || f.DefaultValue != "" {
		return false // the database sets it
	}
	return !refers(f)
}

// refers reports whether f is the foreign key of a belongs-to association of its model.
func refers(f *schema.Field) bool {
	return slices.ContainsFunc(f.Schema.Relationships.BelongsTo, func(r *schema.Relationship) bool {
		return slices.ContainsFunc(r.References, func(ref *schema.Reference) bool { return ref.ForeignKey == f })
	})
}

// UnusedID returns a field that has the name and the type of a key and no default, but is neither a primary key,
// nor tagged, nor a foreign key. It returns nil if there is none. Such a field was probably meant to get ids.
func UnusedID(s *schema.Schema) *schema.Field {
	f := s.LookUpField("id")
	if f == nil {
		f = s.LookUpField("ID")
	}
	if f == nil || f.PrimaryKey || !f.Creatable || !isKey(f.FieldType) || f.DefaultValue != "" {
		return nil
	}
	if _, ok := f.TagSettings[tagKey]; ok || refers(f) {
		return nil
	}
	return f
}

// IsKeyType reports whether f is a [Key], or points to one.
func IsKeyType(f *schema.Field) bool { return isKey(f.IndirectFieldType) }

// joins reports whether s belongs to a join table of many2many. GORM makes its Go type, which has no name.
func joins(s *schema.Schema) bool { return s.ModelType.Name() == "" && s.Name != "" }

// UIDFields returns the fields of s for which [Tagged] is true.
func UIDFields(s *schema.Schema) (fields []*schema.Field) {
	if joins(s) { // a join table copies the tags of the keys, but its keys come from the joined rows
		return nil
	}
	for _, name := range s.DBNames { // s.Fields would include shadowed fields
		if f := s.FieldsByDBName[name]; f != nil {
			if _, ok := Tagged(f); ok {
				fields = append(fields, f)
			}
		}
	}
	return fields
}

// uncreated returns an error for a field that is tagged although GORM does not write it in creates, or nil. The
// database would number such a field if it is the key.
func uncreated(s *schema.Schema) error {
	if joins(s) {
		return nil
	}
	for _, name := range s.DBNames {
		f := s.FieldsByDBName[name]
		if f == nil || f.Creatable {
			continue
		}
		if _, ok := tagged(f); ok {
			return fmt.Errorf("%w %s.%s: it has the tag uid, but GORM does not write it in a create, because of -> or <- in its tag; allow it by <-:create, or write uid:-",
				ErrField, s.Name, f.Name)
		}
	}
	return nil
}

// HasTag is [Tagged] without the generator.
func HasTag(f *schema.Field) bool {
	_, ok := Tagged(f)
	return ok
}

// NewField returns the accessor of f. The error wraps [ErrField] if f cannot hold ids.
func NewField(f *schema.Field, t Target) (*Field, error) {
	n, length := &Field{Field: f}, t.digits()
	refuse := func(format string, args ...any) (*Field, error) {
		return nil, fmt.Errorf("%w %s.%s of type %v %s; an id needs an int64, uint64 or uidplugin.ID in a BIGINT column, or a string of %d characters",
			ErrField, f.Schema.Name, f.Name, f.FieldType, fmt.Sprintf(format, args...), length)
	}
	size, text := f.Size, f.GORMDataType == schema.String || f.IndirectFieldType.Kind() == reflect.String
	if m := charColumn.FindStringSubmatch(string(f.DataType)); m != nil {
		size, _ = strconv.Atoi(m[1])
		text = true
	}
	switch {
	case f.Serializer != nil:
		return refuse("has a serializer, so an id would not be stored as a number")
	case f.GORMDataType == schema.Float, f.IndirectFieldType.Kind() == reflect.Float32, f.IndirectFieldType.Kind() == reflect.Float64:
		return refuse("is a float, which loses digits")
	case f.GORMDataType == schema.Bytes:
		return refuse("is kept as bytes")
	case tooSmall(text, size, length) != "":
		return refuse("%s", tooSmall(text, size, length))
	case TooNarrow(f.DataType, t):
		return refuse("is kept in a column of type %s, which is too narrow", f.DataType)
	}
	n.Direct = direct(f)
	if n.Direct {
		n.unsigned = f.FieldType.Kind() == reflect.Uint64 || f.FieldType.Kind() == reflect.Uint
		n.index = f.StructField.Index
		return n, nil
	}
	// Unless the field is a text, try a number first, because a type may accept both.
	n.Text = f.IndirectFieldType.Kind() == reflect.String
	got, err := n.probe(t.Largest)
	want := strconv.FormatInt(t.Largest, 10)
	if !n.Text && (err != nil || got != want) {
		n.Text = true
		got, err = n.probe(t.Largest)
	}
	switch {
	case err != nil:
		return refuse("cannot be set to an id (%v)", err)
	case got != want:
		return refuse("changes the id %d to %s", t.Largest, got)
	}
	return n, nil
}

// tooSmall explains why a field cannot hold an id with length digits, or returns "". size is in bits, or in
// characters for a text; a size of 0 is unknown.
func tooSmall(text bool, size, length int) string {
	switch {
	case !text && size > 0 && size < 64:
		return fmt.Sprintf("has only %d bits (size:%d in its tag, or its type)", size, size)
	case text && size > 0 && size < length:
		return fmt.Sprintf("has only %d characters (size:%d or the column type in its tag), an id has up to %d", size, size, length)
	}
	return ""
}

// direct reports whether reflection's SetInt or SetUint can set f: an integer of 64 bits that is not behind a
// pointer. If f implements driver.Valuer, the value must be the plain number.
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
		if recover() != nil { // the type's Value may panic
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

// probe sets f in a fresh struct to id and returns the digits that the database would store.
func (f *Field) probe(id int64) (text string, err error) {
	defer func() {
		if r := recover(); r != nil { // the type's Scan may panic
			err = fmt.Errorf("%v", r)
		}
	}()
	ctx := context.Background()
	row := reflect.New(f.Schema.ModelType).Elem()
	place, _ := f.Look(ctx, row)
	if err := f.Put(ctx, place, id); err != nil {
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
	return Digits(v), nil
}

// Look reports whether the field is zero in row, a struct of the model. Pass place to [Field.Put], because finding
// the field a second time would cost as much as everything else together.
func (f *Field) Look(ctx context.Context, row reflect.Value) (place reflect.Value, zero bool) {
	if f.Direct {
		place = f.in(row)
		return place, isZeroInteger(place)
	}
	_, zero = f.ValueOf(ctx, row)
	return row, zero
}

// Put sets the field at the place that [Field.Look] returned. The row must be addressable.
func (f *Field) Put(ctx context.Context, place reflect.Value, id int64) error {
	switch {
	case f.Direct && f.unsigned:
		place.SetUint(uint64(id))
		return nil
	case f.Direct:
		place.SetInt(id)
		return nil
	case f.Text:
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
func (f *Field) in(row reflect.Value) reflect.Value {
	if len(f.index) == 1 {
		return row.Field(f.index[0])
	}
	return row.FieldByIndex(f.index)
}

// Value returns id with the type that the field has in maps and conditions.
func (f *Field) Value(id int64) any {
	switch {
	case f.Text:
		return strconv.FormatInt(id, 10)
	case f.unsigned && id >= 0: // drivers refuse the large number that a negative id would become
		return uint64(id)
	}
	return id
}
