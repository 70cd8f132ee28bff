package model

import (
	"errors"
	"fmt"
	"reflect"
	"strconv"
	"strings"
	"sync/atomic"

	"gorm.io/gorm"
	"gorm.io/gorm/clause"
	"gorm.io/gorm/schema"
)

// A Key is a type of keys, such as uidplugin.ID. A sole primary key of such a type gets ids without the tag uid.
// The method returns a type of this package, so only types of this module can have it.
type Key interface{ UIDKey() KeyKind }

// A KeyKind describes a type of keys. It is zero if their texts outside the database are decimal digits.
type KeyKind struct {
	Texts   string // the beginning of all texts of the type, such as "ord_"; unique for the type
	Err     error  // why the type cannot have texts
	Missing string // what was not done yet, so that texts cannot be written or read; empty if nothing is missing
}

// KindOf returns the kind of a type. It is zero if the type is not a type of keys.
func KindOf(t reflect.Type) KeyKind {
	if !isKey(t) {
		return KeyKind{}
	}
	return reflect.Zero(t).Interface().(Key).UIDKey()
}

var keyText atomic.Pointer[func(text string) bool]

// SetKeyTexts sets the function that IsKeyText calls. Before that, IsKeyText returns false.
func SetKeyTexts(isKey func(text string) bool) { keyText.Store(&isKey) }

// IsKeyText reports whether a text is the text of a key. Decimal digits do not count.
func IsKeyText(text string) bool {
	f := keyText.Load()
	return f != nil && (*f)(text)
}

// isKey reports whether t is a type of keys. A struct that embeds a key has the key's methods, but is no key.
func isKey(t reflect.Type) bool {
	return t.Kind() == reflect.Int64 && t.Implements(reflect.TypeFor[Key]())
}

// ParseID reads decimal digits. It refuses plus signs, leading zeros and spaces, so each id has only one text.
func ParseID(s string) (int64, error) {
	n, err := strconv.ParseInt(s, 10, 64)
	var syntax *strconv.NumError
	switch {
	case errors.As(err, &syntax):
		return 0, fmt.Errorf("uidplugin: not an id: %.40q: %w", s, syntax.Err)
	case strconv.FormatInt(n, 10) != s:
		return 0, fmt.Errorf("uidplugin: not an id: %.40q: %w; an id has no plus sign and no leading zeros", s, strconv.ErrSyntax)
	}
	return n, nil
}

// ScanID reads an id as a driver returns it, for the method Scan of keys. NULL becomes 0. Leading zeros are
// allowed, because ZEROFILL columns have them.
func ScanID(src any) (int64, error) {
	switch v := src.(type) {
	case nil:
		return 0, nil
	case int64:
		return v, nil
	case uint64:
		if int64(v) < 0 {
			return 0, fmt.Errorf("uidplugin: not an id: %d is larger than 63 bits", v)
		}
		return int64(v), nil
	case []byte:
		return ScanID(string(v))
	case string:
		if digits := strings.TrimLeft(v, "0"); digits != "" {
			return ParseID(digits)
		}
		return ParseID(v[:min(len(v), 1)]) // only zeros, or empty
	}
	return 0, fmt.Errorf("uidplugin: not an id: a value of type %T", src)
}

// KeyDataType is the data type of keys. It is not GORM's type for integers, which makes a key AUTO_INCREMENT.
const KeyDataType = "bigint"

// KeyColumnType returns the column type of a key: the type in its tag, if there is one; otherwise "integer" on
// SQLite, which stores rows by a sole primary key of this type, and BIGINT on other databases.
func KeyColumnType(db *gorm.DB, f *schema.Field) string {
	if f != nil && f.TagSettings["TYPE"] != "" {
		return f.TagSettings["TYPE"]
	}
	if db.Dialector.Name() == "sqlite" {
		return "integer"
	}
	return KeyDataType
}

// KeyClauses returns the clauses that a key adds to creates. They refuse a primary key that is 0.
func KeyClauses(f *schema.Field) []clause.Interface {
	if !f.PrimaryKey {
		return nil
	}
	return []clause.Interface{noZeroKey{Key: f}}
}
