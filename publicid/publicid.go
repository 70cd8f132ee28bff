// Package publicid turns ids into texts for URLs and APIs, such as ord_5cq3r2a8m0ws61q4z2x9k7fyhn, and back.
//
//	keys, err := publicid.NewKeys(secret) // 32 random bytes, the same in all processes
//	orders, err := keys.Codec("ord")
//	text := orders.Encode(id)
//	id, err := orders.Decode(text)
//
// # What a text says
//
// A 64-bit id that is made of a time and a sequence tells everybody who sees it when its row was created and how many
// rows are created, and its neighbours can be guessed. The text tells only its type, the prefix. Without a key
// nobody can find the id, the text of another id, or a text that Decode accepts. Of 2^64 random texts, Decode accepts
// one for each of its keys.
//
// # What it does not protect
//
//   - Equal ids have equal texts. A text that is seen twice shows that it is the same row.
//   - A text is no permission. It can leak through a log, a referrer or a screenshot. Check who asks.
//   - A key that leaks lets anybody decode and make all texts. A key that is lost cannot be replaced: texts that were
//     given out can no longer be decoded. Texts are not stored in the database, so its rows are not lost.
//
// # Keys
//
// Give the newest key first. Encode uses that one, Decode tries all, so texts of older keys stay valid as long as their
// key is given. To rotate, first give the new key last to all processes, then first. An id has another text with each
// key: a rotation changes the texts that are given out, not those that are accepted.
//
// # Format
//
// A text is the prefix, an underscore and 26 characters: Crockford's base32 in lower case, most significant bits first,
// of one block of AES-256. The block is the id, 8 bytes, big-endian, and 8 bytes that depend on the key and the prefix.
// Decode demands that these come back. So the format is an encryption with redundancy (Bellare and Rogaway,
// "Encode-then-encipher encryption", ASIACRYPT 2000), with a block as the whole message.
package publicid

import (
	"bytes"
	"crypto/aes"
	"crypto/cipher"
	"crypto/hmac"
	"crypto/sha256"
	"crypto/subtle"
	"encoding/binary"
	"errors"
	"fmt"
	"slices"
)

// ErrInvalid is the only error of [Codec.Decode]: the text has another prefix or another length, a character that does
// not belong there, was made with another key, or was changed. It does not say which, so that nobody learns from it.
var ErrInvalid = errors.New("publicid: invalid id")

// ErrConfig reports a key or a prefix that cannot be used. [NewKeys] and [Keys.Codec] return it.
var ErrConfig = errors.New("publicid: configuration")

// KeySize is how many bytes a key has.
const KeySize = 32

// maxPrefix is how many characters a prefix may have.
const maxPrefix = 32

// blockChars is how many characters a block of 128 bits has.
const blockChars = 26

// Keys are the secrets of an application, the newest first. They may be used concurrently, and are not changed. The
// zero Keys have no key, and no codec. Formatting them, as a log does, shows how many there are and no secret.
type Keys struct {
	// A function, because package fmt calls no methods of unexported fields of others, and looks into no functions.
	secrets func() [][KeySize]byte
}

// Format implements [fmt.Formatter]: no verb writes the secrets.
func (k Keys) Format(f fmt.State, _ rune) { fmt.Fprintf(f, "publicid.Keys(%d hidden)", len(k.list())) }

// list returns the secrets; nil for the zero Keys.
func (k Keys) list() [][KeySize]byte {
	if k.secrets == nil {
		return nil
	}
	return k.secrets()
}

// NewKeys returns keys, the newest first: at least one, each of [KeySize] random bytes, as crypto/rand makes them. The
// error wraps [ErrConfig].
func NewKeys(keys ...[]byte) (*Keys, error) {
	if len(keys) == 0 {
		return nil, fmt.Errorf("%w: no key is given", ErrConfig)
	}
	var secrets [][KeySize]byte
	for i, key := range keys {
		if len(key) != KeySize {
			return nil, fmt.Errorf("%w: key %d of %d has %d bytes, and needs %d", ErrConfig, i+1, len(keys), len(key), KeySize)
		}
		secret := [KeySize]byte(key)
		if bytes.Count(key, key[:1]) == KeySize {
			return nil, fmt.Errorf("%w: key %d of %d has %d equal bytes; make one with crypto/rand", ErrConfig, i+1, len(keys), KeySize)
		}
		for j, other := range secrets {
			if secret == other {
				return nil, fmt.Errorf("%w: keys %d and %d are the same", ErrConfig, j+1, i+1)
			}
		}
		secrets = append(secrets, secret)
	}
	return &Keys{func() [][KeySize]byte { return secrets }}, nil
}

// Equal reports whether other are the same keys in the same order.
func (k *Keys) Equal(other *Keys) bool { return slices.Equal(k.list(), other.list()) }

// Codec returns the codec of one type of ids. The prefix has 1 to 32 characters from a to z, 0 to 9 and _. It
// begins with a letter and does not end with _. The error wraps [ErrConfig].
func (k *Keys) Codec(prefix string) (*Codec, error) {
	if len(k.list()) == 0 {
		return nil, fmt.Errorf("%w: there are no keys; NewKeys makes some", ErrConfig)
	}
	if !validPrefix(prefix) {
		return nil, fmt.Errorf("%w: the prefix %.40q needs 1 to %d characters from a to z, 0 to 9 and _, a letter first, and no _ last",
			ErrConfig, prefix, maxPrefix)
	}
	c := &Codec{prefix: prefix + "_"}
	for _, secret := range k.list() {
		block, err := aes.NewCipher(derive(secret, "publicid v1 encryption", ""))
		if err != nil {
			return nil, fmt.Errorf("publicid: %w", err)
		}
		c.keys = append(c.keys, codecKey{block, [8]byte(derive(secret, "publicid v1 prefix", prefix))})
	}
	return c, nil
}

func validPrefix(prefix string) bool {
	if prefix == "" || len(prefix) > maxPrefix || prefix[len(prefix)-1] == '_' || prefix[0] < 'a' {
		return false
	}
	for _, c := range []byte(prefix) {
		if (c < 'a' || c > 'z') && (c < '0' || c > '9') && c != '_' {
			return false
		}
	}
	return true
}

// derive returns 32 bytes that depend on a key, on what they are for, and on a text.
func derive(secret [KeySize]byte, purpose, text string) []byte {
	h := hmac.New(sha256.New, secret[:])
	h.Write([]byte(purpose))
	h.Write([]byte{0})
	h.Write([]byte(text))
	return h.Sum(nil)
}

// A Codec encodes and decodes the ids of one type; [Keys.Codec] returns one. It may be used concurrently.
type Codec struct {
	prefix string // with the underscore
	keys   []codecKey
}

// Format implements [fmt.Formatter]: it writes the prefix, and nothing that is made of a key.
func (c Codec) Format(f fmt.State, _ rune) { fmt.Fprintf(f, "publicid.Codec(%s)", c.prefix) }

type codecKey struct {
	block cipher.Block
	check [8]byte // of the prefix
}

// Prefix returns the prefix, without the underscore.
func (c *Codec) Prefix() string { return c.prefix[:len(c.prefix)-1] }

// Len returns how many bytes a text has.
func (c *Codec) Len() int { return len(c.prefix) + blockChars }

// Encode returns the text of an id, with the newest key.
func (c *Codec) Encode(id int64) string {
	return string(c.Append(make([]byte, 0, maxPrefix+1+blockChars), id))
}

// Append appends the text of an id to dst and returns the longer slice. It does not allocate if dst has room for
// [Codec.Len] bytes.
func (c *Codec) Append(dst []byte, id int64) []byte {
	k := c.keys[0]
	dst = append(dst, c.prefix...)
	at := len(dst)
	dst = append(dst, "00000000000000000000000000"...)
	block := dst[at : at+aes.BlockSize] // not an array here, which would escape to the heap
	binary.BigEndian.PutUint64(block[:8], uint64(id))
	copy(block[8:], k.check[:])
	k.block.Encrypt(block, block)
	writeBase32(dst[at:], binary.BigEndian.Uint64(block[:8]), binary.BigEndian.Uint64(block[8:]))
	return dst
}

// Decode returns the id of a text. The error is [ErrInvalid].
func (c *Codec) Decode(text string) (int64, error) {
	if len(text) != c.Len() || text[:len(c.prefix)] != c.prefix {
		return 0, ErrInvalid
	}
	hi, lo, ok := parseBase32(text[len(c.prefix):])
	if !ok {
		return 0, ErrInvalid
	}
	var sent, block [aes.BlockSize]byte
	binary.BigEndian.PutUint64(sent[:8], hi)
	binary.BigEndian.PutUint64(sent[8:], lo)
	id, found := int64(0), 0
	for _, k := range c.keys { // all of them, so that the time does not tell which key it was
		k.block.Decrypt(block[:], sent[:])
		if subtle.ConstantTimeCompare(block[8:], k.check[:]) == 1 {
			id, found = int64(binary.BigEndian.Uint64(block[:8])), 1
		}
	}
	if found == 0 {
		return 0, ErrInvalid
	}
	return id, nil
}

// alphabet is Crockford's base32 in lower case: without i, l, o and u.
const alphabet = "0123456789abcdefghjkmnpqrstvwxyz"

// writeBase32 writes 128 bits as 26 characters, of which the first has 3 bits.
func writeBase32(text []byte, hi, lo uint64) {
	for i := range blockChars {
		text[blockChars-1-i] = alphabet[lo&31]
		lo, hi = lo>>5|hi<<59, hi>>5
	}
}

// values are the numbers of the characters; 255 for those that are not in the alphabet.
var values = func() (v [256]byte) {
	for i := range v {
		v[i] = 255
	}
	for i, c := range []byte(alphabet) {
		v[c] = byte(i)
	}
	return v
}()

// parseBase32 is the inverse of writeBase32. It refuses what that never writes.
func parseBase32(text string) (hi, lo uint64, ok bool) {
	if values[text[0]] > 7 { // 130 bits
		return 0, 0, false
	}
	for _, c := range []byte(text) {
		v := values[c]
		if v == 255 {
			return 0, 0, false
		}
		hi, lo = hi<<5|lo>>59, lo<<5|uint64(v)
	}
	return hi, lo, true
}
