// wing: publicid

package plugintest

import (
	"bytes"
	"sync"

	"github.com/uidplugin/uidplugin/publicid"
)

// Pass has a public key.
type Pass struct {
	ID     publicid.ID[Pass]
	Parent publicid.ID[Pass]
	Notes  []PassNote `json:",omitempty"`
}

// PublicPrefix implements [publicid.Type].
func (Pass) PublicPrefix() string { return "tkt" }

// PassNote belongs to a pass.
type PassNote struct {
	ID     publicid.ID[PassNote]
	PassID publicid.ID[Pass]
}

// PublicPrefix implements [publicid.Type].
func (PassNote) PublicPrefix() string { return "tkt_note" }

// TestKeys sets the keys of public ids for all tests of a package, and returns them. SetKeys then refuses others.
var TestKeys = sync.OnceValue(func() *publicid.Keys {
	keys, err := publicid.NewKeys(bytes.Repeat([]byte("0123456789abcdef"), 2))
	if err == nil {
		err = publicid.SetKeys(keys)
	}
	if err != nil {
		panic(err)
	}
	return keys
})
