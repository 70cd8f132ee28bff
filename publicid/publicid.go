// Package publicid has keys that are texts outside the database, such as ord_7bhznb3dzqhphb87gmm2kvym2c, and the codec
// of these texts. In the database the keys are numbers.
//
//	type Order struct {
//		ID       publicid.ID[Order]
//		Customer publicid.ID[Customer]
//	}
//
//	func (Order) PublicPrefix() string { return "ord" }
//
//	keys, err := publicid.NewKeys(secret) // 32 random bytes, the same in all processes
//	err = publicid.SetKeys(keys)          // once, at the start
//
//	order, err := publicid.FindAs[Order](ctx, db, text)
//
// A [Codec] alone turns numbers into texts and back, without a database.
//
// # What it protects
//
// A 64-bit id made of a time and a sequence reveals when its row was created and how fast rows are created, and its
// neighbours can be guessed. A text reveals only its type, the prefix. Without a key nobody can find the id, the text
// of another id, or a text that Decode accepts. Of 2^64 random texts Decode accepts about one for each of its keys.
//
// # Limits
//
//   - Equal ids have equal texts, so a text that appears twice names the same row.
//   - A text does not grant access, because it can leak through a log, a referrer or a screenshot. You should still
//     check the caller's permission.
//   - With a leaked key, anybody can decode and make texts. A lost key cannot be replaced, so its texts can no longer
//     be decoded. Rows are not lost, because the database stores ids instead of texts.
//
// # Keys
//
// Pass the newest key first. Encode uses the first key, and Decode tries all of them, so texts of an older key stay
// valid as long as you pass it. To rotate, deploy the new key to all processes as the last one, and then as the
// first. An id has a different text with each key.
//
// # Format
//
// A text consists of the prefix, an underscore and 26 characters. These are one block of AES-256 in lower-case
// Crockford base32, most significant bits first. The block contains the id (8 bytes, big-endian) and 8 bytes derived
// from the key and the prefix, which Decode verifies. This is encryption with redundancy (Bellare and Rogaway,
// "Encode-then-encipher encryption", ASIACRYPT 2000) for a message of a single block.
package publicid

import (
	"errors"
	"fmt"
	"reflect"
	"strings"
	"sync"
	"sync/atomic"

	"github.com/uidplugin/uidplugin/internal/lookup"
	"github.com/uidplugin/uidplugin/internal/model"
)

// A Type is a model whose rows have an [ID]. The method must not have a pointer receiver.
type Type interface {
	// PublicPrefix returns the prefix of the type's texts: 1 to 32 characters from a to z, 0 to 9 and _. It begins with
	// a letter and does not end with _. It must be constant and unique among types.
	PublicPrefix() string
}

// set has the keys of SetKeys.
var set atomic.Pointer[codecs]

type codecs struct {
	keys    *Keys
	byTypes sync.Map // prefix -> *Codec
}

// SetKeys sets the keys for texts of [ID], for the whole process. Call it once, when the program starts. Calling it
// again with the same keys does nothing. Other keys, or none, fail with an error that wraps [ErrConfig].
func SetKeys(keys *Keys) error {
	if keys == nil || keys.equal(&Keys{}) {
		return fmt.Errorf("%w: SetKeys: no keys are set; create them with NewKeys", ErrConfig)
	}
	model.SetKeyTexts(isPublicID)
	if !set.CompareAndSwap(nil, &codecs{keys: keys}) && !set.Load().keys.equal(keys) {
		return fmt.Errorf("%w: SetKeys: other keys are set already; call it once, with all keys", ErrConfig)
	}
	return nil
}

var errNoKeys = fmt.Errorf("%w: SetKeys was not called, so there are no public ids", ErrConfig)

// prefixOf returns the prefix of a type. For an interface it is empty, which is invalid.
func prefixOf[T Type]() string {
	var zero T
	switch t := reflect.TypeFor[T](); t.Kind() {
	case reflect.Interface:
		return ""
	case reflect.Pointer:
		zero = reflect.New(t.Elem()).Interface().(T) // because the method may be declared on the value
	}
	return zero.PublicPrefix()
}

func codecOf[T Type]() (*Codec, error) {
	c := set.Load()
	if c == nil {
		return nil, errNoKeys
	}
	prefix := prefixOf[T]()
	codec, known, err := c.codec(prefix)
	if err != nil {
		return nil, fmt.Errorf("publicid: ids of %v: %w", reflect.TypeFor[T](), err)
	}
	if !known {
		c.byTypes.Store(prefix, codec)
	}
	return codec, nil
}

// codec returns the codec of a prefix, and whether a type has used it before. It does not store the codec, because
// users may send any prefix.
func (c *codecs) codec(prefix string) (codec *Codec, known bool, err error) {
	if codec, ok := c.byTypes.Load(prefix); ok {
		return codec.(*Codec), true, nil
	}
	codec, err = c.keys.Codec(prefix)
	return codec, false, err
}

// Parse reads the text of an [ID] of T that a user sends, in a path or as a cursor. Use the result in conditions
// instead of the text, because MySQL treats such a text as the number 0: id > 'ord_...' matches every row.
//
//	after, err := publicid.Parse[Order](r.FormValue("after"))
//	if err != nil {
//		return err
//	}
//	err = db.Where("id > ?", after).Order("id").Limit(50).Find(&orders).Error
//
// Return on every error, because the id is then 0. Write the id into a condition, because GORM leaves out a zero key of
// a model: an update of &Order{ID: 0} changes all rows that match the other conditions.
//
// Parse refuses texts of another type. It also refuses decimal digits, because they can be guessed. The error wraps
// [ErrInvalid] and uidplugin.ErrNoSuchID. Before [SetKeys], or with an invalid prefix, it wraps [ErrConfig].
func Parse[T Type](text string) (id ID[T], err error) {
	if err = id.UnmarshalText([]byte(text)); errors.Is(err, ErrInvalid) {
		err = fmt.Errorf("%w: %w", lookup.ErrNoSuchID, err)
	}
	return id, err
}

// ParseAny reads the text of an [ID] of any type, for methods such as Find of uidplugin.Plugin. The number may be an id
// of another type if the text was made with the wrong type. So you should prefer [Parse] or [Find], or check the row's
// type. Decimal digits are refused, because they can be guessed. The error wraps [ErrInvalid] and
// uidplugin.ErrNoSuchID, or [ErrConfig] before [SetKeys].
func ParseAny(text string) (int64, error) {
	c := set.Load()
	if c == nil {
		return 0, errNoKeys
	}
	codec, _, err := c.codec(textPrefix(text))
	if err != nil {
		return 0, fmt.Errorf("%w: %w: %.40q has no prefix", lookup.ErrNoSuchID, ErrInvalid, text)
	}
	id, err := codec.Decode(text)
	if err != nil {
		return 0, fmt.Errorf("%w: %w", lookup.ErrNoSuchID, err)
	}
	return id, nil
}

// textPrefix returns the prefix of a text, without the underscore.
func textPrefix(text string) string { return text[:max(strings.LastIndexByte(text, '_'), 0)] }

func isPublicID(text string) bool {
	_, err := ParseAny(text)
	return err == nil
}
