package publicid

import (
	"database/sql/driver"
	"fmt"
	"reflect"

	"github.com/uidplugin/uidplugin/internal/model"
	"gorm.io/gorm"
	"gorm.io/gorm/clause"
	"gorm.io/gorm/schema"
)

// ID is a key, or a foreign key, of rows of T. In the database it is a BIGINT, like uidplugin.ID. In JSON and URLs it
// is a text such as ord_7bhznb3dzqhphb87gmm2kvym2c, which cannot be guessed, and hides the time and neighbouring ids.
//
//	type Order struct {
//		ID       publicid.ID[Order]
//		Customer publicid.ID[Customer]
//	}
//
//	func (Order) PublicPrefix() string { return "ord" }
//
// Call [SetKeys] first, because otherwise reading and writing texts fails. 0 is null in JSON and an empty text
// elsewhere. In a request body a missing field and null are 0, so check for 0. Reading an empty text fails, because
// a condition with 0 could select too many rows. Reading the text of another type, or one made with other keys,
// fails with [ErrInvalid].
//
// In Go an ID is a number: compare it with ==, and convert it with uidplugin.ID(key). In package fmt %v, %s and %q
// write the text. The other rules of uidplugin.ID also apply, such as the rule that a sole key needs no tag.
type ID[T Type] int64

var (
	_ driver.Valuer                    = ID[anyType](0)
	_ schema.GormDataTypeInterface     = ID[anyType](0)
	_ interface{ Scan(src any) error } = (*ID[anyType])(nil)
	_ model.Key                        = ID[anyType](0)
)

type anyType struct{}

func (anyType) PublicPrefix() string { return "" }

// String returns the text, which is empty for 0. Before [SetKeys] it returns an error message in parentheses.
func (id ID[T]) String() string {
	text, err := id.MarshalText()
	if err != nil {
		return "(" + err.Error() + ")"
	}
	return string(text)
}

// MarshalText returns the text, which is empty for 0.
func (id ID[T]) MarshalText() ([]byte, error) {
	if id == 0 {
		return nil, nil
	}
	codec, err := codecOf[T]()
	if err != nil {
		return nil, err
	}
	return codec.append(make([]byte, 0, codec.len()), int64(id)), nil
}

// UnmarshalText reads a text of the type.
func (id *ID[T]) UnmarshalText(text []byte) error {
	codec, err := codecOf[T]()
	if err != nil {
		return err
	}
	n, err := codec.Decode(string(text))
	if err != nil {
		return err
	}
	*id = ID[T](n)
	return nil
}

// MarshalJSON returns the quoted text, or null for 0.
func (id ID[T]) MarshalJSON() ([]byte, error) {
	if id == 0 {
		return []byte("null"), nil
	}
	codec, err := codecOf[T]()
	if err != nil {
		return nil, err
	}
	quoted := append(make([]byte, 0, codec.len()+2), '"')
	return append(codec.append(quoted, int64(id)), '"'), nil // the text does not need escapes
}

// UnmarshalJSON reads a quoted text of the type. null leaves the key unchanged.
func (id *ID[T]) UnmarshalJSON(data []byte) error {
	if string(data) == "null" {
		return nil
	}
	// Also accept the text without quotes, because encoding/json removes them for fields with the option string.
	if n := len(data); n >= 2 && data[0] == '"' && data[n-1] == '"' {
		data = data[1 : n-1]
	}
	return id.UnmarshalText(data)
}

// Value implements [driver.Valuer].
func (id ID[T]) Value() (driver.Value, error) { return int64(id), nil }

// Scan implements [database/sql.Scanner]. NULL becomes 0.
func (id *ID[T]) Scan(src any) error {
	n, err := model.ScanID(src)
	if err == nil {
		*id = ID[T](n)
	}
	return err
}

// GormDataType returns "bigint" instead of "int", because GORM makes a primary key of type "int" AUTO_INCREMENT.
func (ID[T]) GormDataType() string { return model.KeyDataType }

// GormDBDataType returns the column type, as uidplugin.ID does.
func (ID[T]) GormDBDataType(db *gorm.DB, f *schema.Field) string { return model.KeyColumnType(db, f) }

// CreateClauses makes a create fail with uidplugin.ErrZeroKey if it would insert 0 as a primary key of this type.
func (ID[T]) CreateClauses(f *schema.Field) []clause.Interface { return model.KeyClauses(f) }

// UIDKey marks the type for the plugin.
func (ID[T]) UIDKey() model.KeyKind {
	prefix := prefixOf[T]()
	kind := model.KeyKind{Texts: prefix + "_"}
	if err := checkPrefix(prefix); err != nil {
		kind.Err = fmt.Errorf("%w; correct the method PublicPrefix", err)
	}
	if set.Load() == nil {
		kind.Missing = "publicid.SetKeys was not called"
	}
	return kind
}

// QueryClauses makes queries fail with [ErrInvalid] if a condition on the column contains a public id, or compares the
// column with another text that is not a number, because MySQL would treat the text as 0. Use [Parse] instead.
func (ID[T]) QueryClauses(f *schema.Field) []clause.Interface {
	return []clause.Interface{newTextCondition(f, fmt.Sprintf("read it with publicid.Parse[%v] first", reflect.TypeFor[T]()))}
}

// UpdateClauses applies the checks of QueryClauses to updates.
func (id ID[T]) UpdateClauses(f *schema.Field) []clause.Interface { return id.QueryClauses(f) }

// DeleteClauses applies the checks of QueryClauses to deletes.
func (id ID[T]) DeleteClauses(f *schema.Field) []clause.Interface { return id.QueryClauses(f) }
