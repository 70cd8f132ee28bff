package uidplugin

import (
	"database/sql/driver"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/uidplugin/uidplugin/internal/model"
	"gorm.io/gorm"
	"gorm.io/gorm/clause"
	"gorm.io/gorm/schema"
)

// ID is a key of 64 bits that survives JavaScript: in JSON it is a string of
// decimal digits, "302914527191040001", because a number there keeps 53 bits. It
// reads strings and numbers.
//
// In the database it is a BIGINT, and never AUTO_INCREMENT. A sole primary key of this type that is no foreign key
// needs no tag uid; gorm:"uid:-" leaves it to the application. Write that also for a foreign key whose association is
// declared in the other model only, such as the UserID of a profile that User has one of. A create that would insert a
// primary key of this type, or a part of one, as 0 fails with [ErrZeroKey], unless its tag has a default. Handles
// without the plugin do so too, except for Unscoped, with which GORM leaves out what types add to a create.
type ID int64

var (
	_ driver.Valuer                    = ID(0)
	_ schema.GormDataTypeInterface     = ID(0)
	_ interface{ Scan(src any) error } = (*ID)(nil)
)

// ParseID reads decimal digits as String writes them: without a plus sign, leading zeros or spaces, so that each id has
// one text. The error wraps [strconv.ErrSyntax] or [strconv.ErrRange].
func ParseID(s string) (ID, error) {
	n, err := strconv.ParseInt(s, 10, 64)
	var syntax *strconv.NumError
	switch {
	case errors.As(err, &syntax):
		return 0, fmt.Errorf("uidplugin: not an id: %.40q: %w", s, syntax.Err)
	case strconv.FormatInt(n, 10) != s:
		return 0, fmt.Errorf("uidplugin: not an id: %.40q: %w; an id has no plus sign and no leading zeros", s, strconv.ErrSyntax)
	}
	return ID(n), nil
}

// IDs returns integer keys as ids, for [Plugin.FindAll]. A key of more than 63 bits becomes a negative number, which is
// no id.
func IDs[T ~int64 | ~uint64 | ~int | ~uint](keys ...T) []ID {
	ids := make([]ID, len(keys))
	for i, key := range keys {
		ids[i] = ID(key)
	}
	return ids
}

// Int64 returns the id as a number.
func (id ID) Int64() int64 { return int64(id) }

// String returns the id in decimal digits.
func (id ID) String() string { return strconv.FormatInt(int64(id), 10) }

// MarshalJSON returns the id as a string of digits, in quotes.
func (id ID) MarshalJSON() ([]byte, error) {
	return strconv.AppendQuote(make([]byte, 0, 22), id.String()), nil
}

// UnmarshalJSON reads digits, with or without quotes. null changes nothing.
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

// MarshalText returns the id in decimal digits. It makes ids fit for keys of JSON
// objects, and for XML and YAML.
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

// Scan implements [database/sql.Scanner]. NULL becomes 0. Digits may have leading zeros, as columns with ZEROFILL have.
func (id *ID) Scan(src any) error {
	switch v := src.(type) {
	case nil:
		*id = 0
	case int64:
		*id = ID(v)
	case uint64:
		if int64(v) < 0 {
			return fmt.Errorf("uidplugin: not an id: %d is larger than 63 bits", v)
		}
		*id = ID(v)
	case []byte:
		return id.Scan(string(v))
	case string:
		if digits := strings.TrimLeft(v, "0"); digits != "" {
			return id.UnmarshalText([]byte(digits))
		}
		return id.UnmarshalText([]byte(v[:min(len(v), 1)])) // zeros, or nothing
	default:
		return fmt.Errorf("uidplugin: not an id: a %T", src)
	}
	return nil
}

// GormDataType makes GORM's schema call the type "bigint" instead of an integer,
// which for a primary key would mean AUTO_INCREMENT.
func (ID) GormDataType() string { return "bigint" }

// GormDBDataType is the type of the column: that of GORM's tag type, or else a BIGINT. On SQLite "integer" makes a
// primary key the row id of the table, which is what it stores rows by.
func (ID) GormDBDataType(db *gorm.DB, f *schema.Field) string {
	if f != nil && f.TagSettings["TYPE"] != "" {
		return f.TagSettings["TYPE"]
	}
	if db.Dialector.Name() == "sqlite" {
		return "integer"
	}
	return "bigint"
}

// CreateClauses makes creates fail with [ErrZeroKey] that would insert a primary key of this type as 0.
func (ID) CreateClauses(f *schema.Field) []clause.Interface { return noZeroKey(f) }

func noZeroKey(f *schema.Field) []clause.Interface {
	if !f.PrimaryKey {
		return nil
	}
	return []clause.Interface{model.NoZeroKey{Key: f}}
}

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
