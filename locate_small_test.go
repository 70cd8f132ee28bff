package uidplugin_test

import (
	"errors"
	"strings"
	"testing"

	"github.com/uidplugin/uidplugin"
)

// A number such as 17 is no id of this layout, and its time means nothing. It is most often a key from before.
func TestPluginLocate_SaysThatANumberIsTooSmall(t *testing.T) {
	t.Parallel()

	p := uidplugin.From(open(t, uidplugin.WithModels(&part{})))
	for _, id := range []uidplugin.ID{0, 1, 17, 1 << 20} {
		_, err := p.Locate(t.Context(), id)
		if !errors.Is(err, uidplugin.ErrNotDecodable) || !errors.Is(err, uidplugin.ErrNoSuchID) || !strings.Contains(err.Error(), "too small for the layout: it may be a key from before the plugin") {
			t.Errorf("%d: %v", id, err)
		}
		if _, err := p.Decode(id); !errors.Is(err, uidplugin.ErrNotDecodable) {
			t.Errorf("Decode of %d: %v", id, err)
		}
	}
	if _, err := p.Locate(t.Context(), uidplugin.ID(at(t, 999, 0))); !errors.Is(err, uidplugin.ErrUnknownID) || strings.Contains(err.Error(), "too small") {
		t.Errorf("of a worker id that does not exist: %v", err)
	}
}
