// wing: publicid

package main

import (
	"cmp"
	"encoding/base64"
	"encoding/hex"
	"fmt"
	"strings"

	"github.com/spf13/cobra"
	"github.com/uidplugin/uidplugin/publicid"
)

// publicReader returns a function that reads public ids. If keys is nil, that function returns only errors.
func publicReader(keys *publicid.Keys) func(text string) (int64, error) {
	return func(text string) (int64, error) {
		if keys == nil {
			return 0, fmt.Errorf("%w: %q looks like a public id; pass its key by --public-key or UID_PUBLIC_KEY",
				errID, shorten(text, 60))
		}
		id := int64(0)
		codec, err := keys.Codec(text[:strings.LastIndexByte(text, '_')])
		if err == nil {
			id, err = codec.Decode(text)
		}
		if err != nil {
			return 0, fmt.Errorf("%w: %q is not a public id of this key", errID, shorten(text, 60))
		}
		return id, nil
	}
}

// parseKeys parses the keys of public ids, the newest first, separated by commas: 32 bytes each, in hexadecimal or
// base64. The error does not contain the keys.
func parseKeys(text string) (*publicid.Keys, error) {
	if text == "" {
		return nil, nil
	}
	var keys [][]byte
	for i, part := range strings.Split(text, ",") {
		part = strings.TrimSpace(part)
		key, err := hex.DecodeString(part)
		for _, encoding := range []*base64.Encoding{
			base64.StdEncoding, base64.RawStdEncoding, base64.URLEncoding, base64.RawURLEncoding,
		} {
			if err == nil && len(key) == publicid.KeySize {
				break
			}
			key, err = encoding.DecodeString(part)
		}
		if err != nil || len(key) != publicid.KeySize {
			return nil, fmt.Errorf("public key %d is not %d bytes in hexadecimal or base64", i+1, publicid.KeySize)
		}
		keys = append(keys, key)
	}
	return publicid.NewKeys(keys...)
}

// publicKeyFlag adds the flag --public-key to a command. The returned function reads the flag or UID_PUBLIC_KEY.
func (a *app) publicKeyFlag(c *cobra.Command) func(*idReader) error {
	var text string
	c.Flags().StringVar(&text, "public-key", "",
		"key of public ids, 32 bytes in hexadecimal or base64; separate several by commas; prefer UID_PUBLIC_KEY")
	return func(r *idReader) error {
		keys, err := parseKeys(cmp.Or(text, a.env("UID_PUBLIC_KEY")))
		r.public = publicReader(keys)
		return err
	}
}
