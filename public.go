package uidplugin

import (
	"database/sql/driver"
	"errors"
	"fmt"
	"reflect"
	"strings"
	"sync"
	"sync/atomic"

	"github.com/uidplugin/uidplugin/internal/model"
	"github.com/uidplugin/uidplugin/publicid"
	"gorm.io/gorm"
	"gorm.io/gorm/clause"
	"gorm.io/gorm/schema"
)

// Public is a key, or a foreign key, of rows of T. In the database it is a BIGINT, as [ID] is. In JSON and in URLs it
// is a text of package publicid, such as ord_7bhznb3dzqhphb87gmm2kvym2c, which shows neither time nor neighbours and
// cannot be guessed. The package says what that protects, and what not.
//
//	type Order struct {
//		ID       uidplugin.Public[Order]
//		Customer uidplugin.Public[Customer]
//	}
//
//	func (Order) PublicPrefix() string { return "ord" }
//
// [SetPublicKeys] must be called first: without it, writing and reading texts are errors. 0 is null in JSON and an
// empty text elsewhere. An empty text is not read: a condition with 0 could select more rows than meant. Reading the
// text of another type, or one that was not made with the keys, is [publicid.ErrInvalid].
//
// A Public is a number in Go: compare it with ==, and convert it with ID(key). Only the verbs %v and %s of package fmt
// write the text. For what else holds, see [ID].
type Public[T PublicType] int64

// PublicType is a model whose rows have a [Public] key. The method needs a receiver that is no pointer.
type PublicType interface {
	// PublicPrefix returns what texts of the type begin with: 1 to 32 characters from a to z, 0 to 9 and _, a letter
	// first and no _ last. It must always return the same, and differ from the prefixes of other types.
	PublicPrefix() string
}

var (
	_ driver.Valuer                    = Public[anyPublic](0)
	_ schema.GormDataTypeInterface     = Public[anyPublic](0)
	_ interface{ Scan(src any) error } = (*Public[anyPublic])(nil)
)

type anyPublic struct{}

func (anyPublic) PublicPrefix() string { return "" }

// publicKeys are what SetPublicKeys was given.
var publicKeys atomic.Pointer[publicCodecs]

// publicCodecs are keys, and the codecs of types.
type publicCodecs struct {
	keys    *publicid.Keys
	byTypes sync.Map // prefix -> *publicid.Codec
}

// SetPublicKeys sets the keys that the texts of [Public] are made with, for the whole process. Call it once, at the
// start of the program. Another call with the same keys does nothing; with other keys it is an error that wraps
// [ErrOption].
func SetPublicKeys(keys *publicid.Keys) error {
	if keys == nil || keys.Equal(&publicid.Keys{}) {
		return fmt.Errorf("%w: SetPublicKeys: there are no keys; publicid.NewKeys makes some", ErrOption)
	}
	if !publicKeys.CompareAndSwap(nil, &publicCodecs{keys: keys}) && !publicKeys.Load().keys.Equal(keys) {
		return fmt.Errorf("%w: SetPublicKeys: other keys are set already; call it once, and give it all keys", ErrOption)
	}
	return nil
}

// errNoPublicKeys is what Public returns before SetPublicKeys.
var errNoPublicKeys = fmt.Errorf("%w: SetPublicKeys was not called, so there are no public ids", ErrOption)

// prefixOf returns the prefix of a type; an empty one, which is not valid, for an interface.
func prefixOf[T PublicType]() string {
	var of T
	switch t := reflect.TypeFor[T](); t.Kind() {
	case reflect.Interface:
		return ""
	case reflect.Pointer:
		of = reflect.New(t.Elem()).Interface().(T) // its method may have a receiver that is no pointer
	}
	return of.PublicPrefix()
}

// codecOf returns the codec of a type.
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

// codec returns the codec of a prefix, and whether it is one of a type that was used before. It remembers none itself:
// users send what they like.
func (c *publicCodecs) codec(prefix string) (codec *publicid.Codec, known bool, err error) {
	if codec, ok := c.byTypes.Load(prefix); ok {
		return codec.(*publicid.Codec), true, nil
	}
	codec, err = c.keys.Codec(prefix)
	return codec, false, err
}

// ParsePublic reads the text of a [Public] key of T, such as a path or a cursor that a user sends. Use the result, and
// never the text, in conditions: MySQL compares a text with a number as 0, so id > 'ord_...' holds for every row.
//
//	after, err := uidplugin.ParsePublic[Order](r.FormValue("after"))
//	err = db.Where("id > ?", after).Order("id").Limit(50).Find(&orders).Error
//
// It refuses the text of another type, and decimal digits, which can be guessed. The error wraps [publicid.ErrInvalid]
// and [ErrNoSuchID], or is that of [Public.UnmarshalText] before [SetPublicKeys] and for a type without a valid prefix.
func ParsePublic[T PublicType](text string) (id Public[T], err error) {
	if err = id.UnmarshalText([]byte(text)); errors.Is(err, publicid.ErrInvalid) {
		err = fmt.Errorf("%w: %w", ErrNoSuchID, err)
	}
	return id, err
}

// ParsePublicID reads the text of a [Public] of any type, for [Plugin.Find] and the like. The number may be an id of
// another type than the text says, if something made the text of the wrong type. So use [ParsePublic] or
// [Plugin.FindPublic] where they can be used, or compare the row's type. It reads no decimal digits, which can be
// guessed. The error wraps [publicid.ErrInvalid] and [ErrNoSuchID], or [ErrOption] before [SetPublicKeys].
func ParsePublicID(text string) (ID, error) {
	c := publicKeys.Load()
	if c == nil {
		return 0, errNoPublicKeys
	}
	codec, _, err := c.codec(text[:max(strings.LastIndexByte(text, '_'), 0)])
	if err == nil {
		var id int64
		if id, err = codec.Decode(text); err == nil {
			return ID(id), nil
		}
	}
	return 0, fmt.Errorf("%w: %w", ErrNoSuchID, publicid.ErrInvalid)
}

// publicPrefix returns the prefix of the keys of a model, and whether they are [Public].
func (p *plan) publicPrefix() (prefix string, ok bool) {
	key := p.rowKey()
	if key == nil {
		return "", false
	}
	public, ok := reflect.New(key.IndirectFieldType).Interface().(interface{ publicPrefix() string })
	if !ok {
		return "", false
	}
	return public.publicPrefix(), true
}

func (Public[T]) publicPrefix() string { return prefixOf[T]() }

// prefixChecker has a codec for each prefix that can be used.
var prefixChecker = sync.OnceValue(func() *publicid.Keys {
	keys, err := publicid.NewKeys([]byte("this key only checks the prefix."))
	if err != nil {
		panic(err)
	}
	return keys
})

// checkPrefix returns an error if the texts of a model could not be written, or could be taken for those of another one
// of listed.
func (p *plan) checkPrefix(listed map[string]*plan) error {
	prefix, ok := p.publicPrefix()
	if !ok {
		return nil
	}
	key := p.rowKey()
	if _, err := prefixChecker().Codec(prefix); err != nil {
		return fmt.Errorf("%w %s.%s: %w; PublicPrefix returns it", ErrField, p.Schema.Name, key.Name, err)
	}
	for _, other := range listed {
		if same, ok := other.publicPrefix(); ok && same == prefix && other.rowKey().IndirectFieldType != key.IndirectFieldType {
			return fmt.Errorf("%w %s.%s: its prefix %q is also that of %s: the texts of one would be read as ids of the other; let PublicPrefix return another one",
				ErrField, p.Schema.Name, key.Name, prefix, other.Schema.Name)
		}
	}
	return nil
}

// String returns the text; for 0 an empty one. Before [SetPublicKeys] it returns no text of an id.
func (id Public[T]) String() string {
	text, err := id.MarshalText()
	if err != nil {
		return "(" + err.Error() + ")"
	}
	return string(text)
}

// MarshalText returns the text; for 0 an empty one.
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

// MarshalJSON returns the text in quotes; for 0 null.
func (id Public[T]) MarshalJSON() ([]byte, error) {
	if id == 0 {
		return []byte("null"), nil
	}
	codec, err := codecOf[T]()
	if err != nil {
		return nil, err
	}
	quoted := append(make([]byte, 0, codec.Len()+2), '"')
	return append(codec.Append(quoted, int64(id)), '"'), nil // no character needs an escape
}

// UnmarshalJSON reads a text of the type in quotes. null changes nothing.
func (id *Public[T]) UnmarshalJSON(data []byte) error {
	if string(data) == "null" {
		return nil
	}
	// Package encoding/json removes the quotes itself if the field has the option string, which keys of numbers often
	// have.
	if n := len(data); n >= 2 && data[0] == '"' && data[n-1] == '"' {
		data = data[1 : n-1]
	}
	return id.UnmarshalText(data)
}

// Value implements [driver.Valuer].
func (id Public[T]) Value() (driver.Value, error) { return int64(id), nil }

// Scan implements [database/sql.Scanner]. It reads numbers, for that is what the database has. NULL becomes 0.
func (id *Public[T]) Scan(src any) error { return (*ID)(id).Scan(src) }

// GormDataType is that of [ID].
func (Public[T]) GormDataType() string { return ID(0).GormDataType() }

// GormDBDataType is that of [ID].
func (Public[T]) GormDBDataType(db *gorm.DB, f *schema.Field) string {
	return ID(0).GormDBDataType(db, f)
}

// CreateClauses is that of [ID].
func (Public[T]) CreateClauses(f *schema.Field) []clause.Interface { return noZeroKey(f) }

// QueryClauses make queries fail with [publicid.ErrInvalid] that compare the column with a text that is not a number, in
// Where, Or or Not. MySQL and SQLite would compare it all the same, and return wrong rows. Use [ParsePublic].
func (Public[T]) QueryClauses(f *schema.Field) []clause.Interface {
	return []clause.Interface{model.NoTextCondition{
		Column: f, Err: publicid.ErrInvalid, Remedy: fmt.Sprintf("read it with uidplugin.ParsePublic[%v] first", reflect.TypeFor[T]()),
	}}
}

// UpdateClauses does for updates what QueryClauses does for queries.
func (id Public[T]) UpdateClauses(f *schema.Field) []clause.Interface { return id.QueryClauses(f) }

// DeleteClauses does for deletes what QueryClauses does for queries.
func (id Public[T]) DeleteClauses(f *schema.Field) []clause.Interface { return id.QueryClauses(f) }
