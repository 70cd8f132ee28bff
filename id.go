package uidplugin

import (
	"database/sql/driver"
	"strconv"
	"time"

	"github.com/uidplugin/uidplugin/internal/model"
	"gorm.io/gorm"
	"gorm.io/gorm/clause"
	"gorm.io/gorm/schema"
)

// ID is a 64-bit key that survives JavaScript. In JSON it is a string of decimal digits, such as "302914527191040001",
// because JavaScript keeps only 53 bits of a number. It reads both strings and numbers.
//
// In the database it is a BIGINT (on SQLite INTEGER), never AUTO_INCREMENT. A sole primary key of this type gets an
// id without the tag uid, unless it is a foreign key. With gorm:"uid:-" the application sets the key. A foreign key
// as sole primary key, such as UserID of a profile, needs this tag if only the other model has the association.
//
// A create that would insert 0 in a primary key field of this type fails with [ErrZeroKey], unless the field has a
// default. This also holds without the plugin, except with Unscoped, because GORM then skips the clauses of types.
type ID int64

var (
	_ driver.Valuer                    = ID(0)
	_ schema.GormDataTypeInterface     = ID(0)
	_ interface{ Scan(src any) error } = (*ID)(nil)
	_ model.Key                        = ID(0)
)

// ParseID reads decimal digits as written by String. It refuses plus signs, leading zeros and spaces, so each id has
// only one text. The error wraps [strconv.ErrSyntax] or [strconv.ErrRange].
func ParseID(s string) (ID, error) {
	n, err := model.ParseID(s)
	return ID(n), err
}

// IDs converts integer keys to ids, for [Plugin.FindAll]. A key of more than 63 bits becomes negative, so it is never
// an id.
func IDs[T ~int64 | ~uint64 | ~int | ~uint](keys ...T) []ID {
	ids := make([]ID, len(keys))
	for i, key := range keys {
		ids[i] = ID(key)
	}
	return ids
}

// String returns the id in decimal digits.
func (id ID) String() string { return strconv.FormatInt(int64(id), 10) }

// MarshalJSON returns the id as a quoted string of digits.
func (id ID) MarshalJSON() ([]byte, error) {
	return strconv.AppendQuote(make([]byte, 0, 22), id.String()), nil
}

// UnmarshalJSON reads digits, quoted or not. null leaves the id unchanged.
func (id *ID) UnmarshalJSON(data []byte) error {
	s := string(data)
	if s == "null" {
		return nil
	}
	if n := len(s); n >= 2 && s[0] == '"' && s[n-1] == '"' {
		s = s[1 : n-1]
	}
	return id.UnmarshalText([]byte(s))
}

// MarshalText returns the id in decimal digits, for keys of JSON objects, XML and YAML.
func (id ID) MarshalText() ([]byte, error) { return strconv.AppendInt(nil, int64(id), 10), nil }

// UnmarshalText reads decimal digits.
func (id *ID) UnmarshalText(text []byte) error {
	n, err := ParseID(string(text))
	if err != nil {
		return err
	}
	*id = n
	return nil
}

// Value implements [driver.Valuer].
func (id ID) Value() (driver.Value, error) { return int64(id), nil }

// Scan implements [database/sql.Scanner]. NULL becomes 0. Leading zeros are allowed, because ZEROFILL columns have
// them.
func (id *ID) Scan(src any) error {
	n, err := model.ScanID(src)
	if err == nil {
		*id = ID(n)
	}
	return err
}

// GormDataType returns "bigint" and not "int", because GORM adds AUTO_INCREMENT to a primary key of the type "int".
func (ID) GormDataType() string { return model.KeyDataType }

// GormDBDataType returns the column type: the tag's type if set, otherwise BIGINT. On SQLite it returns "integer",
// because SQLite then stores the rows by this key.
func (ID) GormDBDataType(db *gorm.DB, f *schema.Field) string { return model.KeyColumnType(db, f) }

// CreateClauses makes a create fail with [ErrZeroKey] if it would insert 0 as a primary key of this type.
func (ID) CreateClauses(f *schema.Field) []clause.Interface { return model.KeyClauses(f) }

// UIDKey marks the type for the plugin.
func (ID) UIDKey() model.KeyKind { return model.KeyKind{} }

// Model is [gorm.Model] with an [ID] that the plugin sets. Embed it:
//
//	type Order struct {
//		uidplugin.Model
//		Total int
//	}
type Model struct {
	ID        ID `gorm:"primaryKey;autoIncrement:false;uid"`
	CreatedAt time.Time
	UpdatedAt time.Time
	DeletedAt gorm.DeletedAt `gorm:"index"`
}
