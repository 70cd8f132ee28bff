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
	"strings"
)

// ErrInvalid is wrapped by each error of [Codec.Decode]. The error names a wrong prefix, length or character, but
// does not distinguish a changed text from one made with another key, because an attacker could learn from that.
var ErrInvalid = errors.New("publicid: invalid id")

// ErrConfig reports a key or prefix that is invalid, missing or not the one in use. [NewKeys], [Keys.Codec] and
// [SetKeys] return it. So do the methods of [ID] for texts, before SetKeys is called.
var ErrConfig = errors.New("publicid: configuration")

// KeySize is the size of a key in bytes.
const KeySize = 32

const maxPrefix = 32

// blockChars is the length of an encoded block of 128 bits.
const blockChars = 26

// Keys are the secrets of an application, the newest first. They are immutable and safe for concurrent use. The zero
// Keys is empty, so it cannot make a codec. Formatting writes only the number of keys, so logs do not leak them.
type Keys struct {
	// The secrets are in a function, because package fmt prints a Keys in an unexported field of a struct without
	// calling Format.
	secrets func() [][KeySize]byte
}

// Format implements [fmt.Formatter]. It never writes the secrets.
func (k Keys) Format(f fmt.State, _ rune) { fmt.Fprintf(f, "publicid.Keys(%d hidden)", len(k.list())) }

func (k Keys) list() [][KeySize]byte {
	if k.secrets == nil {
		return nil
	}
	return k.secrets()
}

// NewKeys returns keys, the newest first. It needs at least one, each of [KeySize] random bytes from crypto/rand. The
// error wraps [ErrConfig].
func NewKeys(keys ...[]byte) (*Keys, error) {
	if len(keys) == 0 {
		return nil, fmt.Errorf("%w: no key is given", ErrConfig)
	}
	var secrets [][KeySize]byte
	for i, key := range keys {
		if len(key) != KeySize {
			return nil, fmt.Errorf("%w: key %d of %d has %d bytes, but it must have %d", ErrConfig, i+1, len(keys), len(key), KeySize)
		}
		secret := [KeySize]byte(key)
		if bytes.Count(key, key[:1]) == KeySize {
			return nil, fmt.Errorf("%w: key %d of %d consists of %d equal bytes; generate keys with crypto/rand", ErrConfig, i+1, len(keys), KeySize)
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

func (k *Keys) equal(other *Keys) bool { return slices.Equal(k.list(), other.list()) }

// Codec returns the codec of one type of ids. The prefix must have 1 to 32 characters from a to z, 0 to 9 and _, start
// with a letter, and not end with _. The error wraps [ErrConfig].
func (k *Keys) Codec(prefix string) (*Codec, error) {
	if len(k.list()) == 0 {
		return nil, fmt.Errorf("%w: no keys are set; create them with NewKeys", ErrConfig)
	}
	if err := checkPrefix(prefix); err != nil {
		return nil, err
	}
	var keys []codecKey
	for _, secret := range k.list() {
		block, err := aes.NewCipher(derive(secret, "publicid v1 encryption", ""))
		if err != nil {
			return nil, fmt.Errorf("publicid: %w", err)
		}
		keys = append(keys, codecKey{block, [8]byte(derive(secret, "publicid v1 prefix", prefix))})
	}
	return &Codec{prefix + "_", func() []codecKey { return keys }}, nil
}

func checkPrefix(prefix string) error {
	if !validPrefix(prefix) {
		return fmt.Errorf("%w: the prefix %.40q must have 1 to %d characters from a to z, 0 to 9 and _, begin with a letter, and not end with _",
			ErrConfig, prefix, maxPrefix)
	}
	return nil
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

func derive(secret [KeySize]byte, purpose, text string) []byte {
	h := hmac.New(sha256.New, secret[:])
	h.Write([]byte(purpose))
	h.Write([]byte{0})
	h.Write([]byte(text))
	return h.Sum(nil)
}

// A Codec encodes and decodes the ids of one type. Create one with [Keys.Codec]. It is safe for concurrent use.
type Codec struct {
	prefix string            // includes the underscore
	keys   func() []codecKey // a function, for the same reason as in Keys
}

// Format implements [fmt.Formatter]. It writes the prefix and never a key.
func (c Codec) Format(f fmt.State, _ rune) { fmt.Fprintf(f, "publicid.Codec(%s)", c.prefix) }

type codecKey struct {
	block cipher.Block
	check [8]byte // derived from the key and the prefix
}

func (c *Codec) len() int { return len(c.prefix) + blockChars }

// Encode returns the text of an id. It uses the newest key.
func (c *Codec) Encode(id int64) string {
	return string(c.append(make([]byte, 0, maxPrefix+1+blockChars), id))
}

// append appends the text of an id to dst. It does not allocate if dst has room for c.len() bytes.
func (c *Codec) append(dst []byte, id int64) []byte {
	k := c.keys()[0]
	dst = append(dst, c.prefix...)
	at := len(dst)
	dst = append(dst, "00000000000000000000000000"...)
	block := dst[at : at+aes.BlockSize] // an array would escape to the heap
	binary.BigEndian.PutUint64(block[:8], uint64(id))
	copy(block[8:], k.check[:])
	k.block.Encrypt(block, block)
	writeBase32(dst[at:], binary.BigEndian.Uint64(block[:8]), binary.BigEndian.Uint64(block[8:]))
	return dst
}

// Decode returns the id of a text. The error wraps [ErrInvalid].
func (c *Codec) Decode(text string) (int64, error) {
	if !strings.HasPrefix(text, c.prefix) {
		return 0, fmt.Errorf("%w: %.40q does not begin with %q", ErrInvalid, text, c.prefix)
	}
	if len(text) != c.len() {
		return 0, fmt.Errorf("%w: %.60q has %d characters after %q, and must have %d", ErrInvalid, text,
			len(text)-len(c.prefix), c.prefix, blockChars)
	}
	hi, lo, ok := parseBase32(text[len(c.prefix):])
	if !ok {
		return 0, fmt.Errorf("%w: %q has a wrong character after %q: an id has only 0 to 9 and a to z without i, l, o and u, and begins with 0 to 7",
			ErrInvalid, text, c.prefix)
	}
	var sent, block [aes.BlockSize]byte
	binary.BigEndian.PutUint64(sent[:8], hi)
	binary.BigEndian.PutUint64(sent[8:], lo)
	id, found := int64(0), 0
	for _, k := range c.keys() { // try all, so that the duration does not reveal which key fits
		k.block.Decrypt(block[:], sent[:])
		if subtle.ConstantTimeCompare(block[8:], k.check[:]) == 1 {
			id, found = int64(binary.BigEndian.Uint64(block[:8])), 1
		}
	}
	if found == 0 {
		return 0, fmt.Errorf("%w: %q was changed, or was made with another key", ErrInvalid, text)
	}
	return id, nil
}

// alphabet is Crockford's base32 in lower case, without i, l, o and u.
const alphabet = "0123456789abcdefghjkmnpqrstvwxyz"

// writeBase32 writes 128 bits as 26 characters; the first has only 3 bits.
func writeBase32(text []byte, hi, lo uint64) {
	for i := range blockChars {
		text[blockChars-1-i] = alphabet[lo&31]
		lo, hi = lo>>5|hi<<59, hi>>5
	}
}

var values = func() (v [256]byte) {
	for i := range v {
		v[i] = 255
	}
	for i, c := range []byte(alphabet) {
		v[c] = byte(i)
	}
	return v
}()

// parseBase32 is the inverse of writeBase32. It accepts only texts that writeBase32 can write.
func parseBase32(text string) (hi, lo uint64, ok bool) {
	if values[text[0]] > 7 { // more than 128 bits
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
