package uidplugin

import (
	"database/sql/driver"
	"errors"
	"fmt"
	"reflect"
	"strings"
	"sync"
	"sync/atomic"

	"github.com/uidplugin/uidplugin/internal/catalog"
	"github.com/uidplugin/uidplugin/internal/model"
	"github.com/uidplugin/uidplugin/publicid"
	"gorm.io/gorm"
	"gorm.io/gorm/clause"
	"gorm.io/gorm/schema"
)

// Public is a key, or a foreign key, of rows of T. In the database it is a BIGINT, like [ID]. In JSON and URLs it is a
// text such as ord_7bhznb3dzqhphb87gmm2kvym2c. The text cannot be guessed, and hides the time and neighbouring ids.
// Package publicid documents the limits of this protection.
//
//	type Order struct {
//		ID       uidplugin.Public[Order]
//		Customer uidplugin.Public[Customer]
//	}
//
//	func (Order) PublicPrefix() string { return "ord" }
//
// Call [SetPublicKeys] first, because otherwise reading and writing texts fails. 0 is null in JSON and an empty text
// elsewhere. In a request body a missing field and null are 0, so check for it. Empty texts are not read, because a
// condition with 0 could select too many rows. Reading the text of another type, or one made with other keys, fails
// with [publicid.ErrInvalid].
//
// In Go a Public is a number: compare it with ==, and convert it with ID(key). In package fmt only %v and %s write the
// text. The other rules of [ID] also apply.
type Public[T PublicType] int64

// PublicType is a model whose rows have a [Public] key. The method must not have a pointer receiver.
type PublicType interface {
	// PublicPrefix returns the prefix of the type's texts: 1 to 32 characters from a to z, 0 to 9 and _. It begins with
	// a letter and does not end with _. It must be constant and unique among types.
	PublicPrefix() string
}

var (
	_ driver.Valuer                    = Public[anyPublic](0)
	_ schema.GormDataTypeInterface     = Public[anyPublic](0)
	_ interface{ Scan(src any) error } = (*Public[anyPublic])(nil)
)

type anyPublic struct{}

func (anyPublic) PublicPrefix() string { return "" }

var publicKeys atomic.Pointer[publicCodecs]

// publicCodecs holds keys and the codecs of types.
type publicCodecs struct {
	keys    *publicid.Keys
	byTypes sync.Map // prefix -> *publicid.Codec
}

// SetPublicKeys sets the keys for texts of [Public], for the whole process. Call it once, when the program starts.
// Calling it again with the same keys does nothing. Other keys, or none, fail with an error that wraps [ErrOption].
func SetPublicKeys(keys *publicid.Keys) error {
	if keys == nil || keys.Equal(&publicid.Keys{}) {
		return fmt.Errorf("%w: SetPublicKeys: no keys are set; create them with publicid.NewKeys", ErrOption)
	}
	if !publicKeys.CompareAndSwap(nil, &publicCodecs{keys: keys}) && !publicKeys.Load().keys.Equal(keys) {
		return fmt.Errorf("%w: SetPublicKeys: other keys are set already; call it once, with all keys", ErrOption)
	}
	return nil
}

var errNoPublicKeys = fmt.Errorf("%w: SetPublicKeys was not called, so there are no public ids", ErrOption)

// prefixOf returns the prefix of a type. For an interface it is empty, which is invalid.
func prefixOf[T PublicType]() string {
	var of T
	switch t := reflect.TypeFor[T](); t.Kind() {
	case reflect.Interface:
		return ""
	case reflect.Pointer:
		of = reflect.New(t.Elem()).Interface().(T) // because the method may be declared on the value
	}
	return of.PublicPrefix()
}

func codecOf[T PublicType]() (*publicid.Codec, error) {
	c := publicKeys.Load()
	if c == nil {
		return nil, errNoPublicKeys
	}
	prefix := prefixOf[T]()
	codec, known, err := c.codec(prefix)
	if err != nil {
		return nil, fmt.Errorf("uidplugin: public ids of %v: %w", reflect.TypeFor[T](), err)
	}
	if !known {
		c.byTypes.Store(prefix, codec)
	}
	return codec, nil
}

// codec returns the codec of a prefix, and whether a type has used it before. It does not remember codecs itself,
// because users may send any prefix.
func (c *publicCodecs) codec(prefix string) (codec *publicid.Codec, known bool, err error) {
	if codec, ok := c.byTypes.Load(prefix); ok {
		return codec.(*publicid.Codec), true, nil
	}
	codec, err = c.keys.Codec(prefix)
	return codec, false, err
}

// ParsePublic reads the text of a [Public] key of T, such as a path or cursor that a user sends. Use the result in
// conditions instead of the text, because MySQL compares a text with a number as 0: id > 'ord_...' matches every row.
//
//	after, err := uidplugin.ParsePublic[Order](r.FormValue("after"))
//	if err != nil {
//		return err
//	}
//	err = db.Where("id > ?", after).Order("id").Limit(50).Find(&orders).Error
//
// Return on every error, because the id is then 0. Write the id into a condition, because GORM leaves out a zero key of
// a model: an update of &Order{ID: 0} changes all rows that match the other conditions.
//
// It refuses texts of another type, and decimal digits because they can be guessed. The error wraps
// [publicid.ErrInvalid] and [ErrNoSuchID]. Before [SetPublicKeys], or with an invalid prefix, it is the error of
// [Public.UnmarshalText].
func ParsePublic[T PublicType](text string) (id Public[T], err error) {
	if err = id.UnmarshalText([]byte(text)); errors.Is(err, publicid.ErrInvalid) {
		err = fmt.Errorf("%w: %w", ErrNoSuchID, err)
	}
	return id, err
}

// ParsePublicID reads the text of a [Public] key of any type, for methods such as [Plugin.Find]. The number may be an
// id of another type if the text was made with the wrong one. So you should prefer [ParsePublic] or
// [Plugin.FindPublic], or check the row's type. Decimal digits are refused, because they can be guessed. The error
// wraps [publicid.ErrInvalid] and [ErrNoSuchID], or [ErrOption] before [SetPublicKeys].
func ParsePublicID(text string) (ID, error) {
	c := publicKeys.Load()
	if c == nil {
		return 0, errNoPublicKeys
	}
	codec, _, err := c.codec(text[:max(strings.LastIndexByte(text, '_'), 0)])
	if err != nil {
		return 0, fmt.Errorf("%w: %w: %.40q has no prefix", ErrNoSuchID, publicid.ErrInvalid, text)
	}
	id, err := codec.Decode(text)
	if err != nil {
		return 0, fmt.Errorf("%w: %w", ErrNoSuchID, err)
	}
	return ID(id), nil
}

// catalogPublic gives the catalog access to Public.
var catalogPublic = catalog.Public{
	Prefix: func(key reflect.Type) (prefix string, ok bool) {
		public, ok := reflect.New(key).Interface().(interface{ publicPrefix() string })
		if !ok {
			return "", false
		}
		return public.publicPrefix(), true
	},
	KeysSet: func() bool { return publicKeys.Load() != nil },
}

func (Public[T]) publicPrefix() string { return prefixOf[T]() }

// String returns the text, which is empty for 0. Before [SetPublicKeys] it returns an error message in parentheses.
func (id Public[T]) String() string {
	text, err := id.MarshalText()
	if err != nil {
		return "(" + err.Error() + ")"
	}
	return string(text)
}

// MarshalText returns the text, which is empty for 0.
func (id Public[T]) MarshalText() ([]byte, error) {
	if id == 0 {
		return nil, nil
	}
	codec, err := codecOf[T]()
	if err != nil {
		return nil, err
	}
	return codec.Append(make([]byte, 0, codec.Len()), int64(id)), nil
}

// UnmarshalText reads a text of the type.
func (id *Public[T]) UnmarshalText(text []byte) error {
	codec, err := codecOf[T]()
	if err != nil {
		return err
	}
	n, err := codec.Decode(string(text))
	if err != nil {
		return err
	}
	*id = Public[T](n)
	return nil
}

// MarshalJSON returns the quoted text, or null for 0.
func (id Public[T]) MarshalJSON() ([]byte, error) {
	if id == 0 {
		return []byte("null"), nil
	}
	codec, err := codecOf[T]()
	if err != nil {
		return nil, err
	}
	quoted := append(make([]byte, 0, codec.Len()+2), '"')
	return append(codec.Append(quoted, int64(id)), '"'), nil // the text does not need escapes
}

// UnmarshalJSON reads a quoted text of the type. null leaves the key unchanged.
func (id *Public[T]) UnmarshalJSON(data []byte) error {
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
func (id Public[T]) Value() (driver.Value, error) { return int64(id), nil }

// Scan implements [database/sql.Scanner]. It reads numbers, because the database stores them. NULL becomes 0.
func (id *Public[T]) Scan(src any) error { return (*ID)(id).Scan(src) }

// GormDataType is the same as for [ID].
func (Public[T]) GormDataType() string { return ID(0).GormDataType() }

// GormDBDataType is the same as for [ID].
func (Public[T]) GormDBDataType(db *gorm.DB, f *schema.Field) string {
	return ID(0).GormDBDataType(db, f)
}

// CreateClauses is the same as for [ID].
func (Public[T]) CreateClauses(f *schema.Field) []clause.Interface { return model.KeyClauses(f) }

// UIDKey is the same as for [ID].
func (Public[T]) UIDKey() model.KeyKind { return model.KeyKind{} }

// QueryClauses makes queries fail with [publicid.ErrInvalid] if a condition on the column contains a public id or
// compares it with another text that is not a number, because MySQL would treat the text as 0. Use [ParsePublic]
// instead.
func (Public[T]) QueryClauses(f *schema.Field) []clause.Interface {
	return []clause.Interface{model.NewNoTextCondition(f, isPublicText, publicid.ErrInvalid,
		fmt.Sprintf("read it with uidplugin.ParsePublic[%v] first", reflect.TypeFor[T]()))}
}

func isPublicText(text string) bool {
	_, err := ParsePublicID(text)
	return err == nil
}

// UpdateClauses applies the checks of QueryClauses to updates.
func (id Public[T]) UpdateClauses(f *schema.Field) []clause.Interface { return id.QueryClauses(f) }

// DeleteClauses applies the checks of QueryClauses to deletes.
func (id Public[T]) DeleteClauses(f *schema.Field) []clause.Interface { return id.QueryClauses(f) }
